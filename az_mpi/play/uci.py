"""python -m az_mpi uci RUN: let chess programs play against the network of a run, by the Universal Chess Interface."""

import functools
import math
import re
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from az_mpi import __version__
from az_mpi.core.registry import parse
from az_mpi.play.line_engine import LineEngine, Serving, serve
from az_mpi.play.loading import LoadingFailed
from az_mpi.play.options import make_parser
from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    from az_mpi.games.uci_moves import Moves
    from az_mpi.search.reading import RootMove

PROG = "python -m az_mpi uci"
ABOUT = "Let chess programs play against the network of a run, by the Universal Chess Interface (UCI)."
EPILOG = """\
It reads commands from standard input, for chess (openspiel:chess), breakthrough, and any other game whose moves are
single words, in that game's notation. docs/play.md explains positions and time.
"""
INFO_S = 0.5  # between two lines about the search
SLEEP_S = 0.01  # between two checks for a line, once nothing is left to search
NO_MOVE = "0000"
VARIANTS = {"openspiel:chess": "chess"}  # games that UCI itself has a name for
MOVES_TO_GO = 30  # the time has to last for so many moves, if "go" does not give their number
INCREMENT_SHARE = 0.8  # the share of an increment that each move may use
LEFT_SHARE = 0.5  # the share of the time left that one move may use
OVERHEAD_MS = 50  # the default of what is left unused, for the time that messages take
NUMBERS = ("wtime", "btime", "winc", "binc", "movestogo", "movetime", "nodes")  # words of "go" before a number


def main(arguments: list[str]) -> NoReturn:
    """Answer the commands on standard input, then end the process. Raises Refusal."""
    given = make_parser(PROG, ABOUT, EPILOG).parse_args(arguments)
    serve(given, lambda serving: UciEngine(serving, _write))


def _write(line):
    print(line, flush=True)


