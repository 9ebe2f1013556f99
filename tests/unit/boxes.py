"""Games in which a player moves several times in a row, as users write them, with options for mistakes."""

import numpy as np

from az_mpi.games.base import Game


class Boxes(Game):
    """Dots and Boxes on a row of n boxes; who closes a box moves again. A state is the edges, who owns each box (0
    nobody, 1 and 2), who is to move.

    value: for "mover", as it should be, or always for "first". planes: the boxes of the "mover" come first, or those of
    the first player, with a plane for who is to move ("board") or without ("no mover").
    """

    state_dtype, name = np.dtype(np.int8), "boxes"

    def __init__(self, n=5, value="mover", planes="mover"):
        self.n, self.value, self.view = n, value, planes
        self.num_actions = self.max_plies = 3 * n + 1  # above, below, then the n + 1 upright ones
        self.state_size, self.planes_shape = self.num_actions + n + 1, (4, 1, 3 * n + 1)
        self.symmetry_cells = self.symmetry_actions = np.arange(self.num_actions, dtype=np.int32)[None]
        self.edges = np.array([[i, n + i, 2 * n + i, 2 * n + i + 1] for i in range(n)])

    def initial(self, n):
        return np.zeros((n, self.state_size), np.int8)

    def play(self, states, actions):
        after, rows = states.copy(), np.arange(len(states))
        after[rows, actions] = 1
        owners, closed = after[:, self.num_actions : -1], after[:, self.edges].all(axis=2)
        new = closed & (owners == 0)
        owners[new] = np.repeat(after[:, -1:] + 1, self.n, axis=1)[new]
        after[:, -1] ^= ~new.any(axis=1)
        return after

    def legal(self, states):
        return states[:, : self.num_actions] == 0

    def to_play(self, states):
        return states[:, -1]

    def terminal(self, states):
        ended, owners = states[:, : self.num_actions].all(axis=1), states[:, self.num_actions : -1]
        value = np.sign((owners == 1).sum(axis=1) - (owners == 2).sum(axis=1))
        value = value if self.value == "first" else np.where(states[:, -1] == 0, value, -value)
        return ended, np.where(ended, value, 0).astype(np.float32)

    def planes(self, states):
        planes, owners = np.zeros((len(states), *self.planes_shape), np.uint8), states[:, self.num_actions : -1]
        mover = states[:, -1:] if self.view == "mover" else np.zeros_like(states[:, -1:])
        planes[:, 0, 0] = states[:, : self.num_actions]
        planes[:, 1, 0, : self.n], planes[:, 2, 0, : self.n] = owners == mover + 1, owners == 2 - mover
        planes[:, 3] = (states[:, -1] if self.view == "board" else 0 * states[:, -1])[:, None, None]
        return planes

    def show(self, state):
        return " ".join(".XO"[owner] for owner in state[self.num_actions : -1])


class Kalah(Game):
    """Kalah with six pits of three stones each and no captures; a last stone in one's own store moves again. A state is
    the 14 pits, 0 to 6 of the player who began with the store last, who is to move, and how many moves there were.
    Planes show the mover's pits in the first row. value: as in `Boxes`."""

    state_dtype, planes_dtype, name = np.dtype(np.int8), np.dtype(np.float32), "kalah"
    num_actions, max_plies, state_size, planes_shape = 6, 120, 16, (1, 2, 7)
    symmetry_cells = np.arange(14, dtype=np.int32)[None]
    symmetry_actions = np.arange(6, dtype=np.int32)[None]

    def __init__(self, value="mover"):
        self.value = value

    def initial(self, n):
        return np.tile(np.array([3, 3, 3, 3, 3, 3, 0] * 2 + [0, 0], np.int8), (n, 1))

    def play(self, states, actions):
        after = states.copy()
        for state, action in zip(after, actions):
            mover = state[14]
            pit = 7 * mover + action
            stones, state[pit] = state[pit], 0
            while stones:
                pit = (pit + 1) % 14
                if pit != (13, 6)[mover]:
                    state[pit] += 1
                    stones -= 1
            state[14], state[15] = mover if pit % 7 == 6 else 1 - mover, state[15] + 1
        return after

    def legal(self, states):
        return self._own(states)[:, 0, :6] > 0

    def to_play(self, states):
        return states[:, 14]

    def terminal(self, states):
        ended = ~self.legal(states).any(axis=1) | (states[:, 15] >= self.max_plies)
        value = np.sign(states[:, :7].sum(axis=1) - states[:, 7:14].sum(axis=1, dtype=np.int64))
        value = value if self.value == "first" else np.where(states[:, 14] == 0, value, -value)
        return ended, np.where(ended, value, 0).astype(np.float32)

    def planes(self, states):
        return self._own(states)[:, None] / np.float32(9)

    def _own(self, states):
        sides = states[:, :14].reshape(-1, 2, 7)
        return np.where(states[:, 14, None, None] == 0, sides, sides[:, ::-1])

    def show(self, state):
        return f"{state[7:14][::-1]}\n{state[:7]}"
