"""The policy head (Silver et al. 2018): the probability that the search chooses each action."""

import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.games.base import Game
from az_mpi.network.heads.head import Head, draw, zero

HIDDEN_CHANNELS = 32


class Policy(Head):
    """Logits of all actions, legal or not, [B, A]. Target: the search's policy pi; loss -pi^T log p."""

    name, target_dtype = "policy", None

    def __init__(self, game: Game, channels: int):
        super().__init__()
        _, height, width = game.planes_shape
        self.conv = nn.Conv2d(channels, HIDDEN_CHANNELS, 1)
        self.out = nn.Linear(HIDDEN_CHANNELS * height * width, game.num_actions)

    def initialise(self) -> None:
        draw(self.conv)
        zero(self.out)

    def forward(self, tower: torch.Tensor) -> torch.Tensor:
        return self.out(F.relu(self.conv(tower)).flatten(1))

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return -(target * F.log_softmax(output.float(), dim=1)).sum(dim=1)
