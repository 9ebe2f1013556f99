"""Hex on a small board, as a game of your own: NumPy alone, all games of a batch at once.

The player who begins joins the top row to the bottom one, the other player the left column to the right one. A cell
touches six others. One of the two always wins: a full board joins one pair of sides and never both.
"""

import numpy as np

from az_mpi.games.base import Game
from az_mpi.games.board_data import Board


class Hex(Game):
    """A state is the cells row by row, int8: 0 empty, 1 a stone of the player who began, 2 one of the other."""

    action_kinds = 1  # an action is a cell

    def __init__(self, size=4):
        if not 2 <= size <= 19:
            raise ValueError(f"size is {size}; allowed: 2 to 19")
        cells = size * size
        self.name, self.size, self.num_actions, self.max_plies = f"hex_{size}x{size}", size, cells, cells
        self.planes_shape, self.state_size, self.state_dtype = (3, size, size), cells, np.dtype(np.int8)
        # The board turned by half a turn is the same game; the identity comes first.
        self.symmetry_cells = np.stack([np.arange(cells), np.arange(cells)[::-1]]).astype(np.int32)
        self.symmetry_actions = self.symmetry_cells
        self.solver = "enumerate" if size <= 3 else ""  # some 10^4 positions

    def initial(self, n):
        return np.zeros((n, self.state_size), np.int8)

    def play(self, states, actions):
        after = states.copy()
        after[np.arange(len(states)), actions] = 1 + self.to_play(states)
        return after

    def legal(self, states):
        return states == 0

    def to_play(self, states):
        return ((states != 0).sum(axis=1) % 2).astype(np.int8)

    def terminal(self, states):
        board = states.reshape(-1, self.size, self.size)
        ended = _joined(board == 1) | _joined((board == 2).transpose(0, 2, 1))
        return ended, np.where(ended, -1, 0).astype(np.float32)  # only who just moved can have joined the sides

    def planes(self, states):
        board, second = states.reshape(-1, self.size, self.size), self.to_play(states)[:, None, None]
        own, other = board == 1 + second, board == 2 - second
        return np.stack([own, other, np.broadcast_to(second == 1, own.shape)], axis=1).astype(np.uint8)

    def describe_planes(self):
        planes = "stones of the player to move", "stones of the other player", "1 everywhere if player 1 is to move"
        return planes, "row 0 is the top row of the board, which is 1 in text, and column 0 the left one, which is a"

    def action_to_text(self, state, action):
        return "abcdefghijklmnopqrs"[action % self.size] + str(action // self.size + 1)

    def board(self, state):
        players = np.array([-1, 0, 1], np.int8)[np.asarray(state).reshape(self.size, self.size)]
        rows = tuple(str(row + 1) for row in range(self.size))
        return Board(players, shape="hex", columns=tuple("abcdefghijklmnopqrs"[: self.size]), rows=rows, edges=(0, 1))


def _joined(stones):
    """Return where stones, bool [B, H, W], join the top row to the bottom one."""
    reached = stones.copy()
    reached[:, 1:] = False
    while True:
        wide = np.pad(reached, ((0, 0), (1, 1), (1, 1)))
        beside = wide[:, 1:-1, :-2] | wide[:, 1:-1, 2:]
        above_and_below = wide[:, :-2, 1:-1] | wide[:, :-2, 2:] | wide[:, 2:, 1:-1] | wide[:, 2:, :-2]
        further = stones & (reached | beside | above_and_below)
        if (further == reached).all():
            return reached[:, -1].any(axis=1)
        reached = further
