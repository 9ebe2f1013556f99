"""The head of the points by which a game is won (Wu 2019, section 4.1; KataGo's mean score)."""

from typing import TYPE_CHECKING

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game
from az_mpi.network.heads.auxiliary import Scalar, as_mover_sees, ends
from az_mpi.network.heads.head import Played

if TYPE_CHECKING:
    from az_mpi.config.schema import Train

UNIT = 12 / 19  # points for each row of a board with as many columns; the Huber loss is linear from there on


class Score(Scalar):
    """The points by which the player to move wins, [B], in units of UNIT times the board's side (12 points on 19 x 19).

    Target: `Game.lead` of the game's last state. That of a game that was truncated or resigned is not known. KataGo's
    Huber loss is linear from 12 points on, with a weight of 0.0015 for squared points: 0.2 in these units.
    """

    name = "score"

    def __init__(self, game: Game, channels: int, weight: float = 0.2):
        super().__init__(channels, weight)
        if game.lead(game.initial(1)) is None:
            raise Refusal(
                f"network.heads has score, but {game.name} does not count points\n"
                "  go and othello do; docs/games.md says how a game of your own does"
            )
        self.unit = UNIT * (game.planes_shape[1] * game.planes_shape[2]) ** 0.5

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        states, ended = ends(record, game)
        return as_mover_sees(record, np.where(ended, game.lead(states) / self.unit, np.nan))
