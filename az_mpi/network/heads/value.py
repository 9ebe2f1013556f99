"""The value head (Silver et al. 2018): the expected outcome for the player to move, or for each player, in [-1, 1]."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.core.players import num_values
from az_mpi.games.base import Game
from az_mpi.network.heads.head import WEIGHTS_MAX, Head, Played, draw, pooled, rows, zero
from az_mpi.network.heads.targets import searched_values

if TYPE_CHECKING:
    from az_mpi.config.schema import Train

HIDDEN_CHANNELS, HIDDEN = 32, 64


class Value(Head):
    """The value v, [B]. Target: z' = (1 - share) z + share q, where z is the game's outcome, q `searched_values` and
    share `train.root_value_share`; loss (z' - v)^2.

    With three players or more there are V values, [B, V]: of the player to move, of the one after that, and so on. They
    are values, not the probabilities of who wins, since players may share a result. Their target is z alone, as the
    search gives the value of the player to move; the loss is the mean over the players.

    Where a plane of the game shows what no result can fall below (`Game.floor_plane`), the value is between that and 1:
    the softmax of two numbers says how much it has of each. Positions that few games have reached are then worth more
    than an end of the game, as they should be.

    The hidden layer reads all cells, or, where it would have more than WEIGHTS_MAX weights, global pooling over them.
    any_size: whether that is so on a small board, too: then all of the head fits another board size.
    """

    name = "value"
    has_floor = True
    target_dtype: np.dtype = np.dtype("<f4")

    def __init__(self, game: Game, channels: int, any_size: bool = False):
        super().__init__()
        _, height, width = game.planes_shape
        self.conv = nn.Conv2d(channels, HIDDEN_CHANNELS, 1)
        inputs = HIDDEN_CHANNELS * height * width
        self.is_pooled = any_size or inputs * HIDDEN > WEIGHTS_MAX
        self.hidden = nn.Linear(2 * HIDDEN_CHANNELS if self.is_pooled else inputs, HIDDEN)
        num = num_values(game.num_players)
        self.floor_plane = game.floor_plane if self.has_floor else None
        self.reads_planes = self.floor_plane is not None
        self.out = nn.Linear(HIDDEN, 2 if self.reads_planes else num)
        if num > 1:
            self.target_dtype = np.dtype(("<f4", (num,)))

    def initialise(self) -> None:
        draw(self.conv)
        draw(self.hidden)
        zero(self.out)

    def forward(self, tower: torch.Tensor, planes: torch.Tensor | None = None) -> torch.Tensor:
        # Not in bf16, where it is 1 from 3.5 on: a sure but wrong value would have no gradient.
        out = self.out(self.last_hidden(tower)).float()
        if planes is not None:
            shares = F.softmax(out, dim=1)  # of 1, and of the floor
            return shares.select(1, 0) + shares.select(1, 1) * planes.mean((2, 3)).float().select(1, self.floor_plane)
        value = torch.tanh(out)
        return value.squeeze(1) if self.out.out_features == 1 else value

    def last_hidden(self, tower: torch.Tensor) -> torch.Tensor:
        """Return the last hidden layer, float [B, HIDDEN]."""
        cells = self.conv(tower)
        return F.relu(self.hidden(pooled(F.relu(cells)) if self.is_pooled else rows(cells)))

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        share = settings.root_value_share
        positions = record.positions
        if game.num_players > 2:
            return positions["value"]
        return (1 - share) * positions["value"] + share * searched_values(record, settings)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = (output.float() - target) ** 2
        return loss if loss.ndim == 1 else loss.mean(1)

    def weight(self, settings: "Train") -> float:
        return settings.value_loss_weight
