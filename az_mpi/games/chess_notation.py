"""Chess in text: positions in FEN (X-FEN for Chess960), moves in UCI and in algebraic notation.

Squares are numbered as the player to move sees them, see `chess_board`: for Black the rows are turned over.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
from numba import njit

from az_mpi.games.chess_board import (
    ACTION_KINDS,
    DIAGONAL,
    KING,
    NEAR,
    OFFSET,
    PAWN,
    PROMOTES_TO,
    PROMOTIONS,
    QUEEN,
    SLOW,
    checks_and_pins,
    en_passant,
    flipped,
)
from az_mpi.games.chess_state import COUNTS, FLAGS, NUMBER, TARGET, WORDS

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
EMPTY = "8/8/8/8/8/8/8/8 w - - 0 1"  # of Chess960, before the first action has set up the pieces
LETTERS = " RBQPNK"  # by the kinds of `chess_board`
FILES = "abcdefgh"
_UCI = re.compile("([a-h][1-8])([a-h][1-8])([nbrq]?)")
_SAN = re.compile(r"([KQRBN]?)([a-h]?)([1-8]?)[x:-]?([a-h][1-8])(?:=?\(?([NBRQ])\)?)?(?: ?e\.?p\.?)?[+#!?]*")
_CASTLING = re.compile(r"[O0o]-[O0o](-[O0o])?[+#!?]*")


@functools.cache
def start_positions() -> np.ndarray:
    """Return the kinds of the pieces in each column of Chess960's start positions, uint8 [960, 8], by their numbers."""
    rows = np.zeros((960, 8), np.uint8)
    knights = list(itertools.combinations(range(5), 2))
    for number in range(960):
        rest, light = divmod(number, 4)
        rest, dark = divmod(rest, 4)
        pair, queen = divmod(rest, 6)
        row = [" "] * 8
        row[2 * light + 1] = row[2 * dark] = "B"
        free = [c for c in range(8) if row[c] == " "]
        row[free.pop(queen)] = "Q"
        for k in knights[pair]:
            row[free[k]] = "N"
        for c, piece in zip([c for c in range(8) if row[c] == " "], "RKR"):
            row[c] = piece
        rows[number] = [LETTERS.index(piece) for piece in row]
    return rows


def pieces_of(state: np.ndarray) -> tuple[str, ...]:
    """Return the pieces of a state, [32], by the letters of FEN: 8 rows of 8 from the eighth rank on, " " for none."""
    own, other, *kinds = (int(word) for word in state[:5])
    is_black = int(state[FLAGS]) & 1
    rows = []
    for row in range(8):
        text = ""
        for at in range(8 * row, 8 * row + 8):
            at ^= 56 * is_black
            letter = LETTERS[sum((word >> at & 1) << k for k, word in enumerate(kinds))]
            text += letter if (own if is_black == 0 else other) >> at & 1 else letter.lower()
        rows.append(text)
    return tuple(rows)


def to_fen(state: np.ndarray) -> str:
    """Return a position, [32], in FEN. What came before is not in it, but for the count of plies without a capture or
    pawn move. The square behind a pawn that has moved two is named only where it may be taken."""
    if not state[0]:
        return EMPTY
    rows = pieces_of(state)
    flags, counts = int(state[FLAGS]), int(state[COUNTS])
    is_black = flags & 1
    placed = re.sub(" +", lambda blanks: str(len(blanks[0])), "/".join(rows))
    rights = [flags >> 8 + 4 * k & 15 for k in range(4)]
    rights = rights[2:] + rights[:2] if is_black else rights
    castling = "".join(
        _right(rows[7 if k < 2 else 0], k < 2, k % 2 == 0, right - 1) for k, right in enumerate(rights) if right
    )
    column = flags >> int(TARGET) & 15
    behind = f"{FILES[column - 1]}{3 if is_black else 6}" if column else "-"
    return f"{placed} {'wb'[is_black]} {castling or '-'} {behind} {counts & 255} {counts >> int(NUMBER)}"


def _right(row, is_white, is_kings, column):
    """Return the letter of a right to castle with the rook in a column: K or Q if no rook is further out."""
    further = row[column + 1 :] if is_kings else row[:column]
    letter = FILES[column] if ("R" if is_white else "r") in further else "kq"[not is_kings]
    return letter.upper() if is_white else letter


