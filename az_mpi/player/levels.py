"""Weaker play for people: levels from 1, a beginner, to 10, full strength, by less search and by chance."""

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    from az_mpi.player.session import Session
    from az_mpi.search.reading import RootMove

LEAST, FULL = 1.0, 10.0
# A level has so much of the full search's logarithm: simulations ** SHARES. Its move is drawn in proportion to
# (visits + prior) ** (1 / temperature). These are the levels 1 to 10, with straight lines in between; they were chosen
# so that each level is as much stronger than the one before as can be, see docs/play.md.
AT = tuple(float(level) for level in range(1, 11))
SHARES = (0.0, 0.12, 0.19, 0.25, 0.28, 0.31, 0.35, 0.5, 0.7, 1.0)
TEMPERATURES = (4.0, 3.0, 2.35, 1.8, 1.5, 1.25, 1.0, 0.7, 0.35, 0.0)
# Elo that UCI_Elo has for the levels 1 and 10. They say how far levels are apart, not how strong a network is.
ELO_LEAST, ELO_FULL = 600, 2400


class Searched(Protocol):
    """A position that was searched: a session, after `Session.think`."""

    def moves(self) -> "list[RootMove]":
        """Return the legal moves with what the search found."""

    def best(self) -> int:
        """Return the action that the search would play."""


def limit_at(level: float, limit: Limit, simulations: int) -> Limit:
    """Return the limit for a move at a level, from LEAST to FULL. simulations: for a move at full strength where the
    limit has none."""
    if level >= FULL:
        return limit
    most = limit.simulations or simulations
    return limit._replace(simulations=max(round(most ** _between(level, AT, SHARES)), 1))


def stay_within(session: "Session", limit: Limit) -> None:
    """Drop a search of the position that has more simulations than the limit, such as one for a hint, so that the move
    is as strong as was chosen. Call it before thinking at a level below FULL."""
    if limit.simulations and session.simulations > limit.simulations:
        session.forget()


def choose(session: Searched, level: float, rng: random.Random) -> int:
    """Return the action to play at a level; at FULL the one that the search would play."""
    if level >= FULL:
        return session.best()
    temperature = _between(level, AT, TEMPERATURES)
    moves = session.moves()
    logits = [math.log(move.visits + move.prior + 1e-9) / temperature for move in moves]
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return rng.choices(moves, weights)[0].action


def of_elo(elo: int) -> float:
    """Return the level of a number of UCI_Elo."""
    return _between(elo, (ELO_LEAST, ELO_FULL), (LEAST, FULL))


def _between(x: float, at: Sequence[float], values: Sequence[float]) -> float:
    """Return the value at x of straight lines between points; beyond the last ones their values."""
    for left, right, low, high in zip(at, at[1:], values, values[1:]):
        if x <= right:
            return low + (high - low) * max(x - left, 0) / (right - left)
    return values[-1]
