"""Two steps with each optimiser on the ranks' parts of a batch, against the same steps with all of it in this process.

optimizer_checks.py BACKEND
"""

import sys

import torch
from gradient_checks import BATCH, network_with_random_heads, random_batch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.core.registry import OPTIMIZERS
from az_mpi.mpi.world import World, split_evenly
from az_mpi.train import backends
from az_mpi.train.learner import Learner

STEPS, RATE = 2, 0.01


def stepped(config, game, backend, batch):
    """Return a learner and its weights before and after STEPS steps on this rank's part of a batch."""
    learner = Learner(config, game, network_with_random_heads(game, config), backend, "cpu")
    before = [parameter.detach().clone() for parameter in learner.network.parameters()]
    with backend.session():
        for _ in range(STEPS):
            learner.gradients(learner.tensors(batch), BATCH)
            for group in learner.optimizer.param_groups:
                group["lr"] = RATE
            learner.optimizer.step()
    return learner, before


def main():
    world = World.start()
    torch.set_num_threads(1)
    alone = [world.split(world.rank == rank) for rank in range(world.size)][world.rank]
    game = games.make("connect4")
    batch, counts = random_batch(game, BATCH), split_evenly(BATCH, world.size)
    first = sum(counts[: world.rank])
    mine = {name: part[first : first + counts[world.rank]] for name, part in batch.items()}
    for name in OPTIMIZERS.names:
        config = configuration.validate(
            {
                "game": "connect4",
                "network": {"blocks": 2, "channels": 16},
                "train": {"mixed_precision": False, "batch_size": BATCH, "optimizer": name},
            },
            "test",
        )
        ours, before = stepped(config, game, backends.make(sys.argv[1], world, world, "cpu"), mine)
        whole, _ = stepped(config, game, backends.make("ddp", world, alone, "cpu"), batch)
        for begun, one, other in zip(before, ours.network.parameters(), whole.network.parameters(), strict=True):
            difference = ((one - other).abs().max() / (begun - other).abs().max()).item()
            assert difference < 1e-3, (name, difference)
        digest = [float(parameter.detach().double().sum()) for parameter in ours.network.parameters()]
        assert world.collect(digest) == [digest] * world.size, name
        assert ours.optimizer_tensors().keys() == whole.optimizer_tensors().keys()
    print("all checks passed")


if __name__ == "__main__":
    main()
