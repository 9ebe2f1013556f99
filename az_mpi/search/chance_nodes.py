"""Chance nodes: where a move is drawn by lot. Their edges are the outcomes, with the probabilities as priors.

A chance node is not evaluated: a simulation that reaches one continues through an outcome, to the position after it.
Its values count for player 0.

Visits follow the probabilities more evenly than independent draws: visit k of a node takes the outcome that the number
(u + k times the golden ratio) mod 1 falls on, where u is drawn for the node (a Kronecker sequence, Niederreiter 1992).
Shapes: O outcomes, n simulations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.core.intrinsics import inner
from az_mpi.core.players import CHANCE
from az_mpi.search import tree

if TYPE_CHECKING:
    from az_mpi.search.tree import Trees

GOLDEN = 0.6180339887498949
_STEP = np.uint64(0x9E3779B97F4A7C15)


@inner()
def outcome_edge(trees: Trees, b: int, n: int) -> int:
    """Return the edge of chance node n that its next visit takes, int64."""
    node = trees.node[b, n]
    at = node.exact_value + node.visits * GOLDEN
    at -= np.floor(at)
    last = np.int64(node.first_edge + node.edge_count - 1)
    for e in range(node.first_edge, last):
        at -= trees.edge[b, e].edge_prior
        if at < 0:
            return np.int64(e)
    return last


@inner()
def expand(trees: Trees, b: int, n: int, chances: np.ndarray, streams: np.ndarray) -> None:
    """Give chance node n an edge for each outcome whose probability in chances, float32 [O], is above 0. streams:
    uint64 [B], which stay as they are."""
    first = trees.tree[b].edges_used
    count = 0
    total = 0.0
    for o in range(len(chances)):
        if chances[o] > 0:
            edge = trees.edge[b, first + count]
            edge.edge_value_sum = 0.0
            edge.edge_visits = 0
            edge.edge_child = tree.NO_CHILD
            edge.edge_prior = chances[o]
            edge.edge_action = o
            edge.edge_exact = False
            total += chances[o]
            count += 1
    for e in range(first, first + count):
        trees.edge[b, e].edge_prior /= total
    node = trees.node[b, n]
    node.first_edge = first
    node.edge_count = count
    # Where its sequence begins: of no other use until the node is exact.
    word = mix(streams[b] ^ mix(np.uint64(n) * _STEP + np.uint64(trees.tree[b].root_ply)))
    node.exact_value = (word >> np.uint64(40)) * np.float32(1 / 2**24)
    trees.tree[b].edges_used = first + count


@inner()
def prove(trees: Trees, b: int, n: int) -> bool:
    """Mark chance node n as exact, with the expected value, if all of its outcomes are; return whether they are."""
    node = trees.node[b, n]
    expected = 0.0
    least, most = np.inf, -np.inf
    for e in range(node.first_edge, node.first_edge + node.edge_count):
        known, value = tree.exact_edge(trees, b, n, e)
        if not known:
            return False
        expected += trees.edge[b, e].edge_prior * value
        least, most = min(least, value), max(most, value)
    node.exact = True
    node.exact_value = min(max(expected, least), most)  # rounding must not make less than a win of wins alone
    for p in range(trees.several.shape[2]):
        expected = 0.0
        least, most = np.inf, -np.inf
        for e in range(node.first_edge, node.first_edge + node.edge_count):
            value = trees.several[b, trees.edge[b, e].edge_child, p]
            expected += trees.edge[b, e].edge_prior * value
            least, most = min(least, value), max(most, value)
        trees.several[b, n, p] = min(max(expected, least), most)
    return True


@njit(cache=True, nogil=True)
def through(
    trees: Trees,
    slots: np.ndarray,
    nodes: np.ndarray,
    actions: np.ndarray,
    states: np.ndarray,
    chances: np.ndarray,
    streams: np.ndarray,
) -> None:
    """Lead the simulations of the trees `slots`, int64 [n], all different, on through the chance nodes that they have
    reached: add these nodes, and replace nodes and actions, int64 [n], by them and their outcomes. The trees have room.

    states: [n, S], of the chance nodes; chances: float32 [n, O]; streams: see `expand`."""
    none = np.zeros(trees.several.shape[2], np.float32)
    for i in range(len(slots)):
        b = slots[i]
        this = trees.tree[b]
        n = tree.add_node(trees, b, nodes[i], states[i], np.int8(CHANCE), False, none)
        trees.edge[b, trees.path[b, this.path_length - 1]].edge_child = n
        expand(trees, b, n, chances[i], streams)
        e = outcome_edge(trees, b, n)
        trees.path[b, this.path_length] = e
        this.path_length += 1
        nodes[i] = n
        actions[i] = trees.edge[b, e].edge_action
