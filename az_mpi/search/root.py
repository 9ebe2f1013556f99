"""Kernels for the roots of trees that all searches share: noise before a search, what counts after it, the next root.

Shapes: n slots, M actions of all slots together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from az_mpi.core.intrinsics import apart, call2, floats_on_stack, inlined, inner, shared_call, uncounted
from az_mpi.search import reroot, streams, tree
from az_mpi.search.tree import NO_CHILD, UNDECIDED, WIN

SHARED_FROM = 16  # moves: fewer are played by one thread
LEAST_SHAPE = 1e-300  # of the noise of one action: alpha divided by the number of actions may be 0
LEAST_PRIOR = 1e-30  # smaller ones count as that


class Noise(NamedTuple):
    """Noise for roots. due bool [B]: roots that have not had it yet. streams uint64 [B]: of random numbers. kept
    float32 [B, A]: is given the priors as they were, edge by edge; with no columns nothing is kept."""

    due: np.ndarray
    streams: np.ndarray
    alpha: float
    fraction: float
    temperature: float
    kept: np.ndarray


@apart()
def mix_noise(trees: tree.Trees, b: int, noise: Noise) -> None:
    """P(root, a) <- (1 - fraction) P(root, a)^(1 / temperature) / sum + fraction Dir(alpha / legal actions), once for
    each root."""
    kept = noise.kept
    fraction = noise.fraction
    noise.due[b] = False
    trees.node[b, 0].choice = UNDECIDED
    first = trees.node[b, 0].first_edge
    count = trees.node[b, 0].edge_count
    for k in range(min(count, kept.shape[1])):
        kept[b, k] = trees.edge[b, first + k].edge_prior
    if noise.temperature != 1.0:
        _temper(trees, b, first, count, noise.temperature)
    shape = max(noise.alpha / count, LEAST_SHAPE)
    drawn = floats_on_stack()
    highest = -np.inf
    total = 0.0
    for k in range(count):
        drawn[k] = streams.scaled_log_gamma(noise.streams, b, shape)
        highest = max(highest, drawn[k])
    for k in range(count):  # relative to the largest: all numbers themselves may underflow
        drawn[k] = math.exp((drawn[k] - highest) / shape)
        total += drawn[k]
    for k in range(count):
        edge = trees.edge[b, first + k]
        edge.edge_prior = (1 - fraction) * edge.edge_prior + fraction * (drawn[k] / total)


@inlined()
def _temper(trees, b, first, count, temperature):
    """Replace the priors of these edges by their softmax with another temperature."""
    highest = 0.0
    total = 0.0
    for e in range(first, first + count):
        highest = max(highest, trees.edge[b, e].edge_prior)
    for e in range(first, first + count):
        trees.edge[b, e].edge_prior = (trees.edge[b, e].edge_prior / highest) ** (1.0 / temperature)
        total += trees.edge[b, e].edge_prior
    for e in range(first, first + count):
        trees.edge[b, e].edge_prior /= total


@inlined()
def playable(trees: tree.Trees, b: int, n: int, e: int) -> bool:
    """Return whether edge e of node n is not proven to be worse than another one: if the node's result is known, it
    reaches that; else it is no proven loss."""
    known, value = tree.exact_edge(trees, b, n, e)
    node = trees.node[b, n]
    if node.exact:
        return known and value >= node.exact_value
    return not known or value > -WIN


@inner()
def counted(trees: tree.Trees, b: int, visits: np.ndarray) -> None:
    """Write N(root, a) of tree b for each edge of the root, float32 [edges]; 0 for actions that are not `playable`.
    Where all that were tried are proven losses and others are left, write priors of those in place of visits."""
    root = trees.node[b, 0]
    tried = False
    lost = False
    for k in range(root.edge_count):
        visits[k] = trees.edge[b, root.first_edge + k].edge_visits
        if visits[k] > 0 and not tried:
            tried = playable(trees, b, np.int64(0), root.first_edge + k)
            lost = not tried
    if tried:
        for k in range(root.edge_count):
            if not playable(trees, b, np.int64(0), root.first_edge + k):
                visits[k] = 0
    elif lost and not root.exact:
        _count_priors(trees, b, visits)


@inner()
def _count_priors(trees, b, visits):
    """Write the prior of each edge of the root that is `playable`, as a part of the largest one, and 0 for the
    others."""
    root = trees.node[b, 0]
    highest = 0.0
    for k in range(root.edge_count):
        good = playable(trees, b, np.int64(0), root.first_edge + k)
        visits[k] = max(trees.edge[b, root.first_edge + k].edge_prior, LEAST_PRIOR) if good else 0.0
        highest = max(highest, visits[k])
    for k in range(root.edge_count):
        visits[k] /= highest


@inlined()
def largest(numbers: np.ndarray, num: int) -> int:
    """Return which of the first `num` numbers is the largest, int64; the first of equals."""
    best = np.int64(0)
    for k in range(1, num):
        if numbers[k] > numbers[best]:
            best = np.int64(k)
    return best


@njit(cache=True, nogil=True)
def policy_room(trees: tree.Trees, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return room for a policy of these roots: (zeros int32 [n], for the number of actions of each root; actions
    int32 [edges] and their probabilities float32 [edges], to be filled)."""
    num_edges = 0
    for i in range(len(slots)):
        num_edges += trees.node[slots[i], 0].edge_count
    return np.zeros(len(slots), np.int32), np.empty(num_edges, np.int32), np.empty(num_edges, np.float32)


