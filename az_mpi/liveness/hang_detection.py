"""Self-fencing: a rank that hangs, or that the run's folder no longer answers, ends itself, and the others go on.

Outside of steps a rank may be silent for long: it compiles, loads, or waits for others. But then it is not asleep in
one and the same wait of its own while no other thread of it works. And where a file system hangs, the run waits for it
(`storage.give_up_s`) as long as it does so everywhere; a rank leaves where another one gets through. Therefore all
ranks try as soon as one is held up, and tell each other by their heartbeats: MPI is of no help, since the main threads
hang, or wait for the one that does.
"""

import errno
import math
import os
import threading
import time
from pathlib import Path

from az_mpi.core import files
from az_mpi.core.silence import SilenceTimer
from az_mpi.liveness import watchdog

ASK = 0.4  # of hang_s: who is held up for so long lets all ranks try
BUSY = 0.1  # of a core, used by all threads together: somebody works
# What a file system says of which nothing is left but its name. All else, such as that it is full, is an answer.
GONE = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN,
        errno.ENETUNREACH, errno.EREMOTEIO, errno.ENXIO, errno.ENODEV}  # fmt: skip


class Fence:
    """One rank's part. `content` and `hear` are what heartbeats carry, once a second, in their thread."""

    # Until then nobody who sleeps leaves. It would be the second one, which may read what the first one read, such as a
    # file on a server that is away; and all the others would follow.
    spared_until = -math.inf

    def __init__(self, folder, rank, hang_s, writing_s):
        """hang_s: `fault.hang_s`. writing_s(): for how many seconds this rank's writer has been at one step."""
        self.rank, self.hang_s, self.writing_s = rank, hang_s or math.inf, writing_s
        path = Path(folder) / f".reach-{rank:03d}.{os.getpid()}.tmp"
        self.every_s = min(self.hang_s / 8, 5.0)
        self.sleep, self.reach = Sleep(), Reach(path, self.every_s)
        self._slept_s, self._held_up_s = 0.0, 0.0  # held up: the longest time of any rank
        self._reached_by, self._nobody_since, self._left_out, self._grace_s = None, None, None, 0.0
        self._lock = threading.Lock()  # of these four

    def content(self):
        """Return what this rank tells root."""
        held_up_s = self._look()
        self.reach.want(max(held_up_s, self._held_up_s) > ASK * self.hang_s)
        return {"slept_s": round(self._slept_s, 1), "held_up_s": round(held_up_s, 1), "reaches": self._reaches()}

    @staticmethod
    def sum_up(contents):
        """Return what root tells all ranks of what they told it, {rank: content}."""
        return {"held_up_s": max((content["held_up_s"] for content in contents.values()), default=0.0),
                "sleeper": max(contents, key=lambda rank: contents[rank]["slept_s"], default=None),
                "reached_by": next((rank for rank in sorted(contents) if contents[rank]["reaches"]), None)}  # fmt: skip

    def hear(self, told):
        """Return in words why this rank is to be ended, or None. told: the newest `sum_up`."""
        self._held_up_s, self._reached_by = max(self._look(), told["held_up_s"]), told["reached_by"]
        if (why := self._missed()) and self._held_up_s > self.hang_s:
            return why
        # Of several that sleep, the others may do so because the first one does.
        spared = time.monotonic() < Fence.spared_until or told["sleeper"] != self.rank
        if self._slept_s > self.hang_s and self._reaches() and not spared:
            return f"asleep for {self._slept_s:.0f} s, though the run's folder answers"
        return None

    def settle(self):
        """Return as `hear` does, where a rank was lost, once it is known whether the folder answers this one."""
        if self._held_up_s > ASK * self.hang_s:  # that rank, perhaps
            Fence.spared_until = time.monotonic() + watchdog.PATIENCE_S
        while not (why := self._missed()) and self._left_out is not None and self.reach.missing_s() > 2 * self.every_s:
            time.sleep(0.05)
        return why

    def _look(self):
        self._slept_s = self.sleep.seconds()
        return max(self._slept_s, self.writing_s())

    def _reaches(self):
        return self.reach.reached_within(self.hang_s / 4)

    def _missed(self):
        """Return in words that another rank gets through and this one has not followed, or None."""
        now, missing_s = time.monotonic(), self.reach.missing_s()
        with self._lock:
            if not missing_s:
                self._nobody_since = self._left_out = None
            elif self._reached_by is None:
                self._nobody_since, self._left_out = self._nobody_since or now - missing_s, None
            elif self._left_out is None:
                # A file system that was away for long comes back for one rank sooner than for another.
                away_s = now - self._nobody_since if self._nobody_since else 0.0
                self._nobody_since, self._left_out, self._grace_s = None, now, max(self.hang_s / 2, away_s)
            else:
                self._left_out = max(self._left_out, now - missing_s)
            if self._left_out is None or now - self._left_out <= self._grace_s:
                return None
            return f"the run's folder has not answered for {missing_s:.0f} s, but rank {self._reached_by} gets through"

    def close(self):
        self.reach.close()


class Sleep:
    """Measures how long this process's main thread has been asleep in one wait while no other thread works."""

    def __init__(self):
        self._status = Path(f"/proc/self/task/{threading.main_thread().native_id}/status")
        self._timer, self._used_s = SilenceTimer(), 0.0

    def seconds(self):
        """Return the seconds; 0.0 if this kernel does not tell. To be called again and again, by one other thread."""
        seen, used_s = self._look(), time.process_time()
        if seen is None or seen != self._timer.value or watchdog.is_waiting():
            self._timer.hear()
            self._used_s = used_s
        slept_s = self._timer.look(seen)
        return slept_s if used_s - self._used_s <= BUSY * slept_s else 0.0

    def _look(self):
        """Return what changes as soon as the main thread does anything; None if this kernel does not tell."""
        try:
            lines = self._status.read_text().splitlines()
        except OSError:
            return None
        switches = [line for line in lines if "ctxt_switches" in line]
        return (watchdog.signs(), *switches) if switches else None


class Reach:
    """Whether a file can be made: tried by a thread each `every_s` while that is wanted.

    No cache of a shared file system answers that: its server makes files. What was made is removed."""

    def __init__(self, path, every_s):
        self.path, self._every_s = path, every_s
        self._wanted, self._closed = threading.Event(), False
        self._since = self._begun = self._ended = -math.inf  # of the wish, and of the newest try that had an answer
        threading.Thread(target=self._try, name="reach", daemon=True).start()

    def want(self, wanted):
        """Begin to try, or end it."""
        if not wanted:
            self._wanted.clear()
        elif not self._wanted.is_set():
            self._since = time.monotonic()
            self._wanted.set()

    def missing_s(self):
        """Return for how long it has been wanted without any answer; 0.0 where it is not wanted."""
        return time.monotonic() - max(self._since, self._ended) if self._wanted.is_set() else 0.0

    def reached_within(self, seconds):
        """Return whether a try that began within so many seconds has had an answer."""
        return self._wanted.is_set() and time.monotonic() - self._begun < seconds

    def close(self):
        self._closed = True
        self._wanted.set()

    def _try(self):
        while self._wanted.wait() and not self._closed:
            begun = time.monotonic()
            try:
                self.path.unlink(missing_ok=True)  # of a try that failed half-way
                files.create(self.path, b"")
                self.path.unlink()
                answered = True
            except OSError as error:
                answered = error.errno not in GONE
            if answered:
                self._begun, self._ended = begun, time.monotonic()
            time.sleep(self._every_s)
