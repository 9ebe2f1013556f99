"""Ranks die one after the other while Horovod starts, each after one more of its calls. The others continue to train.

For mpirun --with-ft ulfm, with one rank more than DEATHS.
"""

import os
import signal

from mpi4py import MPI
from session_checks import summed

from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import World
from az_mpi.train import backends

# Behind so many of the calls by which Horovod starts. The first is made on the main thread, the others on its own.
DEATHS = (0, 1, 3, 5, 8)


def start_like_horovod(comm, calls):
    """Make the first `calls` of the collective calls with which Horovod 0.28.1 starts: the others wait for the next."""
    made = [comm]

    def split(whole):
        made.append(whole.Split_type(MPI.COMM_TYPE_SHARED))

    steps = [
        lambda: made.append(comm.Dup()),
        lambda: made.append(made[1].Dup()),
        lambda: split(made[2]),
        lambda: made[2].Split(made[3].rank, comm.rank),
        lambda: made.append(made[1].Dup()),
        lambda: made.append(made[4].Dup()),
        lambda: split(made[5]),
        lambda: made[5].Split(made[6].rank, comm.rank),
    ]
    for step in steps[:calls]:
        step()


def main():
    world = World.start()
    assert world.size == len(DEATHS) + 1
    for death in DEATHS:
        backend = backends.make("horovod", world, world, "cpu")
        assert summed(world, backend) == [world.size * (world.size + 1) / 2] * 3
        if world.is_root:
            start_like_horovod(world.comm, death)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            summed(world, backend)
            raise AssertionError(f"nobody noticed the loss behind {death} calls")
        except PeerLost:
            pass
        world = world.recover(lambda survivors: survivors)
    assert world.size == 1
    print("all checks passed", flush=True)
    os._exit(0)  # as run_dist.py does: MPI_Finalize would wait for the dead


main()
