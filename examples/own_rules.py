"""Domineering, as a game of your own: the rules of one position, which the program compiles.

The players put dominoes on a board, each on two empty cells: the player who begins puts them upright, the other one
flat. Who cannot move loses.
"""

import numpy as np

from az_mpi.games.board_data import Board
from az_mpi.games.position_game import PositionGame


class Domineering(PositionGame):
    """A state is the cells row by row, int8: 0 empty, 1 and 2 the players' dominoes; then the player to move."""

    def __init__(self, size=6):
        if not 2 <= size <= 12:
            raise ValueError(f"size is {size}; allowed: 2 to 12")
        self.size, self.cells = size, size * size
        self.name, self.num_actions, self.max_plies = f"domineering_{size}x{size}", self.cells, self.cells // 2
        self.planes_shape, self.state_size, self.state_dtype = (2, size, size), self.cells + 1, np.dtype(np.int8)
        self.symmetry_cells = self.symmetry_actions = np.arange(self.cells, dtype=np.int32)[None]

    def legal_actions(self, state, legal):
        """An action is the upper or left cell of a domino."""
        for cell in range(self.cells):
            upright = state[self.cells] == 0
            fits = cell + self.size < self.cells if upright else cell % self.size + 1 < self.size
            other = cell + (self.size if upright else 1)
            legal[cell] = fits and state[cell] == 0 and state[other] == 0

    def apply(self, state, action):
        player = state[self.cells]
        state[action] = state[action + (self.size if player == 0 else 1)] = 1 + player
        state[self.cells] = 1 - player

    def result(self, state):
        legal = np.zeros(self.num_actions, np.bool_)
        self.legal_actions(state, legal)
        return not legal.any(), -1.0 if not legal.any() else 0.0

    def current_player(self, state):
        return state[self.cells]

    def observe(self, state, planes):
        """Empty cells; 1 everywhere if the player to move puts dominoes flat."""
        for cell in range(self.cells):
            planes[0, cell // self.size, cell % self.size] = state[cell] == 0
            planes[1, cell // self.size, cell % self.size] = state[self.cells]

    def board(self, state):
        cells = np.asarray(state)[: self.cells].reshape(self.size, self.size)
        return Board(cells.astype(np.int8) - 1)
