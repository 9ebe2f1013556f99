"""The watchdog: a small process beside each rank that kills the rank (SIGKILL) when it hangs.

A rank that is stopped, or hangs in a file system or in a kernel, holds up all others, and MPI does not report it. MPI
does report a dead rank; then the others continue, or the job is started again. The watchdog needs no thread of the rank
and no network: it reads a counter in memory that it shares with the rank. It imports only the standard library.

A rank that is stopped (SIGSTOP) is killed after `hang_s`, whatever it is doing. In self-play, matches and training,
which consist of steps of equal length, and while it waits for its own GPU, a rank is killed when it is silent for
`hang_s`, or for LONGER times its longest step so far if that is longer. Elsewhere, where it compiles, loads, uses a
file system or waits for others, it is killed after PATIENCE_S; hang_detection.py may find it asleep there sooner.

Until all ranks have joined the MPI job, MPI reports no loss: under ULFM all ranks wait in MPI_Init for one that was
killed. Then its watchdog ends the job.
"""

import math
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from az_mpi.core.processes import STATE, stat
from az_mpi.core.silence import SilenceTimer

LOOK_EVERY_S = 0.25
PATIENCE_S = 900.0
LONGER = 10
JOIN_S = 5.0  # for mpirun to end by itself a job of which a rank has ended before all had joined
# The numbers of 64 bits that a rank shares with its watchdog, by their places.
_COUNT = 0  # signs of life
_STEPS = 1  # steps done in the present block of `steps`; 0 outside of one
_HANG_MS = 2  # `fault.hang_s`
_JOINED = 3  # 1 once the rank has joined the MPI job
_RANK = 4  # for messages
_WORDS = 5  # how many they are
ENDED_EARLY = "a rank ended before all had joined"
LAUNCHERS = ("prterun", "prted", "mpirun", "orted")
FAMILIAR = 2  # steps before a step can count as a hang: the first may compile, the second is measured
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from az_mpi.liveness import watchdog; watchdog.main()"

_words: list[int] | memoryview = [0] * _WORDS  # until `start` shares them
_waits = 0  # blocks of `waiting` that this process is in


def tick() -> None:
    """Give a sign of life."""
    _words[_COUNT] += 1


def step() -> None:
    """Give a sign of life at the end of a step, in a block of `steps`."""
    _words[_COUNT] += 1
    _words[_STEPS] += 1


@contextmanager
def steps(done: int = 0) -> Iterator[None]:
    """Mark a block, or a function, that consists of steps of about equal length; the first may take longer, to compile.
    done: steps that count as done already."""
    before, _words[_STEPS] = _words[_STEPS], done
    tick()
    try:
        yield
    finally:
        tick()  # first: these seconds must not count as a step's of the block around this one
        _words[_STEPS] = before


def brief() -> AbstractContextManager[None]:
    """Mark a block that does not compile, nor wait for other ranks or a file system. It may wait for the rank's GPU."""
    return steps(FAMILIAR)


def aside() -> AbstractContextManager[None]:
    """Mark a part of a step whose length varies, such as one that uses a file system."""
    return steps()


@contextmanager
def waiting() -> Iterator[None]:
    """Mark a block, or a part of a step, in which this rank waits for others, as long as they take."""
    global _waits
    with aside():
        _waits += 1
        try:
            yield
        finally:
            _waits -= 1


def is_waiting() -> bool:
    """Return whether this rank is in a block of `waiting`."""
    return _waits > 0


def signs() -> int:
    """Return a number that changes with each sign of life."""
    return _words[_COUNT]


def start(rank: int) -> None:
    """Start this process's watchdog. Until `expect` is called the limit is PATIENCE_S. rank: for messages."""
    global _words
    memory = os.memfd_create("watchdog")
    os.ftruncate(memory, mmap.PAGESIZE)
    _words = memoryview(mmap.mmap(memory, mmap.PAGESIZE)).cast("Q")
    _words[_RANK] = rank
    words = [str(word) for word in (Path(__file__).parents[2], memory, os.getpid(), os.getppid())]
    # Its standard input ends when this process ends. It has a session of its own, so that signals to the job do not
    # reach it, and none of this process's outputs, which mpirun waits for.
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[memory],
        start_new_session=True,
    )
    os.close(memory)


