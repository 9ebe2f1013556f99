"""The learner's steps against a bare torch loop on the same tensors, taking turns; one core a rank.

    python benchmarks/train.py                                  # one rank
    mpirun -np 2 -H localhost:2 python benchmarks/train.py --backend horovod ddp      # both, taking turns
    mpirun -np 2 -H localhost:2 python benchmarks/train.py --settings "" HOROVOD_CYCLE_TIME=5   # as is, and so

`train_step_s` is the time of `Learner.train` for each of its steps: batches made, the backend's session begun and
ended, gradients reduced. `bare_step_s` is forward, loss, backward, clip and fused AdamW in the same precision, the
tensors ready beforehand and nothing reduced; on several ranks all run it at once, each on its part of the batch.
`ratio` is train over bare. `gflop_per_s` counts the operations of convolutions and linear layers, forward and backward;
`peak_gflop_per_s` is what one convolution of the tower reaches by itself, forward, in the same precision at its best
batch; `peak_share` is the first over the second. `sample_s` is what one batch takes to make. `synchronize_share` is the
part of a step in which a rank waits for the sums of gradients. On several ranks each figure is their mean.
"""

import copy
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from common import make_parser, spread, take_one_core, tell
from torch.utils.flop_counter import FlopCounterMode

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.mpi.world import World
from az_mpi.network import resnet
from az_mpi.storage.checkpoint import Progress
from az_mpi.train import backends
from az_mpi.train.learner import Learner
from az_mpi.train.loss import losses
from az_mpi.train.replay import Replay, Samples, sample_dtype

POSITIONS = 100_000  # in each rank's shard of the window
PEAK_BATCHES, PEAK_TIMES = (32, 64, 128, 256, 1024), 20


def main():
    parser = make_parser(__doc__, runs=7)
    parser.add_argument("--game", default="connect4", choices=games.NAMES)
    parser.add_argument("--backend", nargs="+", default=["horovod"], choices=backends.KINDS, help="one or more")
    parser.add_argument(
        "--settings",
        nargs="+",
        default=[""],
        metavar="NAME=VALUE",
        help="an environment variable, another value in each turn: Horovod reads it as a session begins, and keeps it",
    )
    parser.add_argument("--size", default="5x64", metavar="BxC", help="blocks and channels of the tower")
    parser.add_argument("--heads", nargs="+", default=["policy", "value"], metavar="HEAD", help="as in network.heads")
    parser.add_argument("--batch_size", type=int, default=1024, help="a total over all ranks")
    parser.add_argument("--steps", type=int, default=10, help="in each turn")
    arguments = parser.parse_args()
    world = World.start()
    take_one_core(world.local_rank)
    blocks, channels = map(int, arguments.size.split("x"))
    config = configuration.validate(
        {
            "game": arguments.game,
            "network": {"blocks": blocks, "channels": channels, "heads": arguments.heads},
            "train": {"batch_size": arguments.batch_size, "replay_ratio": 1.0},
        },
        "the options",
    )
    game = games.make(config.game)
    replay = random_window(game, resnet.build(game, config.network, config.seed).heads, world.rank)
    learners, bare = {}, None
    for name in arguments.backend:
        network = resnet.build(game, config.network, config.seed)
        backend = backends.make(name, world, world, "cpu")
        learners[name] = Learner(config, game, network, backend, "cpu")
        bare = bare or BareLoop(config.train, copy.deepcopy(network), learners[name].bf16)
    figures = {f"{name} {setting}".strip(): [] for name in learners for setting in arguments.settings}
    for _ in range(arguments.runs + 1):
        for name, learner in learners.items():
            for setting in arguments.settings:
                os.environ.update([setting.split("=", 1)] if setting else [])
                figures[f"{name} {setting}".strip()].append(measure(learner, bare, replay, arguments.steps))
    for name, rows in figures.items():
        rows = rows[1:]  # in the first turn kernels are made
        mean = world.sum(np.array([list(row.values()) for row in rows])) / world.size
        if world.is_root:
            place = f"{config.network.blocks}x{config.network.channels}, batch {config.train.batch_size}"
            spreads = {what: spread(mean[:, k].tolist()) for k, what in enumerate(rows[0])}
            tell(f"train {config.game} {place}, {world.size} rank(s), {name}", spreads, arguments.json)


