"""Blocks whose channels are weighed by what is on the whole board (Hu, Shen, Sun 2018, "Squeeze-and-Excitation
Networks"), with a bias for each channel as well, as in Leela Chess Zero."""

import torch
from torch.nn import functional as F

from az_mpi.network.blocks.block import Block, convolution, draw_first
from az_mpi.network.heads.head import draw, zero


class SqueezeExcitation(Block):
    """relu(x + sigmoid(scale(s)) y + shift(s)), where y = second(relu(first(x))) is the branch of a residual block and
    s = relu(squeeze(the means of y over the board)), of channels / ratio numbers."""

    def __init__(self, channels: int, blocks: int, ratio: int = 4):
        super().__init__()
        if not 1 <= ratio <= channels:
            raise ValueError(f"ratio is {ratio}; allowed: a whole number from 1 to {channels}, the channels")
        self.first = convolution(channels, channels)
        self.second = convolution(channels, channels)
        self.squeeze = convolution(channels, channels // ratio, 1)  # linear layers, on a board of one cell
        self.scale = convolution(channels // ratio, channels, 1)
        self.shift = convolution(channels // ratio, channels, 1)
        draw_first(self.first, blocks)
        draw(self.squeeze)
        for layer in (self.second, self.scale, self.shift):
            zero(layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(F.relu(self.first(x)))
        s = F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))
        return F.relu(x + torch.sigmoid(self.scale(s)) * y + self.shift(s))
