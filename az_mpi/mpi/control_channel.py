"""What ranks tell each other while they work: counts that are summed repeatedly without blocking.

A signal can reach one rank or all of them, at any moment. It is only noted (`signals.Requests`). The ranks act on it
together, after the sum that told all of them.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from az_mpi.core.signals import Requests
from az_mpi.mpi.pending import PendingSum
from az_mpi.mpi.world import World, wait

EVERY_S = 0.005


class Total(NamedTuple):
    """Sums over ranks: the games finished, the ranks that are done with their part, and those with a request."""

    finished: int
    done: int
    exchange: int
    save: int
    stop: int


class ControlChannel:
    """Sums over the ranks of `world`, one after another. All ranks see the same totals in the same order, so a decision
    that depends on a total alone is the same on all of them. Collective: all ranks poll until the same total.

    every_s: seconds that a sum takes at least; with 0, trainers have one for each step."""

    def __init__(self, world: World, requests: Requests, every_s: float = EVERY_S):
        self.world, self.requests, self._every_s = world, requests, every_s
        self._pending: PendingSum | None = None
        self._asked = 0.0  # when that sum was started
        self.told_finished = 0  # this rank's `finished` in the newest total

    def poll(self, finished: int = 0, done: bool = False, exchange: bool = False) -> Total | None:
        """Return a `Total` if one has come in since the last call, else None. If no sum is under way, start one with
        these counts and this rank's requests. Never blocks; cheap enough for every step."""
        now = time.monotonic()
        if self._pending is None:
            counts = (finished, done, exchange, *self.requests.tell(self.world.is_root))
            self._pending, self._asked = self.world.start_sum(counts), now
            self.told_finished = finished
        elif now - self._asked >= self._every_s and self._pending.finished():
            total, self._pending = Total(*self._pending.total), None
            self.requests.hear(total)
            return total
        return None

    def wait(self, ended: Callable[[Total], object], **counts: Any) -> Total:
        """Poll with these counts until `ended(total)`; return that total. Counts as waiting, like any collective."""
        totals = []

        def over():
            total = self.poll(**counts)
            totals[:] = [total]
            return total is not None and ended(total)

        wait(over)
        return totals[0]
