"""Every rank sends more at once to every other one than fits into a small /dev/shm."""

import numpy as np

from az_mpi.mpi.world import World

BYTES, NUM_MESSAGES = 300_000, 30

comm = World.start().comm
others = [rank for rank in range(comm.Get_size()) if rank != comm.Get_rank()]
sent = [np.full(BYTES, 16 * comm.Get_rank() + k, np.uint8) for k in range(NUM_MESSAGES)]
requests = [comm.Isend(sent[k], rank, k) for k in range(NUM_MESSAGES) for rank in others]
got = {(rank, k): np.zeros(BYTES, np.uint8) for rank in others for k in range(NUM_MESSAGES)}
requests += [comm.Irecv(array, rank, k) for (rank, k), array in got.items()]
requests[0].Waitall(requests)
assert all((array == (16 * rank + k) % 256).all() for (rank, k), array in got.items())
comm.Barrier()
print("all checks passed", flush=True)
