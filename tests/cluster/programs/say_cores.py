"""In run_dist.py's place: each rank writes where it is, which cores it has and what it was told.

say_cores.py [anything] FOLDER: rank 0 writes FOLDER/0.json"""

import json
import os
import socket
import sys
from pathlib import Path

from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
told = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
about = {
    "host": socket.gethostname(),
    "cores": len(os.sched_getaffinity(0)),
    "size": MPI.COMM_WORLD.size,
    "options": sys.argv[1:-1],
    **told,
}
Path(sys.argv[-1], f"{rank}.json").write_text(json.dumps(about))
