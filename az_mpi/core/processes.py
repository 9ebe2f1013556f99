"""What the kernel reports about processes of this machine, and programs that are started with limits.

As a script it is what `limited` starts: it sets the limits of its own process, then becomes the program.
"""

import ctypes
import os
import resource
import signal
import sys

STATE, PARENT, STARTED = 0, 1, 19  # fields of `stat`; STARTED in clock ticks since the machine was booted
PR_SET_PDEATHSIG = 1  # of prctl(2)


def stat(pid: int | str) -> tuple[str, list[str]]:
    """Return (name, fields from the state on) of a process, from /proc/PID/stat. Raises OSError if there is none."""
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        name, _, rest = file.read().partition("(")[2].rpartition(")")  # a name may hold anything, brackets too
    return name, rest.split()


def peak_bytes() -> int:
    """Return the memory in bytes that this process has had at most, with its part of what it shares now."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shared, part = _number_in("status", "RssShmem:"), _number_in("smaps_rollup", "Pss_Shmem:")
    return (peak - (shared - part if part else 0)) * 1024  # all are in KiB


def _number_in(name, label):
    """Return the number after a label in a file of /proc/self, 0 if this Linux does not tell it."""
    try:
        with open(f"/proc/self/{name}") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(label)), 0)


def limited(command: list[str], memory_bytes: int) -> list[str]:
    """Return the words that start a program which is killed when this process ends, however it ends, and which gets no
    more than memory_bytes of address space (0: no limit).

    The program sets this up itself, not a function between fork and exec: this process may have threads, and MPI."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(memory_bytes), *command]


def _become(parent, memory_bytes, *command):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it ended before
        return
    if int(memory_bytes):
        resource.setrlimit(resource.RLIMIT_AS, (int(memory_bytes), int(memory_bytes)))
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(*sys.argv[1:])