def measure(learner, bare, replay, steps):
    """Return this rank's figures of one turn each. Collective."""
    world, due = learner.world, Progress(samples_due=steps * learner.config.train.batch_size)
    # The generators that the learner will draw with.
    rngs = [np.random.default_rng([learner.config.seed, k, world.rank]) for k in range(steps)]
    begun = time.perf_counter()
    batches = [learner.tensors(replay.sample(rng, learner.local_batch)) for rng in rngs]
    sample_s = (time.perf_counter() - begun) / steps
    learner.take_sums_s()
    world.barrier()
    begun = time.perf_counter()
    learner.train(replay, due, lambda *what: None)
    train_s, waited_s = (time.perf_counter() - begun) / steps, learner.take_sums_s() / steps
    world.barrier()
    begun = time.perf_counter()
    for batch in batches:
        bare.step(batch)
    bare_s = (time.perf_counter() - begun) / steps
    rate, peak = bare.count_flop(batches[0]) / train_s / 1e9, bare.peak(batches[0]) / 1e9
    figures = {
        "train_step_s": train_s,
        "bare_step_s": bare_s,
        "ratio": train_s / bare_s,
        "sample_s": sample_s,
        "gflop_per_s": rate,
        "peak_gflop_per_s": peak,
        "peak_share": rate / peak,
    }
    return figures | ({"synchronize_share": waited_s / train_s} if world.size > 1 else {})


class BareLoop:
    """What a step cannot do without."""

    def __init__(self, settings, network, bf16):
        self.settings, self.network, self.bf16 = settings, network.train(), bf16
        weights = {"params": [p for p in network.parameters() if p.dim() > 1], "weight_decay": settings.weight_decay}
        biases = {"params": [p for p in network.parameters() if p.dim() == 1], "weight_decay": 0.0}
        self.optimizer = torch.optim.AdamW([weights, biases], lr=settings.learning_rate, fused=True)

    def step(self, batch):
        settings, n = self.settings, len(batch["weight"])
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            by_head = losses(self.network, batch)
        (sum(self.network.heads[name].weight(settings) * loss for name, loss in by_head.items()) / n).backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.gradient_clip)
        self.optimizer.step()

    def count_flop(self, batch):
        """Return the floating-point operations of a step's convolutions and linear layers."""
        with FlopCounterMode(display=False) as counter:
            self.step(batch)
        return counter.get_total_flops()

    def peak(self, batch):
        """Return the operations/s of the tower's convolution alone."""
        conv, best = copy.deepcopy(self.network.tower[0].first), 0.0
        conv = conv.to(torch.bfloat16 if self.bf16 else torch.float32, memory_format=torch.channels_last)
        for num in PEAK_BATCHES:
            x = torch.rand(num, conv.in_channels, *batch["planes"].shape[2:], dtype=conv.weight.dtype)
            x = x.contiguous(memory_format=torch.channels_last)
            with torch.inference_mode():
                took = min(_time_of(lambda: conv(x)) for _ in range(PEAK_TIMES))  # noqa: B023
            best = max(best, 2 * num * x[0, 0].numel() * conv.weight.numel() / took)
        return best


def _time_of(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def random_window(game, heads, seed):
    """Return a shard of random rows: what a step costs does not depend on what it learns."""
    rng, rows = np.random.default_rng(seed), np.zeros(POSITIONS, sample_dtype(game, heads))
    rows["index"] = np.arange(POSITIONS)
    rows["state"] = rng.integers(0, np.iinfo(game.state_dtype).max, rows["state"].shape, game.state_dtype)
    policy = rng.dirichlet(np.ones(game.num_actions), POSITIONS)
    rows["value"], rows["weight"] = rng.choice([-1, 0, 1], POSITIONS), 1
    replay = Replay(game, heads)
    replay.add(Samples.of(rows, policy))
    return replay


if __name__ == "__main__":
    main()
