"""Runs mpirun: passes signals on to it in the form that stops a run cleanly, and returns how it ended."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from az_mpi.core.printing import unwritten
from az_mpi.core.processes import PR_SET_PDEATHSIG
from az_mpi.core.signals import handling
from az_mpi.launch.outcome import outcome
from az_mpi.liveness import watchdog

POLL_S = 0.2  # mpirun, and signals to this process, are looked at so often
END_CHARACTERS = 3000  # of a failed job's output that are shown
LAST_WORDS_S = 2  # for output that is still under way when mpirun has ended
# USR2 asks every rank to stop cleanly; on TERM mpirun would kill them.
STOPS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)
# What Open MPI prints when it has lost a host, and what a watchdog prints when a rank is lost before the run has begun,
# that is, before it keeps a record.
LOSSES = (b"has lost communication with a remote daemon", watchdog.ENDED_EARLY.encode())


class Ended(NamedTuple):
    """How mpirun ended: its exit code; whether it was asked to stop with SIGUSR2 and nothing else; whether it said that
    it had lost a host, or a rank that had not joined yet; whether a signal to this process stopped it."""

    code: int
    asked: bool
    lost: bool
    stopped: bool


def run(command: list[str], tick: Callable[[], Iterable[signal.Signals]] = lambda: ()) -> int:
    """Start `command`, an mpirun line of a job that does not train, wait for its end as `follow` does, and return the
    exit code, see `outcome`. Where that would be 0, but output could not be passed on, it is that of `unwritten`."""
    ended = follow(command, tick)
    return outcome(ended.code, asked=ended.asked, lost=ended.lost).status or unwritten()


class Child(NamedTuple):
    """How a job ended that was run for what it prints."""

    status: int  # exit status
    output: str  # its standard output
    logged: str  # everything that it added to the log; its standard output if it had none

    @property
    def end(self) -> str:
        """The last END_CHARACTERS of what it added to the log."""
        return self.logged[-END_CHARACTERS:]

    @property
    def result(self) -> dict[str, Any] | None:
        """Return the last JSON object that is a line of the standard output, None without any."""
        lines = [line for line in self.output.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else None


def run_child(command: list[str], log: Path | None = None, enough: Callable[[], object] = lambda: False) -> Child:
    """Run a job that prints its result as a line of JSON; wait for its end and return how it ended. If this process is
    told to stop meanwhile, so is the job.

    log: the file to which everything that the job says is added. Without it, the job shares this process's standard
    error. enough(): called every POLL_S; once it returns true, the job gets USR2, with which a run stops cleanly.
    """
    if log is None:
        status, output = _output(command, None, enough)
        return Child(status, output, output)
    before = log.stat().st_size if log.exists() else 0
    with open(log, "a") as file:
        status, output = _output(command, file, enough)
        file.write(output)
    return Child(status, output, log.read_bytes()[before:].decode(errors="replace"))


def _output(command, stderr, enough):
    """Return (exit status, standard output) of a command. stderr: where its standard error goes, None: to ours. enough:
    see `run_child`."""
    told = False
    process = _start(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        while True:
            try:
                output, _ = process.communicate(timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                if not told and enough():
                    told = True
                    process.send_signal(signal.SIGUSR2)
    except BaseException:
        _end(process)
        raise
    return process.returncode, output


class _Signals:
    """The signals that launch gets while a job runs, passed on to mpirun."""

    STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

    def __init__(self) -> None:
        self._caught = []  # numbers of signals that were not passed on yet
        self._sent = set()  # numbers of signals that mpirun got
        self._stops = 0  # how many of those caught asked for a stop
        self.handlers = dict.fromkeys((*self.STOPPING, signal.SIGUSR1), lambda number, _: self._caught.append(number))

    def send(self, process, number):
        self._sent.add(number)
        process.send_signal(number)

    def pass_on(self, process):
        """Send the signals that were caught. The first that asks for a stop becomes USR2, the second TERM, the third
        KILL."""
        while self._caught:
            number = self._caught.pop(0)
            if number in self.STOPPING:
                say_stop(number, self._stops)
                number = STOPS[min(self._stops, 2)]
                self._stops += 1
            self.send(process, number)

    def ended(self, code, lost):
        """Return how a job `Ended` whose mpirun returned `code`. lost: whether a rank or a host was lost."""
        asked = signal.SIGUSR2 in self._sent and signal.SIGTERM not in self._sent
        stopped = self._stops > 0 or not self.STOPPING.isdisjoint(self._caught)  # or caught while mpirun ended
        return Ended(128 - code if code < 0 else code, asked, lost, stopped)


def follow(command: list[str], tick: Callable[[], Iterable[signal.Signals]] = lambda: ()) -> Ended:
    """Start `command`, an mpirun line, wait for its end and return how it `Ended`.

    The first INT, TERM or HUP becomes USR2 (the run stops cleanly, status 75), the second TERM, the third KILL; USR1 is
    passed on as it is. tick() is called every POLL_S; the signals that it returns are sent.

    mpirun's output passes through this process, since mpirun ends its job when nobody reads that output any more. Only
    a terminal becomes mpirun's own standard output: progress bars are drawn if there is one.
    """
    signals = _Signals()
    lost = threading.Event()
    with handling(signals.handlers):
        process = _start(command, stdout=None if sys.stdout.isatty() else subprocess.PIPE, stderr=subprocess.PIPE)
        copies = [(process.stdout, sys.stdout, threading.Event()), (process.stderr, sys.stderr, lost)]
        copiers = [
            threading.Thread(target=copy, args=(pipe.fileno(), stream, event), daemon=True)
            for pipe, stream, event in copies
            if pipe
        ]
        for copier in copiers:
            copier.start()
        try:
            while True:
                signals.pass_on(process)
                try:
                    code = process.wait(POLL_S)
                    for copier in copiers:
                        copier.join(LAST_WORDS_S)  # a process that outlives mpirun may keep it open
                    return signals.ended(code, lost.is_set())
                except subprocess.TimeoutExpired:
                    for number in tick():
                        signals.send(process, number)
        finally:
            if process.poll() is None:  # tick failed
                process.terminate()
                process.wait()


def _start(command, **streams):
    """Start a job. It is told to stop when this process ends, even if that is killed."""
    prctl = ctypes.CDLL(None).prctl
    process, caught = None, []
    # Libraries run functions of theirs at a fork, in which Python drops what a handler raises: a request would be lost.
    numbers = (*_Signals.STOPPING, signal.SIGUSR1, signal.SIGUSR2)
    try:
        with handling(dict.fromkeys(numbers, lambda number, _: caught.append(number))):
            # In a session of its own: a terminal's Ctrl-C is for this process. mpirun would kill the ranks at once.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
                **streams,
            )
        for number in caught:
            signal.raise_signal(number)
    except BaseException:
        if process:
            _end(process)
        raise
    return process


def _end(process):
    process.terminate()
    process.communicate()


def copy(descriptor: int, stream: TextIO, lost: threading.Event) -> None:
    """Copy what mpirun writes to `stream` until it ends, without the zero byte that Open MPI puts behind each of its
    own messages; set `lost` if it contains one of LOSSES."""
    last = b""
    longest = max(map(len, LOSSES))
    while data := os.read(descriptor, 1 << 16):
        data = data.replace(b"\0", b"")
        last = (last + data)[-len(data) - longest :]
        if any(loss in last for loss in LOSSES):
            lost.set()
        stream.buffer.write(data)
        stream.buffer.flush()


def say_stop(number: int, stops: int) -> None:
    """Tell the user what a signal does that asks for a stop. stops: how many of them came before."""
    text = ("stopping cleanly; a second signal ends the job at once", "ending at once", "killing mpirun")[min(stops, 2)]
    say(f"{signal.Signals(number).name}: {text}")


def say(text: str) -> None:
    """Print a line of launch's own."""
    tell(f"launch: {text}")


def tell(line: str, descriptor: int = 2) -> None:
    """Print a line. If the terminal is gone, the line is dropped (`outlive_output`), since the job must continue."""
    print(line, file=sys.stdout if descriptor == 1 else sys.stderr, flush=True)


def interruptible(status: int | None = None) -> AbstractContextManager[None]:
    """Return a context manager: INT, TERM and HUP leave its block by SystemExit, so that the block cleans up. status:
    the exit status; by default 128 + the signal."""

    def leave(number, _):
        raise SystemExit(status or 128 + number)

    # USR1 is a scheduler's warning to the job, which does not run yet.
    return handling(dict.fromkeys(_Signals.STOPPING, leave) | {signal.SIGUSR1: lambda *_: None})
