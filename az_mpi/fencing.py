"""Self-fencing: a rank that hangs, or that the run's folder no longer answers, ends itself, and the others go on.

Outside of steps a rank may be silent for long: it compiles, loads, or waits for others. But then it is not asleep in
one and the same wait of its own while no other thread of it works. And where a file system hangs, the run waits for it
(`storage.give_up_s`) as long as it does so everywhere; a rank leaves where another one gets through. Therefore all
ranks try as soon as one is held up, and tell each other by their heartbeats: MPI is of no help, since the main threads
hang, or wait for the one that does.
"""

import math
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from az_mpi import files, watchdog

ASK = 0.4  # of hang_s: who is held up for so long lets all ranks try
BUSY = 0.1  # of a core, used by all threads together: somebody works


class Fence:
    """One rank's part. `content` and `hear` are what heartbeats carry, once a second, in their thread."""

    def __init__(self, folder, hang_s, writing_s):
        """hang_s: `fault.hang_s`. writing_s(): for how many seconds this rank's writer has been at one step."""
        self.hang_s, self.writing_s = hang_s or math.inf, writing_s
        self.sleep, self.reach = Sleep(), Reach(Path(folder) / f".reach.{os.getpid()}.tmp", min(self.hang_s / 8, 5.0))
        self._slept_s, self._held_up_s = 0.0, 0.0  # held up: the longest time of any rank
        self._reached_by, self._left_out = None, None  # since when another rank gets through, and this one does not

    def content(self):
        """Return what this rank tells root."""
        held_up_s = self._look()
        self.reach.want(max(held_up_s, self._held_up_s) > ASK * self.hang_s)
        return {"held_up_s": round(held_up_s, 1), "reaches": self._reaches()}

    @staticmethod
    def sum_up(contents):
        """Return what root tells all ranks of what they told it, (rank, content) each."""
        reached_by = min((rank for rank, content in contents if content["reaches"]), default=None)
        return {"held_up_s": max((content["held_up_s"] for _, content in contents), default=0.0),
                "reached_by": reached_by}  # fmt: skip

    def hear(self, told):
        """Return in words why this rank is to be ended, or None. told: the newest `sum_up`."""
        self._held_up_s, self._reached_by = max(self._look(), told["held_up_s"]), told["reached_by"]
        if self._reached_by is None or self._reaches() or not self.reach.missing_s():
            self._left_out = None
        elif self._left_out is None:
            self._left_out = time.monotonic()
        if self._held_up_s > self.hang_s and self._is_left_out():
            return self._missing()
        if self._slept_s > self.hang_s and self._reaches():
            return f"asleep for {self._slept_s:.0f} s, and not for its file system"
        return None

    def settle(self):
        """Wait until it is known whether the folder answers here, where that was asked; then return as `hear` does."""
        while self.reach.missing_s() and self._left_out and not self._reaches():
            if self._is_left_out():
                return self._missing()
            time.sleep(0.05)
        return None

    def _look(self):
        self._slept_s = self.sleep.seconds()
        return max(self._slept_s, self.writing_s())

    def _reaches(self):
        return self.reach.reached_within(self.hang_s / 4)

    def _is_left_out(self):
        # A file system that was away may come back for one rank sooner than for another.
        return self._left_out is not None and time.monotonic() - self._left_out > self.hang_s / 2

    def _missing(self):
        return (f"its file system has not answered for {self.reach.missing_s():.0f} s, but rank {self._reached_by}'s "
                "has")  # fmt: skip

    def close(self):
        self.reach.close()


class Sleep:
    """How long this process's main thread has been asleep in one wait of its own, for which no other thread works."""

    def __init__(self):
        self._status = Path(f"/proc/self/task/{threading.main_thread().native_id}/status")
        self._seen, self._since, self._used = None, 0.0, 0.0

    def seconds(self):
        """Return it; 0.0 where this kernel does not tell. To be called again and again, by one other thread."""
        now, used, seen = time.monotonic(), time.process_time(), self._look()
        if seen is None or seen != self._seen or watchdog.is_waiting():
            self._seen, self._since, self._used = seen, now, used
        slept_s = now - self._since
        return slept_s if used - self._used <= BUSY * slept_s else 0.0

    def _look(self):
        """Return what changes as soon as the main thread does anything."""
        try:
            lines = self._status.read_text().splitlines()
        except OSError:
            return None
        switches = [line for line in lines if "ctxt_switches" in line]
        return (watchdog.signs(), *switches) if switches else None


class Reach:
    """Whether a file can be written: tried by a thread each `every_s` while that is wanted.

    The file is made, made durable and removed: no cache of a file system answers that."""

    def __init__(self, path, every_s):
        self.path, self._every_s = path, every_s
        self._wanted, self._closed, self._thread = threading.Event(), False, None
        self._since, self._reached = 0.0, -math.inf

    def want(self, wanted):
        """Begin to try, or end it."""
        if not wanted:
            self._wanted.clear()
        elif not self._wanted.is_set():
            self._since = time.monotonic()
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._try, name="reach", daemon=True)
                self._thread.start()

    def missing_s(self):
        """Return for how long it has been wanted without a try that succeeded; 0.0 where it is not wanted."""
        return time.monotonic() - max(self._since, self._reached) if self._wanted.is_set() else 0.0

    def reached_within(self, seconds):
        """Return whether a try that began within so many seconds has succeeded."""
        return self._wanted.is_set() and time.monotonic() - self._reached < seconds

    def close(self):
        self._closed = True
        self._wanted.set()

    def _try(self):
        while self._wanted.wait() and not self._closed:
            begun = time.monotonic()
            with suppress(OSError):
                self.path.unlink(missing_ok=True)  # of a try that failed half-way
                files.create(self.path, b"")
                files.sync(self.path)
                self.path.unlink()
                self._reached = begun
            time.sleep(self._every_s)
