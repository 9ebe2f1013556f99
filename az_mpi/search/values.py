"""Values of all players of a game, in the order of the players, as a search backs them up.

Games of one and of two players keep the value for the player to move alone: what it is for the other one follows from
it. Games of several players also keep one of each player in `Trees.several`.
Shapes: P players, V values of an evaluation: 1, or P with three players or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_mpi.core.intrinsics import inlined

if TYPE_CHECKING:
    from az_mpi.search.tree import Trees


@inlined()
def of_mover(value: float, player: int, values: np.ndarray) -> None:
    """Write the values of one or two players, float32 [P], from the one of `player`. Whose it is does not matter in a
    game of one player."""
    if len(values) == 1:
        values[0] = value
    else:
        values[player] = value
        values[1 - player] = -value


@inlined()
def of_evaluation(evaluated: np.ndarray, player: int, values: np.ndarray) -> None:
    """Write the values of all players, float32 [P], from an evaluation, float32 [V]: of `player`, of the one after
    that, and so on."""
    if len(evaluated) == 1:
        of_mover(evaluated[0], player, values)
    else:
        for k in range(len(values)):
            values[(player + k) % len(values)] = evaluated[k]


@inlined()
def of_results(results: np.ndarray, player: int, values: np.ndarray) -> None:
    """Write the values of all players, float32 [P], from what a game's rules return, float32 [V]: of `player`, the one
    to move, or of all in their order."""
    if len(results) == 1:
        of_mover(results[0], player, values)
    else:
        for p in range(len(values)):
            values[p] = results[p]


@inlined()
def exact(trees: Trees, b: int, n: int, values: np.ndarray) -> None:
    """Write the known result of node n for all players, float32 [P]."""
    if trees.several.shape[2] == 0:
        of_mover(trees.node[b, n].exact_value, np.int64(trees.node[b, n].player), values)
    else:
        for p in range(len(values)):
            values[p] = trees.several[b, n, p]
