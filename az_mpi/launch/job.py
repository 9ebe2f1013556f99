"""mpirun while it runs: signals that reach the launcher go on to it in the form that stops a run cleanly."""

import ctypes
import os
import signal
import subprocess
import sys

LOOK_EVERY_S = 0.2
# USR2 asks every rank to finish cleanly; TERM would have mpirun kill them.
STOPS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)
PR_SET_PDEATHSIG = 1  # of prctl(2)


def run(command, tick=lambda: ()):
    """Start `command`, an mpirun line, wait for its end and return its exit status.

    INT, TERM and HUP become USR2 (the run stops cleanly, status 75), the second time TERM, the third time KILL; USR1
    goes on as it is. tick() is called every LOOK_EVERY_S and returns signals to be sent as they are.
    """
    caught, stops, prctl = [], 0, ctypes.CDLL(None).prctl
    stopping = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _: caught.append(number))
              for number in (*stopping, signal.SIGUSR1)}
    try:
        # In a session of its own: a terminal's Ctrl-C is for the launcher, mpirun would kill the ranks at once.
        # And it ends with the launcher, also where that is killed.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
        try:
            while True:
                while caught:
                    number = caught.pop(0)
                    if number in stopping:
                        say(number, stops)
                        number, stops = STOPS[min(stops, 2)], stops + 1
                    process.send_signal(number)
                try:
                    status = process.wait(LOOK_EVERY_S)
                    return status if status >= 0 else 128 - status
                except subprocess.TimeoutExpired:
                    for number in tick():
                        process.send_signal(number)
        finally:
            if process.poll() is None:  # tick failed
                process.terminate()
                process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(number, stops):
    """Tell the user what a signal that stops the job does, the `stops`-th time."""
    text = ("stopping cleanly; once more: end at once", "ending at once", "killing mpirun")[min(stops, 2)]
    try:
        print(f"launch: {signal.Signals(number).name}: {text}", file=sys.stderr, flush=True)
    except OSError:  # the terminal is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