def from_fen(text: str, chess960: bool = False) -> np.ndarray:
    """Return the state, [32], of a position in FEN or, without the counts, in EPD. It has no history. Rights to castle
    without a king and a rook in their places, and squares of pawns that cannot be taken, are passed over.

    chess960: allow rights of kings and rooks that did not begin where those of chess do. Raises ValueError if the text
    is no FEN, or if its position cannot be played: it says why."""
    fields = text.split()
    rows = _rows(fields[0] if fields else "")
    if text.strip() == EMPTY and chess960:
        return np.zeros(WORDS, np.uint64)
    mover, castling, behind, quiet, number = (fields[1:6] + ["w", "-", "-", "0", "1"][len(fields[1:6]) :])[:5]
    if mover not in ("w", "b"):
        raise ValueError(f"{mover!r} is no side to move in FEN; allowed: w, b")
    if not re.fullmatch("-|[A-HKQa-hkq]{1,4}", castling) or not re.fullmatch("-|[a-h][1-8]", behind):
        raise ValueError(f"{castling} {behind} are no rights to castle and no square in FEN, such as KQkq e3, or - -")
    state = np.zeros(WORDS, np.uint64)
    is_black = mover == "b"
    words = [0] * 5
    for square, piece in enumerate("".join(rows)):
        if piece != " ":
            at = square ^ 56 * is_black
            kind = LETTERS.index(piece.upper())
            words[int(piece.isupper() == is_black)] |= 1 << at
            for k in range(3):
                words[2 + k] |= (kind >> k & 1) << at
    state[:5] = words
    _check(rows, state)
    rights = [0] * 4
    for letter in castling.strip("-"):
        _add_right(rights, rows, letter, chess960)
    rights = rights[2:] + rights[:2] if is_black else rights
    state[FLAGS] = int(is_black) | sum(right << 8 + 4 * k for k, right in enumerate(rights))
    _set_target(state, rows, behind, is_black)
    has_counts = all(re.fullmatch(r"\d{1,5}", count, re.ASCII) for count in (quiet, number))  # EPD has others there
    plies, moves = (int(quiet), int(number)) if has_counts else (0, 1)
    state[COUNTS] = min(plies, 255) | min(max(moves, 1), 2**16 - 1) << int(NUMBER)
    return state


def _rows(placed):
    rows = [re.sub(r"\d", lambda digit: " " * int(digit[0]), row) for row in placed.split("/")]
    if len(rows) != 8 or any(len(row) != 8 or set(row) - set(" RBQPNKrbqpnk") for row in rows):
        raise ValueError(f"{placed!r} are no pieces in FEN: 8 rows of 8 squares, such as {START.split()[0]}")
    return rows


def _check(rows, state):
    """Raise ValueError unless a position can be played."""
    for side, king, pawn in (("White", "K", "P"), ("Black", "k", "p")):
        if (num := "".join(rows).count(king)) != 1:
            raise ValueError(f"{side} has {num} kings; needed is 1")
        if pawn in rows[0] + rows[7]:
            raise ValueError(f"{side} has a pawn on the first or last rank")
    kings = [int(word) for word in state[:2] & state[DIAGONAL] & state[SLOW]]
    if int(NEAR[kings[0].bit_length() - 1]) & kings[1]:
        raise ValueError("the kings are beside each other")
    if _checks_both(state[None])[0][1]:
        raise ValueError("the player who is not to move is in check")


def _add_right(rights, rows, letter, chess960):
    """Set a right to castle: the columns + 1 of the rooks of White on the king's and queen's side, and of Black."""
    is_white = letter.isupper()
    row = rows[7 if is_white else 0]
    king = row.find("K" if is_white else "k")
    columns = [c for c in range(8) if row[c] == ("R" if is_white else "r")]
    if king < 0:
        return
    if letter in "KQkq":
        columns = [c for c in columns if (c > king) == (letter in "Kk")]
        columns = columns[-1:] if letter in "Kk" else columns[:1]
    else:
        columns = [c for c in columns if c == FILES.index(letter.lower())]
    for column in columns:
        if not chess960 and (king, column) not in ((4, 0), (4, 7)):
            raise ValueError(
                f"the king on {FILES[king]} castles with the rook on {FILES[column]} in Chess960 alone: "
                "chess(chess960=True)"
            )
        rights[(0 if is_white else 2) + (column < king)] = column + 1


def _set_target(state, rows, behind, is_black):
    if behind == "-":
        return
    column, row = FILES.index(behind[0]), 8 - int(behind[1])
    ahead, pawn = (1, "P") if not is_black else (-1, "p")
    theirs = pawn.swapcase()
    if row != (5 if is_black else 2) or any(rows[row + k * ahead][column] != " " for k in (0, -1)):
        return
    target = np.uint64(1) << np.uint64(16 + column)
    if rows[row + ahead][column] == theirs and en_passant(*state[:5], target):
        state[FLAGS] |= np.uint64(column + 1) << TARGET


@njit(cache=True, nogil=True)
def _checks_both(states):
    """Return whether the player to move, and the other one, are in check, bool [n, 2]."""
    checks = np.zeros((len(states), 2), np.bool_)
    for i in range(len(states)):
        own, other, straight, diagonal, slow = states[i, 0], states[i, 1], states[i, 2], states[i, 3], states[i, 4]
        checks[i, 0] = checks_and_pins(own, other, straight, diagonal, slow)[0] != 0
        own, other = flipped(other), flipped(own)
        straight, diagonal, slow = flipped(straight), flipped(diagonal), flipped(slow)
        checks[i, 1] = checks_and_pins(own, other, straight, diagonal, slow)[0] != 0
    return checks


