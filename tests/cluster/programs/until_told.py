"""In run_dist.py's place: play nothing until USR2 comes, then leave with status 75 and be done at the next start.

until_told.py [anything] STARTS FOLDER: be done at the start of this number. Each rank leaves a file in FOLDER at
each start, once it listens."""

import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

told = []
signal.signal(signal.SIGUSR2, lambda *_: told.append(1))
starts, folder = int(sys.argv[-2]), Path(sys.argv[-1])
start = 1 + int(os.environ.get("SLURM_RESTART_COUNT", "0"))
rank = MPI.COMM_WORLD.rank
folder.mkdir(exist_ok=True)
(folder / f"start-{start}-rank-{rank}").touch()
if start < starts:
    while not told:
        time.sleep(0.05)
    sys.exit(75)
