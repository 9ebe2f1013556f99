"""An evaluator of your own for self-play: the network, and beside it a look at every move that wins at once."""

import numpy as np

from az_mpi.network.evaluators import Evaluator, searched


class Tactics(Evaluator):
    """Adds `bonus` to the logits of moves that win at once; a position with such a move is worth 1.

    Works for every game. It plays all legal moves of every position that it is asked for, which costs more than a
    small network does: see evaluations_per_s in metrics.jsonl.
    """

    def __init__(self, game, engine, bonus=4.0):
        self.game, self.engine, self.bonus = game, engine, bonus

    def __call__(self, states):
        """states [n, S] -> (logits float32 [n, A], value float32 [n] for the player to move)."""
        logits, value = searched(self.engine.evaluate(self.game.planes(states)))
        rows, actions = np.nonzero(self.game.legal(states))
        after = self.game.play(states[rows], actions)
        ended, worth = self.game.terminal(after)
        same = self.game.to_play(after) == self.game.to_play(states)[rows]  # in most games the other player is to move
        wins = ended & (np.where(same, worth, -worth) > 0)
        logits[rows[wins], actions[wins]] += self.bonus
        value[rows[wins]] = 1.0
        return logits, value
