"""run_dist.py where the last of three ranks hangs, alive: hanging_rank.py {step,broadcast} OPTIONS…

step: in its own part of a training step. broadcast: in a system call that never returns, between training and play.
"""

import os
import sys

import run_dist
import tests.mpi.programs.loading  # noqa: F401
from az_mpi.core.printing import environment_rank
from az_mpi.run import weights
from az_mpi.train.learner import Learner

LAST = 2
num_calls = 0


def hanging(function, call):
    """Return the function, whose `call`-th call never returns on the last rank."""

    def hang(*arguments):
        global num_calls
        num_calls += 1
        if environment_rank() == LAST and num_calls == call:
            os.read(os.pipe()[0], 1)
        return function(*arguments)

    return hang


if sys.argv[1] == "step":
    Learner._backward = hanging(Learner._backward, 30)
else:
    weights.broadcast_weights = hanging(weights.broadcast_weights, 1)
sys.exit(run_dist.main(sys.argv[2:]))
