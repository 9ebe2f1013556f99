"""run_dist.py where segments are slow or impossible to write: slow_disk.py {slow,full,fault} OPTIONS…

slow: each fsync of the writer's thread takes 1 s. full: it finds no space. fault: it takes 0.25 s, and root fails in
training.
"""

import errno
import os
import sys
import threading
import time

import run_dist
from az_mpi.core.printing import environment_rank
from az_mpi.train.learner import Learner

fsync = os.fsync


def slow_or_full(descriptor):
    if threading.current_thread().name == "segments":
        if sys.argv[1] == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        time.sleep(1.0 if sys.argv[1] == "slow" else 0.25)
    fsync(descriptor)


os.fsync = slow_or_full
if sys.argv[1] == "fault" and environment_rank() == 0:
    Learner.train = lambda *arguments: 1 / 0
sys.exit(run_dist.main(sys.argv[2:]))
