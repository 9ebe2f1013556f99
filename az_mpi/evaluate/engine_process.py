"""A program that plays, in a process of its own: limited in memory and in the time for an answer, and always ended."""

import os
import select
import shlex
import shutil
import signal
import subprocess
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress

from az_mpi.core.processes import limited
from az_mpi.liveness import watchdog

LOOK_EVERY_S = 0.25
SAID_BYTES = 300  # of its standard error that are kept
LINE_BYTES_MAX = 2**20


class EngineFailed(Exception):
    """The program has ended, is silent, or says something that its protocol, or the rules of the game, do not allow."""


def words_of(command: str) -> list[str]:
    """Return the words of a command line. Raises ValueError if there is no such program."""
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        raise ValueError(
            f"there is no program {words[0] if words else command!r} on this host: install it, name it "
            "with its folder, or add that to PATH"
        )
    return words


class EngineProcess:
    """One program, in a session of its own. It is killed when this object goes, and when this process ends, however.

    Standard input and output are for the protocol; the end of standard error is kept for messages."""

    answer_s = 60.0  # how long it may take to answer

    def __init__(self, command: str, memory_bytes: int):
        """memory_bytes: of its address space; 0: no limit."""
        self._bytes = b""
        self._said = b""
        try:
            # Bytes without buffers: what is written is sent, and select tells what there is to read.
            process = subprocess.Popen(
                limited(words_of(command), memory_bytes),
                bufsize=0,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except (OSError, ValueError) as error:
            raise EngineFailed(f"cannot be started: {error}") from error
        self.process = process
        self.end = weakref.finalize(self, _end, process)

    def send(self, line: str) -> None:
        """Send a line. Raises EngineFailed."""
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except OSError:
            raise EngineFailed(self._last_words()) from None

    def lines(self, asked: str) -> Iterator[str]:
        """Yield the lines that come, until the caller has its answer. Raises EngineFailed when the time is up, or the
        program has ended. asked: for the message."""
        due = time.monotonic() + self.answer_s
        while True:
            first, newline, rest = self._bytes.partition(b"\n")
            if newline:
                self._bytes = rest
                yield first.decode("ascii", "replace").strip()
            elif len(self._bytes) > LINE_BYTES_MAX:
                raise EngineFailed(f"sends a line without an end to {asked!r}")
            elif time.monotonic() > due:
                raise EngineFailed(f"has not answered {asked!r} for {self.answer_s:g} s")
            else:
                self._read(due)

    def _read(self, due):
        output = self.process.stdout.fileno()
        errors = self.process.stderr.fileno()
        wait_s = min(max(due - time.monotonic(), 0.0), LOOK_EVERY_S)
        ready = select.select([output, errors], [], [], wait_s)[0]
        watchdog.tick()
        if errors in ready and (said := os.read(errors, 2**16)):
            self._said = (self._said + said)[-SAID_BYTES:]
        elif errors in ready and output not in ready:
            time.sleep(0.01)  # it has closed its standard error, and is still running
        if output in ready:
            read = os.read(output, 2**16)
            self._bytes += read
            if not read:
                raise EngineFailed(self._last_words())

    def _last_words(self):
        """Return how the program has ended, with what it said last on standard error."""
        with suppress(OSError):
            while select.select([self.process.stderr], [], [], 0)[0] and (
                said := os.read(self.process.stderr.fileno(), 2**16)
            ):
                self._said = (self._said + said)[-SAID_BYTES:]
        self.end()
        said = self._said.decode("ascii", "replace").strip().splitlines()
        return f"has ended (status {self.process.returncode})" + (f": {said[-1]}" if said else "")


def _end(process):
    """Kill a program with all that it has started, and reap it."""
    if process.poll() is None:
        with suppress(subprocess.TimeoutExpired):  # it may be just about to end: its status tells why
            process.wait(0.05)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):
            stream.close()
