"""Evaluators: what gives a search the priors and values of its leaves.

Besides the network there are two without weights, for tests and as opponents.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.core import evaluation_table
from az_mpi.core.players import num_values
from az_mpi.core.ranks import all_ranked
from az_mpi.games.base import Game
from az_mpi.games.random_games import play_out

if TYPE_CHECKING:
    from az_mpi.network.engines.engine import Engine

# logits float32 [n, A]; value float32 [n] for the player to move, or with three players or more [n, P]: of the player
# to move, of the one after that, and so on.
Evaluation = tuple[np.ndarray, np.ndarray]


class Evaluator:
    """Evaluates the leaves of a search. A subclass defines `__call__`, or `begin` if a device works in the background.

    Its constructor is given those of these arguments that it has: game (`Game`), engine (this rank's `Engine`), seed (a
    list of integers), settings (`config.network`); and those in the configuration.
    """

    in_background = False  # whether `begin` returns before the device has finished
    # With `selfplay.ranked_reward`: the result of a game that its values compare with, -1 for games that end below it
    # and 1 for those above it. NaN: its values are results.
    threshold = math.nan

    # Returns the plies that it expects to the end of the game, float [n], at states [n, S]; None: it does not tell.
    plies_left: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def describe(self) -> str:
        """The evaluator's name in the start-up table; "" for the network, of which the table shows the engine."""
        return type(self).__name__

    def __call__(self, states: np.ndarray) -> Evaluation:
        """Evaluate states, [n, S]."""
        return self.begin(states)()

    def begin(self, states: np.ndarray) -> Callable[[], Evaluation]:
        """Begin to evaluate states, [n, S]; return a function that waits for the result and returns it. Batches are
        completed in the order in which they were begun."""
        result = self(states)
        return lambda: result

    def known(self, num_threads: int) -> evaluation_table.Known:
        """Return where a search with so many threads finds evaluations, and stores new ones. By default nothing is
        kept."""
        return evaluation_table.nothing(num_threads)

    def begin_turned(self, states: np.ndarray, symmetry: np.ndarray, num_threads: int = 1) -> Callable[[], Evaluation]:
        """Do what `begin` does, for positions that are not `known`: the logits are of their images.

        symmetry: int64 [n], that each position is turned by; 0, none, for all if nothing is kept. num_threads: that
        this rank may use."""
        return self.begin(states)

    def count(self, num_positions: int, num_evaluations: int) -> None:
        """Add to the counts of `take_counts`."""

    def restart(self, seed: Sequence[int]) -> None:
        """Draw all further random numbers from `seed` alone. Called when an iteration begins."""

    def clear(self, weights: str) -> None:
        """Forget all evaluations by the engine's old weights. Called when it has new ones.

        weights: a name of the new ones: the same on all ranks that evaluate alike, another one whenever evaluations
        may differ."""

    def take_counts(self) -> tuple[int, int]:
        """Return (positions asked for, positions that the engine evaluated) since the last call; 0, 0 if uncounted."""
        return 0, 0


class NetworkEvaluator(Evaluator):
    """The network in an engine, without a cache."""

    describe = ""

    def __init__(self, game: Game, engine: "Engine"):
        self.game = game
        self.engine = engine
        self.in_background = engine.in_background
        if engine.tells_moves_left:
            self.plies_left = self._plies_left

    def _plies_left(self, states):
        """Return what the head `moves_left` tells, in plies."""
        from az_mpi.network.heads.moves_left import UNIT  # not at the top: it loads torch

        return UNIT * self.engine.evaluate(self.game.planes(states))["moves_left"]

    def begin(self, states: np.ndarray) -> Callable[[], Evaluation]:
        return self.begin_turned(states, np.zeros(len(states), np.int64))

    def begin_turned(self, states: np.ndarray, symmetry: np.ndarray, num_threads: int = 1) -> Callable[[], Evaluation]:
        planes = self.engine.room(len(states))
        if planes is None:
            planes = np.empty((len(states), *self.game.planes_shape), self.game.planes_dtype)
        self.game.turned_planes(states, symmetry, planes, num_threads)
        evaluation = self.engine.begin(planes)
        return lambda: searched(evaluation(), self.game.num_players)


def searched(outputs: dict[str, np.ndarray], num_players: int = 2) -> Evaluation:
    """Return the outputs of an engine that a search uses. With one or two players a value [n, 3] is of a `WinDrawLoss`
    head."""
    value = outputs["value"]
    is_value = value.ndim == 1 or num_players > 2
    return outputs["policy"], value if is_value else value[:, 0] - value[:, 2]


class UniformEvaluator(Evaluator):
    """Equal priors and value 0: deterministic, so that searches with it are equal to the last bit."""

    describe = "uniform"

    def __init__(self, game: Game):
        self.num_actions = game.num_actions
        self.value_shape = () if num_values(game.num_players) == 1 else (game.num_players,)

    def __call__(self, states: np.ndarray) -> Evaluation:
        value = np.zeros((len(states), *self.value_shape), np.float32)
        return np.zeros((len(states), self.num_actions), np.float32), value


class RolloutEvaluator(Evaluator):
    """Equal priors and the result of one uniformly random playout, as in plain Monte Carlo tree search. A playout that
    is not over after `game.max_plies` moves is a draw.

    The playouts of successive calls are drawn from one random stream.
    """

    describe = "rollout"

    def __init__(self, game: Game, seed: Sequence[int]):
        self.game = game
        self.restart(seed)

    def restart(self, seed: Sequence[int]) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, states: np.ndarray) -> Evaluation:
        value, _ = play_out(self.game, states, self.rng)
        return np.zeros((len(states), self.game.num_actions), np.float32), all_ranked(value, self.threshold)
