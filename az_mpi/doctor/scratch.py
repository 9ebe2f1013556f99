"""Removes what the doctor writes, even if it is killed: another process waits for its end and removes the files."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


@contextlib.contextmanager
def removed_at_end(folder: str | Path, parents: Sequence[str] = ()) -> Iterator[None]:
    """Remove `folder`, and then `parents` that are empty, innermost first, when the block or this process ends."""
    command = [sys.executable, "-m", "az_mpi.doctor.scratch", folder, *parents]
    # In a session of its own, which signals to this process's group do not reach.
    remover = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        remover.communicate()


def remove(folder: str, parents: Sequence[str]) -> None:
    """Remove a folder with its content, and those of `parents` that are empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in parents:
        with contextlib.suppress(OSError):
            os.rmdir(path)


if __name__ == "__main__":
    sys.stdin.read()  # returns when the doctor closes it, or has ended
    remove(sys.argv[1], sys.argv[2:])
