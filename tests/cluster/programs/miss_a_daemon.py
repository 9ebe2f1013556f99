"""In run_dist.py's place: begin a run and end like an mpirun that misses a daemon; finish it at the job's next start.

miss_a_daemon.py [anything] --logdir run"""

import os
import sys
from pathlib import Path

from mpi4py import MPI

first = os.environ.get("SLURM_RESTART_COUNT", "0") == "0"
if MPI.COMM_WORLD.rank == 0:
    Path("run").mkdir(exist_ok=True)
    Path("run/status.json").write_text('{"job": "running"}' if first else '{"job": "finished"}')
MPI.COMM_WORLD.Barrier()
sys.exit(255 if first else 0)
