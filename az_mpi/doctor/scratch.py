"""Removing what the doctor writes, however it ends: a process of its own waits for its end, since one that MPI or a
scheduler kills can remove nothing."""

import contextlib
import os
import shutil
import subprocess
import sys


@contextlib.contextmanager
def removed_at_end(folder, parents=()):
    """Remove `folder`, and then `parents` that are empty, innermost first, when the block or this process ends."""
    command = [sys.executable, "-m", "az_mpi.doctor.scratch", folder, *parents]
    # A session of its own: what is sent to this process's group is not meant for it.
    remover = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        remover.communicate()


def remove(folder, parents):
    """Remove a folder with all that is in it, and parents that are empty: what somebody else has put there stays."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in parents:
        with contextlib.suppress(OSError):
            os.rmdir(path)


if __name__ == "__main__":
    sys.stdin.read()  # ends when the process at its other end closes it, or is no more
    remove(sys.argv[1], sys.argv[2:])
