"""A head of your own: a further output of the network, which learns how many moves are left of the game."""

import numpy as np
import torch
from torch import nn

from az_mpi.network.heads.head import Head


class MovesLeft(Head):
    """The moves that are left, [B], as a share of the longest game's; loss: its squared error times `weight`.

    The search does not ask for it: the tower learns from it what ends a game soon.
    """

    name, target_dtype = "moves_left", np.dtype("<f4")

    def __init__(self, game, channels, weight=0.5):
        super().__init__()
        self._weight = float(weight)
        self.out = nn.Linear(channels, 1)

    def forward(self, tower):
        return torch.sigmoid(self.out(tower.mean(dim=(2, 3)))).squeeze(1)

    def target(self, record, game, settings):
        lengths = record.games["length"]  # positions follow each other game by game
        ends = np.repeat(np.cumsum(lengths), lengths)  # not by "ply", since a game may begin elsewhere
        return (ends - np.arange(len(ends))) / game.max_plies

    def loss(self, output, target):
        return (output.float() - target) ** 2

    def weight(self, settings):
        return self._weight
