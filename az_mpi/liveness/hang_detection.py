"""Hang detection: finds out that this rank hangs, or that it alone can no longer use the run's folder.

Outside of steps a rank may be silent for long, while it compiles, loads, or waits for others. It hangs if its main
thread sleeps in one wait (other than a wait for other ranks) while no other thread of the process works. When a file
system hangs for every rank, the run waits for it (`storage.give_up_s`); but if it answers other ranks and not this one,
this rank leaves. To find that out, all ranks try to create a file as soon as one of them is held up, and exchange the
results by heartbeats. MPI cannot be used for that, since the main threads hang, or wait for the one that does.
"""

import errno
import math
import os
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

from az_mpi.core import files
from az_mpi.core.silence import SilenceTimer
from az_mpi.liveness import watchdog

ASK = 0.4  # share of hang_s for which a rank is held up before all ranks try the folder
BUSY = 0.1  # share of a core, used by all threads together, from which on some thread works
# Errors of a file system that does not respond. All others, such as that it is full, count as answers.
GONE = {
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EREMOTEIO,
    errno.ENXIO,
    errno.ENODEV,
}


class Answered(Enum):
    """Which ranks the run's folder answers, as one of them knows it."""

    THIS = auto()  # or this rank does not ask
    NONE = auto()
    OTHERS = auto()  # at least one, and not this one


class HangDetector:
    """One rank's part. Its methods are called once a second, in the thread of the heartbeats; `settle` in any."""

    # Until then no sleeping rank leaves. If a rank was lost because it slept, for example in a read of a file whose
    # server is away, the next one may sleep in the same read, and all ranks would leave one after the other.
    spared_until = -math.inf

    def __init__(
        self,
        folder: str | Path,
        rank: int,
        hang_s: float,
        writing_s: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ):
        """hang_s: `fault.hang_s`. writing_s(): for how many seconds this rank's writer has been at one step."""
        self.rank, self.hang_s, self._writing_s = rank, hang_s or math.inf, writing_s
        self._clock, self._sleep = clock, sleep
        self.every_s = min(self.hang_s / 8, 5.0)
        self.main = MainThread()
        self.folder = FolderProbe(Path(folder) / f".probe-{rank:03d}.{os.getpid()}.tmp", self.every_s, clock)
        self._slept_s, self._held_up_s = 0.0, 0.0  # held up: the longest time of any rank
        self._other: int | None = None  # a rank that the folder answers; root has told it
        self._lock = threading.Lock()  # of the next three
        self._answered = Answered.THIS
        self._since = 0.0  # when that began, by the clock
        self._grace_s = 0.0  # for how long it may be OTHERS

    def facts(self) -> dict:
        """Return what this rank tells root."""
        held_up_s = self._look()
        self.folder.want(max(held_up_s, self._held_up_s) > ASK * self.hang_s)
        return {"slept_s": round(self._slept_s, 1), "held_up_s": round(held_up_s, 1), "answered": self._is_answered()}

    @staticmethod
    def sum_up(facts: dict) -> dict:
        """Return what root tells all ranks. facts: {rank: its facts} of the ranks that root hears."""
        return {
            "held_up_s": max((one["held_up_s"] for one in facts.values()), default=0.0),
            "sleeper": max(facts, key=lambda rank: facts[rank]["slept_s"], default=None),
            "answered": next((rank for rank in sorted(facts) if facts[rank]["answered"]), None),
        }

    def hear(self, told: dict) -> str | None:
        """Return why this rank is to be ended, in words, or None. told: the newest `sum_up`."""
        self._held_up_s = max(self._look(), told["held_up_s"])
        self._other = told["answered"]
        if (why := self._left_out()) and self._held_up_s > self.hang_s:
            return why
        # If several ranks sleep, the others may do so because of the one that has slept longest.
        spared = self._clock() < HangDetector.spared_until or told["sleeper"] != self.rank
        if self._slept_s > self.hang_s and self._is_answered() and not spared:
            return f"asleep for {self._slept_s:.0f} s, though the run's folder answers"
        return None

    def settle(self) -> str | None:
        """After a loss of ranks, wait until it is known whether the folder answers this rank. Return as `hear` does."""
        if self._held_up_s > ASK * self.hang_s:  # perhaps it was the lost rank that was held up
            HangDetector.spared_until = self._clock() + watchdog.PATIENCE_S
        while not (why := self._left_out()) and self._answered is Answered.OTHERS:
            if self.folder.silent_s() <= 2 * self.every_s:
                break
            self._sleep(0.05)
        return why

    def close(self) -> None:
        """End the thread that tries the folder."""
        self.folder.close()

    def _look(self):
        self._slept_s = self.main.asleep_s()
        return max(self._slept_s, self._writing_s())

    def _is_answered(self):
        return self.folder.answered_within(self.hang_s / 4)

    def _left_out(self):
        """If the folder answers another rank but has not answered this one for too long, return that in words."""
        now, silent_s = self._clock(), self.folder.silent_s()
        with self._lock:
            if not silent_s:
                self._answered = Answered.THIS
            elif self._other is None:
                if self._answered is not Answered.NONE:
                    self._answered, self._since = Answered.NONE, now - silent_s
            elif self._answered is Answered.OTHERS:
                self._since = max(self._since, now - silent_s)
            else:
                # A file system that was away for long may come back sooner for one rank than for another.
                away_s = now - self._since if self._answered is Answered.NONE else 0.0
                self._grace_s = max(self.hang_s / 2, away_s)
                self._answered, self._since = Answered.OTHERS, now
            if self._answered is Answered.OTHERS and now - self._since > self._grace_s:
                return f"the run's folder has not answered for {silent_s:.0f} s, but answers rank {self._other}"
            return None


