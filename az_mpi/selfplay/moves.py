"""The moves of games under way: what a record needs of them once a game has ended.

Shapes: B games at once, L longest game, S bytes of a state, E policy entries, n games that move, M policy entries of
their positions together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from az_mpi.search import tree
from az_mpi.selfplay.record import POLICY

if TYPE_CHECKING:
    from az_mpi.games.base import Game

# Of a position, before its move; `record.POSITIONS` says what the fields are. surprise: see `Search.surprise`.
MOVE = np.dtype(
    [
        ("action", np.int32),
        ("root_value", np.float32),
        ("surprise", np.float32),
        ("policy_count", np.int32),
        ("to_play", np.int8),
    ],
    align=True,
)


class Moves(NamedTuple):
    """move MOVE [B, L] and states [B, L, S], by the plies. policy POLICY [B, E]: the entries of a game's positions, one
    after the other; num_entries int64 [B]: how many they are."""

    move: np.ndarray
    states: np.ndarray
    policy: np.ndarray
    num_entries: np.ndarray


class Found(NamedTuple):
    """What searches have found. actions int64 [n]: that are played; values, surprises float32 [n]; nums int32 [n],
    entries int32 [M], probabilities float32 [M]: as `puct.Search.policy` returns them."""

    actions: np.ndarray
    values: np.ndarray
    surprises: np.ndarray
    nums: np.ndarray
    entries: np.ndarray
    probabilities: np.ndarray


def empty(game: Game, num_games: int, num_moves: int) -> Moves:
    """Return room for so many moves in each of the games."""
    states = np.empty((num_games, num_moves, game.state_size), game.state_dtype)
    policy, num_entries = np.empty((num_games, num_moves), POLICY), np.zeros(num_games, np.int64)
    return Moves(np.zeros((num_games, num_moves), MOVE), states, policy, num_entries)


def added(moves: Moves, trees: tree.Trees, slots: np.ndarray, plies: np.ndarray, found: Found) -> Moves:
    """Return the same moves and those that the games `slots`, int64 [n], play now from the roots of their trees.
    plies: int32 [n], the moves before them."""
    old = moves.policy
    needed = int((moves.num_entries[slots] + found.nums).max())
    if needed > old.shape[1]:
        room = np.empty((len(old), max(needed, 2 * old.shape[1])), POLICY)
        used = moves.num_entries.max()
        room[:, :used] = old[:, :used]
        moves = moves._replace(policy=room)
    in_bytes = moves._replace(states=moves.states.view(np.uint8))
    _keep(in_bytes, tree.in_bytes(trees), slots, plies, found)
    return moves


@njit(cache=True, nogil=True)
def _keep(moves, trees, slots, plies, found):
    m = 0
    for i in range(len(slots)):
        b = slots[i]
        move = moves.move[b, plies[i]]
        move.action = found.actions[i]
        move.root_value = found.values[i]
        move.surprise = found.surprises[i]
        move.policy_count = found.nums[i]
        move.to_play = trees.node[b, 0].player
        for k in range(moves.states.shape[2]):
            moves.states[b, plies[i], k] = trees.state[b, 0, k]
        for e in range(moves.num_entries[b], moves.num_entries[b] + found.nums[i]):
            moves.policy[b, e].action = found.entries[m]
            moves.policy[b, e].probability = found.probabilities[m]
            m += 1
        moves.num_entries[b] += found.nums[i]
