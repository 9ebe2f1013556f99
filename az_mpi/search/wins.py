"""Moves that win at once, in play: found by the rules, whatever the network thinks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from az_mpi.core.players import of_players
from az_mpi.search import simulation, tree
from az_mpi.search.tree import NO_CHILD, WIN

if TYPE_CHECKING:
    from az_mpi.games.base import Game

NO_WIN = -1  # in place of an action
STATES_AT_ONCE = 8192  # that the rules are asked for: bounds the memory


def prove_wins(trees: tree.Trees, slots: np.ndarray, game: Game, rule: tuple, wins: np.ndarray) -> None:
    """Play each legal action of the roots that are expanded by the rules, and prove for each root the one that wins at
    once; of several the one with the largest prior.

    slots: int64 [n]. rule: see `choices.choose_edge`. wins: int64 [B]; gets these actions, or NO_WIN."""
    wins[slots] = NO_WIN
    at_once = max(STATES_AT_ONCE // game.num_actions, 1)
    for k in range(0, len(slots), at_once):
        rows, edges, actions = _edges_of_roots(tree.in_bytes(trees), slots[k : k + at_once])
        if len(rows):
            states = game.play(trees.state[rows, 0], actions)
            ended, value = game.terminal(states)
            player = game.to_play(states)
            results = of_players(game.num_players, value, player)
            won = ended & (results[np.arange(len(rows)), trees.player[rows, 0]] >= WIN)
            of_wins = np.ascontiguousarray(states[won], game.state_dtype).view(np.uint8)
            _add_wins(tree.in_bytes(trees), rows[won], edges[won], of_wins, player[won], results[won], rule, wins)


@njit(cache=True, nogil=True)
def _edges_of_roots(trees: tree.Trees, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all edges of the roots of these trees: (trees int64 [M], edges int64 [M], actions int64 [M])."""
    num = 0
    for i in range(len(slots)):
        num += trees.node[slots[i], 0].edge_count
    rows = np.empty(num, np.int64)
    edges = np.empty(num, np.int64)
    actions = np.empty(num, np.int64)
    m = 0
    for i in range(len(slots)):
        first = trees.node[slots[i], 0].first_edge
        for e in range(first, first + trees.node[slots[i], 0].edge_count):
            rows[m], edges[m], actions[m] = slots[i], e, trees.edge[slots[i], e].edge_action
            m += 1
    return rows, edges, actions


@njit(cache=True, nogil=True)
def _add_wins(
    trees: tree.Trees,
    rows: np.ndarray,
    edges: np.ndarray,
    states: np.ndarray,
    player: np.ndarray,
    results: np.ndarray,
    rule: tuple,
    actions: np.ndarray,
) -> None:
    """Write into actions, int64 [B], for each tree the one of these edges that has the largest prior, and give it a
    child, by one simulation, if it has none. All end the game with a win for the player who moves at the root.

    rows int64 [m]: the trees, in order; edges int64 [m], of their roots; states [m, S], player int8 [m], results
    float32 [m, P]: of the children."""
    i = 0
    while i < len(rows):
        b = rows[i]
        best = i
        while i < len(rows) and rows[i] == b:
            if trees.edge[b, edges[i]].edge_prior > trees.edge[b, edges[best]].edge_prior:
                best = i
            i += 1
        edge = trees.edge[b, edges[best]]
        actions[b] = edge.edge_action
        if edge.edge_child == NO_CHILD and trees.tree[b].nodes_used < trees.node.shape[1]:  # else it has no room
            edge.edge_child = tree.add_node(trees, b, np.int64(0), states[best], player[best], True, results[best])
            trees.path[b, 0] = edges[best]
            trees.tree[b].path_length = 1
            simulation.backup_new_result(trees, b, np.int64(edge.edge_child), results[best], rule)
