"""Standard output and standard error: what is printed, and by which of the ranks before MPI has started. Either may be
closed, a pipe that nobody reads any more, or a file on a full disk."""

import codecs
import errno
import io
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from az_mpi.core.exit_codes import DONE, RESUMABLE, UNREAD

APART_S = 0.3  # mpirun can put what a rank writes to both streams at once on the wrong one, also within a line
LAST_WORDS_S = 1.0  # for one rank to print, before mpirun ends all ranks since another one has failed


class OutputFailed(BaseException):
    """Standard output cannot be written. Like KeyboardInterrupt it ends a command, so what handles errors of other
    kinds must not catch it. error: of the operating system."""

    def __init__(self, error: OSError):
        super().__init__(error)
        self.error = error

    @property
    def status(self) -> int:
        """The exit status of a command whose result is not complete: UNREAD if its reader, such as `head`, has left."""
        return UNREAD if self.error.errno == errno.EPIPE else RESUMABLE


class _Output(io.FileIO):
    """Standard output or standard error, unbuffered. What cannot be written to standard output raises OutputFailed,
    until `outlive_output`; then it is lost, as on standard error, and what comes later is tried again."""

    outlived = False  # whether the program continues without standard output
    failed: OutputFailed | None = None  # the first failure of standard output

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        try:
            while left:  # all of it: with python -u nobody looks at what is returned
                if (
                    written := super().write(left)
                ) is None:  # it has no room, and the program that opened it does not block
                    select.select([], [self], [])
                left = left[written or 0 :]
        except OSError as error:
            if self.fileno() == 1:
                self._fail(error)
        return len(data)

    def _fail(self, error):
        first = _Output.failed is None
        failed = OutputFailed(error)
        _Output.failed = _Output.failed or failed
        if not self.outlived:
            raise failed from error
        if first:
            print(
                f"standard output cannot be written: {error.strerror}; what was meant for it is lost, and the "
                "program continues",
                file=sys.stderr,
                flush=True,
            )


def prepare() -> None:
    """Make the standard streams fit for every command: one that is closed becomes /dev/null, standard output takes any
    text, and what cannot be written is handled as `_Output` says. To be called first, before any file is opened that
    would become standard output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number: this one
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    codecs.register_error("az_mpi", _encode)
    for name in ("stdout", "stderr"):
        _guard(name)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of folders need not be in the encoding of the locale: their bytes are printed as they are, other
        # characters that the encoding lacks as escapes.
        sys.stdout.reconfigure(errors="az_mpi")


def _guard(name):
    """Let the stream `name` of sys write through an `_Output`, if it is as Python made it."""
    old = getattr(sys, name)
    if old is not getattr(sys, f"__{name}__") or not isinstance(old, io.TextIOWrapper):
        return  # replaced, by a notebook or a test
    old.flush()
    raw = _Output(old.fileno(), "w", closefd=False)
    raw.name = f"<{name}>"
    buffered = isinstance(old.buffer, io.BufferedWriter)  # not with python -u
    new = io.TextIOWrapper(
        io.BufferedWriter(raw) if buffered else raw,
        old.encoding,
        old.errors,  # type: ignore[arg-type]
        line_buffering=old.line_buffering,
        write_through=old.write_through,
    )
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


def outlive_output() -> None:
    """From now on the program continues where standard output cannot be written, and says so once on standard error: a
    run must not end for its log lines."""
    _Output.outlived = True


def unwritten() -> int:
    """Return the exit status that says that something was lost on standard output, DONE if nothing was."""
    return _Output.failed.status if _Output.failed else DONE


def finish(command: Callable[[], int]) -> int:
    """Return the exit status of `command()`, a command that prints. If its output cannot be written it ends: with one
    line on standard error, or silently where the reader has left, such as `head`."""
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except OutputFailed as failed:
        outlive_output()  # what is left in buffers is lost at the end of the process
        if failed.status != UNREAD:
            print(f"standard output cannot be written: {failed.error.strerror}", file=sys.stderr)
        return failed.status


def environment_rank() -> int:
    """Return this process's rank from its launcher's environment, 0 without one. It only decides which rank prints
    before MPI has started."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 0


def print_once(text: object, stream: TextIO, status: int, rank: int) -> int:
    """Print a text that every rank has, on rank 0 alone; return the exit status. If it is a failure, the other ranks
    wait, since mpirun ends all ranks when the first one fails."""
    if rank == 0:
        print(text, end="", file=stream, flush=True)
    elif status:
        time.sleep(LAST_WORDS_S)
    return status


def print_result(text: str) -> None:
    """Print the result of an MPI job, after mpirun has passed on what this rank wrote to standard error."""
    time.sleep(APART_S)
    print(text, flush=True)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 step", "1,200 steps". plural: of the noun, if it is not made by an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _encode(error):
    text = error.object[error.start : error.end]
    try:
        return text.encode("ascii", "surrogateescape"), error.end
    except UnicodeEncodeError:
        return text.encode("ascii", "backslashreplace"), error.end


def bounds(found: Mapping[str, Any], name: str, number: str = "+.5g") -> str:
    """Return the ends of the interval of a measured number, found[NAME_low] and found[NAME_high], in brackets after a
    space; "" if a single game gives none. number: the format of the ends."""
    low, high = found[f"{name}_low"], found[f"{name}_high"]
    return "" if low is None else f" [{low:{number}}, {high:{number}}]"


def seat_name(player: int) -> str:
    """Return what a player is called in reports; a piece of nobody, below 0, is "blocked"."""
    names = ("first player", "second player", "third player")
    return "blocked" if player < 0 else names[player] if player < len(names) else f"player {player + 1}"
