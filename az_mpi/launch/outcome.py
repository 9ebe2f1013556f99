"""How a job ended, from the exit code of mpirun and the run's own record, RUN/status.json.

mpirun's code alone does not tell: Open MPI 5.0 may end with 0, or with 255, when it has lost a host.
`python -m az_mpi.launch.outcome RUN CODE ASKED <BEFORE` prints the exit code that counts, for batch scripts.
"""

import json
import sys
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from az_mpi.core import files
from az_mpi.core.exit_codes import DONE, INTERNAL, RESUMABLE, STOPPED_EARLY


class Outcome(NamedTuple):
    """The exit code that counts, whether the run is complete, and whether the job lost a host or a rank."""

    status: int
    finished: bool
    lost: bool


class State(Enum):
    """How far a job had come when it ended."""

    STOPPED_EARLY = "it was asked to stop, and ended before any rank had begun"
    NO_RECORD = "it does not train, so it keeps no record"
    NOT_BEGUN = "a training that has not written its status.json"
    BEGUN = "a training that has written its status.json, but not that it has finished"
    FINISHED = "a training whose status.json says that it has finished"


ANY = None  # in a rule's first part: it fits every end
SAME = None  # in a rule's second part: as mpirun has reported


class Rule(NamedTuple):
    """The ends that a rule fits: the state, mpirun's code, and whether mpirun has said that it lost a host or a rank.
    Then what they mean, as in an `Outcome`."""

    state: State
    code: int | None
    said_lost: bool | None

    status: int | None
    finished: bool
    lost: bool | None


# The first rule that fits an end counts. mpirun ends with 0 or 255 also where it has lost a host.
RULES = (
    Rule(State.STOPPED_EARLY, ANY, ANY, status=RESUMABLE, finished=False, lost=SAME),
    Rule(State.NO_RECORD, 0, False, status=DONE, finished=True, lost=False),
    Rule(State.NO_RECORD, 0, True, status=INTERNAL, finished=True, lost=True),
    Rule(State.NO_RECORD, ANY, ANY, status=SAME, finished=False, lost=SAME),
    Rule(State.NOT_BEGUN, 0, ANY, status=RESUMABLE, finished=False, lost=True),
    Rule(State.NOT_BEGUN, 255, True, status=RESUMABLE, finished=False, lost=True),
    Rule(State.NOT_BEGUN, ANY, ANY, status=SAME, finished=False, lost=SAME),
    Rule(State.BEGUN, 0, ANY, status=RESUMABLE, finished=False, lost=True),
    Rule(State.BEGUN, 255, ANY, status=RESUMABLE, finished=False, lost=True),
    Rule(State.BEGUN, ANY, ANY, status=SAME, finished=False, lost=SAME),
    Rule(State.FINISHED, ANY, ANY, status=SAME, finished=True, lost=False),
)


def outcome(
    code: int, record: dict | None = None, before: dict | None = None, asked: bool = False, lost: bool = False
) -> Outcome:
    """Return how a job ended: the state that it had reached and mpirun's code are looked up in RULES.

    A training counts as finished only if its status.json says so. Otherwise a code that mpirun also gives where it has
    lost a host means that a later start can continue (RESUMABLE); every other code is the job's own.

    code: of mpirun. record, before: the content of status.json now and before the job began, {} if there was no such
    file; None for a job that does not train and writes none. asked: whether the job was asked to stop with SIGUSR2 and
    nothing else. lost: whether mpirun has said that it lost a host or a rank."""
    state = _state(code, record, before, asked)
    rule = next(
        rule for rule in RULES if rule.state is state and rule.code in (ANY, code) and rule.said_lost in (ANY, lost)
    )
    return Outcome(
        code if rule.status is SAME else rule.status, rule.finished, lost if rule.lost is SAME else rule.lost
    )


def _state(code, record, before, asked):
    """Return the `State` that a job had reached. The arguments are those of `outcome`."""
    if asked and code in STOPPED_EARLY:
        return State.STOPPED_EARLY
    if record is None:
        return State.NO_RECORD
    if record == before:
        return State.NOT_BEGUN
    return State.FINISHED if record.get("job") == "finished" else State.BEGUN


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
