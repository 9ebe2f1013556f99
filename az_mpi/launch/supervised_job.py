"""One job of mpirun under a supervisor: what launch knows of it and has decided about it."""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from az_mpi.launch import mpi_job
from az_mpi.launch.outcome import Outcome
from az_mpi.launch.transport import Question

# Signals to a job that is to stop: (seconds after the decision, signal).
STOPS = ((0, signal.SIGUSR2), (120, signal.SIGTERM), (150, signal.SIGKILL))
# Signals to a job that has lost a host, which mpirun may not notice.
ENDS = ((0, signal.SIGTERM), (30, signal.SIGKILL))


@dataclass
class SupervisedJob:
    """One job of mpirun. Times are of time.monotonic()."""

    status_before: dict[str, Any]  # the run's status.json before this job, {} if no job of this launch had written one
    started: float
    tick_at: float  # when the supervisor looks after it again
    search_at: float  # when hosts that are not in the job are asked again
    question: Question | None = None  # to hosts that are not in the job, while it is open
    has_told: bool = False  # whether the job has written a status
    has_lost_node: bool = False  # whether one of its hosts is known to be lost
    is_changing: bool = False  # whether it is being stopped because the next job is to run otherwise
    is_last: bool = False  # whether it is being stopped for good: no job is to follow
    signals: list[tuple[float, signal.Signals]] = field(default_factory=list)  # for mpirun: (when it gets it, signal)
    ended: mpi_job.Ended | None = None  # how mpirun ended; None while it runs
    outcome: Outcome | None = None  # what that means for the run; None while it runs

    def send(self, signals: Sequence[tuple[float, signal.Signals]]) -> None:
        """Plan signals for mpirun, in place of those that are still to come. signals: STOPS or ENDS."""
        now = time.monotonic()
        self.signals = [(now + after_s, number) for after_s, number in signals]

    def due(self, now: float) -> list[signal.Signals]:
        """Return the planned signals whose time has come, each once."""
        found = [number for at, number in self.signals if now >= at]
        self.signals = [(at, number) for at, number in self.signals if now < at]
        return found
