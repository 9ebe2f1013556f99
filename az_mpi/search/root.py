"""Kernels for the roots of trees: noise before a search; the policy and the choice of a move after it.

Shapes: n slots, M actions of all slots together.
"""

import numpy as np
from numba import njit

from az_mpi.search import streams, tree
from az_mpi.search.tree import NO_CHILD, WIN


@njit(cache=True, nogil=True)
def mix_noise(trees: tree.Trees, b: int, noise: tuple) -> None:
    """P(root, a) <- (1 - fraction) P(root, a) + fraction Dir(alpha / legal actions), once for each root.
    noise: (due bool [B], streams uint64 [B], alpha, fraction)."""
    due, random, alpha, fraction = noise
    due[b] = False
    first, count = trees.node[b, 0].first_edge, trees.node[b, 0].edge_count
    drawn = np.empty(count)
    for k in range(count):
        drawn[k] = streams.gamma(random, b, alpha / count)
    total = drawn.sum()
    if total == 0.0:  # an alpha so small that every draw underflows
        return
    for k in range(count):
        edge = trees.edge[b, first + k]
        edge.edge_prior = (1 - fraction) * edge.edge_prior + fraction * (drawn[k] / total)


@njit(cache=True, nogil=True)
def playable(trees: tree.Trees, b: int, n: int, e: int) -> bool:
    """Return whether edge e of node n is not proven to be worse than another one: if the node's result is known, it
    reaches that; else it is no proven loss."""
    known, value = tree.exact_edge(trees, b, n, e)
    node = trees.node[b, n]
    return known and value >= node.exact_value if node.exact else not known or value > -WIN


@njit(cache=True, nogil=True)
def counts(trees: tree.Trees, b: int) -> np.ndarray:
    """Return N(root, a) of tree b for each edge of the root, int32 [edges]; 0 for actions that are not `playable`,
    unless nothing else was tried."""
    root = trees.node[b, 0]
    visits, good, tried = np.empty(root.edge_count, np.int32), np.empty(root.edge_count, np.bool_), False
    for k in range(root.edge_count):
        good[k] = playable(trees, b, np.int64(0), root.first_edge + k)
        visits[k] = trees.edge[b, root.first_edge + k].edge_visits
        tried = tried or (good[k] and visits[k] > 0)
    if tried:  # else only proven losses have been tried yet
        for k in range(root.edge_count):  # not visits[~good] = 0, which takes a second to compile
            if not good[k]:
                visits[k] = 0
    return visits


@njit(cache=True, nogil=True)
def policy(trees: tree.Trees, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (the number of actions with a probability, int32 [n]; these actions, int32 [M], in order, slot by slot;
    their shares of `counts`, float32 [M])."""
    n, most, m = len(slots), 0, 0
    for i in range(n):
        most += trees.node[slots[i], 0].edge_count
    nums, actions, probabilities = np.zeros(n, np.int32), np.empty(most, np.int32), np.empty(most, np.float32)
    for i in range(n):
        b = slots[i]
        visits = counts(trees, b)
        total = 0
        for k in range(len(visits)):
            total += visits[k]
        for k in range(len(visits)):
            if visits[k] > 0:
                actions[m] = trees.edge[b, trees.node[b, 0].first_edge + k].edge_action
                probabilities[m] = visits[k] / total
                nums[i] += 1
                m += 1
    return nums, actions[:m], probabilities[:m]


@njit(cache=True, nogil=True)
def choose(trees: tree.Trees, slots: np.ndarray, temperature: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Return an action for each slot, int64 [n], drawn from counts^(1 / temperature[i]); at 0 the first largest."""
    actions = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        visits = counts(trees, slots[i])
        chosen = best = int(np.argmax(visits))
        if temperature[i] > 0:
            # Relative to the most visited, so that a low temperature cannot overflow.
            weights = (visits / visits[best]) ** (1.0 / temperature[i])
            mark = streams.uniform(random, slots[i]) * weights.sum()
            for k in range(len(weights)):
                mark -= weights[k]
                if weights[k] > 0:
                    chosen = k
                    if mark < 0:
                        break
        actions[i] = trees.edge[slots[i], trees.node[slots[i], 0].first_edge + chosen].edge_action
    return actions


@njit(cache=True, nogil=True)
def advance(trees: tree.Trees, slots: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Make the child that each action leads to the root, if it was searched; return whether it was, bool [n]."""
    kept = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        child = tree.child_of_root(trees, slots[i], actions[i])
        if child != NO_CHILD:
            tree.reroot(trees, slots[i], child)
            kept[i] = True
    return kept
