"""Small games of each kind: one player, with chance, three players. Each is written for one position."""

import copy

import numpy as np

from az_mpi.games.base import CHANCE
from az_mpi.games.position_game import PositionGame
from az_mpi.network.evaluators import UniformEvaluator


def identity(num):
    return np.arange(num, dtype=np.int32)[None]


class Digits(PositionGame):
    """One player writes `length` binary digits; the score is their number."""

    name, num_players, score_name = "digits", 1, "units"
    num_actions, planes_shape, state_size, state_dtype = 2, (2, 1, 1), 2, np.dtype(np.int32)
    planes_dtype = np.dtype(np.float32)
    symmetry_cells, symmetry_actions = identity(1), identity(2)
    max_plies = 5

    def apply(self, state, action):
        state[0], state[1] = state[0] + 1, 2 * state[1] + action

    def legal_actions(self, state, legal):
        legal[:] = True

    def result(self, state):
        return state[0] == self.max_plies, state[1] / 16.0 - 1

    def observe(self, state, planes):
        planes[0, 0, 0], planes[1, 0, 0] = state[0] / 5, state[1] / 32

    def score(self, states):
        return states[:, 1].astype(np.float32)


class Pig(PositionGame):
    """Pig: a player throws a die and adds it to the turn's total, or holds and keeps the total; a 1 loses it. Who has
    `goal` points wins. A state is both players' points, the turn's total, and 2 * player + whether the die rolls."""

    name, num_outcomes, num_actions = "pig", 6, 2
    planes_shape, planes_dtype, state_size, state_dtype = (3, 1, 1), np.dtype(np.float32), 4, np.dtype(np.int16)
    symmetry_cells, symmetry_actions = identity(1), identity(2)
    max_plies = 400
    goal = 12
    most = 1.0 / 6

    def apply(self, state, action):
        player = state[3] >> 1
        if not state[3] & 1 and action == 0:
            state[3] |= 1
        elif not state[3] & 1:
            state[player] += state[2]
            state[2], state[3] = 0, 2 * (1 - player)
        elif action == 0:
            state[2], state[3] = 0, 2 * (1 - player)
        else:
            state[2] += action + 1
            state[3] = 2 * player

    def legal_actions(self, state, legal):
        legal[0], legal[1] = True, state[2] > 0

    def result(self, state):
        player = state[3] >> 1
        if state[player] + state[2] >= self.goal and not state[3] & 1:
            return True, 1.0
        return state[1 - player] >= self.goal, -1.0 if state[1 - player] >= self.goal else 0.0

    def current_player(self, state):
        return CHANCE if state[3] & 1 else state[3] >> 1

    def observe(self, state, planes):
        player = state[3] >> 1
        planes[0, 0, 0], planes[1, 0, 0] = state[player] / self.goal, state[1 - player] / self.goal
        planes[2, 0, 0] = state[2] / self.goal

    def outcome_chances(self, state, chances):
        chances[:] = (1 - self.most) / 5
        chances[0] = self.most

    def outcome_to_text(self, state, outcome):
        return str(outcome + 1)


class FullPig(Pig):
    """Pig to 100 points, as people play it."""

    max_plies = 2600
    goal = 100


class Trio(PositionGame):
    """Three players put their stones on a row of `size` cells; who has three beside each other wins. A state is the
    cells, 0 or the player's number + 1, and the number of stones."""

    name, num_players, num_actions, state_dtype = "trio", 3, 7, np.dtype(np.int8)
    planes_shape, state_size, max_plies = (3, 1, 7), 8, 7
    symmetry_cells = symmetry_actions = np.array([range(7), range(6, -1, -1)], np.int32)
    wins = 2  # stones beside each other

    def apply(self, state, action):
        state[action] = state[7] % 3 + 1
        state[7] += 1

    def legal_actions(self, state, legal):
        for cell in range(7):
            legal[cell] = state[cell] == 0

    def results(self, state, values):
        for cell in range(6):
            if state[cell] and state[cell] == state[cell + 1]:
                values[:] = -0.5
                values[state[cell] - 1] = 1
                return True
        return state[7] == 7

    def current_player(self, state):
        return state[7] % 3

    def observe(self, state, planes):
        for cell in range(7):
            if state[cell]:
                planes[(state[cell] - 1 - state[7]) % 3, 0, cell] = 1

    def canonical(self, state):
        keys = np.zeros(2, np.uint64)
        for cell in range(7):
            keys[0] = keys[0] * np.uint64(4) + np.uint64(state[cell])
            keys[1] = keys[1] * np.uint64(4) + np.uint64(state[6 - cell])
        best = 1 if keys[1] < keys[0] else 0
        return keys[best], best


