"""Games of uniformly random moves."""

from collections.abc import Iterator

import numpy as np

from az_mpi.games.base import Game


def random_games(game: Game, num: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, ply by ply, (states [n, S], their legal moves bool [n, A]) of those of `num` games that have not ended."""
    states = game.initial(num)
    while len(states):
        legal = game.legal(states)
        yield states, legal
        states = game.play(states, np.where(legal, rng.random(legal.shape), -1.0).argmax(axis=1).astype(np.int32))
        states = states[~game.terminal(states)[0]]
