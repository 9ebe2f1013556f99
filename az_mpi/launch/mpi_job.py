"""mpirun while it runs: signals that reach the launcher go on to it in the form that stops a run cleanly."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import NamedTuple

from az_mpi.core.exit_codes import INTERNAL, RESUMABLE, STOPPED_EARLY
from az_mpi.liveness import watchdog

LOOK_EVERY_S, LAST_WORDS_S = 0.2, 2
# USR2 asks every rank to finish cleanly; TERM would have mpirun kill them.
STOPS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)
PR_SET_PDEATHSIG = 1  # of prctl(2)
# What Open MPI says when a host is lost; seen with 5.0.11: its exit status is 0 then. And what a watchdog says.
LOSSES = (b"has lost communication with a remote daemon", watchdog.ENDED_EARLY.encode())


class Ended(NamedTuple):
    """How mpirun ended: its exit status (75 where it was stopped before it began), whether it was said that
    it has lost a host or a rank that had not joined yet, whether a signal asked us to stop it."""

    status: int
    lost: bool
    stopped: bool


def run(command, tick=lambda: ()):
    """Start `command`, an mpirun line, wait for its end as `follow` does, and return its exit status; 70 where that
    is 0 and it has lost a host."""
    ended = follow(command, tick)
    return ended.status or (INTERNAL if ended.lost else 0)


def follow(command, tick=lambda: ()):
    """Start `command`, an mpirun line, wait for its end and return how it `Ended`.

    INT, TERM and HUP become USR2 (the run stops cleanly, status 75), the second time TERM, the third time KILL; USR1
    goes on as it is. tick() is called every LOOK_EVERY_S and returns signals to be sent as they are.
    """
    caught, sent, stops, prctl = [], set(), 0, ctypes.CDLL(None).prctl
    stopping = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = {number: signal.signal(number, lambda number, _: caught.append(number))
              for number in (*stopping, signal.SIGUSR1)}

    def send(number):
        sent.add(number)
        process.send_signal(number)

    try:
        # In a session of its own: a terminal's Ctrl-C is for the launcher, mpirun would kill the ranks at once.
        # And it ends with the launcher, also where that is killed.
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
                    status = process.wait(LOOK_EVERY_S)
                    errors.join(LAST_WORDS_S)  # a process that outlives mpirun may keep it open
                    status = 128 - status if status < 0 else status
                    if status in STOPPED_EARLY and signal.SIGUSR2 in sent and signal.SIGTERM not in sent:
                        status = RESUMABLE
                    # One that came as mpirun ended is heard too.
                    return Ended(status, lost.is_set(), stops > 0 or not stopping.isdisjoint(caught))
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
    """Copy mpirun's standard error to ours until its end; `lost` is set once it says one of LOSSES."""
    last, longest = b"", max(map(len, LOSSES))
    while data := os.read(descriptor, 1 << 16):
        last = (last + data)[-len(data) - longest:]
        if any(loss in last for loss in LOSSES):
            lost.set()
        try:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        except OSError:
            pass  # nobody reads ours; mpirun must not stand still for that


def say_stop(number, stops):
    """Tell the user what a signal that stops the job does, the `stops`-th time."""
    text = ("stopping cleanly; once more: end at once", "ending at once", "killing mpirun")[min(stops, 2)]
    say(f"{signal.Signals(number).name}: {text}")


def say(text):
    """Tell the user something, beside what mpirun and the ranks say."""
    tell(f"launch: {text}")


def tell(line, descriptor=2):
    """Print a line; that nobody reads it, as when the terminal is gone, must not end the watch over a job."""
    try:
        print(line, file=sys.stdout if descriptor == 1 else sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class interruptible:
    """A block that TERM and HUP leave as INT does: what it made is taken down. status: of that exit; by default 128
    and the signal."""

    def __init__(self, status=None):
        self.status = status

    def __enter__(self):
        def leave(number, _):
            raise SystemExit(self.status or 128 + number)

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self.before = {number: signal.signal(number, leave) for number in numbers}
        # A scheduler's warning; the job, which it is for, does not run yet.
        self.before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: None)

    def __exit__(self, *error):
        for number, handler in self.before.items():
            signal.signal(number, handler)
