"""A game of dice for any number of players, small enough for computation by hand."""

import numpy as np

from az_mpi.games.base import CHANCE, Game


class Race(Game):
    """A throw of a die, 1 to 6; then the player moves as many cells (action 0), or seven less that number (action 1).

    With two players or more, whoever reaches `goal` first wins. One player has `turns` throws, and scores its cells.
    A state is (player, throw or 0, throws so far, cells of each player)."""

    num_actions, num_outcomes, planes_shape, state_dtype = 2, 6, (1, 1, 2), np.dtype(np.int16)
    symmetry_cells = symmetry_actions = np.array([[0, 1]], np.int32)

    def __init__(self, players=2, goal=12, turns=4):
        self.name, self.num_players, self.goal, self.turns = f"race({players})", players, goal, turns
        self.state_size = 3 + players
        self.max_plies = 2 * (turns if players == 1 else players * goal)
        self.score_name = "cells" if players == 1 else ""

    def initial(self, n):
        return np.zeros((n, self.state_size), self.state_dtype)

    def play(self, states, actions):
        states, rows, actions = states.copy(), np.arange(len(states)), np.asarray(actions)
        player, throw = states[:, 0].copy(), states[:, 1].copy()
        thrown = throw > 0
        cells = np.where(actions == 0, throw, 7 - throw)
        states[rows, 3 + player] += np.where(thrown, cells, 0).astype(self.state_dtype)
        states[:, 0] = np.where(thrown, (player + 1) % self.num_players, player)
        states[:, 1] = np.where(thrown, 0, actions + 1)
        states[:, 2] += ~thrown
        return states

    def legal(self, states):
        return np.ones((len(states), 2), bool)

    def terminal(self, states):
        cells = states[:, 3:]
        if self.num_players == 1:
            ended = (states[:, 2] == self.turns) & (states[:, 1] == 0)
            return ended, (cells[:, 0] / (3 * self.turns) - 1).astype(np.float32)
        ended = (cells >= self.goal).any(axis=1)
        results = np.where(cells >= self.goal, 1, -1 / (self.num_players - 1)) * ended[:, None]
        if self.num_players == 2:
            return ended, results[np.arange(len(states)), states[:, 0]].astype(np.float32)
        return ended, results.astype(np.float32)

    def to_play(self, states):
        waits = (states[:, 1] == 0) & ~self.terminal(states)[0]
        return np.where(waits, CHANCE, states[:, 0]).astype(np.int8)

    def chances(self, states):
        return np.full((len(states), 6), 1 / 6, np.float32)

    def planes(self, states):
        return states[:, None, None, 1:3].astype(np.uint8)

    def score(self, states):
        return states[:, 3].astype(np.float32) if self.num_players == 1 else None

    def outcome_to_text(self, state, outcome):
        return f"throw-{outcome + 1}"