class MainThread:
    """Measures how long this process's main thread has been asleep in one wait while no other thread works."""

    def __init__(self) -> None:
        # The main thread's number is that of the process. Python remembers another one in a process that was forked.
        self._status = Path(f"/proc/self/task/{os.getpid()}/status")
        self._timer, self._used_s = SilenceTimer(), 0.0

    def asleep_s(self) -> float:
        """Return the seconds; 0.0 if this kernel does not tell. To be called repeatedly, by one other thread."""
        seen, used_s = self._look(), time.process_time()
        if seen is None or seen != self._timer.value or watchdog.is_waiting():
            self._timer.hear()
            self._used_s = used_s
        slept_s = self._timer.look(seen)
        return slept_s if used_s - self._used_s <= BUSY * slept_s else 0.0

    def _look(self):
        """Return a value that changes when the main thread does anything; None if this kernel has none."""
        try:
            lines = self._status.read_text().splitlines()
        except OSError:
            return None
        switches = [line for line in lines if "ctxt_switches" in line]
        return (watchdog.signs(), *switches) if switches else None


class FolderProbe:
    """Finds out whether a folder answers: a thread creates and removes a file every `every_s` while that is wanted.

    That needs an answer of the server: no cache of a shared file system can give it."""

    def __init__(self, path: Path, every_s: float, clock: Callable[[], float] = time.monotonic):
        self.path, self._every_s, self._clock = path, every_s, clock
        self._wanted, self._closed = threading.Event(), False
        self._silence, self._begun = SilenceTimer(clock=clock), -math.inf  # begun: the newest try with an answer
        threading.Thread(target=self._run, name="folder probe", daemon=True).start()

    def want(self, wanted: bool) -> None:
        """Start or stop trying."""
        if not wanted:
            self._wanted.clear()
        elif not self._wanted.is_set():
            self._silence.hear()
            self._wanted.set()

    def silent_s(self) -> float:
        """Return for how many seconds a wanted answer has been missing; 0.0 while none is wanted."""
        return self._silence.seconds() if self._wanted.is_set() else 0.0

    def answered_within(self, seconds: float) -> bool:
        """Return whether a try that began within so many seconds was answered."""
        return self._wanted.is_set() and self._clock() - self._begun < seconds

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wanted.set()

    def try_once(self) -> None:
        """Try once."""
        begun = self._clock()
        try:
            self.path.unlink(missing_ok=True)  # of a try that failed half-way
            files.create(self.path, b"")
            self.path.unlink()
        except OSError as error:
            if error.errno in GONE:
                return
        self._begun = begun
        self._silence.hear()

    def _run(self):
        while self._wanted.wait() and not self._closed:
            self.try_once()
            time.sleep(self._every_s)
