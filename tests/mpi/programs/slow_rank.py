"""run_dist.py with a last rank whose every step of self-play takes some seconds: slow_rank.py SECONDS OPTIONS…"""

import sys
import time

import run_dist
from az_mpi.core.printing import environment_rank
from az_mpi.selfplay.player import Player

LAST = 2


def slow_step(player, seconds=float(sys.argv[1]), step=Player.step):
    time.sleep(seconds)
    step(player)


if environment_rank() == LAST:
    Player.step = slow_step
sys.exit(run_dist.main(sys.argv[2:]))
