"""Reads moves of chess in algebraic notation, many at a time: for files of games."""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.games.chess_board import (
    ACTION_KINDS,
    BISHOP,
    DIAGONAL,
    KING,
    KNIGHT,
    MOVES,
    ONE,
    OWN,
    PAWN,
    PROMOTIONS,
    QUEEN,
    ROOK,
    SLOW,
    STRAIGHT,
    mark_legal,
)
from az_mpi.games.chess_state import BYTE, FLAGS, RIGHTS, kind_on, target_of

BYTES_MAX = 10  # of a move; a longer one is not found


def _ways():
    """Return int64 [64, 64]: the kind of action that leads from a square to another one, -1 if none does. Promotions to
    less than a queen are left out."""
    ways = np.full((64, 64), -1, np.int64)
    for start in range(64):
        for way, (row, column) in enumerate(MOVES[:PROMOTIONS]):
            if 0 <= start // 8 + row < 8 and 0 <= start % 8 + column < 8:
                ways[start, start + 8 * row + column] = way
    return ways


WAYS = _ways()
_KINDS = np.zeros(128, np.int64)  # of the letters of pieces
for _letter, _kind in zip("KQRBN", (KING, QUEEN, ROOK, BISHOP, KNIGHT)):
    _KINDS[ord(_letter)] = _kind
_LESS = np.zeros(128, np.int64)  # the number of a promotion to less among those of a direction
for _number, _letter in enumerate("NBR"):
    _LESS[ord(_letter)] = _number


def find_all(states: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Return the legal action of each state, [n, 32], that a text names, int64 [n]; -1 where none, or more than one,
    has this name. Signs for captures, check and mate may be missing, or stand without need."""
    words = [text if len(text) <= BYTES_MAX and text.isascii() else "" for text in texts]
    letters = np.array(words, f"S{BYTES_MAX}").view(np.uint8).reshape(len(words), BYTES_MAX)
    return _find_all(np.ascontiguousarray(states), letters)


@njit(cache=True, nogil=True)
def _find_all(states, letters):
    found = np.full(len(states), -1, np.int64)
    legal = np.zeros(64 * ACTION_KINDS, np.bool_)
    for i in range(len(states)):
        state = states[i]
        if state[OWN]:
            legal[:] = False
            rights, target = state[FLAGS] >> RIGHTS & BYTE, target_of(state[FLAGS])
            mark_legal(state[0], state[1], state[2], state[3], state[4], rights, target, legal)
            found[i] = _find(state, letters[i], legal)
    return found


@njit(cache=True, nogil=True)
def _find(state, text, legal):
    num = 0
    while num < len(text) and text[num]:
        num += 1
    while num and text[num - 1] in (43, 35, 33, 63):  # + # ! ?
        num -= 1
    if num < 2:
        return -1
    if text[0] in (79, 111, 48):  # O o 0
        for k in range(num):
            if text[k] not in (79, 111, 48) if k % 2 == 0 else text[k] != 45:  # -
                return -1
        return _castling(state, num == 5, legal) if num in (3, 5) else -1
    kind, begin = PAWN, 0
    if text[0] < 128 and _KINDS[text[0]]:
        kind, begin = _KINDS[text[0]], 1
    promoted = 0
    if kind == PAWN and text[num - 1] < 128 and _KINDS[text[num - 1]] not in (0, KING):
        promoted = text[num - 1]
        num -= 1
        if text[num - 1] == 61:  # =
            num -= 1
    if num - begin < 2:
        return -1
    column, row = np.int64(text[num - 2]) - 97, np.int64(text[num - 1]) - 49
    if not (0 <= column < 8 and 0 <= row < 8):
        return -1
    only_column, only_row = -1, -1
    for k in range(begin, num - 2):
        letter = np.int64(text[k])
        if 97 <= letter < 105:
            only_column = letter - 97
        elif 49 <= letter < 57:
            only_row = letter - 49
        elif letter not in (120, 45, 58):  # x - :
            return -1
    is_black = state[FLAGS] & ONE
    end = 8 * (row if is_black else 7 - row) + column
    return _only(state, legal, kind, end, only_column, only_row if is_black or only_row < 0 else 7 - only_row, promoted)


@njit(cache=True, nogil=True)
def _only(state, legal, kind, end, only_column, only_row, promoted):
    """Return the only legal action by a piece of a kind to a square, -1 if there is none or more than one. only_column,
    only_row: of the square that it comes from, as the player to move sees it; -1: any."""
    found = -1
    if state[OWN] >> np.uint64(end) & ONE:
        return -1  # castling has another name
    for start in range(64):
        if not (state[OWN] >> np.uint64(start) & ONE) or only_column >= 0 and start % 8 != only_column:
            continue
        if only_row >= 0 and start // 8 != only_row:
            continue
        if kind_on(state[STRAIGHT], state[DIAGONAL], state[SLOW], start) != kind:
            continue
        way = WAYS[start, end]
        if kind == PAWN and (end < 8) != (promoted != 0):
            continue
        if promoted and promoted != 81:  # Q
            way = PROMOTIONS + 3 * (end - start + 9) + _LESS[promoted]
        if way >= 0 and way < ACTION_KINDS and legal[start * ACTION_KINDS + way]:
            if found >= 0:
                return -1
            found = start * ACTION_KINDS + way
    return found


@njit(cache=True, nogil=True)
def _castling(state, is_long, legal):
    found = -1
    for start in range(64):
        if kind_on(state[STRAIGHT], state[DIAGONAL], state[SLOW], start) != KING:
            continue
        if not state[OWN] >> np.uint64(start) & ONE:
            continue
        for end in range(start // 8 * 8, start // 8 * 8 + 8):
            way = WAYS[start, end]
            if end != start and state[OWN] >> np.uint64(end) & ONE and (end < start) == is_long:
                if legal[start * ACTION_KINDS + way]:
                    found = start * ACTION_KINDS + way
    return found
