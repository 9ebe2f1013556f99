"""An engine, an evaluator and a block that only wait, as plug-ins of a configuration: one machine can then hold many
ranks, each of which takes as long as if it had a core or a GPU of its own.

All else is the program's own: search, quota, exchange, sums of gradients, checkpoints.
"""

import time

import torch

from az_mpi.network.blocks.block import Block
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import UniformEvaluator

LOAD_S = 0.03  # that a network of 5 x 64 takes to reach an engine


class WaitingEngine(Engine):
    """What takes over new weights. It plays no part in self-play with a `WaitingEvaluator`."""

    describe = "waits"

    def load(self, network):
        time.sleep(LOAD_S)


class WaitingEvaluator(UniformEvaluator):
    """Equal priors and value 0, for which each batch takes `batch_s` seconds."""

    describe = "waits"

    def __init__(self, game, batch_s):
        super().__init__(game)
        self.batch_s = batch_s

    def __call__(self, states):
        time.sleep(self.batch_s)
        return super().__call__(states)


class WaitingBlock(Block):
    """A block that gives back what it gets. A forward pass in training takes `sample_s` seconds for each sample."""

    def __init__(self, channels: int, blocks: int, sample_s: float):
        super().__init__()
        self.sample_s = sample_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            time.sleep(self.sample_s * len(x))
        return x
