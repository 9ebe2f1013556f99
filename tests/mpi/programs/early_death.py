"""run_dist.py where a signal ends rank 1 of three as it would join the others."""

import os
import signal
import sys

import run_dist
from az_mpi.core.printing import environment_rank
from az_mpi.mpi.world import World

VICTIM = 1


def join(join=World.start):
    if environment_rank() == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    return join()


World.start = join
sys.exit(run_dist.main(sys.argv[1:]))
