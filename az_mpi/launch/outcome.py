"""How a job ended, from the exit code of mpirun and the run's own record, RUN/status.json.

mpirun's code alone does not tell: Open MPI 5.0 may end with 0, or with 255, when it has lost a host.
`python -m az_mpi.launch.outcome RUN CODE ASKED <BEFORE` prints the exit code that counts, for batch scripts.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

from az_mpi.core import files
from az_mpi.core.exit_codes import DONE, INTERNAL, RESUMABLE, STOPPED_EARLY


class Outcome(NamedTuple):
    """The exit code that counts, whether the run is complete, and whether the job lost a host or a rank."""

    status: int
    finished: bool
    lost: bool


def outcome(
    code: int, record: dict | None = None, before: dict | None = None, asked: bool = False, lost: bool = False
) -> Outcome:
    """Return how a job ended, from the exit status of mpirun and from what the job wrote into status.json.

    mpirun ends with 0 or 255 also where it lost a host. So a training counts as finished only if its status.json says
    so; without that, 0, and 255 after the training had begun, mean that a later start can continue (RESUMABLE).

    code: of mpirun. record, before: the content of status.json now and before the job began, {} if there was no such
    file; None for a job that does not train and writes none. asked: whether the job was asked to stop with SIGUSR2 and
    nothing else. lost: whether mpirun has said that it lost a host or a rank."""
    if asked and code in STOPPED_EARLY:
        return Outcome(RESUMABLE, False, lost)
    if record is None:
        return Outcome(code or (INTERNAL if lost else DONE), not code, lost)
    begun = record != before
    if begun and record.get("job") == "finished":
        return Outcome(code, True, False)
    lost = lost or code == 0 or code == 255 and begun
    return Outcome(RESUMABLE if code in (0, 255) and lost else code, False, lost)


def read(folder: str | Path, launch: str | None = None) -> dict:
    """Return the content of RUN/status.json, {} if there is none. launch: {} if another launch's job wrote it."""
    try:
        record = files.read_json(Path(folder) / "status.json")
        return record if launch is None or record["launch"] == launch else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


if __name__ == "__main__":
    folder, code, asked = sys.argv[1:]
    print(outcome(int(code), read(folder), json.loads(sys.stdin.read().strip() or "{}"), bool(asked)).status)
