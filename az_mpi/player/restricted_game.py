"""A game in one position of which only some moves are legal, for a search that shall look at these alone."""

from collections.abc import Collection
from copy import copy

import numpy as np

from az_mpi.games.base import Game


def restricted(game: Game, state: np.ndarray, actions: Collection[int]) -> Game:
    """Return the game with these of the legal actions of `state`, [S], alone; at least one. Other states stay as they
    are."""
    others = np.ones(game.num_actions, np.bool_)
    others[list(actions)] = False
    legal = game.legal

    def of_these(states):
        mask = legal(states)
        same = (states == state).all(axis=1)
        if same.any():
            mask = np.array(mask)  # the game may keep its own
            mask[same] &= ~others
        return mask

    alike = copy(game)
    alike.legal = of_these  # type: ignore[method-assign]
    return alike
