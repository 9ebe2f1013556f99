"""run_dist.py where a signal ends rank 1 of three before it has joined the others: early_death.py WHEN OPTIONS…

WHEN: "loading", before it has done anything, or "joining", as it would join, when its watchdog is there.
"""

import os
import signal
import sys

import run_dist
from az_mpi.core.printing import environment_rank
from az_mpi.mpi.world import World

VICTIM = 1
when = sys.argv.pop(1)


def join(join=World.start):
    if environment_rank() == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    return join()


if environment_rank() == VICTIM and when == "loading":
    os.kill(os.getpid(), signal.SIGKILL)
World.start = join
sys.exit(run_dist.main(sys.argv[1:]))
