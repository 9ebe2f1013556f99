"""The head of who owns each cell at the end of a game (Wu 2019, section 4.1)."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game
from az_mpi.network.heads.auxiliary import Auxiliary, ends
from az_mpi.network.heads.head import Played, zero

if TYPE_CHECKING:
    from az_mpi.config.schema import Train

UNKNOWN = 2  # in each cell of a target


class Ownership(Auxiliary):
    """Logits l of the ownership tanh(l) of each cell for the player to move, [B, H, W].

    Target: `Game.ownership` of the game's last state, o in -1, 0, 1. Loss: the cross entropy between (1 + o) / 2 and
    (1 + tanh l) / 2, the mean over the cells. The target of a game that was truncated or resigned is not known.
    """

    name, is_board = "ownership", True

    def __init__(self, game: Game, channels: int, weight: float = 1.5):
        super().__init__(weight)
        if game.ownership(game.initial(1), 0) is None:
            raise Refusal(
                f"network.heads has ownership, but {game.name} does not say who owns its cells\n"
                "  go and othello do; docs/games.md says how a game of your own does"
            )
        self.target_dtype = np.dtype(("i1", game.planes_shape[1:]))
        self.out = nn.Conv2d(channels, 1, 1)

    def initialise(self) -> None:
        zero(self.out)

    def forward(self, tower: torch.Tensor) -> torch.Tensor:
        return self.out(tower).squeeze(1)

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        states, ended = ends(record, game)
        lengths = record.games["length"]
        mover = record.positions["to_play"][:, None, None]
        seen = [np.repeat(game.ownership(states, player), lengths, axis=0) for player in (0, 1)]
        return np.where(np.repeat(ended, lengths)[:, None, None], np.where(mover == 0, *seen), UNKNOWN)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        known = target != UNKNOWN
        owner = (1 + torch.where(known, target, 0).float()) / 2
        loss = F.binary_cross_entropy_with_logits(2 * output.float(), owner, reduction="none")
        return torch.where(known, loss, 0.0).mean(dim=(1, 2))
