"""Root dies while the process group of torch.distributed is made, again and again; the others train on.

For mpirun --with-ft ulfm.
"""

import os
import signal
import time

import torch.distributed as dist
from session_checks import summed

from az_mpi.peers import PeerLost
from az_mpi.train import backends
from az_mpi.world import World


def die(*arguments, **named):
    time.sleep(1)  # by then the others are waiting for it at its store
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    world, size = World.start(), 0
    while world.size > 1:
        size, backend = world.size, backends.make("ddp", world, world, "cpu")
        if world.is_root:
            dist.init_process_group = die  # its store is there, and the others ask it
        try:
            summed(world, "meanwhile", backend)
            raise AssertionError("nobody noticed the loss")
        except PeerLost:
            pass
        world = world.recover(lambda survivors: survivors)
        assert world.size == size - 1
    assert summed(world, "alone", backends.make("ddp", world, world, "cpu")) == [1.0] * 3
    print("all checks passed", flush=True)
    os._exit(0)  # as run_dist.py does: MPI_Finalize would wait for the dead


main()
