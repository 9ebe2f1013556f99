"""The network: a residual tower with a policy and a value head (Silver et al. 2018), without batch statistics.

Shapes: B batch, C planes, H rows, W columns, A actions.
There is no normalisation over the batch, so a position's output and gradient are the same alone, in any batch and on
any number of ranks. Fixup initialisation (Zhang, Dauphin, Ma 2019) keeps the deep tower trainable without it: the
first convolution of a block is scaled by blocks^(-1/2), the second and the heads' last layers start at zero.
"""

import hashlib

import torch
from torch import nn
from torch.nn import functional as F

HEAD_CHANNELS = 32
VALUE_HIDDEN = 64


class ResNet(nn.Module):
    """Planes float [B, C, H, W] -> (policy logits [B, A], value [B] for the player to move)."""

    def __init__(self, planes_shape, num_actions, blocks, channels):
        super().__init__()
        planes, height, width = planes_shape
        cells = height * width
        self.stem = nn.Conv2d(planes, channels, 3, padding=1)
        self.tower = nn.ModuleList(_Block(channels, blocks) for _ in range(blocks))
        self.policy_conv = nn.Conv2d(channels, HEAD_CHANNELS, 1)
        self.policy_out = nn.Linear(HEAD_CHANNELS * cells, num_actions)
        self.value_conv = nn.Conv2d(channels, HEAD_CHANNELS, 1)
        self.value_hidden = nn.Linear(HEAD_CHANNELS * cells, VALUE_HIDDEN)
        self.value_out = nn.Linear(VALUE_HIDDEN, 1)
        for layer in (self.stem, self.policy_conv, self.value_conv, self.value_hidden):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        for layer in (self.policy_out, self.value_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.tower:
            x = block(x)
        policy = self.policy_out(F.relu(self.policy_conv(x)).flatten(1))
        hidden = F.relu(self.value_hidden(F.relu(self.value_conv(x)).flatten(1)))
        return policy, torch.tanh(self.value_out(hidden)).squeeze(1)


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


def build(game, settings, seed):
    """Return the network that `config.network` asks for, its weights drawn from `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNet(game.planes_shape, game.num_actions, settings.blocks, settings.channels)


def weights_hash(network):
    """Return the SHA-256 of a network's weights, hexadecimal."""
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
