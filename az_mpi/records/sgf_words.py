"""What SGF has for a game and its board, for all that reads and writes it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from az_mpi.games.base import Game

_SIZE = {1: "19"}  # by the game's number: the size that a file without SZ means


def properties(game: "Game") -> dict[str, object]:
    """Return the properties with which a file of a game begins: {name: value}."""
    _, rows, columns = game.planes_shape
    size = columns if rows == columns else f"{columns}:{rows}"
    return {"GM": game.sgf_number, "FF": 4, "CA": "UTF-8", "AP": "az_mpi", "SZ": size}


def other_size(tags: Mapping[str, str], game: "Game") -> str:
    """Return the size of the board in a file with these properties, "" if it is that of the game or not told."""
    _, rows, columns = game.planes_shape
    size = tags.get("SZ", _SIZE.get(game.sgf_number, ""))
    return "" if size in (f"{columns}:{rows}", str(columns) if rows == columns else "") else size


def komi(tags: Mapping[str, str]) -> float | None:
    """Return the komi of a file with these properties, or tags of PGN; None if it is not told. Raises ValueError if it
    is no number."""
    said = tags.get("KM", tags.get("Komi", "")).strip()
    return float(said.replace(",", ".")) if said else None


def point(game: "Game", cell: int) -> str:
    """Return a cell as letters for its column and for its row from the top; "" for a pass, which has a number behind
    those of the cells."""
    _, rows, columns = game.planes_shape
    return "" if cell >= rows * columns else chr(97 + cell % columns) + chr(97 + cell // columns)


def cell(game: "Game", point: str) -> int | None:
    """Return the cell that a value names, see `point`; None if it names none."""
    _, rows, columns = game.planes_shape
    if point == "" or point == "tt" and max(rows, columns) <= 19:
        return rows * columns
    column, row = (ord(letter) - 97 for letter in point) if len(point) == 2 else (-1, -1)
    return row * columns + column if 0 <= column < columns and 0 <= row < rows else None


def escaped(value: object) -> str:
    """Return a value as the text between the brackets of a property."""
    return str(value).replace("\\", "\\\\").replace("]", "\\]")
