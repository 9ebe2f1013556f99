"""Sums of gradients by NCCL, and the death of a rank in the middle of one, on one GPU that all ranks share.

NCCL refuses two ranks of one host on the same GPU. It tells hosts by NCCL_HOSTID, so each rank says that it is on a
host of its own, and NCCL sums over TCP. For mpirun --with-ft ulfm and 3 ranks.
"""

import os
import signal
import threading
import time

import torch
from session_checks import summed

from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import World
from az_mpi.train.backends.ddp_backend import DdpBackend

DEVICE = "cuda:0"
NUMBERS = 1 << 27  # in the sum in which a rank dies: half a GiB, which takes TCP longer than DIES_S
DIES_S = 0.05


def make(world):
    backend = DdpBackend(world, [f"a GPU of rank {rank}" for rank in range(world.size)])
    assert backend.carrier == "nccl" and backend.problem is None
    return backend


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    world = World.start()
    os.environ["NCCL_HOSTID"] = f"host {world.rank}"
    torch.cuda.set_device(DEVICE)
    backend = make(world)
    assert summed(world, backend, DEVICE) == [world.size * (world.size + 1) / 2] * 3
    assert "nccl" in backend.describe()
    weight = torch.nn.Parameter(torch.zeros(NUMBERS, device=DEVICE))
    victim = world.rank == world.size - 1
    try:
        with backend.session():
            wait_for_sums = backend.sum_gradients([weight])
            weight.grad = torch.ones_like(weight)
            world.barrier()
            begun = time.monotonic()
            if victim:
                threading.Timer(DIES_S, die).start()
            wait_for_sums()
            if victim:
                time.sleep(60)  # the sum was over before
        raise AssertionError("nobody noticed the loss")
    except PeerLost:
        print(f"lost after {time.monotonic() - begun:.2f} s", flush=True)
    world = world.recover(lambda survivors: survivors)
    print(f"together again after {time.monotonic() - begun:.2f} s", flush=True)
    assert world.size == 2
    assert summed(world, make(world), DEVICE) == [3.0] * 3
    print("all checks passed", flush=True)
    os._exit(0)  # as run_dist.py does: MPI_Finalize would wait for the dead


main()
