"""What `openspiel` knows of chess and its variants beyond what OpenSpiel says of every game."""

import re
from collections.abc import Sequence
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


# A state that begins at a FEN has its characters, two in a number, as negative numbers before the actions.
_BASE = 128
_CASTLING = {"K": ("K", 60, 63), "Q": ("K", 60, 56), "k": ("k", 4, 7), "q": ("k", 4, 0)}  # king's and rook's squares


def checked_fen(text: str) -> str:
    """Return the FEN of a position of chess with all six fields. Raises ValueError, which says what is wrong, unless
    its form is right, each side has one king, the one of the side that is not to move is not in check, no pawn is on a
    last rank, and rights to castle fit kings and rooks."""
    fields = text.split()
    fields += ["-", "-", "0", "1"][len(fields) - 2 :] if 2 <= len(fields) < 6 else []
    if len(fields) != 6 or not re.fullmatch("[wb]", fields[1]):
        raise ValueError("a FEN has the board, who is to move, rights to castle, en passant, and two numbers")
    ranks = fields[0].split("/")
    rows = [re.sub("[1-8]", lambda digit: "." * int(digit[0]), rank) for rank in ranks]
    if len(rows) != 8 or "." in fields[0] or not all(re.fullmatch("[kqrbnpKQRBNP.]{8}", row) for row in rows):
        raise ValueError("the board of a FEN has eight ranks of eight squares")
    cells = "".join(rows)
    if cells.count("K") != 1 or cells.count("k") != 1:
        raise ValueError("each side has one king")
    if re.search("[pP]", rows[0] + rows[7]):
        raise ValueError("a pawn is on the first or the last rank")
    if not re.fullmatch("-|K?Q?k?q?", fields[2]) or not re.fullmatch("-|[a-h][36]", fields[3]):
        raise ValueError("a right to castle is K, Q, k or q, and en passant a square, or -")
    for right in fields[2].replace("-", ""):
        king, at, rook = _CASTLING[right]
        if cells[at] != king or cells[rook] != ("R" if king == "K" else "r"):
            raise ValueError(f"king and rook are not where the right to castle {right} needs them")
    if _is_attacked(cells, cells.index("k" if fields[1] == "w" else "K"), fields[1]):
        raise ValueError("the king of the side that is not to move is in check")
    if not all(re.fullmatch(r"\d{1,4}", number, re.ASCII) for number in fields[4:]):
        raise ValueError("the last two fields of a FEN are whole numbers")
    return " ".join(fields)


def fen_to_numbers(fen: str) -> list[int]:
    """Return a FEN as negative numbers of 16 bits."""
    codes = [*fen.encode("ascii"), *([0] if len(fen) % 2 else [])]
    return [-(first * _BASE + second) for first, second in zip(codes[::2], codes[1::2])]


def split_start(numbers: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return (the FEN that a state begins at, "" for the start of the game; the actions after it)."""
    num = next((k for k, number in enumerate(numbers) if number >= 0), len(numbers))
    codes = [code for number in numbers[:num] for code in divmod(-int(number), _BASE)]
    return bytes(codes).decode("ascii").rstrip("\0"), numbers[num:]


def _is_attacked(cells: str, at: int, by: str) -> bool:
    """Return whether square `at` of a board, 64 characters from a8 on, is attacked by a side, "w" or "b"."""
    row, column = divmod(at, 8)
    own = str.upper if by == "w" else str.lower

    def seen(down: int, right: int, far: int) -> str:
        """Return the first piece in a direction, at most so many squares away."""
        for step in range(1, far + 1):
            r, c = row + step * down, column + step * right
            if not (0 <= r < 8 and 0 <= c < 8):
                break
            if cells[r * 8 + c] != ".":
                return cells[r * 8 + c]
        return "."

    straight, diagonal = [(0, 1), (0, -1), (1, 0), (-1, 0)], [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    jumps = [(r, c) for r in (-2, -1, 1, 2) for c in (-2, -1, 1, 2) if abs(r) != abs(c)]
    behind = 1 if by == "w" else -1  # where a pawn that attacks the square is, in rows
    return (
        any(seen(*way, 8) in (own("q"), own("r")) for way in straight)
        or any(seen(*way, 8) in (own("q"), own("b")) for way in diagonal)
        or any(seen(*way, 1) == own("k") for way in straight + diagonal)
        or any(seen(*way, 1) == own("n") for way in jumps)
        or any(seen(behind, side, 1) == own("p") for side in (-1, 1))
    )