def joined() -> None:
    """Note that this rank has joined the MPI job: from now on MPI reports lost ranks."""
    _words[_JOINED] = 1


def expect(hang_s: float, rank: int) -> None:
    """Set the limit of silence in seconds; 0: no limit but PATIENCE_S. rank: this process's rank in the run's world."""
    _words[_HANG_MS], _words[_RANK] = round(1000 * hang_s), rank
    tick()


class HangRule:
    """Decides from looks at a rank, LOOK_EVERY_S apart, when it hangs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.silence, self.stop = (SilenceTimer(2 * LOOK_EVERY_S, clock) for _ in range(2))
        self.steps, self.longest_s = 0, 0.0

    def look(self, count: int, steps: int, hang_s: float, stopped: bool) -> str | None:
        """Return why the rank is to be killed, or None. count, steps, hang_s: as the rank has set them. stopped:
        whether a signal has stopped it."""
        if stopped:
            self.silence.rest()
        else:
            self.stop.hear()
        stopped_s, before_s, changed = self.stop.look(), self.silence.seconds(), count != self.silence.value
        if changed and self.steps:
            self.longest_s = max(self.longest_s, before_s)
        self.steps, silent_s = steps, self.silence.look(count)
        limit_s = max(hang_s, LONGER * self.longest_s) if steps >= FAMILIAR and hang_s else PATIENCE_S
        if stopped_s > (hang_s or math.inf):
            return f"stopped by a signal for {stopped_s:.0f} s"
        if silent_s > limit_s:
            return f"no sign of life for {silent_s:.0f} s" + (" in a step" if steps else "")
        return None


def _watch(memory, pid, launcher):
    words = memoryview(mmap.mmap(memory, mmap.PAGESIZE)).cast("Q")
    rule = HangRule()
    while not select.select([0], [], [], LOOK_EVERY_S)[0]:  # readable when the rank has ended: nothing is written
        try:
            steps = words[_STEPS]  # before the count: see `steps`
            why = rule.look(words[_COUNT], steps, words[_HANG_MS] / 1000, stat(pid)[1][STATE] == "T")
        except (OSError, IndexError):  # the rank has just ended
            break
        if why:
            say(pid, f"rank {words[_RANK]} on {socket.gethostname()}: {why}: killed (fault.hang_s)\n")
            os.kill(pid, signal.SIGKILL)
            break
    if not words[_JOINED]:
        end_job_of(launcher)


def end_job_of(launcher: int) -> None:
    """End the job of a rank that has ended before all had joined, unless mpirun does so. Under ULFM it does not, and
    all other ranks wait in MPI_Init for the lost one. launcher: the process that started the rank: mpirun, or its
    daemon on another host."""
    if os.environ.get("OMPI_MCA_mpi_ft_enable") not in ("1", "true"):
        return
    # Where several ranks have ended, a second apart: more signals than one can end mpirun without its ranks.
    end = time.monotonic() + JOIN_S + int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0))
    with suppress(OSError, IndexError):  # the launcher has ended
        while stat(launcher)[0] in LAUNCHERS:
            if time.monotonic() > end:
                say(launcher, f"{socket.gethostname()}: {ENDED_EARLY}: the job ends\n")
                os.kill(launcher, signal.SIGTERM)
                return
            time.sleep(LOOK_EVERY_S)


def say(pid: int, text: str) -> None:
    """Write to a process's standard error, unless that would block."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    except OSError:
        pass


def main() -> None:
    """Be the watchdog of a process. Arguments: az_mpi's folder, the shared memory, the process, its launcher."""
    with suppress(KeyboardInterrupt):
        _watch(*(int(word) for word in sys.argv[2:]))
