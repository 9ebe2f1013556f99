"""Gradients where ranks have no memory for a whole batch: every rank takes smaller parts, whatever the fault's moment.

    memory_checks.py BACKEND [MOMENT ...]

The last rank has no memory for more than 5 samples at once. It notices that before its first layer (forward), between
the reductions that backward begins as it goes, or, with two parts a batch, in the first of them.
"""

import sys

import numpy as np
import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.mpi.world import World
from az_mpi.network import resnet
from az_mpi.network.heads.value import Value
from az_mpi.storage.checkpoint import Progress
from az_mpi.train import backends
from az_mpi.train.learner import Learner, Watch
from az_mpi.train.replay import Replay, Samples, sample_dtype

MOMENTS = ("forward", "backward", "first_part")
BATCH, STEPS = 37, 4
ROOM = 5  # samples


def window(game, rank):
    heads = {"value": Value(game, channels=8)}
    rng, rows = np.random.default_rng(rank), np.zeros(200, sample_dtype(game, heads))
    rows["state"] = rng.integers(0, 1 << 40, rows["state"].shape)
    policy = rng.dirichlet(np.ones(7), 200)
    rows["value"], rows["weight"] = rng.choice([-1, 0, 1], 200), rng.uniform(0.5, 1.5, 200)
    replay = Replay(game, heads)
    replay.add(Samples.of(rows, policy))
    return replay


def limit_memory(network, moment, room):
    """Let the network fail as a GPU with room for that many samples does; return the list of the failures."""
    failures = []

    def fail(n):
        failures.append(n)
        raise torch.OutOfMemoryError("made up")

    def before_forward(module, inputs):
        if len(inputs[0]) > room:
            fail(len(inputs[0]))

    def in_backward(module, inputs, output):
        if len(output) > room:
            output.register_hook(lambda gradient: fail(len(gradient)))

    if moment == "backward":  # behind the heads, whose gradients are on their way to the other ranks by then
        network.stem.register_forward_hook(in_backward)
    else:
        network.register_forward_pre_hook(before_forward)
    return failures


def check(world, backend, moment):
    game = games.make("connect4")
    config = configuration.validate(
        {
            "game": "connect4",
            "network": {"blocks": 2, "channels": 16},
            "report": {"summary_frequency": STEPS},
            "train": {"mixed_precision": False, "batch_size": BATCH, "replay_ratio": 1.0},
        },
        "test",
    )
    replay, told, summaries = window(game, world.rank), [], []
    watch = Watch()
    watch.bad_step = lambda *what: sys.exit("a bad step")
    watch.short_of_memory = lambda ranks: told.append((ranks, short.micro_batch))
    whole, short, none = (
        Learner(config, game, resnet.build(game, config.network, 3), backend, "cpu") for _ in range(3)
    )
    last = world.rank == world.size - 1
    failures = limit_memory(short.network, moment, ROOM) if last else []
    if moment == "first_part":
        whole.micro_batch = short.micro_batch = (whole.micro_batch + 1) // 2
    for learner in (whole, short):
        due = Progress(samples_due=STEPS * BATCH)
        assert learner.train(replay, due, lambda step, values: summaries.append(values), watch) == STEPS

    # Halved together, for the rest of the run, until the last rank has room.
    sizes, size = [], whole.micro_batch
    while size > ROOM:
        size = (size + 1) // 2
        sizes.append(size)
    assert told == [([world.size - 1], size) for size in sizes] and sizes[-1] <= ROOM, told
    assert world.collect(short.micro_batch) == [short.micro_batch] * world.size and short.micro_batch == sizes[-1]
    assert len(failures) == len(sizes) * last
    # The gradients are those of the whole batch, and so are the weights after some steps.
    for (what, ours), theirs in zip(short.network.named_parameters(), whole.network.parameters(), strict=True):
        difference = (ours.grad - theirs.grad).abs().max() / theirs.grad.abs().max()
        assert difference < 2e-4, f"{what}: {difference}"
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)
    assert world.collect(resnet.weights_hash(short.network)) == [resnet.weights_hash(short.network)] * world.size
    for key in ("policy_loss", "value_loss", "gradient_norm"):
        assert np.isclose(summaries[0][key], summaries[1][key], rtol=1e-4), key

    # No room for one sample: all ranks end at the same step, which is not taken, and say which rank it was.
    if last:
        limit_memory(none.network, moment, 0)
    watch.short_of_memory = lambda ranks: None
    due = Progress(samples_due=STEPS * BATCH)
    assert none.train(replay, due, lambda *what: None, watch) == 0 and due == Progress(samples_due=STEPS * BATCH)
    assert none.micro_batch == 1 and f"out of memory on trainer [{world.size - 1}]" in none.failure


def main():
    world = World.start()
    torch.set_num_threads(1)
    backend = backends.make(sys.argv[1], world, world, "cpu")
    for moment in sys.argv[2:] or MOMENTS:
        check(world, backend, moment)
    print("all checks passed")


main()
