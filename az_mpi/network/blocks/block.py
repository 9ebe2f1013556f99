"""The base class of the tower's blocks, and the layers that they are made of."""

import torch
from torch import nn

from az_mpi.network.heads.head import draw


class Block(nn.Module):
    """One block of the tower. Its constructor is given those of these arguments that it has: channels (of the tower),
    blocks (how many the tower has), index (the place of this one, from 0); and those in the configuration. It also
    draws the weights.

    A block begins as the identity: the last layer of its branch starts at zero (Zhang, Dauphin, Ma 2019). Without
    normalisation this keeps a deep tower trainable, and it lets a tower grow without a change of what it computes.
    Buffers that change in training are refused, such as those of batch normalisation: trainers would have other ones.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return float [B, C, H, W], not negative. x: what the block before returned, or the first layer.

        Engines record these operations once, so they must not depend on values."""
        raise NotImplementedError


def convolution(inputs: int, outputs: int, size: int = 3) -> nn.Conv2d:
    """Return a convolution that keeps the board's size."""
    return nn.Conv2d(inputs, outputs, size, padding=size // 2)


def draw_first(layer: nn.Module, blocks: int) -> None:
    """Draw the weights of the first layer of a branch, one of `blocks` branches: He et al. 2015, times blocks^(-1/2)
    (Zhang, Dauphin, Ma 2019, for branches of two layers)."""
    draw(layer)
    layer.weight.data.mul_(blocks**-0.5)
