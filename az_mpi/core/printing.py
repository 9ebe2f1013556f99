"""What is printed, and by which of the ranks before MPI has started."""

import codecs
import io
import os
import sys
import time
from typing import TextIO

APART_S = 0.3  # mpirun can put what a rank writes to both streams at once on the wrong one, also within a line
LAST_WORDS_S = 1.0  # for one rank to print, before mpirun ends all ranks since another one has failed


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


def print_anything() -> None:
    """Let standard output take any text from now on: names of folders need not be in the encoding of the locale. Their
    bytes are printed as they are, other characters that the encoding lacks as escapes."""
    codecs.register_error("az_mpi", _encode)
    if isinstance(sys.stdout, io.TextIOWrapper):  # it is not if standard output is closed
        sys.stdout.reconfigure(errors="az_mpi")


def _encode(error):
    text = error.object[error.start : error.end]
    try:
        return text.encode("ascii", "surrogateescape"), error.end
    except UnicodeEncodeError:
        return text.encode("ascii", "backslashreplace"), error.end
