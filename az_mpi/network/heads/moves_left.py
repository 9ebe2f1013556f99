"""The head of the moves that are left of a game, as in Leela Chess Zero. Play uses it: see search/game_length.py."""

from typing import TYPE_CHECKING

import numpy as np

from az_mpi.games.base import Game
from az_mpi.network.heads.auxiliary import Scalar, ends
from az_mpi.network.heads.head import Played
from az_mpi.network.heads.targets import last_positions

if TYPE_CHECKING:
    from az_mpi.config.schema import Train

UNIT = 20.0  # plies, as in Leela's training; its Huber loss is linear from 10 plies on


class MovesLeft(Scalar):
    """The plies to the end of the game, [B], in units of UNIT; 1 ply in a game's last position.

    The target of a game that was truncated or resigned is not known: nobody has seen its end.
    """

    name = "moves_left"
    delta = 0.5

    def __init__(self, channels: int, weight: float = 0.1):
        super().__init__(channels, weight)

    def target(self, record: Played, game: Game, settings: "Train") -> np.ndarray:
        lengths = record.games["length"]
        rows = np.arange(len(record.positions))
        ended = ends(record, game)[1]
        left = np.repeat(last_positions(record), lengths) - rows + 1
        return np.where(np.repeat(ended, lengths), left / UNIT, np.nan)
