"""The gradient of one global batch, split over the ranks, against the whole batch in this process alone.

    gradient_checks.py BACKEND [DEVICE [BUCKET_BYTES]]

In fp32 the two may differ by the order of additions alone: at most 1e-5 of the largest gradient of a tensor.
"""

import sys

import numpy as np
import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.mpi.world import World, split_evenly
from az_mpi.network import resnet
from az_mpi.train import backends
from az_mpi.train.backends import gradient_sums
from az_mpi.train.learner import Learner
from az_mpi.train.loss import losses

BATCH = 37  # not a multiple of any number of ranks here
TOLERANCE = 1e-5


def random_batch(game, n):
    rng = np.random.default_rng(11)
    planes = rng.integers(0, 2, (n, *game.planes_shape)).astype(np.uint8)
    policy = rng.dirichlet(np.ones(game.num_actions), n).astype(np.float32)
    value = rng.choice([-1.0, 0.0, 1.0], n).astype(np.float32)
    weight = rng.uniform(0.5, 1.5, n).astype(np.float32)
    return {"planes": planes, "policy": policy, "value": value, "weight": weight}


def network_with_random_heads(game, config):
    """Fixup starts the heads at zero, which would hide most of the gradient."""
    network = resnet.build(game, config.network, config.seed)
    generator = torch.Generator().manual_seed(5)
    for parameter in network.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)
    return network


def main():
    world = World.start()
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # which rounds to 10 bits
    config = configuration.validate(
        {
            "game": "connect4",
            "network": {"blocks": 2, "channels": 16},
            "train": {"mixed_precision": False, "batch_size": BATCH, "value_loss_weight": 0.7},
        },
        "test",
    )
    game = games.make("connect4")
    batch = random_batch(game, BATCH)

    alone = network_with_random_heads(game, config)
    whole = {name: torch.from_numpy(part) for name, part in batch.items()}
    policy_loss, value_loss = losses(alone, whole | {"planes": whole["planes"].float()}).values()
    ((policy_loss + 0.7 * value_loss) / BATCH).backward()

    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    gradient_sums.BUCKET_BYTES = int(sys.argv[3]) if len(sys.argv) > 3 else gradient_sums.BUCKET_BYTES
    backend = backends.make(sys.argv[1], world, world, device)
    network = network_with_random_heads(game, config)
    learner = Learner(config, game, network, backend, device)
    counts = split_evenly(BATCH, world.size)
    for empty_last in (False, True):
        if empty_last and world.size > 1:  # a rank whose shard is empty takes part all the same
            counts = [*split_evenly(BATCH, world.size - 1), 0]
        first = sum(counts[: world.rank])
        mine = {name: part[first : first + counts[world.rank]] for name, part in batch.items()}
        with backend.session():
            local = learner.gradients(learner.tensors(mine), BATCH)
        for (name, ours), (_, theirs) in zip(network.named_parameters(), alone.named_parameters()):
            difference = (ours.grad.cpu() - theirs.grad).abs().max() / theirs.grad.abs().max()
            assert difference < TOLERANCE, f"{name}: {difference}"
        total = world.sum(np.array([part.item() for part in local]))
        assert np.allclose(total, [policy_loss.item(), value_loss.item()], rtol=1e-5)
    print("all checks passed")


if __name__ == "__main__":
    main()
