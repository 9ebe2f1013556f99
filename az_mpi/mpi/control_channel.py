"""What ranks ask of each other while they work: counts that are added up again and again, for which nobody waits.

A signal reaches one rank or all of them, at any moment. It is only noted (`signals.Requests`); the ranks act on it
together, after the same sum that told all of them.
"""

import time
from typing import NamedTuple

from az_mpi.mpi.world import wait

EVERY_S = 0.005


class Total(NamedTuple):
    """Sums over ranks: the games finished, the ranks that are done with their part, and those with a request."""

    finished: int
    done: int
    exchange: int
    save: int
    stop: int


class ControlChannel:
    """Sums over the ranks of `world`, one after the other. All see the same totals in the same order: what follows from
    a total alone, all of them decide alike. Collective: whoever looks until a total tells it to end, all do."""

    def __init__(self, world, requests):
        self.world, self.requests = world, requests
        self._pending, self._asked = None, 0.0
        self.told_finished = 0  # this rank's `finished` in the newest total

    def look(self, finished=0, done=False, exchange=False):
        """Return a `Total` where one has come in since the last call, else None; then begin the next with these counts
        and this rank's requests. Never waits, and is cheap enough for every step."""
        now = time.monotonic()
        if self._pending is None:
            counts = (finished, done, exchange, *self.requests.tell(self.world.is_root))
            self._pending, self._asked = self.world.start_sum(counts), now
            self.told_finished = finished
        elif now - self._asked >= EVERY_S and self._pending.finished():
            total, self._pending = Total(*self._pending.total), None
            self.requests.hear(total)
            return total
        return None

    def wait(self, ended, **counts):
        """Look with these counts until `ended(total)` and return that total; idle time, as in any collective."""
        totals = []

        def over():
            total = self.look(**counts)
            totals[:] = [total]
            return total is not None and ended(total)

        wait(over)
        return totals[0]


class Lockstep:
    """Requests of ranks that go in step, such as trainers: `begin` before what they do together, `end` after it."""

    def __init__(self, world, requests):
        self.world, self.requests, self._pending = world, requests, None

    def begin(self):
        self._pending = self.world.start_sum((0, 0, 0, *self.requests.tell(self.world.is_root)))

    def end(self):
        """Return the `Total`. Waits for nobody, since all have begun before they did together what lies between."""
        total = Total(*self._pending.total)
        self.requests.hear(total)
        return total
