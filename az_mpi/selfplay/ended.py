"""Games of self-play that have ended: what is kept of each, until all of them become one record.

A game costs few steps of Python when it ends, and the record of many games as many as that of one.
Shapes: n positions of a game, M policy entries of a game, P players, S numbers a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from az_mpi.core.players import from_mover
from az_mpi.selfplay.record import CHANCE_MOVE, Record, game_dtype, position_dtype

if TYPE_CHECKING:
    from az_mpi.games.base import Game


class Ended(NamedTuple):
    """A game. row: of `Record.games`; outcome: float32 [P], the result of each player; plies: int64 [n]; states [n, S];
    moves: `moves.MOVE` [n]; policy: POLICY [M]; drawn: (ply, outcome) of each move of chance."""

    row: tuple
    outcome: np.ndarray
    plies: np.ndarray
    states: np.ndarray
    moves: np.ndarray
    policy: np.ndarray
    drawn: Sequence[tuple[int, int]]


def record(game: Game, ended: Sequence[Ended], surprise_share: float) -> Record:
    """Return these games as one record, in the order of their ids. surprise_share: see `weights_by_surprise`."""
    if not ended:
        return Record.empty(game)
    ended = sorted(ended, key=lambda one: one.row[0])
    games = np.array([one.row for one in ended], game_dtype(game))
    moves = np.concatenate([one.moves for one in ended])
    positions = np.zeros(len(moves), position_dtype(game))
    positions["game"] = np.repeat(games["id"], games["length"])
    positions["ply"] = np.concatenate([one.plies for one in ended])
    positions["state"] = np.concatenate([one.states for one in ended])
    # The target is the policy of the search; the temperature only decides which move is played.
    for name in ("to_play", "action", "root_value", "policy_count"):
        positions[name] = moves[name]
    outcome = np.repeat([one.outcome for one in ended], games["length"], axis=0)
    mover = moves["to_play"]
    positions["value"] = from_mover(outcome, mover) if outcome.shape[1] > 2 else outcome[np.arange(len(moves)), mover]
    positions["weight"] = 1
    if surprise_share:
        weights = [weights_by_surprise(one.moves["surprise"], surprise_share) for one in ended]
        positions["weight"] = np.concatenate(weights)
    drawn = [(one.row[0], ply, outcome) for one in ended for ply, outcome in one.drawn]
    return Record(games, positions, np.concatenate([one.policy for one in ended]), np.array(drawn, CHANCE_MOVE))


def weights_by_surprise(surprises: np.ndarray, share: float) -> np.ndarray:
    """Return the weights of a game's positions, float [n], which sum up to n: `share` of that is divided in proportion
    to surprises, float [n], the rest evenly (KataGo's policy surprise weighting)."""
    total = float(surprises.sum(dtype=np.float64))
    return 1 - share + share * len(surprises) * surprises / total if share and total > 0 else np.ones(len(surprises))
