"""Tic-tac-toe on bitboards: a state is (own stones, opponent's stones) for the player to move; bit 3 r + c is the cell
in row r from the top, column c."""

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.games.base import Board, Game, owners

_LINES = np.array([0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100], np.uint16)
_FULL = 0b111111111


def _symmetries():
    """Return the eight rotations and reflections of the board, int32 [8, 9]: one table for cells and actions."""
    board = np.arange(9).reshape(3, 3)
    turns = [np.rot90(side, k) for side in (board, board[:, ::-1]) for k in range(4)]
    return np.stack(turns).reshape(8, 9).astype(np.int32)


def _turned_stones(cells):
    """Return every bitboard of one player's stones seen through every symmetry, uint16 [512, 8]."""
    stones = np.arange(512)[:, None, None] >> cells & 1
    return np.ascontiguousarray((stones << np.arange(9)).sum(axis=2), np.uint16)


class Rules(Game):
    """Tic-tac-toe: an action is a cell, counted row by row from the top left; in text, column and row: a3 b3 c3 in the
    top row, a1 b1 c1 in the bottom one."""

    name = "tictactoe"
    num_actions = 9
    planes_shape = (2, 3, 3)
    state_size = 2
    state_dtype = np.dtype(np.uint16)
    max_plies = 9
    solver = "enumerate"
    symmetry_cells = _symmetries()
    symmetry_actions = symmetry_cells

    def initial(self, n: int) -> np.ndarray:
        return np.zeros((n, 2), np.uint16)

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return _play(states, np.ascontiguousarray(actions, np.int64))

    def legal(self, states: np.ndarray) -> np.ndarray:
        stones = states[:, :1] | states[:, 1:]
        return stones >> np.arange(9, dtype=np.uint16) & 1 == 0

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _terminal(states)

    def to_play(self, states: np.ndarray) -> np.ndarray:
        return (np.bitwise_count(states[:, 0] | states[:, 1]) & 1).astype(np.int8)

    def planes(self, states: np.ndarray) -> np.ndarray:
        cells = states[:, :, None] >> np.arange(9, dtype=np.uint16) & 1
        return cells.astype(np.uint8).reshape(-1, 2, 3, 3)

    def canonical_key(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _canonical_key(states, _TURNED)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return "abc"[action % 3] + "321"[action // 3]

    def show(self, state: np.ndarray) -> str:
        return self.board(state).text()

    def board(self, state: np.ndarray) -> Board:
        states = np.asarray(state)[None]
        return Board(owners(self.planes(states)[0], self.to_play(states)[0]), columns=tuple("abc"), rows=tuple("321"))


_TURNED = _turned_stones(Rules.symmetry_cells)


@njit(cache=True, nogil=True)
def _canonical_key(states, turned):
    keys, symmetry = np.empty(len(states), np.uint64), np.zeros(len(states), np.int64)
    for b in range(len(states)):
        smallest = 1 << 18
        for k in range(turned.shape[1]):
            image = np.int64(turned[states[b, 0], k]) << 9 | np.int64(turned[states[b, 1], k])
            if image < smallest:
                smallest, symmetry[b] = image, k
        keys[b] = mix(np.uint64(smallest + 1))
    return keys, symmetry


@njit(cache=True, nogil=True)
def _play(states, actions):
    after = np.empty_like(states)
    for b in range(len(states)):
        after[b, 0] = states[b, 1]
        after[b, 1] = states[b, 0] | np.uint16(1 << actions[b])
    return after


@njit(cache=True, nogil=True)
def _terminal(states):
    ended, value = np.zeros(len(states), np.bool_), np.zeros(len(states), np.float32)
    for b in range(len(states)):
        for line in _LINES:
            if states[b, 1] & line == line:  # only the one who just moved can have completed a line
                ended[b], value[b] = True, -1.0
        if states[b, 0] | states[b, 1] == _FULL:
            ended[b] = True
    return ended, value
