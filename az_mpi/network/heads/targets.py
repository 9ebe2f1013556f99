"""What the targets of several heads are made of: rows and values of whole games."""

from typing import TYPE_CHECKING

import numpy as np

from az_mpi.network.heads.head import Played

if TYPE_CHECKING:
    from az_mpi.config.schema import Train


def last_positions(record: Played) -> np.ndarray:
    """Return the row of each game's last position in `record.positions`, int64 [games]."""
    return np.cumsum(record.games["length"], dtype=np.int64) - 1


def searched_values(record: Played, settings: "Train") -> np.ndarray:
    """Return q of the value target, float [P] for the player to move: the search's root value, or `later_values` with
    `train.root_value_horizon`."""
    horizon = settings.root_value_horizon
    return later_values(record, horizon) if horizon else record.positions["root_value"]


def later_values(record: Played, horizon: int) -> np.ndarray:
    """Return an exponential average of the root values from each position on, float64 [P] for the player to move there.

    y_t = (1 - d) q_t + d y_(t+1), where q is the search's root value, all for one player, and y after the last position
    is the game's outcome. d = horizon / (horizon + 1), so that the mean value is `horizon` positions away: TD(d)
    (Sutton 1988, "Learning to predict by the methods of temporal differences")."""
    lengths = record.games["length"]
    last = last_positions(record)
    share = 1 / (horizon + 1)
    sign = 1 - 2 * record.positions["to_play"].astype(np.float64)
    values = record.positions["root_value"] * sign  # as all others here, for the player who began
    average = record.games["outcome"].astype(np.float64)
    averages = np.empty(len(values))
    for back in range(lengths.max(initial=0)):  # from the last plies of all games to the first ones
        there = lengths > back
        rows = last[there] - back
        averages[rows] = average[there] = share * values[rows] + (1 - share) * average[there]
    return averages * sign
