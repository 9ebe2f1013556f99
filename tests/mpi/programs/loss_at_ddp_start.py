"""Ranks die one after the other while the process group of torch.distributed is made. The others continue to train.

For mpirun --with-ft ulfm and 6 ranks.
"""

import os
import signal
import time

import torch.distributed as dist
from session_checks import summed

from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import World
from az_mpi.train import backends
from az_mpi.train.backends import ddp_backend

MAKE, CONNECT = ddp_backend.process_group, ddp_backend.connect


class DyingReader(dist.Store):
    """A store to which a rank says where it listens. It dies when it asks for the others."""

    def __init__(self, store):
        super().__init__()
        self.store = store

    def set(self, key, value):
        self.store.set(key, value)

    def die(self, *arguments):
        die()

    get = multi_get = wait = check = die


def die(*arguments):
    time.sleep(1)  # by then the others are waiting for it
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_once(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def connect_late(*arguments):
    time.sleep(1)
    return CONNECT(*arguments)


def die_connecting(carrier, store, *arguments):
    return MAKE(carrier, DyingReader(store), *arguments)


# Root, before the others come to its store, and while they wait there; the last, for whose address they wait; then two
# that have given theirs, of which one should be called and the other should call, whichever gloo makes of them.
DEATHS = [(0, die_at_once), (0, die), (-1, die), (-1, die_connecting), (0, die_connecting)]


def main():
    world = World.start()
    for victim, death in DEATHS:
        backend = backends.make("ddp", world, world, "cpu")
        ddp_backend.connect = connect_late if death is die_at_once else CONNECT
        if world.rank == victim % world.size:
            ddp_backend.process_group = death
        try:
            summed(world, backend)
            raise AssertionError("nobody noticed the loss")
        except PeerLost:
            pass
        size, world = world.size, world.recover(lambda survivors: survivors)
        assert world.size == size - 1
        if world.size > 1:
            expected = [world.size * (world.size + 1) / 2] * 3
            assert summed(world, backends.make("ddp", world, world, "cpu")) == expected
    assert summed(world, backends.make("ddp", world, world, "cpu")) == [1.0] * 3
    print("all checks passed", flush=True)
    os._exit(0)  # as run_dist.py does: MPI_Finalize would wait for the dead


main()
