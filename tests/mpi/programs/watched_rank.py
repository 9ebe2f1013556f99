"""run_dist.py with slow phases and quick heartbeats, so that each state can be seen: watched_rank.py OPTIONS…

A file named `fail` beside the run's folder makes the last rank fail.
"""

import sys
import time
from pathlib import Path

import run_dist
import tests.mpi.programs.loading  # noqa: F401
from az_mpi.config.command_line import parse
from az_mpi.core.printing import environment_rank
from az_mpi.liveness import heartbeat
from az_mpi.run import weights
from az_mpi.selfplay.player import Player
from az_mpi.telemetry import status
from az_mpi.train.learner import Learner

LAST = 2
FAIL = Path(parse(sys.argv[1:]).logdir).parent / "fail"

heartbeat.EVERY_S = status.WRITE_EVERY_S = 0.1


def slow(function, seconds):
    def call(*arguments, **options):
        time.sleep(seconds)
        return function(*arguments, **options)

    return call


def step(player, step=Player.step):
    if environment_rank() == LAST and FAIL.exists():
        raise ZeroDivisionError("a fault in the test")
    time.sleep(0.02)
    step(player)


Player.step = step
Learner.train = slow(Learner.train, 0.7)
weights.broadcast_weights = slow(weights.broadcast_weights, 0.7)
sys.exit(run_dist.main(sys.argv[1:]))
