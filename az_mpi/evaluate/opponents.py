"""Opponents in matches: a search, random moves, or a class of the user's own.

The constructor of an opponent in `evaluate.opponents` is given those of the following arguments that it has:
game: the `Game`. seed: a tuple of integers, different in each iteration. rank: this rank's number. settings:
`config.evaluate`. search: `config.search` with the simulations of a match. best: the evaluator of the best network so
far, or None, on all ranks alike.
"""

from dataclasses import dataclass

import numpy as np

from az_mpi.config import schema
from az_mpi.games.base import Game
from az_mpi.games.random_games import random_actions
from az_mpi.network.evaluators import Evaluator, RolloutEvaluator
from az_mpi.search import make_search

RESIGNS = -1  # in place of an action: the player loses the game


class Opponent:
    """Plays matches. A subclass overrides `actions`, or `seat` if a move depends on more than the position."""

    def check(self) -> None:
        """Raise Refusal if it cannot play its game on this host. Called once, before the first match."""

    def actions(self, game: Game, states: np.ndarray) -> np.ndarray:
        """Return a legal action for each state, int64 [n]. states: [n, S], none of them ended."""
        raise NotImplementedError

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> "Seat":
        """Return the `Seat` of this opponent in the games `indices` of a match, int64 [n], which start at `states`
        [n, S]. moves: n lists of the actions that led there from the start of the game."""
        return Seat(self, game, states)

    def note(self, index: int) -> str:
        """Return why this opponent has resigned in the game `index`."""
        return "resigned"


class Seat:
    """Plays n games of one match at the same time. slots, int64 [k]: which of the n games."""

    def __init__(self, player: Opponent, game: Game, states: np.ndarray):
        self.player, self.game, self.states = player, game, states.copy()

    def choose(self, slots: np.ndarray) -> np.ndarray:
        """Return an action for each of these games, or RESIGNS, int64 [k]: this player is to move in them."""
        return self.player.actions(self.game, self.states[slots])

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        """Either player has played `actions`, int64 [k], in these games."""
        self.states[slots] = self.game.play(self.states[slots], actions)


@dataclass(frozen=True)
class SearchPlayer(Opponent):
    """Plays the most visited move of a search without noise, the first of equals."""

    evaluate: Evaluator
    settings: schema.Search

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> Seat:
        return _SearchSeat(self, game, states)

    def actions(self, game: Game, states: np.ndarray) -> np.ndarray:
        """Return the move in each state, from new search trees, int64 [n]. states: [n, S]."""
        return self.seat(game, states, np.arange(len(states)), []).choose(np.arange(len(states)))


class _SearchSeat(Seat):
    def __init__(self, player: SearchPlayer, game: Game, states: np.ndarray):
        self.search = make_search(game, player.evaluate, player.settings, len(states), noise=False)
        self.search.reset(np.arange(len(states)), states, np.zeros(len(states), np.uint64))

    def choose(self, slots: np.ndarray) -> np.ndarray:
        self.search.run(slots)
        return self.search.choose(slots, np.zeros(len(slots)))

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        self.search.advance(slots, actions)


@dataclass(frozen=True)
class RandomPlayer(Opponent):
    """Plays uniformly random legal moves, which depend only on `seed` and the index of the game in the match."""

    seed: tuple[int, ...]

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> Seat:
        return _RandomSeat(self, game, states, indices)


class _RandomSeat(Seat):
    def __init__(self, player: RandomPlayer, game: Game, states: np.ndarray, indices: np.ndarray):
        super().__init__(player, game, states)
        self.ply = np.zeros(len(states), np.int64)
        draws = [np.random.default_rng([*player.seed, i]).random(game.max_plies) for i in indices]
        self.draws = np.stack(draws)  # [n, max_plies]

    def choose(self, slots: np.ndarray) -> np.ndarray:
        return random_actions(self.game.legal(self.states[slots]), self.draws[slots, self.ply[slots]])

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        super().advance(slots, actions)
        self.ply[slots] += 1


def best_so_far(best: Evaluator | None, search: schema.Search) -> SearchPlayer | None:
    """Return a player with the best network so far; None, and no match, if there is none yet."""
    return None if best is None else SearchPlayer(best, search)


def random_moves(seed: tuple[int, ...]) -> RandomPlayer:
    """Return a player of random moves."""
    return RandomPlayer((*seed, 1))


def rollout(game: Game, seed: tuple[int, ...], rank: int, settings: schema.Evaluate,
            search: schema.Search) -> SearchPlayer:
    """Return a player whose search evaluates positions by random play-outs."""
    # The seed has the rank: a play-out draws its numbers when the search asks for it, in an order of this rank's.
    search = search.model_copy(update={"simulations": settings.rollout_simulations})
    return SearchPlayer(RolloutEvaluator(game, (*seed, 2, rank)), search)
