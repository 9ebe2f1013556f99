"""A game with any number of actions, for measurements; its positions are only hashes of the moves."""

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.games.base import Game


class Wide(Game):
    """Games of exactly `plies` moves with `num_legal` legal ones each; drawn, or won by chance.

    A state is (hash, ply) and zeros, uint64: as many numbers as the board of a real game of this size takes.
    """

    def __init__(self, num_actions, num_legal, plies, planes_shape, state_size):
        self.name, self.num_actions, self.num_legal = f"wide_{num_actions}", num_actions, num_legal
        self.max_plies, self.planes_shape, self.state_size = plies, planes_shape, state_size
        self.state_dtype = np.dtype(np.uint64)
        _, height, width = planes_shape
        self.symmetry_cells = np.arange(height * width, dtype=np.int32)[None]
        self.symmetry_actions = np.arange(num_actions, dtype=np.int32)[None]

    def initial(self, n):
        return np.zeros((n, self.state_size), np.uint64)

    def play(self, states, actions):
        return _play(states, np.ascontiguousarray(actions, np.int64))

    def legal(self, states):
        return _legal(states, self.num_actions, self.num_legal)

    def terminal(self, states):
        ended = states[:, 1] >= self.max_plies
        return ended, np.where(ended, states[:, 0] % np.uint64(3), 1).astype(np.float32) - 1

    def to_play(self, states):
        return (states[:, 1] & np.uint64(1)).astype(np.int8)

    def planes(self, states):
        size = int(np.prod(self.planes_shape))
        bits = states[:, :1] >> (np.arange(size, dtype=np.uint64) % np.uint64(64))
        return (bits & np.uint64(1)).astype(np.uint8).reshape(len(states), *self.planes_shape)

    def show(self, state):
        return f"ply {state[1]}, {state[0]:016x}"


# A, legal moves in the middle of a game, its length, planes, words of 8 bytes that hold a position.
SIZES = {
    7: Wide(7, 6, 36, (2, 6, 7), 2),  # Connect Four
    82: Wide(82, 50, 80, (2, 9, 9), 11),  # Go on 9 x 9
    362: Wide(362, 250, 250, (2, 19, 19), 46),  # Go on 19 x 19
    4672: Wide(4672, 35, 100, (20, 8, 8), 9),  # chess as in AlphaZero
}


@njit(cache=True, nogil=True)
def _play(states, actions):
    after = states.copy()
    for b in range(len(states)):
        after[b, 0] = mix(states[b, 0] + np.uint64(actions[b] + 1))
        after[b, 1] += np.uint64(1)
    return after


@njit(cache=True, nogil=True)
def _legal(states, num_actions, num_legal):
    legal = np.zeros((len(states), num_actions), np.bool_)
    for b in range(len(states)):
        first = states[b, 0] % np.uint64(num_actions)
        for k in range(num_legal):  # side by side in a circle: which ones they are does not matter
            legal[b, (np.int64(first) + k) % num_actions] = True
    return legal
