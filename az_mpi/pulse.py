"""What ranks ask of each other while they work: counts that are added up again and again, for which nobody waits.

A signal reaches one rank or all of them, at any moment. It is only noted (`Requests`); the ranks act on it together,
after the same sum that told all of them.
"""

import math
import signal
import time
from typing import NamedTuple

import psutil

from az_mpi.world import wait

EVERY_S = 0.005
SHARE = 0.99  # of the hours that a run may take; the rest is for storing


class Stopped(Exception):
    """The run was asked to stop, or its time is up; what is finished is stored. Raised on every rank at the same
    place."""


class TrainingFailed(Exception):
    """Training cannot go on, as a log line says; what is finished is stored. Raised on every rank at the same place."""


class Requests:
    """What this rank was asked for by signals and has not yet told the others: `save`, `stop`.

    deadline: of `time.monotonic`; from then on root asks to stop.
    """

    def __init__(self, deadline=math.inf):
        self.save = self.stop = False
        self.deadline = deadline

    def tell(self, is_root):
        """Return (save, stop) for the ranks' next sum. One clock decides for all of them: root's."""
        if is_root and self.time_is_up():
            self.stop = True
        return self.save, self.stop

    def time_is_up(self):
        return time.monotonic() >= self.deadline

    def listen(self):
        """Take USR1 as a request to save, and USR2, TERM and INT as one to stop. A second INT interrupts at once."""
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "save", True))
        for number in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(self, "stop", True))
        signal.signal(signal.SIGINT, self._interrupt)

    def hear(self, total):
        """Take over what any rank was asked for: to stop is remembered, to save is answered by whoever sees `total`."""
        self.stop = self.stop or total.stop > 0
        self.save = self.save and not total.save

    def _interrupt(self, *_):
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True


def deadline(max_hours):
    """Return the `time.monotonic` at which a share of `max_hours` is over since this process began; never for 0."""
    age_s = time.time() - psutil.Process().create_time()
    return time.monotonic() - age_s + SHARE * 3600 * max_hours if max_hours else math.inf


class Total(NamedTuple):
    """Sums over ranks: the games finished, the ranks that are done with their part, and those with a request."""

    finished: int
    done: int
    exchange: int
    save: int
    stop: int


class Pulse:
    """Sums over the ranks of `world`, one after the other. All see the same totals in the same order: what follows from
    a total alone, all of them decide alike. Collective: whoever looks until a total tells it to end, all do."""

    def __init__(self, world, requests):
        self.world, self.requests = world, requests
        self._pending, self._asked = None, 0.0

    def look(self, finished=0, done=False, exchange=False):
        """Return a `Total` where one has come in since the last call, else None; then begin the next with these counts
        and this rank's requests. Never waits, and is cheap enough for every step."""
        now = time.monotonic()
        if self._pending is None:
            counts = (finished, done, exchange, *self.requests.tell(self.world.is_root))
            self._pending, self._asked = self.world.start_sum(counts), now
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
