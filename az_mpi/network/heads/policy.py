"""The policy head (Silver et al. 2018): the probability that the search chooses each action."""

import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game
from az_mpi.network.heads.head import WEIGHTS_MAX, Head, draw, pooled, rows, zero

HIDDEN_CHANNELS = 32


class Policy(Head):
    """Logits of all actions, [B, A]. Target: the search's policy pi, negative where an action is not legal; loss
    -pi^T log p, where p is over the legal actions alone, as in play. Logits of other actions mean nothing.

    A linear layer makes them from all cells. Where that would have more than WEIGHTS_MAX weights and the actions are of
    cells (`Game.action_kinds`), each cell makes those of its own actions; actions of no cell come from global pooling.
    any_size: whether that is so on a small board, too: then all of the head fits another board size.
    """

    name, target_dtype = "policy", None

    def __init__(self, game: Game, channels: int, any_size: bool = False):
        super().__init__()
        _, height, width = game.planes_shape
        kinds = game.action_kinds
        if any_size and not kinds:
            raise Refusal(
                f"network.heads: policy(any_size=True): the actions of {game.name} are not those of cells\n"
                '  allowed: "policy", which fits one board size'
            )
        inputs = HIDDEN_CHANNELS * height * width
        self.conv = nn.Conv2d(channels, HIDDEN_CHANNELS, 1)
        self.by_cells = kinds > 0 and (any_size or inputs * game.num_actions > WEIGHTS_MAX)
        self.further = None
        if not self.by_cells:
            self.out = nn.Linear(inputs, game.num_actions)
            return
        self.out = nn.Conv2d(HIDDEN_CHANNELS, kinds, 1)
        if further := game.num_actions - kinds * height * width:
            self.further = nn.Linear(2 * HIDDEN_CHANNELS, further)

    def initialise(self) -> None:
        draw(self.conv)
        zero(self.out)
        if self.further is not None:
            zero(self.further)

    def forward(self, tower: torch.Tensor) -> torch.Tensor:
        if not self.by_cells:
            return self.out(rows(self.conv(tower)))
        hidden = F.relu(self.conv(tower))
        logits = self.out(hidden).permute(0, 2, 3, 1).flatten(1)
        return logits if self.further is None else torch.cat([logits, self.further(pooled(hidden))], dim=1)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        # Not minus infinity, which would be NaN times a target of 0.
        log_p = F.log_softmax(output.float().masked_fill(target < 0, -1e9), dim=1)
        return -(target.clamp(min=0) * log_p).sum(dim=1)
