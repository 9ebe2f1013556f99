"""A watchdog beside each rank: a small process that kills the rank (SIGKILL) when it no longer gets on.

A rank that is stopped, or hangs in a file system or in a kernel, holds up every other one, and MPI does not tell. Of a
dead rank it tells, and the rest go on or are started again. The watchdog needs no thread of the rank's and no network:
it reads a counter in memory that it shares with the rank. Only the standard library, as it is a program too.

A rank that is stopped (SIGSTOP) is killed after `hang_s` at any time. In self-play, matches and training, which are
steps of one length, and where it waits for its own GPU alone, one that is silent for `hang_s` is, or for LONGER times
its longest step so far. Elsewhere, where it compiles, loads, asks a file system or waits for others, it is killed after
PATIENCE_S; sooner, it may be found asleep there (hang_detection.py).

Until a rank has joined the MPI job, MPI tells of nobody: under ULFM all others wait in MPI_Init for one that a signal
has ended. The watchdogs of its host end the job then.
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
from contextlib import contextmanager, suppress

LOOK_EVERY_S = 0.25
PATIENCE_S = 900.0
LONGER = 10
JOIN_S = 5.0  # that mpirun is given to end a job by itself, of which a rank has ended before all had joined
_COUNT, _STEPS, _HANG_MS, _JOINED, _RANK, _WORDS = 0, 1, 2, 3, 4, 5  # u64: signs of life; steps, 0 outside of them; …
ENDED_EARLY = "a rank ended before all had joined"
LAUNCHERS = ("prterun", "prted", "mpirun", "orted")
FAMILIAR = 2  # steps, the first of which may compile and the second is measured, before the others are judged

_words = [0] * _WORDS  # until `start` shares them
_waits = 0  # blocks of `waiting` that this process is in


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
def brief():
    """A block that compiles nothing, and waits for no other rank and no file system, such as for this rank's GPU."""
    done, _words[_STEPS] = _words[_STEPS], FAMILIAR
    tick()
    try:
        yield
    finally:
        tick()
        _words[_STEPS] = done


@contextmanager
def aside():
    """A part of a step that is not of its length, such as one that asks a file system."""
    done, _words[_STEPS] = _words[_STEPS], 0
    tick()
    try:
        yield
    finally:
        tick()  # first, so that these seconds are never counted as the step's
        _words[_STEPS] = done


@contextmanager
def waiting():
    """A block, or a part of a step, in which a rank waits for others: it may take as long as they do."""
    global _waits
    with aside():
        _waits += 1
        try:
            yield
        finally:
            _waits -= 1


def is_waiting():
    """Return whether this rank waits for others in a block of `waiting`."""
    return _waits > 0


def signs():
    """Return a number that changes with each sign of life."""
    return _words[_COUNT]


def start(rank):
    """Begin to watch this process, which messages call rank `rank`; before `expect`, with PATIENCE_S alone."""
    global _words
    memory = os.memfd_create("watchdog")
    os.ftruncate(memory, mmap.PAGESIZE)
    _words = memoryview(mmap.mmap(memory, mmap.PAGESIZE)).cast("Q")
    # Its standard input ends when this process does. In a session of its own it is spared what the job is sent.
    # It holds none of this process's outputs: mpirun waits until nobody does.
    _words[_RANK] = rank
    words = [str(number) for number in (memory, os.getpid(), os.getppid())]
    subprocess.Popen([sys.executable, "-I", "-S", __file__, *words],
                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[memory],
                     start_new_session=True)
    os.close(memory)


def joined():
    """Say that this rank is in the MPI job: from now on MPI tells of lost ranks."""
    _words[_JOINED] = 1


def expect(hang_s, rank):
    """From now on `hang_s` seconds of silence are too many; 0: never. rank: what this process is in the run's world."""
    _words[_HANG_MS], _words[_RANK] = round(1000 * hang_s), rank
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


def _stat(pid):
    """Return a process's name and state."""
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        name, _, rest = file.read().partition("(")[2].rpartition(")")
    return name, rest.split()[0]


class StartUp:
    """The ranks of this host, until this one has joined. `look` ends a job that waits for a rank which is no more."""

    def __init__(self, launcher):
        """launcher: the process that started the rank, which may be mpirun or its daemon on another host."""
        self.launcher, self.missed_s, self.most_num = launcher, 0.0, 0
        survives = os.environ.get("OMPI_MCA_mpi_ft_enable") in ("1", "true")  # else mpirun itself ends the job
        self.expected_num = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", 0)) if survives else 0
        place = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0))
        self.limit_s = JOIN_S * (1 + place)  # one after the other: a second signal is taken for impatience

    def look(self, passed_s):
        """Return whether to look again, `passed_s` seconds after the look before."""
        try:
            if not self.expected_num or _stat(self.launcher)[0] not in LAUNCHERS:
                return False
            ranks_num = self.ranks_num()
        except (OSError, IndexError):  # it has ended, or this kernel does not list children
            return False
        if ranks_num >= self.expected_num or ranks_num > self.most_num:  # they are started one after the other
            self.missed_s, self.most_num = 0.0, max(ranks_num, self.most_num)
            return True
        self.missed_s += passed_s
        if self.missed_s <= self.limit_s:
            return True
        say(self.launcher, f"{socket.gethostname()}: {ENDED_EARLY}: the job ends\n")
        with suppress(ProcessLookupError):
            os.kill(self.launcher, signal.SIGTERM)
        return False

    def ranks_num(self):
        """Return how many ranks of this host the launcher has now, or a process that may be one."""
        children = set()
        for task in os.listdir(f"/proc/{self.launcher}/task"):
            try:
                with open(f"/proc/{self.launcher}/task/{task}/children") as file:
                    children |= set(file.read().split())
            except FileNotFoundError:  # a thread that has ended, whose children are another's now
                if task == str(self.launcher):
                    raise
        return sum(self.is_rank(child) for child in children)

    def is_rank(self, pid):
        try:
            if _stat(pid)[0] in LAUNCHERS:  # the program is not loaded yet
                return True
            with open(f"/proc/{pid}/environ", "rb") as file:
                return b"\0OMPI_COMM_WORLD_RANK=" in b"\0" + file.read()
        except PermissionError:  # it is there, and that is all that can be seen
            return True
        except (OSError, IndexError):
            return False


def _watch(memory, pid, launcher):
    words = memoryview(mmap.mmap(memory, mmap.PAGESIZE)).cast("Q")
    patience, before = Patience(), time.monotonic()
    start_up, starting = StartUp(launcher), True
    while not select.select([0], [], [], LOOK_EVERY_S)[0]:  # nothing is ever written: it is the end
        now = time.monotonic()
        passed_s, before = min(now - before, 2 * LOOK_EVERY_S), now
        try:
            steps = words[_STEPS]  # before the count: see `aside`
            why = patience.judge(passed_s, words[_COUNT], steps, words[_HANG_MS] / 1000, _stat(pid)[1] == "T")
        except (OSError, IndexError):  # it has just ended
            break
        if why:
            say(pid, f"rank {words[_RANK]} on {socket.gethostname()}: {why}: killed (fault.hang_s)\n")
            os.kill(pid, signal.SIGKILL)
            return
        starting = starting and not words[_JOINED] and start_up.look(passed_s)
    while starting and not words[_JOINED] and start_up.look(LOOK_EVERY_S):
        time.sleep(LOOK_EVERY_S)


def say(pid, text):
    """Write to a process's standard error, if it takes it at once."""
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
