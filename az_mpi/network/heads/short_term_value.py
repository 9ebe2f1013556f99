"""The head of the value some plies later, as in KataGo's training (its short-term value targets)."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game, require
from az_mpi.network.heads.auxiliary import Scalar
from az_mpi.network.heads.head import Played
from az_mpi.network.heads.targets import later_values

if TYPE_CHECKING:
    from az_mpi.config.schema import Train


class ShortTermValue(Scalar):
    """An exponential average of the root values from this ply on, [B], for the player to move; loss: squared error.

    Target: `later_values`. KataGo has three horizons: 6, 20 and 64 plies on 19 x 19; 1, 5 and 14 on 9 x 9. Each weighs
    as much as the value itself. The output's name ends in the horizon, so that a network can have several.
    """

    def __init__(self, game: Game, channels: int, horizon: int = 6, weight: float = 1.0):
        if game.num_players > 2:
            raise Refusal(
                f"network.heads: short_term_value has no form for {game.num_players} players, as in {game.name}: the "
                "search keeps the value of the player to move alone\n  leave it out"
            )
        super().__init__(channels, weight)
        require("horizon", horizon, 1, 10_000)
        self.name = f"short_term_value_{horizon}"
        self.horizon = horizon

    def forward(self, tower: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(tower).float())  # not in bf16, see `Value`

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        return later_values(record, self.horizon)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.float() - target) ** 2