class UciEngine(LineEngine):
    """An engine that speaks UCI.

    A move takes as long as "go" and the limit of `serving` allow. Without both, it takes as many simulations as a move
    in the run's matches. Commands that need no session are answered before the session is loaded."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        super().__init__(serving, write)
        self._overhead_s = OVERHEAD_MS / 1000
        self._is_stopped = False  # whether the search has to end
        self._is_lost = False  # whether the position is not known, since "position" could not be understood
        self._is_pondering = False
        self._is_hit = False  # whether the move that was pondered about has been played
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "uci": self._uci,
            "isready": self._isready,
            "setoption": self._setoption,
            "ucinewgame": self._ucinewgame,
            "position": self._position,
            "go": self._go,
            "stop": self._stop,
            "quit": self._quit,
            "debug": self._ignore,
            "register": self._ignore,
            "ponderhit": self._ponderhit,
        }

    @functools.cached_property
    def moves(self) -> "Moves":
        """The words that UCI has for the game's moves."""
        game = self.session.game  # before the import, so that a package that is missing is reported by the loading
        from az_mpi.games.uci_moves import uci_moves

        return uci_moves(game)

    @property
    def variant(self) -> str:
        """The game's name in UCI. It comes from the configuration, or else from the game, which is loaded for it."""
        return variant_named(self.game_name) if self.game_name else self.moves.variant

    def answer(self, line: str) -> None:
        """Do the command of one line. Words before the command are ignored, as UCI demands. A line without a command is
        answered with a remark."""
        words = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line).split()
        start = next((k for k, word in enumerate(words) if word in self._commands), None)
        if start is None:
            if words:
                self._remark(f"unknown command {words[0][:40]}")
            return
        try:
            self._commands[words[start]](words[start + 1 :])
        except LoadingFailed as error:
            self._remark(str(error))
            self._quit([])
        except Exception as error:  # an error in this program or in a game's rules: the next commands are answered
            traceback.print_exc()
            self._remark(f"internal error: {type(error).__name__}")

    def _remark(self, text):
        self.write(f"info string {text}")

    def _uci(self, _):
        self.write(f"id name az_mpi {__version__}")
        self.write("id author the az_mpi team")
        self.write(f"option name Simulations type spin default {self.limit.simulations} min 0 max 1000000")
        self.write(f"option name Move Overhead type spin default {OVERHEAD_MS} min 0 max 10000")
        self.write(f"option name UCI_Variant type combo default {self.variant} var {self.variant}")
        self.write("uciok")

    def _isready(self, _):
        if self.session:  # this waits until it is loaded
            self.write("readyok")

    def _ignore(self, _):
        pass

    def _quit(self, _):
        self.is_over = self._is_stopped = True

    def _stop(self, _):
        self._is_stopped = True

    def _ponderhit(self, _):
        if self._is_pondering:
            self._is_hit = self._is_stopped = True

    def _ucinewgame(self, _):
        self.session.restart()
        self._is_lost = False

    def _setoption(self, words):
        match = re.fullmatch(r"name (.+?)(?: value (.*))?", " ".join(words))
        name, value = (match.group(1).lower(), match.group(2) or "") if match else ("", "")
        if name == "uci_variant" and (value == self.variant or value in self.moves.variants):
            return
        if name not in ("simulations", "move overhead") or not re.fullmatch(r"\d{1,7}", value, re.ASCII):
            self._remark(f"no option {name[:40]} with the value {value[:40]}")
        elif name == "simulations":
            self.limit = self.limit._replace(simulations=int(value))
        else:
            self._overhead_s = int(value) / 1000

    def _position(self, words):
        """Take a position, as its moves from the start of the game. The search tree is kept if they continue those of
        the position before."""
        place = words
        moves = []
        if "moves" in words:
            at = words.index("moves")
            place, moves = words[:at], words[at + 1 :]
        self._is_lost = True  # until all of it is understood
        if place != ["startpos"] and place != ["fen", *self.moves.start_fen.split()]:
            self._remark("only positions from the start of the game: position startpos moves ...")
            return
        known = [self.moves.word(state, action) for state, action in zip(self.session.states, self.session.actions)]
        if known != moves[: len(known)]:
            self.session.restart()
            known = []
        for move in moves[len(known) :]:
            action = self.moves.find(self.session.state, move)
            if action is None:
                self._remark(f"illegal move {move[:40]}")
                return
            self.session.play(action)
        self._is_lost = False

    def _go(self, words):
        if self._is_lost or self.session.over:
            self.write(f"bestmove {NO_MOVE}")
            return
        numbers = {
            name: int(words[k + 1])
            for k, name in enumerate(words[:-1])
            if name in NUMBERS and re.fullmatch(r"-?\d{1,10}", words[k + 1], re.ASCII)
        }
        self._is_pondering = "ponder" in words
        self._is_hit = False
        self._is_stopped = False
        is_open = self._is_pondering or "infinite" in words
        if is_open:
            self._search(Limit(), is_open)
        if self._is_hit or not is_open:
            self._is_pondering = self._is_stopped = False
            self._search(self._limit_of(numbers), is_open=False)
        best, *rest = self.session.moves()[0].variation
        self.write("bestmove " + " ponder ".join(self.moves.line(self.session.state, [best, *rest[:1]])))

    def _limit_of(self, numbers):
        """Return the limit of a search. numbers: {name: number} of "go"; times are in milliseconds."""
        limit = self.limit
        colour = "wb"[self.session.to_play]
        seconds = math.inf
        if "movetime" in numbers:
            seconds = numbers["movetime"] / 1000
        elif f"{colour}time" in numbers:
            left_s = max(numbers[f"{colour}time"], 0) / 1000
            each_s = left_s / max(numbers.get("movestogo", MOVES_TO_GO), 1)
            seconds = min(each_s + INCREMENT_SHARE * numbers.get(f"{colour}inc", 0) / 1000, LEFT_SHARE * left_s)
        if seconds < math.inf:
            seconds = max(min(seconds - self._overhead_s, limit.seconds or math.inf), 1e-3)
            limit = limit._replace(seconds=seconds)
        if "nodes" in numbers:
            limit = limit._replace(simulations=max(numbers["nodes"], 1))
        if limit == Limit():
            limit = Limit(simulations=self.session.player.settings.simulations)
        return limit

    def _search(self, limit, is_open):
        """Search up to `limit`, or until a line ends the search. is_open: return only after such a line."""
        begun = time.monotonic()
        reported_s = 0.0  # after the begin: when the last line about the search was written

        def stop():
            self._hear()
            return self._is_stopped or time.monotonic() - begun - reported_s > INFO_S

        while not self._is_stopped:
            seconds = limit.seconds and limit.seconds - (time.monotonic() - begun)
            if limit.seconds and seconds <= 0 and self.session.simulations:  # one simulation at least, to have a move
                break
            before = self.session.simulations
            self.session.think(limit._replace(seconds=seconds), stop)
            reported_s = time.monotonic() - begun
            self._write_info(reported_s)
            after = self.session.simulations
            if after == before or limit.simulations and after >= limit.simulations:
                break
        while is_open and not self._is_stopped:
            time.sleep(SLEEP_S)
            self._hear()

    def _hear(self):
        """Do the commands that have arrived during the search, if they are allowed in it. Lines behind one that ends
        the search wait until the search has been answered."""
        while not self._is_stopped and self.lines.waiting():
            line = self.lines.next()
            if line is None:
                self._quit([])
            elif line.split()[:1] in (["isready"], ["stop"], ["quit"], ["debug"], ["ponderhit"], ["setoption"]):
                self.answer(line)
            elif line.split():
                self._remark("a search takes no command but isready, setoption, stop, ponderhit and quit")

    def _write_info(self, seconds):
        """Write a line about the search, which has taken so many seconds."""
        best = self.session.moves()[0]
        simulations = self.session.simulations
        line = self.moves.line(self.session.state, best.variation)
        self.write(
            f"info depth {len(line)} nodes {simulations} time {seconds * 1000:.0f} "
            f"nps {simulations / max(seconds, 1e-3):.0f} score {score(best)} pv {' '.join(line)}"
        )


def variant_named(game: str) -> str:
    """Return the name that UCI has for a game of the configuration: "go" for "go(size=9)"."""
    name = parse(game).attribute
    return VARIANTS.get(name, name)


def score(move: "RootMove") -> str:
    """Return the score of a move as UCI writes it: moves to mate, or centipawns. A value becomes centipawns as in Leela
    Chess Zero: 0.5 is 111.7 tan(1.56 * 0.5) = 110."""
    value = move.value or 0.0
    if move.exact and abs(value) == 1:
        num_moves = (len(move.variation) + 1) // 2
        return f"mate {num_moves if value > 0 else -num_moves}"
    return f"cp {round(111.714640912 * math.tan(1.5620688421 * value))}"
