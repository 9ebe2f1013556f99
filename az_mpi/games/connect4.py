"""Connect Four, 6 rows by 7 columns, on bitboards.

A state is (own stones, opponent's stones) for the player to move; the stone in column c, row r from the bottom is bit
7 c + r. Row 6 stays empty, so that a line cannot run from the top of one column into the next.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.games.base import OWN_AND_OTHER, Board, Game, owners
from az_mpi.games.winning_cells import lines

ROWS, COLUMNS = 6, 7
_FULL = np.uint64(sum(1 << (7 * c + r) for c in range(COLUMNS) for r in range(ROWS)))
_ONE = np.uint64(1)


class Rules(Game):
    """Connect Four: an action is a column, counted from the left; in text 1 to 7, as solvers write games ("4453")."""

    name = "connect4"
    num_actions = COLUMNS
    planes_shape = (2, ROWS, COLUMNS)
    state_size = 2
    state_dtype = np.dtype(np.uint64)
    max_plies = ROWS * COLUMNS
    solver = "bitbully"
    symmetry_cells = np.stack([np.arange(42).reshape(ROWS, COLUMNS), np.arange(42).reshape(ROWS, COLUMNS)[:, ::-1]])
    symmetry_cells = np.ascontiguousarray(symmetry_cells.reshape(2, -1), np.int32)
    symmetry_actions = np.array([range(7), range(6, -1, -1)], np.int32)

    def initial(self, n: int) -> np.ndarray:
        return np.zeros((n, 2), np.uint64)

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return _play(states, np.ascontiguousarray(actions, np.int64))

    def legal(self, states: np.ndarray) -> np.ndarray:
        return _legal(states)

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _terminal(states)

    def to_play(self, states: np.ndarray) -> np.ndarray:
        return (np.bitwise_count(states[:, 0] | states[:, 1]) & 1).astype(np.int8)

    def planes(self, states: np.ndarray) -> np.ndarray:
        return _planes(states)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        return OWN_AND_OTHER, "row 0 is the top row of the board, and column 0 the left one, which is 1 in text"

    def canonical_key(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _canonical_key(states)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return str(action + 1)

    def show(self, state: np.ndarray) -> str:
        board = self.board(state)
        return "\n".join([board.text(), " ".join(board.columns)])

    def board(self, state: np.ndarray) -> Board:
        states = np.asarray(state)[None]
        players = owners(self.planes(states)[0], self.to_play(states)[0])
        won = lines(players, 4) if self.terminal(states)[0][0] else ()
        return Board(players, columns=tuple("1234567"), won=won)


@njit(cache=True, nogil=True)
def _play(states, actions):
    after = np.empty_like(states)
    for b in range(len(states)):
        own = states[b, 0]
        other = states[b, 1]
        bottom = _ONE << np.uint64(7 * actions[b])
        column = bottom * np.uint64(0x3F)
        # Adding the bottom bit carries through the stones of the column into its lowest empty cell.
        stone = ((own | other) & column) + bottom
        after[b, 0], after[b, 1] = other, own | stone
    return after


@njit(cache=True, nogil=True)
def _legal(states):
    legal = np.empty((len(states), COLUMNS), np.bool_)
    for b in range(len(states)):
        stones = states[b, 0] | states[b, 1]
        for c in range(COLUMNS):
            legal[b, c] = (stones >> np.uint64(7 * c + ROWS - 1)) & _ONE == 0
    return legal


@njit(cache=True, nogil=True)
def _has_four(stones):
    for step in (1, 6, 7, 8):  # up, down-right, right, up-right
        pairs = stones & (stones >> np.uint64(step))
        if pairs & (pairs >> np.uint64(2 * step)):
            return True
    return False


@njit(cache=True, nogil=True)
def _terminal(states):
    ended = np.zeros(len(states), np.bool_)
    value = np.zeros(len(states), np.float32)
    for b in range(len(states)):
        if _has_four(states[b, 1]):  # only the one who just moved can have completed a four
            ended[b], value[b] = True, -1.0
        elif states[b, 0] | states[b, 1] == _FULL:
            ended[b] = True
    return ended, value


@njit(cache=True, nogil=True)
def _planes(states):
    planes = np.empty((len(states), 2, ROWS, COLUMNS), np.uint8)
    for b in range(len(states)):
        for p in range(2):
            for r in range(ROWS):
                for c in range(COLUMNS):
                    planes[b, p, r, c] = (states[b, p] >> np.uint64(7 * c + ROWS - 1 - r)) & _ONE
    return planes


@njit(cache=True, nogil=True)
def _mirror(stones):
    """Return a bitboard with its columns in the opposite order."""
    mirrored = np.uint64(0)
    for c in range(COLUMNS):
        column = (stones >> np.uint64(7 * c)) & np.uint64(0x7F)
        mirrored |= column << np.uint64(7 * (COLUMNS - 1 - c))
    return mirrored


@njit(cache=True, nogil=True)
def _canonical_key(states):
    keys = np.empty(len(states), np.uint64)
    symmetry = np.zeros(len(states), np.int64)
    for b in range(len(states)):
        own, other = states[b]
        turned_own = _mirror(own)
        turned_other = _mirror(other)
        if turned_own < own or (turned_own == own and turned_other < other):
            own, other, symmetry[b] = turned_own, turned_other, 1
        keys[b] = mix(mix(own) + other)
    return keys, symmetry
