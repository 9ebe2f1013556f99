"""One simulation in each of a batch of trees: descend to a leaf, then add it, expand it and back up its value.

What is chosen on the way down is up to the search: see `choose_edge`.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from az_mpi.search import root, tree
from az_mpi.search.tree import NO_CHILD


def choose_edge(trees: tree.Trees, b: int, n: int, rule: tuple) -> int:
    """Return the edge of node n, int64, to descend in the simulation under way. For compiled code: a search adds an
    `overload` for the type of its rule."""
    raise NotImplementedError


@njit(cache=True, nogil=True)
def _descend(trees, b, rule, noise):
    """Descend tree b. Return (node, action): action >= 0 asks for a new child of node, NO_CHILD for the evaluation of
    node, a root that is not expanded yet. An exact node where the descent ends is backed up, and node is NO_CHILD."""
    if noise[0][b] and trees.node[b, 0].edge_count > 0:  # searched before it became the root
        root.mix_noise(trees, b, noise)
    n, depth = np.int64(0), 0  # n as a variable: Numba would compile `best_edge` once more for the constant
    while trees.node[b, n].edge_count > 0 and not trees.node[b, n].exact:
        e = choose_edge(trees, b, n, rule)
        trees.path[b, depth] = e
        depth += 1
        trees.tree[b].path_length = depth
        child = trees.edge[b, e].edge_child
        if child == NO_CHILD:
            return n, trees.edge[b, e].edge_action
        n = child
    trees.tree[b].path_length = depth
    if trees.node[b, n].exact:
        tree.backup(trees, b, n, trees.node[b, n].exact_value)
        n = NO_CHILD
    return n, NO_CHILD


@njit(cache=True, nogil=True)
def _gather(trees, slots, nodes, actions):
    """Return what `select` does, from what `_descend` returned for each slot."""
    n, m, num_new = len(slots), 0, 0
    rows, states = np.empty(n, np.int64), np.empty((n, trees.state.shape[2]), trees.state.dtype)
    for new in (True, False):
        for i in range(n):
            if nodes[i] != NO_CHILD and (actions[i] != NO_CHILD) == new:
                rows[m] = i
                for k in range(states.shape[1]):
                    states[m, k] = trees.state[slots[i], nodes[i], k]
                m += 1
        if new:
            num_new = m
    rows = rows[:m]
    return slots[rows], nodes[rows], actions[rows], states[:m], num_new


@njit(cache=True, nogil=True)
def select(trees: tree.Trees, slots: np.ndarray, rule: tuple, noise: tuple) -> tuple:
    """Descend the trees. Return the simulations that lead to new leaves or new roots: (slots int64 [m], nodes int64
    [m], actions int64 [m], states [m, S], how many are leaves): first the leaves, each with the node and the action
    that lead there and that node's state, then the roots.

    rule: see `choose_edge`. noise: see `root.mix_noise`.
    """
    nodes, actions = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        nodes[i], actions[i] = _descend(trees, slots[i], rule, noise)
    return _gather(trees, slots, nodes, actions)


@njit(cache=True, nogil=True, parallel=True)
def select_parallel(trees: tree.Trees, slots: np.ndarray, rule: tuple, noise: tuple) -> tuple:
    """`select` over several threads. Not one function compiled twice: Numba's cache would mix them up."""
    nodes, actions = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
    for i in prange(len(slots)):
        nodes[i], actions[i] = _descend(trees, slots[i], rule, noise)
    return _gather(trees, slots, nodes, actions)


@njit(cache=True, nogil=True)
def _complete_one(trees, b, n, action, state, player, ended, value, logits, legal, row, noise):
    """Add the leaf that `action` leads to, unless it is the root, expand it if the game goes on, back up its value."""
    leaf = n
    if action != NO_CHILD:
        leaf = tree.add_node(trees, b, n, state, player, ended, value)
        trees.edge[b, trees.path[b, trees.tree[b].path_length - 1]].edge_child = leaf
    if not ended:
        tree.expand(trees, b, leaf, logits[row], legal[row])
        if noise[0][b] and leaf == 0:
            root.mix_noise(trees, b, noise)
    tree.backup(trees, b, leaf, value)
    if ended:
        tree.prove(trees, b, leaf)


@njit(cache=True, nogil=True)
def _rows(ended):
    """Return, for each simulation, how many before it have not ended: its row in logits and legal, int64 [m]."""
    rows, row = np.empty(len(ended), np.int64), 0
    for i in range(len(ended)):
        rows[i] = row
        row += not ended[i]
    return rows


@njit(cache=True, nogil=True)
def complete(trees: tree.Trees, slots: np.ndarray, nodes: np.ndarray, actions: np.ndarray, states: np.ndarray,
             player: np.ndarray, ended: np.ndarray, value: np.ndarray, logits: np.ndarray, legal: np.ndarray,
             noise: tuple) -> int:
    """Complete the simulations that `select` returned and return 0. If the trees lack room for edges, change nothing
    and return how many each needs. logits, legal: a row for each simulation that has not ended, in order."""
    needed = tree.edges_needed(trees, slots, ended, legal)
    if needed > trees.edge.shape[1]:
        return needed
    rows = _rows(ended)
    for i in range(len(slots)):
        _complete_one(trees, slots[i], nodes[i], actions[i], states[i], player[i], ended[i], value[i], logits, legal,
                      rows[i], noise)
    return 0


@njit(cache=True, nogil=True, parallel=True)
def complete_parallel(trees: tree.Trees, slots: np.ndarray, nodes: np.ndarray, actions: np.ndarray, states: np.ndarray,
                      player: np.ndarray, ended: np.ndarray, value: np.ndarray, logits: np.ndarray, legal: np.ndarray,
                      noise: tuple) -> int:
    """`complete` over several threads."""
    needed = tree.edges_needed(trees, slots, ended, legal)
    if needed > trees.edge.shape[1]:
        return needed
    rows = _rows(ended)
    for i in prange(len(slots)):
        _complete_one(trees, slots[i], nodes[i], actions[i], states[i], player[i], ended[i], value[i], logits, legal,
                      rows[i], noise)
    return 0
