"""A game as a file of another program has it, before anyone has looked at whether its moves are legal."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# A result as text, for the player who began.
RESULTS: dict[str, float] = {"1-0": 1.0, "0-1": -1.0, "1/2-1/2": 0.0, "1/2": 0.0}
ENDINGS = {*RESULTS, "*"}  # what ends a game in PGN


class WrittenGame(NamedTuple):
    """A game of a file.

    words: the moves. result: for the player who began, in [-1, 1]; None: the file does not say. values: {how many moves
    were made: the value of the position after them for the player who began, in [-1, 1]}. start: the position in which
    the game begins, as a text that `Game.text_to_state` reads; "": the initial one. players: who made each move, 0 or
    1, where the file says that; else (). fault: why the game cannot be taken, "" if nothing is known against it.
    for_mover: whether `values` are for the player to move instead. results: of each player where they are not two.
    names: of the players, the one who began first; () if the file has none. tags: what else the file tells about the
    game, by the names that its format has for that."""

    words: Sequence[str] = ()
    result: float | None = None
    values: Mapping[int, float] = {}
    start: str = ""
    players: Sequence[int] = ()
    fault: str = ""
    for_mover: bool = False
    results: Sequence[float] = ()
    names: Sequence[str] = ()
    tags: Mapping[str, str] = {}
