"""Opponents in matches: a search, random moves, or a class of the user's own.

The constructor of an opponent in `evaluate.opponents` is given those of the following arguments that it has:
game: the `Game`. seed: a tuple of integers, different in each iteration. rank: this rank's number. settings:
`config.evaluate`. search: `config.search` with the simulations of a match. best: the evaluator of the best network so
far, or None, on all ranks alike.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.config import schema
from az_mpi.core.players import of_players
from az_mpi.games import chance
from az_mpi.games.base import Game
from az_mpi.games.random_games import random_actions
from az_mpi.network.evaluators import Evaluator, RolloutEvaluator
from az_mpi.search import make_play_search

if TYPE_CHECKING:
    from az_mpi.search.puct import Search

RESIGNS = -1  # in place of an action: the player loses the game
CHANCES_MOST = 8  # in a row, of `GreedyPlayer`: an outcome may lead to chance again, without end


class Opponent:
    """Plays matches. A subclass overrides `actions`; `choose` if a move depends on more than the position; `seat` if it
    keeps something of each game, such as a tree."""

    def check(self) -> None:
        """Raise Refusal if it cannot play its game on this host. Called once, before the first match."""

    def actions(self, game: Game, states: np.ndarray) -> np.ndarray:
        """Return a legal action for each state, int64 [n]. states: [n, S], none of them ended."""
        raise NotImplementedError

    def choose(self, seat: "Seat", slots: np.ndarray) -> np.ndarray:
        """Return an action for each of the games `slots` of a seat, or RESIGNS, int64 [k]: this opponent is to move in
        them. slots: int64 [k]."""
        return self.actions(seat.game, seat.states[slots])

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> "Seat":
        """Return the `Seat` of this opponent in n games that are played at the same time; see there."""
        return Seat(self, game, states, indices, moves)

    def note(self, index: int) -> str:
        """Return why this opponent has resigned in the game `index`."""
        return "resigned"


@dataclass
class Seat:
    """An opponent's place in n games of a match, which are numbers `indices`, int64 [n], of it.

    states: [n, S], the games' positions. moves: n lists of the actions that led there from the start of the game. They
    are the match's own, and always the newest: a seat must not change them."""

    player: Opponent
    game: Game
    states: np.ndarray
    indices: np.ndarray
    moves: list[list[int]]

    def choose(self, slots: np.ndarray) -> np.ndarray:
        """See `Opponent.choose`."""
        return self.player.choose(self, slots)

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        """Either player plays `actions`, int64 [k], in the games `slots`. It is called before `states` change."""


@dataclass(frozen=True)
class SearchPlayer(Opponent):
    """Plays the most visited move of a search without noise, the first of equals."""

    evaluate: Evaluator
    settings: schema.Search

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> Seat:
        return self._seat(game, states, np.array([len(of_game) for of_game in moves]))

    def actions(self, game: Game, states: np.ndarray, plies: np.ndarray | int = 0) -> np.ndarray:
        """Return the move in each state, from new search trees, int64 [n]. states: [n, S]. plies: int [n], the moves
        before each."""
        return self._seat(game, states, plies).choose(np.arange(len(states)))

    def _seat(self, game, states, plies):
        return SearchSeat(make_play_search(game, self.evaluate, self.settings, len(states)), states, plies)


class SearchSeat(Seat):
    """The games of a player that searches: a tree for each of `states`, [n, S]. plies: int [n], the moves before."""

    def __init__(self, search: "Search", states: np.ndarray, plies: np.ndarray | int):
        self.search = search
        search.reset(np.arange(len(states)), states, np.zeros(len(states), np.uint64), plies)

    def choose(self, slots: np.ndarray) -> np.ndarray:
        self.search.run(slots)
        return self.search.choose(slots, np.zeros(len(slots)))

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        self.search.advance(slots, actions)


@dataclass(frozen=True)
class RandomPlayer(Opponent):
    """Plays uniformly random legal moves, which depend only on `seed` and the index of the game in the match."""

    seed: tuple[int, ...]

    def choose(self, seat: Seat, slots: np.ndarray) -> np.ndarray:
        return random_actions(seat.game.legal(seat.states[slots]), self.draws(seat, slots))

    def draws(self, seat: Seat, slots: np.ndarray) -> np.ndarray:
        """Return the random numbers in [0, 1) of the next moves in the games `slots` of a seat, float64 [k]."""
        keys = ([*self.seed, int(seat.indices[slot]), len(seat.moves[slot])] for slot in slots)
        return np.array([np.random.default_rng(key).random() for key in keys])


class GreedyPlayer(RandomPlayer):
    """Plays the move after which the player that makes it has the best result by the rules alone, the mean over the
    outcomes of chance moves that follow; of equals a random one. What it has is its score in a game of one player that
    has scores; else its result, and 0 in a game of several players that is not over."""

    def choose(self, seat: Seat, slots: np.ndarray) -> np.ndarray:
        game, states = seat.game, seat.states[slots]
        legal = game.legal(states)
        rows, actions = np.nonzero(legal)
        values = np.full(legal.shape, -np.inf)
        values[rows, actions] = _gains(game, game.play(states[rows], actions), game.to_play(states)[rows])
        best = values >= values.max(axis=1, keepdims=True) - 1e-6
        return random_actions(best & legal, self.draws(seat, slots))


def _gains(game, states, mover, looks=CHANCES_MOST):
    """Return what the players `mover`, int [n], have in these states, [n, S]; see `GreedyPlayer`. float64 [n]. looks:
    how many moves of chance in a row are looked at."""
    ended, value = game.terminal(states)
    if game.num_players == 1:
        scores = game.score(states)
        gains = np.array(value if scores is None else scores, np.float64)
    else:
        results = of_players(game.num_players, value, game.to_play(states))
        gains = np.where(ended, results[np.arange(len(states)), mover], 0.0).astype(np.float64)
    drawn = np.flatnonzero(chance.due(game, states) & ~ended)
    if len(drawn) and looks:
        chances = game.chances(states[drawn])
        rows, outcomes = np.nonzero(chances)
        after = _gains(game, game.play(states[drawn[rows]], outcomes), mover[drawn[rows]], looks - 1)
        gains[drawn] = np.bincount(rows, chances[rows, outcomes] * after, len(drawn))
    return gains


def best_so_far(best: Evaluator | None, search: schema.Search) -> SearchPlayer | None:
    """Return a player with the best network so far; None, and no match, if there is none yet."""
    return None if best is None else SearchPlayer(best, search)


def random_moves(seed: tuple[int, ...]) -> RandomPlayer:
    """Return a player of random moves."""
    return RandomPlayer((*seed, 1))


def greedy_moves(seed: tuple[int, ...]) -> GreedyPlayer:
    """Return a player of the moves that are best by the rules alone."""
    return GreedyPlayer((*seed, 4))


def rollout(game: Game, seed: tuple[int, ...], rank: int, settings: schema.Evaluate) -> SearchPlayer:
    """Return a player whose search evaluates positions by random play-outs: by PUCT, whatever the run's own search is,
    so that all runs meet the same opponent."""
    # The seed has the rank: a play-out draws its numbers when the search asks for it, in an order of this rank's.
    search = schema.Search(simulations=settings.rollout_simulations)
    return SearchPlayer(RolloutEvaluator(game, (*seed, 2, rank)), search)
