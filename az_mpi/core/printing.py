"""What is printed on standard output."""

import codecs
import io
import sys
import time

APART_S = 0.3  # mpirun can put what a rank writes to both streams at once on the wrong one, also within a line


def print_result(text: str) -> None:
    """Print the result of an MPI job, after mpirun has passed on what this rank wrote to standard error."""
    time.sleep(APART_S)
    print(text, flush=True)


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