class _Action:
    """A legal action of a state, taken apart. start, end: squares as the player to move sees them. promoted: a
    letter, or ""."""

    __slots__ = "end", "is_castling", "kind", "number", "promoted", "start"

    def __init__(self, words: list[int], number: int):
        self.number = number
        self.start, way = divmod(number, ACTION_KINDS)
        self.end = self.start + int(OFFSET[way])
        self.kind = sum((word >> self.start & 1) << k for k, word in enumerate(words[2:5]))
        self.is_castling = self.kind == KING and words[0] >> self.end & 1 == 1
        promoted = 0
        if self.kind == PAWN and self.end < 8:
            promoted = int(PROMOTES_TO[(way - PROMOTIONS) % 3]) if way >= PROMOTIONS else QUEEN
        self.promoted = LETTERS[promoted].strip()


def _words(state):
    return [int(word) for word in state[: FLAGS + 1]]


def _name(square, words):
    square ^= 56 * (words[FLAGS] & 1)
    return f"{FILES[square % 8]}{8 - square // 8}"


def _legal(game, state):
    words = _words(state)
    return words, [_Action(words, number) for number in np.flatnonzero(game.legal(state[None])[0]).tolist()]


def _is_set_up(game, state):
    return not game.chess960 or bool(state[0])


def all_san(game: Any, state: np.ndarray) -> dict[int, str]:
    """Return {legal action of a state, [32]: its name in algebraic notation}."""
    if not _is_set_up(game, state):
        return {number: str(number) for number in range(len(game.setups))}
    words, actions = _legal(game, state)
    if not actions:
        return {}
    after = game.play(np.repeat(state[None], len(actions), axis=0), np.array([one.number for one in actions]))
    checks, can = _checks_both(after)[:, 0], np.asarray(game.legal(after).any(axis=1))
    return {
        one.number: _stem(one, words, actions) + ("+" if move else "#") * bool(check)
        for one, check, move in zip(actions, checks, can)
    }


def _stem(one, words, actions):
    """Return a move in algebraic notation, without its sign for check or mate."""
    if one.is_castling:
        return "O-O" if one.end > one.start else "O-O-O"
    start, end = _name(one.start, words), _name(one.end, words)
    takes = "x" * (words[1] >> one.end & 1)
    if one.kind == PAWN:
        takes = "x" * (start[0] != end[0])  # en passant too
        return (start[0] * bool(takes)) + takes + end + (f"={one.promoted}" if one.promoted else "")
    rivals = [
        _name(other.start, words)
        for other in actions
        if other.kind == one.kind and other.end == one.end and other.start != one.start and not other.is_castling
    ]
    which = ""
    if rivals:
        same_file, same_rank = (any(rival[k] == start[k] for rival in rivals) for k in (0, 1))
        which = start[0] if not same_file else start[1] if not same_rank else start
    return LETTERS[one.kind] + which + takes + end


def uci(game: Any, state: np.ndarray, action: int, chess960: bool) -> str:
    """Return a legal action of a state, [32], as UCI writes it: e2e4, e7e8q. Castling is e1g1; with `chess960`, and
    where king and rook are not in their places in chess, it is the king's move on to the rook, e1h1."""
    if not _is_set_up(game, state):
        return str(action)
    words = _words(state)
    one = _Action(words, action)
    end = one.end
    if one.is_castling and not chess960 and one.start % 8 == 4 and end % 8 in (0, 7):
        end = 62 if one.end > one.start else 58
    return _name(one.start, words) + _name(end, words) + one.promoted.lower()


def find_uci(game: Any, state: np.ndarray, text: str) -> int | None:
    """Return the legal action of a state, [32], that UCI writes so; None if there is none. Castling is understood in
    both notations, e1g1 and e1h1."""
    if not _is_set_up(game, state):
        return int(text) if re.fullmatch(r"\d{1,3}", text, re.ASCII) and int(text) < 960 else None
    match = _UCI.fullmatch(text)
    if not match:
        return None
    words, actions = _legal(game, state)
    found = [one for one in actions if _name(one.start, words) == match[1] and one.promoted.lower() == match[3]]
    exact = [one for one in found if _name(one.end, words) == match[2]]
    castling = [one for one in found if one.is_castling and match[2][0] == "cg"[one.end > one.start]]
    castling = [one for one in castling if match[2][1] == match[1][1]]
    return (exact or castling)[0].number if exact or castling else None


def find(game: Any, state: np.ndarray, text: str) -> int | None:
    """Return the legal action of a state, [32], that a move in algebraic notation or in UCI names; None if there is
    none, or more than one. Signs for captures, check and mate may be missing."""
    if (match := _UCI.fullmatch(text)) or not _is_set_up(game, state):
        return find_uci(game, state, text)
    words, actions = _legal(game, state)
    if match := _CASTLING.fullmatch(text):
        found = [one for one in actions if one.is_castling and (one.end < one.start) == bool(match[1])]
    elif match := _SAN.fullmatch(text):
        piece, file, rank, end, promoted = match.groups()
        kind = LETTERS.index(piece or "P")
        found = [
            one
            for one in actions
            if one.kind == kind and not one.is_castling and one.promoted == (promoted or "")
            if _name(one.end, words) == end and file in _name(one.start, words)
            if rank in _name(one.start, words)
        ]
    else:
        return None
    return found[0].number if len(found) == 1 else None
