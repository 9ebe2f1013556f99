"""Moves that are drawn by lot, such as throws of dice.

Shapes: B batch, S numbers a state, O outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.games.base import CHANCE

if TYPE_CHECKING:
    from az_mpi.games.base import Game

SUM_WITHIN = 1e-5  # of 1: so far the sum of probabilities, which are float32, may be from it


def due(game: Game, states: np.ndarray) -> np.ndarray:
    """Return in which states, [B, S], it is chance's move, bool [B]."""
    return game.to_play(states) == CHANCE if game.num_outcomes else np.zeros(len(states), np.bool_)


def draw(game: Game, states: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return an outcome for each of these states, [B, S], where it is chance's move, int64 [B]. uniform: float [B] in
    [0, 1), the random numbers that choose. Outcomes of probability 0 are never drawn."""
    chances = game.chances(states).astype(np.float64)
    upto = np.cumsum(chances, axis=1)
    chosen = np.argmax(upto > (uniform * upto[:, -1])[:, None], axis=1)
    return chosen.astype(np.int64)


def resolve(
    game: Game,
    states: np.ndarray,
    uniform: Callable[[np.ndarray], np.ndarray],
    drawn: Callable[[np.ndarray, np.ndarray], object] = lambda rows, outcomes: None,
) -> np.ndarray:
    """Return the states, [B, S], after all moves of chance that come first, one after the other.

    uniform(rows): random numbers in [0, 1), float [n], for these rows of the states, int64 [n]. drawn(rows, outcomes)
    is called with what was drawn for them."""
    states = np.array(states)
    while len(rows := np.flatnonzero(due(game, states))):
        outcomes = draw(game, states[rows], uniform(rows))
        drawn(rows, outcomes)
        states[rows] = game.play(states[rows], outcomes)
    return states
