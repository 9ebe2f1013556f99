"""In run_dist.py's place: leave with the status that is the last argument, or stands behind the "=" in it."""

import sys

from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
sys.exit(int(sys.argv[-1].rpartition("=")[2]))
