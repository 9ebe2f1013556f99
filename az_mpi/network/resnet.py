"""The network: a residual tower (Silver et al. 2018) without batch statistics, and its heads.

Shapes: B batch, C planes, H rows, W columns.
There is no normalisation over the batch, so a position's output and gradient are the same alone, in any batch and on
any number of ranks. Fixup initialisation (Zhang, Dauphin, Ma 2019) keeps the deep tower trainable without it: the
first convolution of a block is scaled by blocks^(-1/2), the second and the heads' last layers start at zero.
"""

import hashlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.games.base import Game
from az_mpi.network import heads
from az_mpi.network.heads.head import draw


class ResNet(nn.Module):
    """Planes float [B, C, H, W] -> {name of a head: its output}, such as {"policy": [B, A], "value": [B]}."""

    def __init__(self, game: Game, settings: Any):
        """settings: `config.network`."""
        super().__init__()
        self.stem = nn.Conv2d(game.planes_shape[0], settings.channels, 3, padding=1)
        self.tower = nn.ModuleList(_Block(settings.channels, settings.blocks) for _ in range(settings.blocks))
        self.heads = heads.make(settings.heads, game, settings.channels)
        draw(self.stem)
        for head in self.heads.values():
            head.initialise()

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.tower:
            x = block(x)
        return {name: head(x) for name, head in self.heads.items()}


class _Block(nn.Module):
    def __init__(self, channels, blocks):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.kaiming_normal_(self.first.weight, nonlinearity="relu")
        self.first.weight.data.mul_(blocks**-0.5)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.first.bias)
        nn.init.zeros_(self.second.bias)

    def forward(self, x):
        return F.relu(x + self.second(F.relu(self.first(x))))


def build(game: Game, settings: Any, seed: int) -> ResNet:
    """Return the network that `config.network` asks for, its weights drawn from `seed` alone. Raises Refusal."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNet(game, settings)


def weights_hash(network: nn.Module) -> str:
    """Return the SHA-256 of a network's weights, hexadecimal."""
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
