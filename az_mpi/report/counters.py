"""What a rank did since the last report."""

import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields

import numpy as np


@dataclass
class Counters:
    """This rank's counts. `games_num` to `staleness` are about the games that it exchanged."""

    games_num: int = 0
    positions_num: int = 0
    outcome: float = 0.0  # summed; of the player who began, in [-1, 1]
    staleness: int = 0  # summed; iterations between the weights a game began with and those at its exchange
    exchanges_num: int = 0
    exchange_bytes: int = 0  # sent to other ranks
    broadcast_bytes: int = 0  # of weights, sent to other ranks
    played_num: int = 0  # simulations, in self-play that all ranks take part in
    meanwhile_num: int = 0  # simulations, while others trained
    playing_s: float = 0.0  # in self-play, also while others trained; without waiting for other ranks
    bad_steps_num: int = 0  # optimiser steps that were skipped, not being finite

    def add_games(self, record, iteration):
        """Count the games of a `Record` that is exchanged in an iteration."""
        self.games_num += len(record.games)
        self.positions_num += int(record.games["length"].sum())
        self.outcome += float(record.games["outcome"].sum())
        self.staleness += int((iteration - record.games["iteration"]).sum())

    @contextmanager
    def playing(self, world):
        """Count the seconds of this block as `playing_s`, without those in which this rank waits for others."""
        start = time.perf_counter() - world.waited_s
        yield
        self.playing_s += time.perf_counter() - world.waited_s - start

    def take(self, world):
        """Return {count: float64 [ranks]} since the last call. Collective."""
        rows = np.array(world.collect(astuple(self)), np.float64)
        names = [field.name for field in fields(self)]
        self.__init__()
        return dict(zip(names, rows.T))
