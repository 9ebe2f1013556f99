"""The trainer sends copies of its state, and dies in the middle of one: its partner has the one before, whole.

For mpirun --with-ft ulfm -np 3.
"""

import os
import signal
from types import SimpleNamespace

import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config import schema
from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import World
from az_mpi.network import resnet
from az_mpi.run import partner_checkpoint
from az_mpi.storage.checkpoint import Progress

COPIES = 5
CONFIG = configuration.validate({"game": "tictactoe"}, "the test")
CHUNK = 4096  # bytes that are sent at once: a copy takes dozens of them


def state(number):
    """Return the progress and a stand-in for the learner after so many steps, the same on every rank."""
    network = resnet.build(games.make("tictactoe"), schema.Network(blocks=1, channels=16), number)
    moments = {f"{name}.exp_avg": number * p.detach() for name, p in network.named_parameters()} if number else {}
    return Progress(2, "train", number, 0.1 * number), SimpleNamespace(average=network, optimizer_state=lambda: moments)


def check(kept, number):
    progress, learner = state(number)
    assert kept.progress == progress, (kept.progress, number)
    for found, expected in ((kept.model, learner.average.state_dict()), (kept.optimizer, learner.optimizer_state())):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)


def die_after(comm, calls):
    """Return a communicator of which the call of Ibcast after so many is the last thing that this process does."""
    left = iter(range(calls))

    def broadcast(*arguments):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return comm.Ibcast(*arguments)

    class Dying:
        Ibcast = staticmethod(broadcast)

        def __getattr__(self, name):
            return getattr(comm, name)

    return Dying()


def main():
    world = World.start()
    world.chunk_bytes = CHUNK
    mine = partner_checkpoint.make(CONFIG, world, 1)
    assert (mine is None) == (world.rank == 2)
    assert partner_checkpoint.make(CONFIG, world, 2) is None
    world.barrier()
    if world.rank == 0:
        for number in range(COPIES):  # the first one before the optimiser has moments
            mine.send(*state(number))
            mine.settle()
        mine.finish(*state(COPIES - 1))  # which was sent
        mine.finish(*state(COPIES))  # in a second training
        mine.pair.comm = die_after(mine.pair.comm, 20)
        mine.send(*state(COPIES + 1))
        mine.settle()
        raise AssertionError("it is dead")
    if world.rank == 1:
        mine.begin()
        mine.settle()
        check(mine.kept(), COPIES - 1)
        mine.begin()
        mine.settle()
        check(mine.kept(), COPIES)
        mine.begin()
        try:
            mine.settle()
            raise AssertionError("the loss was not noticed")
        except PeerLost:
            pass
        check(mine.kept(), COPIES)
        world.revoke()
        mine.close()
    try:
        world.barrier()
    except PeerLost:
        pass
    world = world.recover(lambda survivors: survivors)
    again = partner_checkpoint.make(CONFIG, world, 1)
    if mine and not again.pair.is_root:
        raise AssertionError("the partner is the next trainer")
    if not again.pair.is_root:
        progress, learner = state(3)
        again.keep(
            SimpleNamespace(progress=progress, model=learner.average.state_dict(), optimizer=learner.optimizer_state())
        )
        check(again.kept(), 3)
    if world.is_root:
        print("all checks passed", flush=True)
    os._exit(0)  # as run_dist.py does: MPI_Finalize would wait for the dead


main()
