"""What signals ask of a rank. The standard library only: it is there before anything that takes long to load."""

import math
import os
import signal
import time

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
        self.save = self.stop = self._interrupted = False
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
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = self.stop = True


def deadline(max_hours):
    """Return the `time.monotonic` at which a share of `max_hours` is over since this process began; never for 0."""
    with open("/proc/self/stat") as file:  # in ticks since the host was booted, of which psutil knows only the second
        begun_s = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun_s
    return time.monotonic() - age_s + SHARE * 3600 * max_hours if max_hours else math.inf
