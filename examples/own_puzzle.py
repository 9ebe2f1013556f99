"""A travelling-salesman problem, as a problem of your own with a score: one player, and instances that chance draws.

Chance puts the cities on a grid: each game is another instance. The player starts in the city that was drawn last,
goes to all others and back; the score is -length. `Shortest` finds the best tours, to compare a network with.
"""

import numpy as np

from az_mpi.evaluate.solver import Solved, Solver, positions
from az_mpi.games.base import CHANCE
from az_mpi.games.board_data import Board
from az_mpi.games.position_game import PositionGame


class Tour(PositionGame):
    """A state is the cells: 0 empty, 1 a city to visit, 2, 3, ... those that were, in order; then the cells of the
    player and of the start, how many cities chance still has to put, and the length so far in thousandths."""

    num_players, score_name, action_kinds, planes_dtype = 1, "length", 1, np.dtype(np.float32)

    def __init__(self, cities=10, size=8):
        if not 3 <= cities <= size * size <= 256:
            raise ValueError(f"cities is {cities}, size is {size}; allowed: 3 to size * size, size up to 16")
        self.cities, self.size, self.cells = cities, size, size * size
        self.name, self.max_plies = f"tour_{cities}_{size}x{size}", 2 * cities - 1
        self.num_actions = self.num_outcomes = self.cells
        self.planes_shape, self.state_size, self.state_dtype = (4, size, size), self.cells + 4, np.dtype(np.int32)
        self.symmetry_cells = self.symmetry_actions = np.arange(self.cells, dtype=np.int32)[None]
        self.usual = 0.3 * cities * size  # a length that has the value 0; good tours are about 0.8 of it

    def initial(self, n):
        return np.tile(np.array([*[0] * self.cells, 0, 0, self.cities, 0], np.int32), (n, 1))

    def current_player(self, state):
        return CHANCE if state[-2] > 0 else 0

    def outcome_chances(self, state, chances):
        chances[:] = (state[: self.cells] == 0) / (self.cells - self.cities + state[-2])

    def apply(self, state, action):
        here, owed = state[-4], state[-2]
        state[-4] = action
        if owed > 0:
            state[action], state[-3], state[-2] = 1 if owed > 1 else 2, action, owed - 1
        else:
            state[action] = state[here] + 1
            state[-1] += self.distance(here, action)
            if state[action] == self.cities + 1:
                state[-1] += self.distance(action, state[-3])

    def distance(self, a, b):
        return np.int64(1000 * np.hypot(a // self.size - b // self.size, a % self.size - b % self.size) + 0.5)

    def legal_actions(self, state, legal):
        legal[:] = state[: self.cells] == 1

    def result(self, state):
        over = state[-2] == 0 and state[state[-4]] == self.cities + 1
        return over, max(1 - state[-1] / 1000 / self.usual, -1.0) if over else 0.0

    def score(self, states):
        return -states[:, -1].astype(np.float32) / 1000

    def observe(self, state, planes):
        """Cities to visit, the player, the start, and the length so far everywhere."""
        for cell in range(self.cells):
            at = cell // self.size, cell % self.size
            planes[0][at], planes[1][at], planes[2][at] = state[cell] == 1, cell == state[-4], cell == state[-3]
            planes[3][at] = state[-1] / 1000 / self.usual

    def board(self, state):
        cells = state[: self.cells].reshape(self.size, self.size)
        tour = [divmod(int(np.argmax(state[: self.cells] == 2 + k)), self.size) for k in range(cells.max() - 1)]
        return Board(np.minimum(cells, 2).astype(np.int8) - 1, strokes=tuple(a + b for a, b in zip(tour, tour[1:])))


class Shortest(Solver):
    """Finds the shortest tours by dynamic programming (Held and Karp 1962), in a second or so for 12 cities."""

    def lengths(self, state):
        """Return {a city to visit: the length of the shortest tour that goes there next}."""
        game, cities = self.game, np.flatnonzero(state[: self.game.cells] == 1).tolist()
        between = np.array([[game.distance(a, b) for b in cities] for a in cities])
        # home[visit][k]: from city k through the cities whose bits are set in `visit`, and to the start.
        home = {0: np.array([game.distance(a, state[-3]) for a in cities])}
        for visit in range(1, 2 ** len(cities)):
            next_ones = [j for j in range(len(cities)) if visit >> j & 1]
            home[visit] = np.min([between[:, j] + home[visit - 2**j][j] for j in next_ones], axis=0)
        rest = [home[2 ** len(cities) - 1 - 2**k][k] for k in range(len(cities))]
        return {city: state[-1] + game.distance(state[-4], city) + more for city, more in zip(cities, rest)}

    def optimum(self, states):
        lengths = [min(self.lengths(state).values()) for state in states]
        return -np.array(lengths, np.float32) / 1000  # as `Tour.score` rounds

    def solve(self, num_positions, rank, size, on_progress):
        game = self.game
        found = positions(game, num_positions, 0, 0, game.cities - 3)[rank::size]
        values = np.full((len(found), game.num_actions), np.nan, np.float32)
        for i, state in enumerate(found):
            on_progress(i, len(found))
            for city, length in self.lengths(state).items():
                values[i, city] = max(1 - length / 1000 / game.usual, -1)
        return Solved(found, game.legal(found), values)
