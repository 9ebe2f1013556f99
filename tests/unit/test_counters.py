"""The counts of a rank are those of a record by hand, and each report begins with zeros."""

import numpy as np

from az_mpi import games
from az_mpi.selfplay.record import Record
from az_mpi.telemetry.counters import Counters

TICTACTOE = games.make("tictactoe")


def record_of(lengths, outcomes, truncated, iterations):
    """Return a record of games that have no positions of interest."""
    record = Record.empty(TICTACTOE)
    headers = np.zeros(len(lengths), record.games.dtype)
    headers["length"], headers["outcome"], headers["truncated"] = lengths, outcomes, truncated
    headers["iteration"] = iterations
    return Record(headers, np.zeros(sum(lengths), record.positions.dtype), record.policy)


def test_the_games_of_a_record_are_counted():
    counters = Counters()
    counters.add_games(record_of([5, 9, 6], [1, 0, -1], [False, True, False], [2, 3, 3]), iteration=3)
    counters.add_games(record_of([7], [1], [False], [3]), iteration=4)
    assert counters.num_games == 4 and counters.num_positions == 27
    assert counters.outcome == 1.0 and counters.num_truncated == 1 and counters.staleness == 2
    counters.add_games(record_of([5] * 4, [0] * 4, [False] * 4, [6, 4, 3, 0]), iteration=6)
    assert (counters.num_stale_1, counters.num_stale_2, counters.num_stale_more) == (2, 1, 2)


def test_counts_are_taken_by_rank_and_begin_again(world):
    counters = Counters(num_games=3, playing_s=0.5)
    taken = counters.take(world)
    assert taken["num_games"].tolist() == [3.0] and taken["playing_s"].tolist() == [0.5]
    assert counters == Counters() and taken.keys() == vars(counters).keys()
