"""A game of two that is written for one position."""

import numpy as np

from az_mpi.games.position_game import PositionGame

bonus = None  # a name of this file that is an attribute of Race too


class Race(PositionGame):
    """Two runners on a track of `length` fields; an action is 1 to `most` fields. Who reaches the end wins."""

    def __init__(self, length=10, most=3, bonus=()):
        self.length, self.most = length, most
        self.bonus = np.array(bonus or [0] * length, np.int64)  # fields that a runner gets for landing there
        self.name, self.num_actions, self.max_plies = f"race(length={length})", most, 2 * length
        self.planes_shape, self.state_size, self.state_dtype = (1, 2, 1), 3, np.dtype(np.int32)
        self.symmetry_cells = np.arange(2, dtype=np.int32)[None]
        self.symmetry_actions = np.arange(most, dtype=np.int32)[None]

    def apply(self, state, action):
        player = state[2]
        state[player] += action + 1
        if state[player] < self.length:
            state[player] += self.bonus[state[player]]
        state[2] = 1 - player

    def legal_actions(self, state, legal):
        for action in range(self.num_actions):
            legal[action] = True

    def result(self, state):
        return self.has_arrived(state, 1 - state[2]), -1.0 if self.has_arrived(state, 1 - state[2]) else 0.0

    def has_arrived(self, state, player):
        return state[player] >= self.length

    def current_player(self, state):
        return state[2]

    def observe(self, state, planes):
        planes[0, 0, 0], planes[0, 1, 0] = state[state[2]], state[1 - state[2]]

    def show(self, state):
        return f"{state[0]} {state[1]}, {state[2]} to move"
