"""What `openspiel` knows of chess and its variants beyond what OpenSpiel says of every game."""

from typing import Any

import numpy as np

PAWNS = {"p": 1, "n": 3, "b": 3, "r": 5, "q": 9}  # what pieces count
SIDEWAYS = "antichess", "chess"  # their actions count squares file by file, from the mover's side
OTHER_VIEW = np.arange(64, dtype=np.int32).reshape(8, 8)[:, ::-1].reshape(-1)  # of theirs: ranks from the other side
# Planes 0 to 11 are White's and Black's kings, queens, rooks, bishops, knights and pawns by turns; planes 16 to 19 of
# chess are White's and Black's two rights to castle. Here the order in which Black's pieces come first.
_PIECES = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]
BLACK_FIRST = {"antichess": _PIECES, "chess": [*_PIECES, 12, 13, 14, 15, 18, 19, 16, 17]}


PIECES = ("kings", "queens", "rooks", "bishops", "knights", "pawns")
# The planes of chess after those of the pieces, as OpenSpiel has them.
FURTHER = (
    "empty squares",
    "how often the position has been there: 0, 0.5 or 1 for the first, second and third time",
    "1 everywhere if White is to move",
    "moves since the last capture or pawn move, divided by 101",
)
CASTLING = "queen's", "king's"


def described(name: str, num_planes: int, own_first: bool) -> tuple[list[str], str]:
    """Return (what each plane of an observation shows, which row and column the first ones are), as far as it is known.

    name: of the game in OpenSpiel. own_first: of `turned`."""
    texts = [f"number {k} of OpenSpiel's observation of {name}" for k in range(num_planes)]
    if name not in SIDEWAYS:
        return texts, "as OpenSpiel orders its observation"
    sides = ("player to move", "other player") if own_first else ("White", "Black")
    texts[:12] = [f"{piece} of {'the ' * own_first}{side}" for piece in PIECES for side in sides]
    if name == "chess":
        texts[12:16] = FURTHER
        texts[16:20] = [
            f"1 everywhere if {'the ' * own_first}{side} may still castle to the {wing} side"
            for side in sides
            for wing in CASTLING
        ]
    return texts, (
        "row 0 is the file a, and column 0 the rank that is nearest to the player to move: the first one "
        "for White, the eighth for Black"
    )


def lead(live: Any) -> int:
    """Return by how many `PAWNS` the player to move is ahead in a state of OpenSpiel's chess."""
    board, mover = str(live).split()[:2]
    white = sum(PAWNS.get(piece.lower(), 0) * (1 if piece.isupper() else -1) for piece in board)
    return white if mover == "w" else -white


def turned(planes: np.ndarray, name: str, own_first: bool) -> np.ndarray:
    """Return planes [n, C, 8, 8] seen from the mover's side, as the class `OpenSpiel` describes them. Their last one is
    1 where Black is to move.

    name: "chess" or "antichess". own_first: put Black's pieces before White's where Black is to move."""
    planes = np.ascontiguousarray(planes.swapaxes(2, 3))
    black = planes[:, -1, 0, 0] == 1
    planes[black] = planes[black, :, :, ::-1]
    if own_first:
        order = BLACK_FIRST[name]
        planes[black, : len(order)] = planes[black][:, order]
    return planes
