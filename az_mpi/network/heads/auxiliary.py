"""What heads that only train the tower have in common: targets from whole games, and no place in self-play."""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.games.base import Game
from az_mpi.network.heads.head import Head, Played, draw, pooled, zero
from az_mpi.network.heads.targets import last_positions

if TYPE_CHECKING:
    from az_mpi.config.schema import Train

HIDDEN = 64


class Auxiliary(Head):
    """A head that only trains the tower. weight: of its loss in the total loss."""

    in_play = False

    def __init__(self, weight: float):
        super().__init__()
        if type(weight) not in (int, float) or not 0 < weight < math.inf:
            raise ValueError(f"weight is {weight!r}; allowed: a number above 0")
        self._weight = float(weight)

    def weight(self, settings: "Train") -> float:
        return self._weight


class Scalar(Auxiliary):
    """A number of each position, [B], from the means and maxima of the tower over the board.

    Target: NaN where it is not known, which gives no loss. Loss: Huber's, half the squared error up to `delta` and
    linear beyond it (Huber 1964).
    """

    target_dtype: np.dtype = np.dtype("<f4")
    delta = 1.0

    def __init__(self, channels: int, weight: float):
        super().__init__(weight)
        self.hidden = nn.Linear(2 * channels, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)

    def initialise(self) -> None:
        draw(self.hidden)
        zero(self.out)

    def forward(self, tower: torch.Tensor) -> torch.Tensor:
        return self.out(F.relu(self.hidden(pooled(tower)))).squeeze(1)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        known = ~target.isnan()
        # The unknown ones are replaced before the loss: the gradient of a NaN would be NaN, whatever its weight.
        loss = F.huber_loss(output.float(), torch.where(known, target, 0.0), reduction="none", delta=self.delta)
        return torch.where(known, loss, 0.0)


def ends(record: Played, game: Game) -> tuple[np.ndarray, np.ndarray]:
    """Return (the states after each game's last move, or what chance drew after it, [games, S]; whether the game had
    ended there, bool [games]). It had not if it was truncated or resigned."""
    last = record.positions[last_positions(record)]
    states = game.play(last["state"], last["action"].astype(np.int64))
    if game.num_outcomes:
        order = np.argsort(record.games["id"])
        index = order[np.searchsorted(record.games["id"], record.chance["game"], sorter=order)]
        after = record.chance["ply"] > last["ply"][index]
        index, outcomes = index[after], record.chance["outcome"][after].astype(np.int64)
        while len(index):  # the next outcome of each game
            rows, first = np.unique(index, return_index=True)
            states[rows] = game.play(states[rows], outcomes[first])
            index, outcomes = np.delete(index, first), np.delete(outcomes, first)
    return states, game.terminal(states)[0]


def as_mover_sees(record: Played, first: np.ndarray) -> np.ndarray:
    """Return a number of each game for the player who began, [games], for the player to move in each position, [P]."""
    return np.repeat(first, record.games["length"]) * (1 - 2 * record.positions["to_play"])
