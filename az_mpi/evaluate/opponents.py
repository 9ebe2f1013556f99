"""Who plays matches: a search, random moves, or a class of the user's own. Those that `evaluate.opponents` names are
made with those of these arguments that they name:

game: the `Game`. seed: a tuple of whole numbers, another one in each iteration. rank: this rank's number. settings:
`config.evaluate`. search: `config.search` with the simulations of a match. best: the evaluator of the best network so
far, or None, on all ranks or none.
"""

from dataclasses import dataclass

import numpy as np

from az_mpi.evaluate.openings import random_actions
from az_mpi.network.evaluators import RolloutEvaluator
from az_mpi.search import make_search


class Opponent:
    """Somebody who plays matches. Give `actions`, or `seat` where a move depends on more than the position."""

    def actions(self, game, states):
        """Return a legal action in each state, int64 [n]. states: [n, S], none of them ended."""
        raise NotImplementedError

    def seat(self, game, states, indices):
        """Return what plays the games `indices` of a match, int64 [n], from `states` [n, S] on: it has
        `choose(slots) -> actions`, asked where this player is to move, and `advance(slots, actions)`, told of every
        move; slots: which of the n games, int64."""
        return Seat(self, game, states)


class Seat:
    """Knows the positions of its games and asks the opponent for moves."""

    def __init__(self, player, game, states):
        self.player, self.game, self.states = player, game, states.copy()

    def choose(self, slots):
        return self.player.actions(self.game, self.states[slots])

    def advance(self, slots, actions):
        self.states[slots] = self.game.play(self.states[slots], actions)


@dataclass(frozen=True)
class SearchPlayer(Opponent):
    """Plays the most visited move of a search without noise, the first of equals.

    evaluate: states [n, S] -> (logits, value), as for a search. settings: a `config.search`.
    """

    evaluate: object
    settings: object

    def seat(self, game, states, indices):
        return _SearchSeat(self, game, states)

    def actions(self, game, states):
        """Return the move the player makes in each state, searched from nothing, int64 [n]. states: [n, S]."""
        return self.seat(game, states, None).choose(np.arange(len(states)))


class _SearchSeat:
    def __init__(self, player, game, states):
        self.search = make_search(game, player.evaluate, player.settings, len(states), noise=False)
        self.search.reset(np.arange(len(states)), states, np.zeros(len(states), np.uint64))

    def choose(self, slots):
        self.search.run(slots)
        return self.search.choose(slots, np.zeros(len(slots)))

    def advance(self, slots, actions):
        self.search.advance(slots, actions)


@dataclass(frozen=True)
class RandomPlayer(Opponent):
    """Plays uniformly random legal moves; a game's moves depend on `seed`, whole numbers, and its index alone."""

    seed: tuple

    def seat(self, game, states, indices):
        return _RandomSeat(self, game, states, indices)


class _RandomSeat(Seat):
    def __init__(self, player, game, states, indices):
        super().__init__(player, game, states)
        self.ply = np.zeros(len(states), np.int64)
        draws = [np.random.default_rng([*player.seed, i]).random(game.max_plies) for i in indices]
        self.draws = np.stack(draws)  # [n, max_plies]

    def choose(self, slots):
        return random_actions(self.game.legal(self.states[slots]), self.draws[slots, self.ply[slots]])

    def advance(self, slots, actions):
        super().advance(slots, actions)
        self.ply[slots] += 1


def best_so_far(best, search):
    """Return the best network so far; None, which is not played, where there is none yet."""
    return None if best is None else SearchPlayer(best, search)


def random_moves(seed):
    """Return a player of random moves."""
    return RandomPlayer((*seed, 1))


def rollout(game, seed, rank, settings, search):
    """Return a search that judges positions by random play-outs."""
    # Play-outs are drawn in the order in which they are asked for, so each rank has its own.
    search = search.model_copy(update={"simulations": settings.rollout_simulations})
    return SearchPlayer(RolloutEvaluator(game, (*seed, 2, rank)), search)
