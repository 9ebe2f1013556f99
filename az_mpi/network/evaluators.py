"""What a search asks for the worth of its leaves: states [n, S] -> (logits float32 [n, A], value float32 [n]).

Values are for the player to move. Besides the network there are two without weights, for tests and as opponents.
"""

import numpy as np


class Evaluator:
    """What a search asks: give `__call__`, or `begin` where a device works meanwhile.

    Made with those of these arguments that it names: game (`Game`), engine (of this rank: logits and value of planes),
    seed (a list of whole numbers), settings (`config.network`), and its own from the configuration.
    """

    in_background = False  # whether `begin` returns while a device is still at work

    @property
    def describe(self):
        """What it is, for the start-up table; "" for the network, whose engine is shown."""
        return type(self).__name__

    def __call__(self, states):
        """Return (logits, value) of states."""
        return self.begin(states)()

    def begin(self, states):
        """Begin to evaluate states and return a function that waits for the result and returns it. Batches that are
        under way at the same time are completed in the order in which they were begun."""
        result = self(states)
        return lambda: result

    def restart(self, seed):
        """An iteration begins: what is drawn from now on depends on `seed`, a list of whole numbers, alone."""

    def clear(self):
        """The engine has new weights: forget what the old ones said."""

    def take_counts(self):
        """Return (positions asked for, positions that the engine evaluated) since the last call; 0, 0 if uncounted."""
        return 0, 0


class NetworkEvaluator(Evaluator):
    """The network, through an engine."""

    describe = ""

    def __init__(self, game, engine):
        self.game, self.engine = game, engine
        self.in_background = engine.in_background

    def begin(self, states):
        evaluation = self.engine.begin(self.game.planes(states))
        return lambda: searched(evaluation())


def searched(outputs):
    """Return (logits, value) of the outputs of an engine."""
    return outputs["policy"], outputs["value"]


class UniformEvaluator(Evaluator):
    """Equal priors and value 0: deterministic, so that searches with it can be compared to the last bit."""

    describe = "uniform"

    def __init__(self, game):
        self.num_actions = game.num_actions

    def __call__(self, states):
        return np.zeros((len(states), self.num_actions), np.float32), np.zeros(len(states), np.float32)


class RolloutEvaluator(Evaluator):
    """Equal priors and the result of one uniformly random play-out, as in plain Monte Carlo tree search.

    seed: whole numbers; play-outs are drawn one after the other in the order in which they are asked for.
    """

    describe = "rollout"

    def __init__(self, game, seed):
        self.game = game
        self.restart(seed)

    def restart(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, states):
        game, n = self.game, len(states)
        value = np.zeros(n, np.float32)
        player = game.to_play(states)
        rows, states = np.arange(n), states.copy()
        while len(rows):
            # The largest of independent uniform numbers, in (0, 1], picks a legal action uniformly.
            draws = 1 - self.rng.random((len(rows), game.num_actions), np.float32)
            actions = np.argmax(draws * game.legal(states), axis=1)
            states = game.play(states, actions)
            ended, result = game.terminal(states)
            same = game.to_play(states[ended]) == player[rows[ended]]
            value[rows[ended]] = np.where(same, result[ended], -result[ended])
            rows, states = rows[~ended], states[~ended]
        return np.zeros((n, game.num_actions), np.float32), value
