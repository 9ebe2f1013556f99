"""The improved policy of Gumbel search, and the values behind it (Danihelka et al. 2022): see gumbel.py."""

from __future__ import annotations

import numpy as np

from az_mpi.core.intrinsics import exp32, inlined
from az_mpi.search import root, tree

TINY = 1e-30  # the least prior, so that its logarithm is finite


@inlined()
def completed(trees: tree.Trees, b: int, n: int, q: np.ndarray) -> int:
    """Write q(a) of each edge of node n, for the player to move there, into q, float32 [edges]: the result if it is
    known, the mean if the edge was visited, else

        v_mix = (V + sum_b N(b) / sum_visited P(b) * sum_visited P(b) q(b)) / (1 + sum_b N(b)),

    where V is the evaluator's value of the node (equation 33 of the paper). Return max_b N(b)."""
    node = trees.node[b, n]
    own = node.value_sum
    num = 0
    most = 0
    priors = 0.0
    weighted = 0.0
    for k in range(node.edge_count):
        edge = trees.edge[b, node.first_edge + k]
        if edge.edge_visits > 0:
            known, value = tree.exact_edge(trees, b, n, node.first_edge + k)
            if not known:
                value = edge.edge_value_sum / edge.edge_visits
            q[k] = value
            prior = max(edge.edge_prior, TINY)
            own -= edge.edge_value_sum
            num += edge.edge_visits
            most = max(most, edge.edge_visits)
            priors += prior
            weighted += prior * value
    mixed = (own + num * weighted / priors) / (1 + num) if num > 0 else own
    for k in range(node.edge_count):
        if trees.edge[b, node.first_edge + k].edge_visits == 0:
            q[k] = mixed
    return most


@inlined()
def improve(trees: tree.Trees, b: int, n: int, factor: float, q: np.ndarray) -> None:
    """Replace q, float32 [edges] of node n, by the improved policy pi': P(a) exp(sigma(q(a))), scaled to the sum 1.
    factor: s in sigma(q) = s (q + 1)."""
    node = trees.node[b, n]
    highest = np.float32(-np.inf)
    total = 0.0
    for k in range(node.edge_count):
        if not root.playable(trees, b, n, node.first_edge + k):
            q[k] = -np.inf
        highest = max(highest, q[k])
    for k in range(node.edge_count):
        if q[k] > -np.inf:
            prior = max(trees.edge[b, node.first_edge + k].edge_prior, TINY)
            q[k] = prior * exp32(np.float32(factor * (q[k] - highest)))
            total += q[k]
        else:
            q[k] = 0.0
    for k in range(node.edge_count):
        q[k] /= total
