"""Games of GTP as SGF: what `loadsgf` reads, the main line with stones that were set up, and what `printsgf` writes."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from az_mpi.play.gtp_words import PASS
from az_mpi.records import sgf_words

if TYPE_CHECKING:
    from az_mpi.games.base import Game

_PART = re.compile(r"([();])|([A-Za-z]+)\s*((?:\[(?:\\.|[^\]\\])*\]\s*)+)|\S", re.DOTALL)
_VALUE = re.compile(r"\[((?:\\.|[^\]\\])*)\]", re.DOTALL)
_SET_UP = {"AB": 0, "AW": 1}


class Loaded(NamedTuple):
    """A game in SGF. tags: of the first node that has them. stones: (player, point) that were set up. moves: (player,
    point or ""), of the main line. to_play: who moves first, if the file says it."""

    tags: dict[str, str]
    stones: list[tuple[int, str]]
    moves: list[tuple[int, str]]
    to_play: int | None


def read(text: str) -> Loaded:
    """Return the first game of a text. Raises ValueError if it is no SGF, or stones are set up or taken off after the
    first move."""
    tags: dict[str, str] = {}
    stones: list[tuple[int, str]] = []
    moves: list[tuple[int, str]] = []
    depth = num_nodes = 0
    for match in _PART.finditer(text[text.find("(") :]):
        if match[1] == ")" and num_nodes:
            break  # what follows are variations
        depth += match[1] == "("
        num_nodes += match[1] == ";"
        if match[1] or not match[2]:
            continue
        name = "".join(letter for letter in match[2] if letter.isupper())
        values = [value.strip() for value in _VALUE.findall(match[3])]
        if name in ("B", "W"):
            moves.append(("BW".index(name), values[0]))
        elif name in _SET_UP and not moves:
            stones += [(_SET_UP[name], point) for value in values for point in _points(value)]
        elif name in ("AB", "AW", "AE"):
            raise ValueError("stones are set up or taken off in the middle of the game")
        else:
            tags.setdefault(name, values[0])
    if not depth or not num_nodes:
        raise ValueError("it is no SGF")
    return Loaded(tags, stones, moves, {"B": 0, "W": 1}.get(tags.get("PL", "")[:1].upper()))


def _points(value):
    """Return the points of a value, which may be a rectangle: "aa:cc"."""
    first, _, last = value.partition(":")
    if len(first) != 2 or len(last) not in (0, 2):
        return [value]
    last = last or first
    columns, rows = (range(ord(low), ord(high) + 1) for low, high in zip(first, last))
    return [chr(column) + chr(row) for column in columns for row in rows]


def vertex(point: str, game: "Game", names: Mapping[int, str]) -> str:
    """Return the vertex of a point of SGF; a word, as SGF of Hex has them, stays. names: of `Vertices`."""
    _, rows, columns = game.planes_shape
    cell = sgf_words.cell(game, point)
    if cell == rows * columns:
        return PASS
    return point if cell is None or getattr(game, "edges", None) else names.get(cell, point)


def write(tags: dict[str, object], stones: Sequence[tuple[int, str]], moves: Sequence[tuple[int, str]]) -> str:
    """Return a game as SGF. tags, stones, moves: as in `Loaded`."""
    head = "".join(f"{name}[{sgf_words.escaped(value)}]" for name, value in tags.items())
    for player, name in enumerate(("AB", "AW")):
        points = [point for who, point in stones if who == player]
        head += name + "".join(f"[{point}]" for point in points) if points else ""
    body = [f";{'BW'[player]}[{point}]" for player, point in moves]
    lines = ["".join(body[k : k + 10]) for k in range(0, len(body), 10)]
    return "\n".join([f"(;{head}", *lines]) + ")"
