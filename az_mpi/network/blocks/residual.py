"""The plain block: two convolutions and a skip connection (He et al. 2016), as in AlphaZero."""

import torch
from torch.nn import functional as F

from az_mpi.network.blocks.block import Block, convolution, draw_first
from az_mpi.network.heads.head import zero


class Residual(Block):
    """relu(x + second(relu(first(x))))."""

    def __init__(self, channels: int, blocks: int):
        super().__init__()
        self.first = convolution(channels, channels)
        self.second = convolution(channels, channels)
        draw_first(self.first, blocks)
        zero(self.second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.second(F.relu(self.first(x))))
