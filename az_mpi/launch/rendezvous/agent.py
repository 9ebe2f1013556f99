"""The program that mpirun calls in place of ssh: `agent HOST COMMAND...` has node HOST run a shell command.

It sends all of its standard input along. Output and exit status come back when the command has ended.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from az_mpi.core.files import passes, retry_while_unavailable
from az_mpi.core.printing import prepare
from az_mpi.core.problems import NotNow, Refusal
from az_mpi.launch.rendezvous.private_folder import PrivateFolder

FOLDER = "AZ_MPI_RENDEZVOUS"  # the environment variable with the folder's path
Result = TypeVar("Result")
POLL_S = 0.1
FAILS_S = 20.0  # a file system may fail for so long


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status; 255, as ssh does, if it cannot be run."""
    host = arguments[0]
    command = " ".join(arguments[1:])  # like ssh, it makes one shell command of all words
    parent = os.getppid()
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    try:
        folder = retry(lambda: PrivateFolder(os.environ[FOLDER]))
        members = (retry(lambda: folder.read("node-0")) or {}).get("members", [])
        member = next(member for member in members if member["host"] == host)
        key = f"{member['id']}-{secrets.token_hex(8)}"
        retry(lambda: folder.write(f"command-{key}", {"command": command, "input": text}))
    except (KeyError, Refusal, StopIteration, OSError) as error:
        print(f"no node {host} in the rendezvous: {error}", file=sys.stderr)
        return 255
    while os.getppid() == parent:
        if result := look(folder, f"result-{key}"):
            folder.remove(f"result-{key}")
            sys.stdout.write(result["output"])
            sys.stderr.write(result["errors"])
            return result["status"]
        time.sleep(POLL_S)
    return 255  # mpirun is gone


def retry(action: Callable[[], Result]) -> Result:
    """Return what `action()` returns, called again for FAILS_S while the file system fails. Raises OSError, NotNow."""
    return retry_while_unavailable(action, FAILS_S, unavailable=lambda e: isinstance(e, NotNow) or passes(e))


def look(folder: PrivateFolder, name: str) -> dict[str, Any] | None:
    """Return a message, or None if there is none, or if it cannot be read now."""
    try:
        folder.names()
        return folder.read(name)
    except OSError:
        return None


if __name__ == "__main__":
    prepare()
    sys.exit(main(sys.argv[1:]))
