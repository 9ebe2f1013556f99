"""The improved policy of Gumbel search, and the values behind it (Danihelka et al. 2022): see gumbel.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from az_mpi.core.intrinsics import exp32, floats_on_stack, inlined
from az_mpi.search import root, tree
from az_mpi.search.tree import WIN

TINY = np.float32(1e-30)  # the least prior, so that its logarithm is finite


@inlined()
def completed(trees: tree.Trees, b: int, n: int, q: np.ndarray) -> int:
    """Write q(a) of each edge of node n, for the player to move there, into q, float32 [edges]: the result if it is
    known, the mean if the edge was visited, else

        v_mix = (V + sum_b N(b) / sum_visited P(b) * sum_visited P(b) q(b)) / (1 + sum_b N(b)),

    where V is the evaluator's value of the node (equation 33 of the paper). Return max_b N(b)."""
    _, most, mixed, _, _, _ = _visited(trees, b, n, q)
    node = trees.node[b, n]
    for k in range(node.edge_count):
        if trees.edge[b, node.first_edge + k].edge_visits == 0:
            q[k] = mixed
    return most


@inlined()
def _visited(trees, b, n, q):
    """Write q(a) of each edge of node n that was visited into q. Return (sum_b N(b), max_b N(b), v_mix, the largest
    q(a) that is no proven loss, how many edges were visited, the sum of their priors)."""
    node = trees.node[b, n]
    own = node.value_sum
    num = 0
    most = 0
    num_visited = 0
    priors = 0.0
    weighted = 0.0
    highest = np.float32(-np.inf)
    for k in range(node.edge_count):
        edge = trees.edge[b, node.first_edge + k]
        if edge.edge_visits > 0:
            known, value = tree.exact_edge(trees, b, n, node.first_edge + k)
            if not known:
                value = edge.edge_value_sum / edge.edge_visits
            q[k] = value
            if not known or value > -WIN:
                highest = max(highest, q[k])
            prior = max(edge.edge_prior, TINY)
            own -= edge.edge_value_sum
            num += edge.edge_visits
            most = max(most, edge.edge_visits)
            num_visited += 1
            priors += prior
            weighted += prior * value
        elif n > 0:
            break  # none behind it was visited
    mixed = np.float32((own + num * weighted / priors) / (1 + num) if num > 0 else own)
    if num_visited < node.edge_count:
        highest = max(highest, mixed)
    return num, most, mixed, highest, num_visited, priors


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


@inlined()
def scale(trees: tree.Trees, b: int, most: int, rule: Any) -> float:
    """Return s in sigma(q) = s (q + 1), with q from -1 to 1: (c_visit + max_b N(b)) c_scale / 2, divided by the tree's
    `width`. Where actions are compared, s q will do. most: max_b N(b). rule: `gumbel.Rule`."""
    return (rule.c_visit + most) * rule.c_scale / (2 * trees.tree[b].width)


@inlined()
def next_edge(trees: tree.Trees, b: int, n: int, rule: Any) -> int:
    """Return the edge of node n, below the root, with the largest pi'(a) - N(a) / (1 + sum_b N(b)) (equation 14). Of
    equals it is one that was not visited, else the first. The node's result is not known. rule: `gumbel.Rule`.

    It is what `improve` of the `completed` values would give, in fewer steps: this is most of what Gumbel search
    computes. All actions that were not visited have one q, so one exponential, and the best of them is the likeliest:
    the first behind those that were visited. Scores are compared times the two denominators."""
    node = trees.node[b, n]
    first = np.int64(node.first_edge)
    weights = floats_on_stack()
    num, most, mixed, highest, num_visited, priors = _visited(trees, b, n, weights)
    if num == 0:  # pi' is the prior
        return first
    factor = np.float32(scale(trees, b, most, rule))
    total = np.float32(0)
    for k in range(num_visited):
        edge = trees.edge[b, first + k]
        is_lost = edge.edge_exact and weights[k] <= -WIN
        weight = np.float32(0) if is_lost else exp32(factor * (weights[k] - highest))
        weights[k] = max(edge.edge_prior, TINY) * weight
        total += weights[k]
    best = first
    best_score = np.float32(-np.inf)
    weight = np.float32(0)
    if num_visited < node.edge_count:
        weight = exp32(factor * (mixed - highest))
        total += np.float32(max(1 - priors, 0)) * weight
        best = first + num_visited
        best_score = max(trees.edge[b, best].edge_prior, TINY) * weight * np.float32(1 + num)
    for k in range(num_visited):
        score = weights[k] * np.float32(1 + num) - np.float32(trees.edge[b, first + k].edge_visits) * total
        if score > best_score and weights[k] > 0:
            best = first + k
            best_score = score
    return best
