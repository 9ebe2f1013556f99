"""run_dist.py where one rank's samples hold a NaN: bad_numbers.py RANK FIRST LAST OPTIONS…

Steps FIRST to LAST (from 1) of the run are meant, as far as they are drawn on that rank in this start, which has to
begin at step 1.
"""

import sys

import numpy as np

import run_dist
from az_mpi.core.printing import environment_rank
from az_mpi.train.replay import Replay

RANK, FIRST, LAST = map(int, sys.argv[1:4])
drawn = 0


def sample_with_nan(replay, rng, n, sample=Replay.sample):
    global drawn
    drawn += 1
    batch = sample(replay, rng, n)
    if FIRST <= drawn <= LAST:
        batch["value"][0] = np.nan
    return batch


if environment_rank() == RANK:
    Replay.sample = sample_with_nan
sys.exit(run_dist.main(sys.argv[4:]))
