"""Ranked reward, for games of one player; `core.ranks` names the paper.

A game counts as won if its result is above a threshold that earlier games of the run have set, as in self-play against
an opponent that plays as the run did. Games are stored with their results; what they count is computed where positions
are dealt to the trainers, and where a search comes to the end of a game.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from az_mpi.core.ranks import all_ranked
from az_mpi.search import streams

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.selfplay.record import Record


class Threshold(NamedTuple):
    """The result that games are compared with, NaN if there is none, and the score of such a game, NaN if the game has
    no scores."""

    result: float = math.nan
    score: float = math.nan


def figures(found: Threshold) -> dict[str, float]:
    """Return the numbers of a threshold by their names in metrics.jsonl; {} if there is none."""
    named = {"ranked_threshold": found.result, "ranked_threshold_score": found.score}
    return {name: value for name, value in named.items() if not math.isnan(value)}


def threshold(games: np.ndarray, settings: schema.Selfplay) -> Threshold:
    """Return the threshold that earlier games set: the least result of one of the `ranked_games` newest that at least
    the share `ranked_reward` of these does not exceed. Without games there is none.

    games: game_dtype [n], in any order: the newest are those with the largest ids. settings: `config.selfplay`."""
    if not settings.ranked_reward or not len(games):
        return Threshold()
    newest = games[np.argsort(games["id"])][-settings.ranked_games :]
    found = [
        float(np.quantile(newest[name], settings.ranked_reward, method="inverted_cdf"))
        for name in ("outcome", "score")
        if name in games.dtype.names
    ]
    return Threshold(*found)


def ranked(record: Record, result: float, seed: int) -> Record:
    """Return a record of games of one player with what the games count, 1 or -1, in place of their results. Ties are
    drawn by lot, for each game from its id and the run's seed. result: of the threshold; if it is NaN, the record
    stays as it is."""
    if math.isnan(result):
        return record
    games, positions = record.games.copy(), record.positions.copy()
    counts = all_ranked(games["outcome"], result)
    words = streams.keyed(seed, ~games["id"])  # not the stream of the game itself, whose first numbers it has used
    for i in np.flatnonzero(counts == 0):
        counts[i] = 1 if streams.uniform(words, i) < 0.5 else -1
    games["outcome"] = counts
    positions["value"] = np.repeat(counts, games["length"])
    return replace(record, games=games, positions=positions)
