"""The mean loss of an iteration, summed over the parts that the ranks have of it, against numbers computed by hand.

A network whose heads are still at zero gives each of 7 moves the same probability and every position the value 0: a
policy costs log 7 and a value v costs v^2, times the position's weight.
"""

import math

import numpy as np
import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.mpi.world import World, split_evenly
from az_mpi.network import resnet
from az_mpi.network.heads.value import Value
from az_mpi.storage.checkpoint import Progress
from az_mpi.train import backends
from az_mpi.train.learner import Learner
from az_mpi.train.replay import Replay, Samples, sample_dtype

BATCH = 37  # not a multiple of any number of ranks here
GAME = games.make("connect4")


def window(value, weight):
    heads = {"value": Value(GAME, channels=8)}
    rng, rows = np.random.default_rng(4), np.zeros(200, sample_dtype(GAME, heads))
    rows["state"] = rng.integers(0, 1 << 40, rows["state"].shape)
    policy = rng.dirichlet(np.ones(7), len(rows))
    rows["value"], rows["weight"] = value, weight
    filled = Replay(GAME, heads)
    filled.add(Samples.of(rows, policy))
    return filled


def new_learner(world, backend, frequency, learning_rate):
    config = configuration.validate(
        {
            "game": "connect4",
            "network": {"blocks": 1, "channels": 8},
            "report": {"summary_frequency": frequency},
            "train": {"mixed_precision": False, "batch_size": BATCH, "learning_rate": learning_rate},
        },
        "test",
    )
    return Learner(config, GAME, resnet.build(GAME, config.network, 3), backend, "cpu")


def train(world, learner, replay, steps):
    """Return the iteration's mean losses, their parts added up over ranks, and the summaries."""
    summaries = []
    due = Progress(samples_due=steps * BATCH)
    assert learner.train(replay, due, lambda step, values: summaries.append(values)) == steps
    parts = world.collect(learner.iteration_losses())
    return {name: sum(part[name] for part in parts) for name in parts[0]}, summaries


def main():
    world = World.start()
    torch.set_num_threads(1)
    backend = backends.make("ddp", world, world, "cpu")
    still = new_learner(world, backend, 1000, 1e-12)
    assert still.iteration_losses() == {}

    # The same on any number of ranks, and of the newest iteration alone.
    train(world, still, window(value=1.0, weight=1.0), 3)
    mean, summaries = train(world, still, window(value=0.5, weight=2.0), 4)
    assert np.allclose([mean["policy_loss"], mean["value_loss"]], [2 * math.log(7), 0.5], rtol=1e-5), mean
    assert not summaries

    # Ranks count by their samples: of 37 on two ranks 19 are worth 1 and 18 a quarter.
    mean, _ = train(world, still, window(value=1.0 if world.is_root else 0.5, weight=1.0), 3)
    shares = split_evenly(BATCH, world.size)
    by_hand = (shares[0] + 0.25 * sum(shares[1:])) / BATCH
    assert np.allclose([mean["policy_loss"], mean["value_loss"]], [math.log(7), by_hand], rtol=1e-5), mean

    # Steps that differ: their mean.
    rng = np.random.default_rng(world.rank)
    moving = new_learner(world, backend, 1, 0.05)
    mean, summaries = train(world, moving, window(rng.uniform(-1, 1, 200), rng.uniform(0.5, 1.5, 200)), 6)
    assert list(mean) == ["policy_loss", "value_loss"] and len(summaries) == 6
    for name, value in mean.items():
        batches = [summary[name] for summary in summaries]
        assert np.isclose(value, np.mean(batches), rtol=1e-12) and np.ptp(batches) > 1e-3, name

    # More steps need no more collectives of ours.
    waits, wait = [], world._wait_for
    world._wait_for = lambda done: waits.append(done) or wait(done)
    counts = []
    for steps in (2, 7):
        waits.clear()
        train(world, still, window(value=1.0, weight=1.0), steps)
        counts.append(len(waits))
    assert counts[0] == counts[1], counts
    print("all checks passed")


main()
