"""A watchdog beside each rank: a small process that kills the rank (SIGKILL) when it no longer gets on.

A rank that is stopped, or hangs in a file system or in a kernel, holds up every other one, and MPI does not tell. Of a
dead rank it tells, and the rest go on or are started again. The watchdog needs no thread of the rank's and no network:
it reads a counter in memory that it shares with the rank. Only the standard library, as it is a program too.

A rank that is stopped (SIGSTOP) is killed after `hang_s` at any time. In self-play and in training, which are steps of
one length, one that is silent for `hang_s` is, or for LONGER times its longest step so far; elsewhere (loading,
compiling, what asks a file system, and waiting for a GPU or for other trainers, of which one may hang) after
PATIENCE_S.
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
from contextlib import contextmanager

LOOK_EVERY_S = 0.25
PATIENCE_S = 900.0
LONGER = 10
_COUNT, _STEPS, _HANG_MS, _WORDS = 0, 1, 2, 3  # u64 words: signs of life; steps done, 0 outside of them; hang_s
FAMILIAR = 2  # steps, the first of which may compile and the second is measured, before the others are judged

_words = [0] * _WORDS  # until `start` shares them


def tick():
    """Say that this rank gets on."""
    _words[_COUNT] += 1


def step():
    """Say that a step is done, in a block of `steps`."""
    _words[_COUNT] += 1
    _words[_STEPS] += 1


@contextmanager
def steps():
    """A block, or a function, of steps that take about as long as one another, but for the first, which may compile."""
    try:
        yield
    finally:
        _words[_STEPS] = 0
        tick()


@contextmanager
def waiting():
    """The part of a step in which a rank waits for others: it may take as long as they do."""
    done, _words[_STEPS] = _words[_STEPS], 0
    tick()
    try:
        yield
    finally:
        tick()  # first, so that the others' time is never counted as this rank's
        _words[_STEPS] = done


def start(rank):
    """Begin to watch this process, which messages call rank `rank`; before `expect`, with PATIENCE_S alone."""
    global _words
    memory = os.memfd_create("watchdog")
    os.ftruncate(memory, mmap.PAGESIZE)
    _words = memoryview(mmap.mmap(memory, mmap.PAGESIZE)).cast("Q")
    # Its standard input ends when this process does. In a session of its own it is spared what the job is sent.
    # It holds none of this process's outputs: mpirun waits until nobody does.
    subprocess.Popen([sys.executable, "-I", "-S", __file__, str(memory), str(os.getpid()), str(rank)],
                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[memory],
                     start_new_session=True)
    os.close(memory)


def expect(hang_s):
    """From now on `hang_s` seconds of silence are too many; 0: never."""
    _words[_HANG_MS] = round(1000 * hang_s)
    tick()


class Patience:
    """What the watchdog knows of its rank. `judge` is told of each look and says when it is over."""

    def __init__(self):
        self.count, self.steps = None, 0
        self.silent_s = self.stopped_s = self.longest_s = 0.0

    def judge(self, passed_s, count, steps, hang_s, stopped):
        """Return why the rank is to be killed, or None. passed_s: since the look before, in which this process too has
        been awake; count, steps: the rank's words; stopped: whether a signal holds it."""
        self.stopped_s = self.stopped_s + passed_s if stopped else 0.0
        if not stopped:
            self.silent_s += passed_s
        if count != self.count:
            if self.steps:
                self.longest_s = max(self.longest_s, self.silent_s)
            self.count, self.silent_s = count, 0.0
        self.steps = steps
        limit_s = max(hang_s, LONGER * self.longest_s) if steps >= FAMILIAR and hang_s else PATIENCE_S
        if self.stopped_s > (hang_s or math.inf):
            return f"stopped by a signal for {self.stopped_s:.0f} s"
        if self.silent_s > limit_s:
            return f"no sign of life for {self.silent_s:.0f} s" + (" in a step" if steps else "")
        return None


def _stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def _watch(memory, pid, rank):
    words = memoryview(mmap.mmap(memory, mmap.PAGESIZE)).cast("Q")
    patience, before = Patience(), time.monotonic()
    while not select.select([0], [], [], LOOK_EVERY_S)[0]:  # nothing is ever written: it is the end
        now = time.monotonic()
        passed_s, before = min(now - before, 2 * LOOK_EVERY_S), now
        try:
            steps = words[_STEPS]  # before the count: see `waiting`
            why = patience.judge(passed_s, words[_COUNT], steps, words[_HANG_MS] / 1000, _stopped(pid))
        except (OSError, IndexError):  # it has just ended
            return
        if why:
            _say(pid, f"rank {rank} on {socket.gethostname()}: {why}: killed (fault.hang_s)\n")
            os.kill(pid, signal.SIGKILL)
            return


def _say(pid, text):
    """Write to a process's standard error, if it takes it."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    except OSError:
        pass


if __name__ == "__main__":
    try:
        _watch(*(int(word) for word in sys.argv[1:]))
    except KeyboardInterrupt:
        pass
