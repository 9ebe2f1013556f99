"""run_dist.py where a signal ends rank 1 of three before it has joined the others: early_death.py WHEN OPTIONS…

WHEN: "loading", before it has done anything, or "joining", in MPI_Init, where it waits for the last one.
"""

import os
import signal
import sys
import time

import run_dist
from az_mpi.command_line import environment_rank
from az_mpi.world import World

VICTIM, LATE = 1, 2
when = sys.argv.pop(1)


def join(join=World.start):
    if environment_rank() == VICTIM and when == "joining":
        signal.alarm(1)  # whose default action needs no Python, which MPI_Init does not let run
    if environment_rank() == LATE:
        time.sleep(3)
    return join()


if environment_rank() == VICTIM and when == "loading":
    os.kill(os.getpid(), signal.SIGKILL)
World.start = join
sys.exit(run_dist.main(sys.argv[1:]))
