"""The network: a residual tower (Silver et al. 2018) without batch normalisation, and its heads.

Shapes: B batch, C planes, H rows, W columns.
Without batch normalisation, a position's output and gradient do not depend on the batch or on the number of ranks.
Fixup initialisation (Zhang, Dauphin, Ma 2019) keeps the deep tower trainable without it: the first convolution of a
block is scaled by blocks^(-1/2); its last one and the last layers of the heads start at zero. blocks/ has the kinds of
blocks.
"""

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.core.problems import Refusal
from az_mpi.core.registry import BLOCKS
from az_mpi.games.base import Game
from az_mpi.network import heads
from az_mpi.network.heads.head import draw

if TYPE_CHECKING:
    from az_mpi.config import schema


class ResNet(nn.Module):
    """Planes float [B, C, H, W] -> {name of a head: its output}, such as {"policy": [B, A], "value": [B]}."""

    def __init__(self, game: Game, settings: "schema.Network"):
        """settings: `config.network`."""
        super().__init__()
        self.stem = nn.Conv2d(game.planes_shape[0], settings.channels, 3, padding=1)
        self.tower = nn.ModuleList(
            BLOCKS.make(settings.block, channels=settings.channels, blocks=settings.blocks, index=index)
            for index in range(settings.blocks)
        )
        self.heads = heads.make(settings.heads, game, settings.channels)
        draw(self.stem)
        for head in self.heads.values():
            head.initialise()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        planes = x
        x = F.relu(self.stem(x))
        for block in self.tower:
            x = block(x)
        return {name: head(x, planes) if head.reads_planes else head(x) for name, head in self.heads.items()}


def build(game: Game, settings: "schema.Network", seed: int) -> ResNet:
    """Return the network that `settings`, `config.network`, describes; its weights depend on `seed` alone. Raises
    Refusal."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNet(game, settings)


def refuse_statistics(network: nn.Module, game: Game) -> None:
    """Raise Refusal if the buffers of a network that is to be trained change meanwhile, such as the running means of
    batch normalisation: they would differ between trainers, and no average of weights has them."""
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    if not before:
        return
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        network(torch.rand(2, *game.planes_shape))
    after = dict(network.named_buffers())
    if changed := [name for name in before if not torch.allclose(after[name], before[name], 0, 0, equal_nan=True)]:
        raise Refusal(
            f"network.block, network.heads: {changed[0]} changes in training and is no parameter, as of batch "
            "normalisation\n  each trainer would have another one\n  normalise in another way, such as by "
            "nn.GroupNorm, or not at all"
        )


def weights_hash(network: nn.Module) -> str:
    """Return the SHA-256 of a network's weights, hexadecimal."""
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def num_parameters(network: nn.Module) -> int:
    """Return the number of weights and biases."""
    return sum(parameter.numel() for parameter in network.parameters())