class Rain(PositionGame):
    """One player takes drops from a row of five cells, on which chance puts two drops at the start and one after each
    move. It puts them on empty cells; the middle one is twice as likely. The score is how many drops were taken."""

    name, num_players, score_name, num_outcomes, num_actions = "rain", 1, "drops", 5, 5
    planes_shape, state_size, state_dtype, max_plies = (1, 1, 5), 7, np.dtype(np.int8), 13
    symmetry_cells = symmetry_actions = np.array([range(5), range(4, -1, -1)], np.int32)

    def initial(self, n):
        states = np.zeros((n, 7), np.int8)
        states[:, 6] = 2  # drops that are to fall
        return states

    def apply(self, state, action):
        if state[6]:
            state[action], state[6] = 1, state[6] - 1
        else:
            state[action] = 0
            state[5], state[6] = state[5] + 1, 1

    def legal_actions(self, state, legal):
        for cell in range(5):
            legal[cell] = state[cell] == 1

    def result(self, state):
        return state[5] == 5 and state[6] == 0, state[5] / 5 - 0.5

    def current_player(self, state):
        return CHANCE if state[6] else 0

    def observe(self, state, planes):
        for cell in range(5):
            planes[0, 0, cell] = state[cell]

    def outcome_chances(self, state, chances):
        total = 0.0
        for cell in range(5):
            chances[cell] = (2.0 if cell == 2 else 1.0) * (state[cell] == 0)
            total += chances[cell]
        chances[:] /= total

    def score(self, states):
        return states[:, 5].astype(np.float32)

    def canonical(self, state):
        low = high = 0
        for cell in range(5):
            low, high = 2 * low + state[cell], 2 * high + state[4 - cell]
        return min(low, high), 1 if high < low else 0


class Again(Rain):
    """As Rain, but a drop that would fall on the first cell falls again."""

    name, max_plies, compiled = "again", 200, False

    def apply(self, state, action):
        if state[6] and action:
            state[action], state[6] = 1, state[6] - 1
        elif not state[6]:
            state[action] = 0
            state[5], state[6] = state[5] + 1, 1


class Lots(PositionGame):
    """Player 0 chooses 0 or 1, then player 1. After 1 of player 1 it is drawn by lot which of three players wins, else
    player 0 wins. A state is the two choices, the lot, and how many of these were made."""

    name, num_players, num_actions, num_outcomes, compiled = "lots", 3, 2, 3, False
    planes_shape, state_size, state_dtype, max_plies = (1, 1, 2), 4, np.dtype(np.int8), 3
    symmetry_cells = symmetry_actions = identity(2)

    def apply(self, state, action):
        state[state[3]] = action
        state[3] += 1

    def legal_actions(self, state, legal):
        legal[:] = True

    def results(self, state, values):
        if state[3] == 3:
            values[:] = -0.5
            values[state[2] if state[1] else 0] = 1
        return state[3] == 3

    def current_player(self, state):
        return CHANCE if state[3] == 2 else state[3] % 3

    def outcome_chances(self, state, chances):
        chances[0], chances[1], chances[2] = 0.3, 0.5, 0.2  # in float32 the expectations are rounded

    def observe(self, state, planes):
        planes[0, 0, state[0]] = 1


def plain(game):
    """Return the game with rules that run as Python: the search then takes steps of batches."""
    game = copy.copy(game)
    game.compiled = False
    return game


class Sums(UniformEvaluator):
    """Logits and values that depend on the state, so that no two of them are equal."""

    def __call__(self, states):
        logits, value = super().__call__(states)
        numbers = states.astype(np.float64) @ np.sqrt(np.arange(1, states.shape[1] + 1))
        logits += np.sin(numbers[:, None] * np.arange(1, logits.shape[1] + 1))
        value += np.cos(numbers * 3 if value.ndim == 1 else numbers[:, None] * np.arange(3, 3 + value.shape[1]))
        return logits.astype(np.float32), (0.9 * value).astype(np.float32)
