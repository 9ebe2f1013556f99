"""The last rank dies in one kind of collective after the other. The others get PeerLost, whatever MPI's error was.

For mpirun --with-ft ulfm, with two ranks more than KINDS.
"""

import os
import signal
import time

import numpy as np

from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import World

KINDS = {
    "barrier": lambda world: world.barrier(),
    "collect": lambda world: world.collect(world.rank),
    "sum": lambda world: world.sum(np.ones(3)),
    "start_sum": lambda world: world.start_sum([1]).total,
    "broadcast": lambda world: world.broadcast(np.zeros(100_000), source=0),
    "gather": lambda world: world.gather(np.zeros((5, 3))),
    "exchange": lambda world: world.exchange(np.zeros((5, 3)), np.arange(5) % world.size),
}


def main():
    world = World.start()
    assert world.size == len(KINDS) + 2
    for name, call in KINDS.items():
        try:
            for turn in range(6):
                if turn == 3:
                    if world.rank == world.size - 1:
                        os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(0.03 * world.rank)  # MPI finds out while some are in the collective and some are not
                call(world)
            world.barrier()  # what the dead rank has nothing to do in may have succeeded
            raise AssertionError(f"nobody noticed the loss in {name}")
        except PeerLost:
            pass
        world = world.recover(lambda survivors: survivors)
    assert world.sum(np.ones(1)) == [2]
    print("all checks passed", flush=True)
    os._exit(0)  # as run_dist.py does: MPI_Finalize would wait for the dead


main()
