"""What is done at the roots of trees between and before searches: noise, visit counts, the choice of a move.

Shapes: n slots, A actions.
"""

import numpy as np
from numba import njit

from az_mpi.search import streams, tree
from az_mpi.search.tree import NO_CHILD, WIN


@njit(cache=True, nogil=True)
def mix_noise(trees, b, noise):
    """P(root, a) <- (1 - fraction) P(root, a) + fraction Dir(alpha / legal actions), once a root."""
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
def visits(trees, slots, num_actions):
    """Return N(root, a), int32 [n, A]; 0 for illegal actions."""
    counts = np.zeros((len(slots), num_actions), np.int32)
    for i in range(len(slots)):
        root = trees.node[slots[i], 0]
        for e in range(root.first_edge, root.first_edge + root.edge_count):
            counts[i, trees.edge[slots[i], e].edge_action] = trees.edge[slots[i], e].edge_visits
    return counts


@njit(cache=True, nogil=True)
def policy(trees, slots, num_actions):
    """Return N(root, a) of the actions that are not proven to be worse than others, int32 [n, A].

    A proven win leaves only the proven wins; a proven loss falls away where anything else was tried.
    """
    counts = visits(trees, slots, num_actions)
    for i in range(len(slots)):
        b = slots[i]
        root = trees.node[b, 0]
        worse, tried = np.zeros(num_actions, np.bool_), False
        for e in range(root.first_edge, root.first_edge + root.edge_count):
            known, value = tree.exact_edge(trees, b, np.int64(0), e)
            if root.exact:
                good = known and value >= root.exact_value
            else:
                good = not known or value > -WIN
            if good:
                tried = tried or trees.edge[b, e].edge_visits > 0
            else:
                worse[trees.edge[b, e].edge_action] = True
        if tried:  # else only proven losses have been tried yet
            for a in range(num_actions):  # not counts[i] = …, which takes a second to compile
                if worse[a]:
                    counts[i, a] = 0
    return counts


@njit(cache=True, nogil=True)
def choose(visits, slots, temperature, random):
    """Return an action for each slot, int64 [n], drawn from visits[i]^(1/temperature[i]); at 0 the first largest."""
    actions = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        best = np.argmax(visits[i])
        actions[i] = best
        if temperature[i] > 0:
            # Relative to the most visited, so that a low temperature cannot overflow.
            weights = (visits[i] / visits[i, best]) ** (1.0 / temperature[i])
            mark = streams.uniform(random, slots[i]) * weights.sum()
            for a in range(len(weights)):
                mark -= weights[a]
                if weights[a] > 0:
                    actions[i] = a
                    if mark < 0:
                        break
    return actions


@njit(cache=True, nogil=True)
def advance(trees, slots, actions):
    """Reroot where the action was searched; return where it was, bool [n]."""
    kept = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        child = tree.child_of_root(trees, slots[i], actions[i])
        if child != NO_CHILD:
            tree.reroot(trees, slots[i], child)
            kept[i] = True
    return kept
