"""What mpirun calls in place of ssh: `agent HOST COMMAND...` has the node HOST of the rendezvous run a shell command.

Standard input goes along as a whole; output and exit status come back when the command has ended.
"""

import os
import secrets
import sys
import time

from az_mpi.launch.private_folder import PrivateFolder
from az_mpi.problems import Refusal

FOLDER = "AZ_MPI_RENDEZVOUS"  # tells this program the folder
POLL_S = 0.1


def main(arguments):
    """Run the command and return its exit status; 255, as ssh does, where it cannot be run."""
    host, parent = arguments[0], os.getppid()
    try:
        folder = PrivateFolder(os.environ[FOLDER])
        members = (folder.read("node-0") or {}).get("members", [])
        member = next(member for member in members if member["host"] == host)
    except (KeyError, Refusal, StopIteration) as error:
        print(f"no node {host} in the rendezvous: {error}", file=sys.stderr)
        return 255
    key = f"{member['id']}-{secrets.token_hex(8)}"
    # As ssh does: one shell command, whatever the number of words.
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    folder.write(f"command-{key}", {"command": " ".join(arguments[1:]), "input": text})
    while os.getppid() == parent:
        folder.names()
        if result := folder.read(f"result-{key}"):
            folder.remove(f"result-{key}")
            sys.stdout.write(result["output"])
            sys.stderr.write(result["errors"])
            return result["status"]
        time.sleep(POLL_S)
    return 255  # whoever asked is gone


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
