"""The head of the value some plies later, as in KataGo's training (its short-term value targets)."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game, require
from az_mpi.network.heads.auxiliary import Scalar, last_positions
from az_mpi.network.heads.head import Played

if TYPE_CHECKING:
    from az_mpi.config.schema import Train


class ShortTermValue(Scalar):
    """An exponential average of the root values from this ply on, [B], for the player to move; loss: squared error.

    Target: y_t = (1 - d) q_t + d y_(t+1), where q is the search's root value, all for one player, and y after the last
    ply is the game's outcome. d = horizon / (horizon + 1), so that the mean value is `horizon` plies away. KataGo has
    three horizons: 6, 20 and 64 plies on 19 x 19; 1, 5 and 14 on 9 x 9. Each weighs as much as the value itself. The
    output's name ends in the horizon, so that a network can have several.
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
        lengths = record.games["length"]
        last = last_positions(record)
        share = 1 / (self.horizon + 1)
        sign = 1 - 2 * record.positions["to_play"].astype(np.float64)
        values = record.positions["root_value"] * sign  # as all others here, for the player who began
        average = record.games["outcome"].astype(np.float64)
        averages = np.empty(len(values))
        for back in range(lengths.max(initial=0)):  # from the last plies of all games to the first ones
            there = lengths > back
            rows = last[there] - back
            averages[rows] = average[there] = share * values[rows] + (1 - share) * average[there]
        return averages * sign

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.float() - target) ** 2
