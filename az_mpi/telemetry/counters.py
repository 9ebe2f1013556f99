"""Counts of what a rank has done since the last report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from az_mpi.mpi.world import World
    from az_mpi.selfplay.record import Record


@dataclass
class Counters:
    """This rank's counts. Those from `num_games` to `num_false_resigns` are of the games that it exchanged."""

    num_games: int = 0
    num_positions: int = 0
    outcome: float = 0.0  # sum of the outcomes for the player who began, each in [-1, 1]
    num_truncated: int = 0  # games that the move cap ended
    staleness: int = 0  # sum over games: iterations between the weights at a game's begin and those at its exchange
    num_stale_1: int = 0  # games of that staleness
    num_stale_2: int = 0
    num_stale_more: int = 0  # of 3 or more
    num_abandoned: int = 0  # games given up since they were older than `selfplay.max_staleness`
    num_resign_tests: int = 0  # games that continued although one player would have resigned
    num_false_resigns: int = 0  # of these, games that this player did not lose
    num_exchanges: int = 0
    exchange_bytes: int = 0  # sent to other ranks
    broadcast_bytes: int = 0  # of weights, sent to other ranks
    num_played: int = 0  # simulations in the self-play phase
    num_meanwhile: int = 0  # simulations while others trained
    playing_s: float = 0.0  # in self-play, including that while others trained, without waiting for other ranks
    num_bad_steps: int = 0  # optimiser steps that were skipped: loss or gradient not finite

    def add_games(self, record: Record, iteration: int, resign_threshold: float = 1.0) -> None:
        """Count the games of a record that is exchanged in `iteration`. resign_threshold: see `resign_tests`."""
        self.num_games += len(record.games)
        self.num_positions += int(record.games["length"].sum())
        self.outcome += float(record.games["outcome"].sum())
        self.num_truncated += int(record.games["truncated"].sum())
        stale = iteration - record.games["iteration"]
        self.staleness += int(stale.sum())
        self.num_stale_1 += int((stale == 1).sum())
        self.num_stale_2 += int((stale == 2).sum())
        self.num_stale_more += int((stale > 2).sum())
        tested, false = resign_tests(record, resign_threshold)
        self.num_resign_tests += tested
        self.num_false_resigns += false

    @contextmanager
    def playing(self, world: World) -> Iterator[None]:
        """Add the seconds of this block to `playing_s`, without those in which this rank waits for others."""
        start = time.perf_counter() - world.waited_s
        yield
        self.playing_s += time.perf_counter() - world.waited_s - start

    def take(self, world: World) -> dict[str, np.ndarray]:
        """Return {count: float64 [ranks]} since the last call, and begin again at 0. Collective over world."""
        rows = np.array(world.collect(astuple(self)), np.float64)
        vars(self).update(vars(Counters()))
        return dict(zip([field.name for field in fields(self)], rows.T))


def resign_tests(record: Record, threshold: float) -> tuple[int, int]:
    """Return (how many games continued although a player would have resigned, how many of these that player did not
    lose).

    A player would resign where the root's value is below -threshold. The first such position of a game counts."""
    positions = record.positions
    ends = np.cumsum(record.games["length"])
    below = np.flatnonzero(positions["root_value"] < -threshold)
    games, at = np.unique(np.searchsorted(ends, below, side="right"), return_index=True)
    first = below[at]
    continued = first < ends[games] - 1  # else the player did resign, or the game ended with this move
    return int(continued.sum()), int((positions["value"][first[continued]] >= 0).sum())
