"""Connect Four, 6 rows by 7 columns, on bitboards.

A state is (own stones, opponent's stones) for the player to move; the stone in column c, row r from the bottom is bit
7 c + r. Row 6 stays empty, so that a line cannot run from the top of one column into the next.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.games.base import OWN_AND_OTHER, owners
from az_mpi.games.bitboards import count
from az_mpi.games.board_data import Board
from az_mpi.games.position_game import PositionGame
from az_mpi.games.winning_cells import lines

ROWS, COLUMNS = 6, 7
_FULL = np.uint64(sum(1 << (7 * c + r) for c in range(COLUMNS) for r in range(ROWS)))
_ONE = np.uint64(1)


class Rules(PositionGame):
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

    def apply(self, state: np.ndarray, action: int) -> None:
        own, other = state[0], state[1]
        bottom = _ONE << np.uint64(7 * action)
        # Adding the bottom bit carries through the stones of the column into its lowest empty cell.
        stone = ((own | other) & bottom * np.uint64(0x3F)) + bottom
        state[0], state[1] = other, own | stone

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        stones = state[0] | state[1]
        for c in range(COLUMNS):
            legal[c] = (stones >> np.uint64(7 * c + ROWS - 1)) & _ONE == 0

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        if has_four(state[1]):  # only the one who just moved can have completed a four
            return True, -1.0
        return state[0] | state[1] == _FULL, 0.0

    def current_player(self, state: np.ndarray) -> int:
        return count(state[0] | state[1]) & 1

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        for p in range(2):
            for r in range(ROWS):
                for c in range(COLUMNS):
                    planes[p, r, c] = (state[p] >> np.uint64(7 * c + ROWS - 1 - r)) & _ONE

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        own, other, symmetry = state[0], state[1], 0
        turned_own, turned_other = mirror(own), mirror(other)
        if turned_own < own or (turned_own == own and turned_other < other):
            own, other, symmetry = turned_own, turned_other, 1
        return mix(mix(own) + other), symmetry

    def describe_planes(self) -> tuple[Sequence[str], str]:
        return OWN_AND_OTHER, "row 0 is the top row of the board, and column 0 the left one, which is 1 in text"

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
def has_four(stones: int) -> bool:
    """Return whether four stones of a bitboard are in a row, column or diagonal."""
    for step in (1, 6, 7, 8):  # up, down-right, right, up-right
        pairs = stones & (stones >> np.uint64(step))
        if pairs & (pairs >> np.uint64(2 * step)):
            return True
    return False


@njit(cache=True, nogil=True)
def mirror(stones: int) -> int:
    """Return a bitboard with its columns in the opposite order."""
    mirrored = np.uint64(0)
    for c in range(COLUMNS):
        column = (stones >> np.uint64(7 * c)) & np.uint64(0x7F)
        mirrored |= column << np.uint64(7 * (COLUMNS - 1 - c))
    return mirrored
