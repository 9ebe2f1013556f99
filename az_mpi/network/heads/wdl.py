"""A value head of three numbers, for games with draws: the probabilities of a win, a draw and a loss."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game
from az_mpi.network.heads.head import Played
from az_mpi.network.heads.targets import searched_values
from az_mpi.network.heads.value import HIDDEN, Value

if TYPE_CHECKING:
    from az_mpi.config.schema import Train


class WinDrawLoss(Value):
    """The probabilities (w, d, l) for the player to move, [B, 3], in place of the value; the search's value is w - l.

    Target: (1 - share) of the game's outcome z, and `train.root_value_share` of q, `searched_values`. z is taken
    as (max(z, 0), 1 - |z|, max(-z, 0)). So is q unless |z| = 1, where it is ((1 + q) / 2, 0, (1 - q) / 2).
    The loss is the cross entropy, as in Leela Chess Zero.
    """

    target_dtype = np.dtype(("<f4", (3,)))
    has_floor = False

    def __init__(self, game: Game, channels: int, any_size: bool = False):
        if game.num_players > 2:
            raise Refusal(
                f"network.heads: wdl has no form for {game.num_players} players, as in {game.name}\n"
                '  allowed: "value", which has a value of each player'
            )
        super().__init__(game, channels, any_size)
        self.out = nn.Linear(HIDDEN, 3)

    def forward(self, tower: torch.Tensor, planes: torch.Tensor | None = None) -> torch.Tensor:
        return F.softmax(self.out(self.last_hidden(tower)), dim=1)

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        share = settings.root_value_share
        z = record.positions["value"]
        q = searched_values(record, settings)
        decided = np.stack([(1 + q) / 2, 0 * q, (1 - q) / 2], axis=1)
        return (1 - share) * _parts(z) + share * np.where((np.abs(z) == 1)[:, None], decided, _parts(q))

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return -(target * output.float().clamp_min(1e-30).log()).sum(dim=1)


def _parts(value):
    """Return (win, draw, loss) with the least decided games, [P, 3]."""
    return np.stack([np.maximum(value, 0), 1 - np.abs(value), np.maximum(-value, 0)], axis=1)
