"""Ranks of results, for games of one player (Laterre et al. 2018, "Ranked Reward: Enabling Self-Play Reinforcement
Learning for Combinatorial Optimization").

`selfplay.ranked` says where the threshold comes from. Evaluations and the ends of games are ranked by the same one, so
that a search can compare them.
"""

import numpy as np

from az_mpi.core.intrinsics import inlined


@inlined()
def ranked(result: float, threshold: float) -> float:
    """Return the rank of a game's result: 1 above the threshold, -1 below it, and 0 for a tie, whose rank is drawn by
    lot in training. No result is better than 1, which never ties."""
    if result > threshold or result >= 1.0:
        return np.float32(1)
    return np.float32(-1) if result < threshold else np.float32(0)


def all_ranked(results: np.ndarray, threshold: float) -> np.ndarray:
    """Return what `ranked` does for results float32 [n], as float32 [n]; without a threshold (NaN) the results."""
    if np.isnan(threshold):
        return results
    return np.where(results >= 1, 1, np.sign(results - threshold)).astype(np.float32)
