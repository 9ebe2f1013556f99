"""The base class of heads: an output of the network with its target and its loss."""

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from az_mpi.games.base import Game

if TYPE_CHECKING:
    from az_mpi.config.schema import Train

# A linear layer of more weights than this, over all cells of a board, gives way to convolutions of one cell and to
# global pooling. The tower of 5 blocks of 64 channels has 370,000.
WEIGHTS_MAX = 100_000


class Played(Protocol):
    """Finished games, of which targets are made: what heads read of a `selfplay.record.Record`."""

    games: np.ndarray  # GAME [n]
    positions: np.ndarray  # position_dtype [P], of the first game, then of the second, …
    chance: np.ndarray  # CHANCE_MOVE [C], in the order of the games, then of the plies


class Head(nn.Module):
    """One output of the network. Its constructor is given those of these arguments that it has: game, channels (of the
    tower); and those in the configuration.

    Shapes: B batch, C channels, H rows, W columns, P positions of a record.
    name: of the output, and of its target in a batch. The loss is NAME_loss in metrics.jsonl.
    target_dtype: of one position's target, with its shape, such as np.dtype("f4") or np.dtype(("f4", (3,))). None: the
    target is the search's policy, [A], which every sample has; it is negative for each action that is not legal.
    is_board: whether the target is an array [H, W], which random symmetries turn with the board.
    is_action: whether the target is the number of an action, which they turn too; a negative one stays as it is.
    reads_planes: whether `forward` is also given the planes, float [B, C, H, W].
    in_play: whether engines evaluate the head. If not, it costs nothing in play.
    Buffers that change in training are refused, as those of a `blocks.block.Block` are.
    """

    name: str
    target_dtype: np.dtype | None
    is_board = is_action = False
    in_play = True
    reads_planes = False

    def initialise(self) -> None:
        """Draw the weights. Called once, after all layers of the network have been made."""

    def forward(self, tower: torch.Tensor) -> torch.Tensor:
        """Return the output, float [B, …]. tower: the tower's output, float [B, C, H, W].

        Engines record these operations once, so they must not depend on values."""
        raise NotImplementedError

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        """Return the targets of the positions of a record, target_dtype [P]. settings: `config.train`."""
        raise NotImplementedError

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss of each position, float32 [B]."""
        raise NotImplementedError

    def weight(self, settings: "Train") -> float:
        """Return the weight of this loss in the total loss. settings: `config.train`."""
        return 1.0


def pooled(x: torch.Tensor) -> torch.Tensor:
    """Return the means and the maxima over the board, float [B, 2 C]. x: float [B, C, H, W]."""
    return torch.cat([x.mean((2, 3)), maxima(x).flatten(1)], dim=1)


def maxima(x: torch.Tensor) -> torch.Tensor:
    """Return the maxima over the board, float [B, C, 1, 1]. x: float [B, C, H, W].

    `amax` is only for deterministic runs, in which torch refuses `adaptive_max_pool2d` on a GPU. Its gradient takes
    five times as long on a processor, since it looks for equal maxima."""
    if torch.are_deterministic_algorithms_enabled():
        return x.amax((2, 3), keepdim=True)
    return F.adaptive_max_pool2d(x, 1)


def rows(x: torch.Tensor) -> torch.Tensor:
    """Return the ReLU of a convolution as a row for a linear layer, float [B, C H W]. x: float [B, C, H, W].

    The linear layer's gradient comes back channel by channel. Where the tower's layout, cell by cell, meets it in the
    ReLU, the gradient of that takes 20 times as long on a processor; so the layout changes before."""
    return F.relu(x.contiguous()).flatten(1)


def draw(layer: nn.Module) -> None:
    """Draw the weights of a layer that a ReLU follows (He et al. 2015); its biases are 0."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)


def zero(layer: nn.Module) -> None:
    """Set weights and biases to 0: for the last layer of a head (Zhang, Dauphin, Ma 2019)."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
