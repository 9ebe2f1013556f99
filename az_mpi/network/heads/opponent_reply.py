"""The head of the move that answers the next one (Wu 2019, "Accelerating Self-Play Learning in Go", section 3.4)."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from az_mpi.games.base import Game
from az_mpi.network.heads.auxiliary import Auxiliary
from az_mpi.network.heads.head import Played
from az_mpi.network.heads.policy import Policy
from az_mpi.network.heads.targets import last_positions

if TYPE_CHECKING:
    from az_mpi.config.schema import Train

NO_REPLY = -1


class OpponentReply(Auxiliary):
    """Logits of the action on the next ply, [B, A], made as those of the policy are, also with `any_size`. Loss: the
    cross entropy.

    Target: the one action that was played on the next ply. Wu takes the search's whole policy there. The action is
    drawn from that policy, at the temperature of self-play, so that the expected gradient is that of the policy at
    this temperature; and it takes 4 bytes a position, however many actions a game has. There is no target, NO_REPLY, in
    a game's last position, and where a fast search chose the reply (`search.full_share`).

    An action of a cell is that of the cell as the player to move sees it, not as the other one does who plays it: the
    tower shows the board in that way.
    """

    name, target_dtype = "opponent_reply", np.dtype("<i4")
    is_action = True

    def __init__(self, game: Game, channels: int, weight: float = 0.15, any_size: bool = False):
        super().__init__(weight)
        self.policy = Policy(game, channels, any_size)

    def initialise(self) -> None:
        self.policy.initialise()

    def forward(self, tower: torch.Tensor) -> torch.Tensor:
        return self.policy(tower)

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        positions = record.positions
        # Fast searches make no policy target.
        replies = np.where(positions["policy_count"] > 0, positions["action"], NO_REPLY)
        target = np.append(replies[1:], NO_REPLY)[: len(replies)]
        target[last_positions(record)] = NO_REPLY
        if game.other_view is None:
            return target
        movers = positions["to_play"]
        kinds = game.action_kinds
        by_other = movers != np.append(movers[1:], movers[-1:])
        turned = by_other & (target >= 0) & (target < kinds * len(game.other_view))
        cells, kind = divmod(target[turned], kinds)
        target[turned] = game.other_view[cells] * kinds + kind
        return target

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.float(), target.long(), reduction="none", ignore_index=NO_REPLY)
