"""Blocks that also see the whole board: global pooling (Wu 2019, "Accelerating Self-Play Learning in Go", section 3.3).

A convolution sees three cells a side more than the one before it, so a small tower never sees what happens on the other
side of a large board. Pooling does in one layer.
"""

import torch
from torch.nn import functional as F

from az_mpi.network.blocks.block import Block, convolution, draw_first
from az_mpi.network.heads.head import draw, maxima, zero

SHARE = 4  # one of so many channels is pooled


class GlobalPooling(Block):
    """A residual block in which a quarter of the first convolution's channels are pooled over the board, to their means
    and maxima. A linear layer turns these into a bias for each of the other channels. So is each `every`-th block; the
    others are plain residual blocks."""

    def __init__(self, channels: int, blocks: int, index: int, every: int = 2):
        super().__init__()
        if every < 1:
            raise ValueError(f"every is {every}; allowed: a whole number, at least 1")
        pooled = channels // SHARE if (index + 1) % every == 0 else 0
        self.first = convolution(channels, channels - pooled)
        self.second = convolution(channels - pooled, channels)
        draw_first(self.first, blocks)
        zero(self.second)
        self.pool = None
        if pooled:
            self.pool = convolution(channels, pooled)
            self.bias = convolution(2 * pooled, channels - pooled, 1)  # linear, on a board of one cell
            draw_first(self.pool, blocks)
            draw(self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        if self.pool is not None:
            cells = F.relu(self.pool(x))
            board = torch.cat([cells.mean((2, 3), keepdim=True), maxima(cells)], dim=1)
            hidden = hidden + self.bias(board)
        return F.relu(x + self.second(F.relu(hidden)))
