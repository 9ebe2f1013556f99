"""run_dist.py where the last of three ranks hangs in its part of a training step, alive: hanging_trainer.py OPTIONS…"""

import sys
import time

import run_dist
from az_mpi.command_line import environment_rank
from az_mpi.train.learner import Learner

LAST, STEP = 2, 30
steps_num = 0


def backward(learner, *arguments, function=Learner._backward):
    global steps_num
    steps_num += 1
    while environment_rank() == LAST and steps_num == STEP:
        time.sleep(1)
    function(learner, *arguments)


Learner._backward = backward
sys.exit(run_dist.main(sys.argv[1:]))
