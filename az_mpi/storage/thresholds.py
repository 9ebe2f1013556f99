"""The thresholds of `selfplay.ranked_reward`, which follow from the games that a run has stored."""

from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from az_mpi.config.schema import Config
from az_mpi.games.base import Game
from az_mpi.selfplay import ranked
from az_mpi.selfplay.record import game_dtype
from az_mpi.storage import segment


def of_iteration(folder: Path, config: Config, game: Game, iteration: int) -> ranked.Threshold:
    """Return the threshold of the games of an iteration, from those of the iterations before it: always the same one,
    however often a run was resumed. A segment that is damaged counts as one without games.

    folder: RUN/games. Raises OSError if the file system fails for a while."""
    settings = config.selfplay
    if not settings.ranked_reward:
        return ranked.Threshold()
    before = [row for row in segment.paths(folder) if row[0] < iteration]
    found = [np.empty(0, game_dtype(game))]
    for _, rows in groupby(reversed(before), key=itemgetter(0)):  # whole iterations: their segments are in no order
        found += [_games(path, game) for _, path in rows]
        if sum(map(len, found)) >= settings.ranked_games:
            break
    return ranked.threshold(np.concatenate(found), settings)


def _games(path, game):
    try:
        return segment.read_games(path, game)
    except segment.SegmentError:
        return np.empty(0, game_dtype(game))
