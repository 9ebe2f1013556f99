"""The collectives of World by message size, on as many ranks as mpirun starts, and against bare MPI calls.

    mpirun -np 2 -H localhost:2 python benchmarks/exchange.py

Seconds of a call, on the slowest rank, and bytes that enter or leave the rank with most of them (root in a broadcast
or gather) a second. Each rank gives `bytes` to a gather or an exchange; a broadcast has them in all.
`…_ratio` is World's seconds over those of the blocking MPI call on buffers that are there already, in the order
in which they are sent, which spins where World sleeps.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")

import numpy as np
from common import make_parser, spread, tell
from mpi4py import MPI

from az_mpi.doctor.bandwidth import bulk_calls, measure
from az_mpi.mpi.world import World

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24)
AGAINST_MPI = (1 << 16, 1 << 24)


def main():
    parser = make_parser(__doc__, runs=7)
    arguments = parser.parse_args()
    world = World.start()
    rows = {}
    item = {"num_games": 12, "lengths": list(range(20))}
    small = {
        "barrier": world.barrier,
        "collect": lambda: world.collect(item),
        "share": lambda: world.share(item),
        "sum": lambda: world.sum(np.arange(4.0)),
        "start_sum": lambda: world.start_sum([1]).total,
    }
    for name, call in small.items():
        rows[f"{name}_s"] = spread(measure(world, call, arguments.runs))
    for size in SIZES:
        bare = bare_calls(world, size) if size in AGAINST_MPI else {}
        for name, (call, moved) in bulk_calls(world, size).items():
            key = f"{name}_{size // 1024}KiB"
            seconds = measure(world, call, arguments.runs)
            rows[f"{key}_s"] = spread(seconds)
            if moved:
                rows[f"{key}_bytes_per_s"] = spread([moved / s for s in seconds])
            if bare:
                theirs = spread(measure(world, bare[name], arguments.runs))["median"]
                rows[f"{key}_ratio"] = spread([s / theirs for s in seconds])
    if world.is_root:
        title = f"exchange, {world.size} ranks on {len(set(world.hosts))} host(s), {world.library()}"
        tell(title, rows, arguments.json)


def bare_calls(world, size):
    """Return {name: call} of MPI on buffers that are there already, as many bytes as `bulk_calls`."""
    comm, share = world.comm, size // world.size
    mine, everyone = np.zeros(size, np.uint8), np.empty(size * world.size if world.is_root else 0, np.uint8)
    sent, received = np.zeros(share * world.size, np.uint8), np.empty(share * world.size, np.uint8)
    return {
        "broadcast": lambda: comm.Bcast([mine, MPI.BYTE]),
        "gather": lambda: comm.Gather([mine, MPI.BYTE], [everyone, size, MPI.BYTE] if world.is_root else None),
        "exchange": lambda: comm.Alltoall([sent, share, MPI.BYTE], [received, share, MPI.BYTE]),
    }


if __name__ == "__main__":
    main()
