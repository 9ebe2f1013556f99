"""The nested bottleneck block (the bottleneck of He et al. 2016 with residual blocks inside, as in KataGo's b18nbt). It
works on half the channels, so that for the same cost there are more layers, or more channels between the blocks."""

import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.network.blocks.block import Block, convolution, draw_first
from az_mpi.network.blocks.residual import Residual
from az_mpi.network.heads.head import zero

INNER = 2  # residual blocks in a block


class Bottleneck(Block):
    """relu(x + expand(inner(relu(reduce(x))))): `reduce` and `expand` are convolutions of one cell from the channels to
    half of them and back; `inner` is two residual blocks. It has 10 channels^2 weights, a residual block 18."""

    def __init__(self, channels: int, blocks: int):
        super().__init__()
        self.reduce = convolution(channels, channels // 2, 1)
        self.inner = nn.ModuleList(Residual(channels // 2, INNER * blocks) for _ in range(INNER))
        self.expand = convolution(channels // 2, channels, 1)
        draw_first(self.reduce, blocks)
        zero(self.expand)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.reduce(x))
        for block in self.inner:
            hidden = block(hidden)
        return F.relu(x + self.expand(hidden))
