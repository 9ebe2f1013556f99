"""The command `go` of UCI: what a client asks for, and the limit of a search that follows from it."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    from az_mpi.search.reading import RootMove

MOVES_TO_GO = 30  # the time has to last for so many moves, if "go" does not give their number
INCREMENT_SHARE = 0.8  # the share of an increment that each move may use
LEFT_SHARE = 0.5  # the share of the time left that one move may use
UNTIL_FOUND = 20  # times as many simulations as a move has, at most, for `depth` and `mate`
NUMBERS = ("wtime", "btime", "winc", "binc", "movestogo", "movetime", "nodes", "depth", "mate")  # before a number
WORDS = (*NUMBERS, "searchmoves", "ponder", "infinite")


class Go(NamedTuple):
    """What `go` asks for. numbers: {name: number}, times in milliseconds. moves: words of the moves to look at; empty:
    all. ponders: the position is one that the client expects. is_open: only `stop` ends the search."""

    numbers: Mapping[str, int]
    moves: Sequence[str]
    ponders: bool
    is_open: bool

    def is_found(self, best: "RootMove") -> bool:
        """Return whether the depth, or the mate, that the client asks for has been reached."""
        depth, mate = self.numbers.get("depth", 0), self.numbers.get("mate", 0)
        is_deep = depth > 0 and len(best.variation) >= depth
        return is_deep or mate > 0 and best.exact and best.value == 1 and len(best.variation) < 2 * mate

    @property
    def searches(self) -> bool:
        """Whether the search ends once something is found."""
        return self.numbers.get("depth", 0) > 0 or self.numbers.get("mate", 0) > 0


def read(words: Sequence[str]) -> Go:
    """Return what the words after `go` ask for. Unknown words, and numbers that are none, are left out."""
    numbers = {
        name: int(words[k + 1])
        for k, name in enumerate(words[:-1])
        if name in NUMBERS and re.fullmatch(r"-?\d{1,10}", words[k + 1], re.ASCII)
    }
    moves: list[str] = []
    if "searchmoves" in words:
        for word in words[words.index("searchmoves") + 1 :]:
            if word in WORDS:
                break
            moves.append(word)
    return Go(numbers, moves, "ponder" in words, "ponder" in words or "infinite" in words)


def limit_of(go: Go, colour: str, limit: Limit, overhead_s: float, simulations: int) -> Limit:
    """Return the limit of a search. colour: "w" or "b", whose time counts. limit: of every search. overhead_s: to be
    left unused. simulations: for a move without any other limit."""
    numbers = go.numbers
    seconds = math.inf
    if "movetime" in numbers:
        seconds = numbers["movetime"] / 1000
    elif f"{colour}time" in numbers:
        left_s = max(numbers[f"{colour}time"], 0) / 1000
        each_s = left_s / max(numbers.get("movestogo", MOVES_TO_GO), 1)
        seconds = min(each_s + INCREMENT_SHARE * numbers.get(f"{colour}inc", 0) / 1000, LEFT_SHARE * left_s)
    if seconds < math.inf:
        seconds = max(min(seconds - overhead_s, limit.seconds or math.inf), 1e-3)
        limit = limit._replace(seconds=seconds)
    if "nodes" in numbers:
        limit = limit._replace(simulations=max(numbers["nodes"], 1))
    if limit == Limit():
        limit = Limit(simulations=simulations * (UNTIL_FOUND if go.searches else 1))
    return limit
