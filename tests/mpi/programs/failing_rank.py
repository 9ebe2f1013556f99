"""run_dist.py with a fault on the last rank: failing_rank.py {exception,placed,storage,weights} OPTIONS…

placed: an exception, where the last rank is the only one that trains and so is the run's rank 0."""

import errno
import sys
import time
from pathlib import Path

import run_dist
from az_mpi.config.command_line import parse
from az_mpi.core.printing import environment_rank
from az_mpi.mpi import placement
from az_mpi.selfplay.player import Player
from az_mpi.train.learner import Learner

LAST = 2


def note_time():
    (Path(parse(sys.argv[2:]).logdir).parent / "failed_at").write_text(str(time.time()))


def failing_step(player):
    note_time()
    if sys.argv[1] == "storage":
        raise OSError(errno.EIO, "Input/output error")
    raise ZeroDivisionError("a fault in the test")


def train_with_flipped_weight(learner, *arguments, train=Learner.train):
    steps = train(learner, *arguments)
    learner.network.stem.bias.data[0] += 1e-6
    note_time()
    return steps


if sys.argv[1] == "placed":
    placement.trainers = lambda ranks, places: [rank == LAST for rank in range(len(places))]
if environment_rank() == LAST:
    if sys.argv[1] != "weights":
        Player.step = failing_step
    else:
        Learner.train = train_with_flipped_weight
sys.exit(run_dist.main(sys.argv[2:]))
