"""mpirun while it runs: launch passes signals on to it, as those that stop a run cleanly."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import NamedTuple

from az_mpi.liveness import watchdog
from az_mpi.report.outcome import outcome

LOOK_EVERY_S, LAST_WORDS_S = 0.2, 2
# USR2 asks every rank to stop cleanly; on TERM mpirun would kill them.
STOPS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)
PR_SET_PDEATHSIG = 1  # of prctl(2)
# What Open MPI says when it has lost a host, and what a watchdog says before a run has begun, and keeps a record.
LOSSES = (b"has lost communication with a remote daemon", watchdog.ENDED_EARLY.encode())


class Ended(NamedTuple):
    """How mpirun ended: its exit code; whether it was asked to stop with SIGUSR2, and only so; whether it said that it
    had lost a host, or a rank that had not joined yet; whether a signal to this process stopped it."""

    code: int
    asked: bool
    lost: bool
    stopped: bool


def run(command, tick=lambda: ()):
    """Start `command`, an mpirun line, wait for its end as `follow` does, and return the exit code, see `outcome`."""
    ended = follow(command, tick)
    return outcome(ended.code, asked=ended.asked, lost=ended.lost).status


def follow(command, tick=lambda: ()):
    """Start `command`, an mpirun line, wait for its end and return how it `Ended`.

    INT, TERM and HUP become USR2 (the run stops cleanly, status 75), the second time TERM, the third time KILL; USR1
    is passed on as it is. tick() is called every LOOK_EVERY_S; the signals that it returns are sent.
    """
    caught, sent, stops, prctl = [], set(), 0, ctypes.CDLL(None).prctl
    stopping = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = {number: signal.signal(number, lambda number, _: caught.append(number))
              for number in (*stopping, signal.SIGUSR1)}

    def send(number):
        sent.add(number)
        process.send_signal(number)

    try:
        # In a session of its own: on a terminal's Ctrl-C, which is for launch, mpirun would kill the ranks at once.
        # mpirun ends with launch, even if launch is killed.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                                   preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
        lost = threading.Event()
        errors = threading.Thread(target=copy, args=(process.stderr.fileno(), lost), daemon=True)
        errors.start()
        try:
            while True:
                while caught:
                    number = caught.pop(0)
                    if number in stopping:
                        say_stop(number, stops)
                        number, stops = STOPS[min(stops, 2)], stops + 1
                    send(number)
                try:
                    code = process.wait(LOOK_EVERY_S)
                    errors.join(LAST_WORDS_S)  # a process that outlives mpirun may keep it open
                    asked = signal.SIGUSR2 in sent and signal.SIGTERM not in sent
                    # `caught`: a signal that came while mpirun ended
                    return Ended(128 - code if code < 0 else code, asked, lost.is_set(),
                                 stops > 0 or not stopping.isdisjoint(caught))
                except subprocess.TimeoutExpired:
                    for number in tick():
                        send(number)
        finally:
            if process.poll() is None:  # tick failed
                process.terminate()
                process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def copy(descriptor, lost):
    """Copy mpirun's standard error to ours until it ends; set `lost` if it contains one of LOSSES."""
    last, longest = b"", max(map(len, LOSSES))
    while data := os.read(descriptor, 1 << 16):
        last = (last + data)[-len(data) - longest:]
        if any(loss in last for loss in LOSSES):
            lost.set()
        try:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        except OSError:
            pass  # nobody reads ours any more; mpirun must not block


def say_stop(number, stops):
    """Tell the user what a signal does that stops the job; `stops` of them came before."""
    text = ("stopping cleanly; once more: end at once", "ending at once", "killing mpirun")[min(stops, 2)]
    say(f"{signal.Signals(number).name}: {text}")


def say(text):
    """Print a line of launch's own."""
    tell(f"launch: {text}")


def tell(line, descriptor=2):
    """Print a line, to nobody if the terminal is gone: the job must go on."""
    try:
        print(line, file=sys.stdout if descriptor == 1 else sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class interruptible:
    """A block that INT, TERM and HUP leave by SystemExit, so that it is cleaned up. status: the exit status; by default
    128 + the signal."""

    def __init__(self, status=None):
        self.status = status

    def __enter__(self):
        def leave(number, _):
            raise SystemExit(self.status or 128 + number)

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self.before = {number: signal.signal(number, leave) for number in numbers}
        # A scheduler's warning to the job, which does not run yet.
        self.before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: None)

    def __exit__(self, *error):
        for number, handler in self.before.items():
            signal.signal(number, handler)
