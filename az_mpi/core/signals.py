"""What signals ask of a rank. Imports only the standard library: it must be ready before slow imports begin."""

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from az_mpi.core.processes import STARTED, stat

SHARE = 0.99  # of max_hours; the rest is for storing


class Stopped(Exception):
    """The run was asked to stop, or its time is up; finished work is stored. Raised on all ranks at the same place."""


class TrainingFailed(Exception):
    """Training cannot continue, as the log says; finished work is stored. Raised on all ranks at the same place."""


class Asked(Protocol):
    """How many ranks have asked to save, and to stop: a part of `mpi.control_channel.Total`."""

    @property
    def save(self) -> int: ...

    @property
    def stop(self) -> int: ...


class Requests:
    """Requests by signals that this rank has not told the others yet: `save`, `stop`.

    deadline: of `time.monotonic`; from then on root asks to stop.
    """

    def __init__(self, deadline: float = math.inf):
        self.save = self.stop = self._interrupted = False
        self.deadline = deadline

    def tell(self, is_root: bool) -> tuple[bool, bool]:
        """Return (save, stop) for the ranks' next sum. Root's clock decides whether the time is up."""
        if is_root and self.time_is_up():
            self.stop = True
        return self.save, self.stop

    def time_is_up(self) -> bool:
        return time.monotonic() >= self.deadline

    def listen(self) -> None:
        """From now on USR1 is a request to save, and USR2, TERM and INT to stop. A second INT interrupts at once."""
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "save", True))
        for number in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(self, "stop", True))
        signal.signal(signal.SIGINT, self._interrupt)

    def hear(self, total: Asked) -> None:
        """Take over the requests of all ranks from their sum. A request to save is over: the caller answers it."""
        self.stop = self.stop or total.stop > 0
        self.save = self.save and not total.save

    def _interrupt(self, *_):
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = self.stop = True


def deadline(max_hours: float) -> float:
    """Return the `time.monotonic` at which SHARE of `max_hours` since this process began is over; infinity for 0."""
    return begun() + SHARE * 3600 * max_hours if max_hours else math.inf


def begun() -> float:
    """Return the `time.monotonic` at which this process began."""
    begun_s = int(stat("self")[1][STARTED]) / os.sysconf("SC_CLK_TCK")  # psutil knows it only to the second
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun_s
    return time.monotonic() - age_s


@contextmanager
def handling(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """Handle signals within the block. handlers: {signal: function, see `signal.signal`}. HUP stays ignored under
    nohup."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        handlers = {number: handler for number, handler in handlers.items() if number != signal.SIGHUP}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
