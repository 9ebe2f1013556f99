"""Games of uniformly random moves."""

from collections.abc import Iterator

import numpy as np

from az_mpi.games.base import Game


def random_games(game: Game, num: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, ply by ply, (states [n, S], their legal moves bool [n, A]) of those of `num` games that have not ended.
    None is longer than `game.max_plies`, even if the rules do not end it there."""
    states = game.initial(num)
    for _ in range(game.max_plies):
        if not len(states):
            return
        legal = game.legal(states)
        yield states, legal
        states = game.play(states, random_actions(legal, rng.random(len(states))))
        states = states[~game.terminal(states)[0]]


def random_actions(legal: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return a uniformly random legal action for each row of legal, bool [n, A], as int64 [n]. uniform: float [n] in
    [0, 1), the random numbers that choose."""
    rank = (uniform * legal.sum(axis=1)).astype(np.int64)
    return np.argmax(np.cumsum(legal, axis=1) > rank[:, None], axis=1)
