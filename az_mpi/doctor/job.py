"""The MPI job that the doctor joins, or a world of this rank alone; and a time limit for what may hang."""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from az_mpi.core.exit_codes import PROBLEMS
from az_mpi.core.problems import Refusal
from az_mpi.doctor.checks import in_words
from az_mpi.mpi.alone import Alone

HANG_S = 300.0  # a step of the doctor that takes longer hangs


def started_by() -> str | None:
    """Return which launcher started this process, or None. To be called before MPI starts."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return "mpirun"
    if "SLURM_STEP_ID" in os.environ and ("PMIX_RANK" in os.environ or "SLURM_STEP_NUM_TASKS" in os.environ):
        return "srun"
    return "mpirun or mpiexec, through PMI" if "PMI_SIZE" in os.environ else None


def join() -> tuple[Any, str | None]:
    """Return (the World of this job, None), or (a world of this rank alone, the reason)."""
    try:
        from az_mpi.mpi.world import World

        return World.start(), None
    except Refusal as error:
        return Alone(), str(error)
    except Exception as error:  # mpi4py or numpy missing, no MPI library, ...
        return Alone(), f"MPI cannot be started: {in_words(error)}"


@contextlib.contextmanager
def watch(what: str, stream: TextIO | None = None, limit_s: float = HANG_S) -> Iterator[None]:
    """Print to `stream` that `what` begins. End this process, and with it the job, if the block takes longer than
    `limit_s`."""

    def end():
        print(
            f"doctor: {what}: no end after {limit_s:g} s on {socket.gethostname()}, process {os.getpid()}; the job "
            "ends\n  ranks that wait for each other for ever often use a network that does not connect them: name\n"
            "  the right one with --mca btl_tcp_if_include INTERFACE, and see that no firewall is between the hosts",
            file=sys.stderr,
            flush=True,
        )
        os._exit(PROBLEMS)

    if stream:
        print(f"doctor: {what} …", file=stream, flush=True)
    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