@inlined()
def write_policy(trees: tree.Trees, b: int, weights: np.ndarray, actions: np.ndarray, probabilities: np.ndarray) -> int:
    """Write the root's actions whose weights, float32 [edges], are above 0, and their shares of all weights; return
    their number."""
    root = trees.node[b, 0]
    num = 0
    total = 0.0
    for k in range(root.edge_count):
        total += weights[k]
    for k in range(root.edge_count):
        if weights[k] > 0:
            actions[num] = trees.edge[b, root.first_edge + k].edge_action
            probabilities[num] = weights[k] / total
            num += 1
    return num


@njit(cache=True, nogil=True)
def surprise(
    trees: tree.Trees, slots: np.ndarray, nums: np.ndarray, actions: np.ndarray, probabilities: np.ndarray, noise: Noise
) -> np.ndarray:
    """Return, for each slot, the sum of pi log(pi / P) over the actions of its policy target, float32 [n]: how far the
    network's policy P is from it (Kullback-Leibler). nums, actions, probabilities: as `puct.Search.policy` returns
    them. P is as it was before noise, if there was any: a root that is known when it becomes the root gets none."""
    found = np.zeros(len(slots), np.float32)
    m = 0
    for i in range(len(slots)):
        last = m + nums[i]
        found[i] = surprise_of(trees, slots[i], actions[m:last], probabilities[m:last], noise)
        m = last
    return found


@inlined()
def surprise_of(trees: tree.Trees, b: int, actions: np.ndarray, probabilities: np.ndarray, noise: Noise) -> float:
    """Return what `surprise` does, of tree b alone."""
    found = np.float32(0)
    num = trees.node[b, 0].edge_count
    k = 0
    for m in range(len(actions)):
        left = num
        while left > 0 and trees.edge[b, trees.node[b, 0].first_edge + k].edge_action != actions[m]:
            k = k + 1 if k + 1 < num else 0  # both are in the order of the actions, but for a policy of a user's own
            left -= 1
        prior = np.float32(0)  # of an action that is no edge
        if left > 0:
            prior = trees.edge[b, trees.node[b, 0].first_edge + k].edge_prior
            if noise.kept.shape[1] and not noise.due[b]:
                prior = noise.kept[b, k]
        found = np.float32(found + probabilities[m] * math.log(probabilities[m] / max(prior, LEAST_PRIOR)))
    return found


@uncounted()
def advance(
    trees: tree.Trees, slots: np.ndarray, actions: np.ndarray, kept: np.ndarray, moved: np.ndarray, shared: np.ndarray
) -> int:
    """Make the child that each action leads to the root, if it was searched; write whether it was, bool [n], to kept.
    moved: int32 [T, N], room for each thread. Return what `finish_shared` takes."""
    at = np.int64(shared.ctypes.data)
    entry = shared_call(at, _advance_part, (trees, slots, actions, kept, moved))
    return entry if len(moved) > 1 else call2(entry, at, 0)


@inner()
def _advance_part(trees, slots, actions, kept, moved, t):
    """Do what `advance` does for the slots of thread t."""
    for i in range(t * len(slots) // len(moved), (t + 1) * len(slots) // len(moved)):
        child = np.int64(tree.child_of_root(trees, slots[i], actions[i]))
        kept[i] = child != NO_CHILD
        if kept[i]:
            reroot.reroot(trees, slots[i], child, moved[t])
