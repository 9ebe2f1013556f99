"""One simulation in each of a batch of trees: descend to a leaf, then add it, expand it and back up its value.

What is chosen on the way down is up to the search, see choices.py.

`select` and `complete` are for one simulation in each of many trees (self-play), `select_several` and
`complete_several` for several in one tree (play).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from az_mpi.core.intrinsics import inlined, inner
from az_mpi.search import chance_nodes, root, tree, values
from az_mpi.search.choices import begins_with_prior, choose_edge, prepare_root
from az_mpi.search.tree import NO_CHILD, UNDECIDED

# In place of an action, where a descent ended: at a new root, which is itself to be evaluated; at a known result.
EVALUATE, KNOWN = -1, -2


@inner()
def expand(trees: tree.Trees, b: int, n: int, logits: np.ndarray, legal: np.ndarray, rule: tuple) -> None:
    """Give node n its edges, see `tree.expand`, and choose where the next simulation descends."""
    tree.expand(trees, b, n, logits, legal)
    if n > 0:
        first = np.int64(trees.node[b, n].first_edge)
        tree.bring_forward(trees, b, n, first)
        if begins_with_prior(rule):
            trees.node[b, n].choice = 0


@inlined()
def next_edge(trees: tree.Trees, b: int, n: int, rule: tuple) -> int:
    """Return the edge of node n, int64, that the next simulation that comes there descends."""
    return chance_nodes.outcome_edge(trees, b, n) if trees.node[b, n].chance else choose_edge(trees, b, n, rule)


@inner()
def backup(trees: tree.Trees, b: int, leaf: int, gains: np.ndarray, rule: tuple) -> None:
    """Add a value for each player, float32 [P], to the leaf and to every edge and node on the path to it, and choose
    where the next simulations descend."""
    _back_up(trees, b, leaf, gains, rule, False)


@inner()
def backup_new_result(trees: tree.Trees, b: int, leaf: int, gains: np.ndarray, rule: tuple) -> None:
    """Do what `backup` does for a leaf that is new and exact: nodes above it may be so, too."""
    _back_up(trees, b, leaf, gains, rule, True)


@inlined()
def _back_up(trees, b, leaf, gains, rule, proves):
    node = trees.node[b, leaf]
    node.visits += 1
    node.value_sum += gains[node.player]
    n = np.int64(leaf)
    tree.note_value(trees, b, n)
    _add_gains(trees, b, n, gains)
    for depth in range(trees.tree[b].path_length - 1, -1, -1):
        n = np.int64(node.parent)
        node = trees.node[b, n]
        e = np.int64(trees.path[b, depth])
        edge = trees.edge[b, e]
        gain = gains[node.player]
        edge.edge_visits += 1
        edge.edge_value_sum += gain
        tree.note_visit(trees, b, n, e)
        node.visits += 1
        node.value_sum += gain
        _add_gains(trees, b, n, gains)
        if proves:
            edge.edge_exact = True
            proves = chance_nodes.prove(trees, b, n) if node.chance else tree.prove(trees, b, n)
        tree.note_value(trees, b, n)
        if n > 0 and not node.exact:
            node.choice = next_edge(trees, b, n, rule) - node.first_edge
    trees.node[b, 0].choice = UNDECIDED  # what a root visits next may also depend on the search


@inlined()
def _add_gains(trees, b, n, gains):
    """Add the values of several players to node n, whose result is not known."""
    if trees.several.shape[2] > 0 and not trees.node[b, n].exact:
        for p in range(trees.several.shape[2]):
            trees.several[b, n, p] += gains[p]


@njit(cache=True, nogil=True)
def _descend(trees, b, rule, noise, kept):
    """Descend tree b, by the choices that are kept in the nodes if `kept`. Return (node, action): action >= 0 asks for
    a new child of node, EVALUATE for the evaluation of node, a root that is not expanded yet, KNOWN for a backup of the
    node's result."""
    if noise.due[b] and trees.node[b, 0].edge_count > 0:  # searched before it became the root
        root.mix_noise(trees, b, noise)
    n, depth = np.int64(0), 0
    while trees.node[b, n].edge_count > 0 and not trees.node[b, n].exact:
        e = np.int64(trees.node[b, n].choice) if kept else np.int64(UNDECIDED)
        e = next_edge(trees, b, n, rule) if e == UNDECIDED else trees.node[b, n].first_edge + e
        trees.path[b, depth] = e
        depth += 1
        trees.tree[b].path_length = depth
        child = trees.edge[b, e].edge_child
        if child == NO_CHILD:
            return n, trees.edge[b, e].edge_action
        n = child
    trees.tree[b].path_length = depth
    return n, KNOWN if trees.node[b, n].exact else EVALUATE


@njit(cache=True, nogil=True)
def _select_one(trees, b, rule, noise, gains):
    """Return what `_descend` does; but a known result is backed up, and node is NO_CHILD."""
    prepare_root(trees, b, rule)
    n, action = _descend(trees, b, rule, noise, True)
    if action == KNOWN:
        values.exact(trees, b, n, gains)
        backup(trees, b, n, gains, rule)
        return NO_CHILD, KNOWN
    return n, action


@njit(cache=True, nogil=True)
def _leaves_then_roots(trees, slots, nodes, actions):
    """Return what `select` does, from what `_select_one` returned for each slot."""
    n = len(slots)
    m = 0
    num_new = 0
    rows = np.empty(n, np.int64)
    states = np.empty((n, trees.state.shape[2]), trees.state.dtype)
    for new in (True, False):
        for i in range(n):
            if nodes[i] != NO_CHILD and (actions[i] != EVALUATE) == new:
                rows[m] = i
                for k in range(states.shape[1]):
                    states[m, k] = trees.state[slots[i], nodes[i], k]
                m += 1
        if new:
            num_new = m
    rows = rows[:m]
    return slots[rows], nodes[rows], actions[rows], states[:m], num_new


@njit(cache=True, nogil=True)
def select(trees: tree.Trees, slots: np.ndarray, rule: tuple, noise: root.Noise, num_players: int) -> tuple:
    """Descend the trees. Return the simulations that lead to new leaves or new roots: (slots int64 [m], nodes int64
    [m], actions int64 [m], states [m, S], how many are leaves): first the leaves, each with the node and the action
    that lead there and that node's state, then the roots.

    rule: see choices.py. noise: see `root.mix_noise`.
    """
    nodes = np.empty(len(slots), np.int64)
    actions = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        gains = np.empty(num_players, np.float32)
        nodes[i], actions[i] = _select_one(trees, slots[i], rule, noise, gains)
    return _leaves_then_roots(trees, slots, nodes, actions)


@njit(cache=True, nogil=True, parallel=True)
def select_parallel(trees: tree.Trees, slots: np.ndarray, rule: tuple, noise: root.Noise, num_players: int) -> tuple:
    """Do what `select` does, in several threads. It is a function of its own: if one function were compiled both with
    and without threads, Numba's cache would mix the two up."""
    nodes = np.empty(len(slots), np.int64)
    actions = np.empty(len(slots), np.int64)
    for i in prange(len(slots)):
        gains = np.empty(num_players, np.float32)
        nodes[i], actions[i] = _select_one(trees, slots[i], rule, noise, gains)
    return _leaves_then_roots(trees, slots, nodes, actions)


class Leaves(NamedTuple):
    """What `complete` needs to know of m simulations. nodes, actions int64 [m]: as `select` returned them.

    states [m, S], player int8 [m], ended bool [m], values float32 [m, P]: of the position that each one led to, and
    the values of all players there. logits float32 [k, A], legal bool [k, A]: a row for each of the k positions
    where the game is not over, in order. proves: whether the ends of games prove anything."""

    nodes: np.ndarray
    actions: np.ndarray
    states: np.ndarray
    player: np.ndarray
    ended: np.ndarray
    values: np.ndarray
    logits: np.ndarray
    legal: np.ndarray
    proves: bool


# Inlined: a call would pass so many arrays that it takes a fifth longer.
@njit(cache=True, nogil=True, forceinline=True)
def _complete_one(trees, b, leaves, i, row, rule, noise):
    """Add the leaf of simulation i to tree b, unless it is the root; expand it, unless the game is over there; back up
    its value. row: of the leaf in logits and legal."""
    leaf = leaves.nodes[i]
    ended = leaves.ended[i]
    gains = leaves.values[i]
    if leaves.actions[i] != EVALUATE:
        leaf = tree.add_node(trees, b, leaf, leaves.states[i], leaves.player[i], ended, gains)
        trees.edge[b, trees.path[b, trees.tree[b].path_length - 1]].edge_child = leaf
    if not ended:
        expand(trees, b, leaf, leaves.logits[row], leaves.legal[row], rule)
        if noise.due[b] and leaf == 0:
            root.mix_noise(trees, b, noise)
    if ended and leaves.proves:
        backup_new_result(trees, b, leaf, gains, rule)
    else:
        backup(trees, b, leaf, gains, rule)


@njit(cache=True, nogil=True)
def _rows(ended):
    """Return, for each simulation, how many before it have not ended: its row in logits and legal, int64 [m]."""
    rows = np.empty(len(ended), np.int64)
    row = 0
    for i in range(len(ended)):
        rows[i] = row
        row += not ended[i]
    return rows


@njit(cache=True, nogil=True)
def complete(trees: tree.Trees, slots: np.ndarray, leaves: Leaves, rule: tuple, noise: root.Noise) -> int:
    """Complete the simulations that `select` returned, one in the tree of each slot, and return 0. If the trees lack
    room for edges, change nothing and return how many each needs."""
    needed = tree.edges_needed(trees, slots, leaves.ended, leaves.legal)
    if needed > trees.edge.shape[1]:
        return needed
    rows = _rows(leaves.ended)
    for i in range(len(slots)):
        _complete_one(trees, slots[i], leaves, i, rows[i], rule, noise)
    return 0


@njit(cache=True, nogil=True, parallel=True)
def complete_parallel(trees: tree.Trees, slots: np.ndarray, leaves: Leaves, rule: tuple, noise: root.Noise) -> int:
    """Do what `complete` does, in several threads. It is a function of its own for the reason that `select_parallel`
    gives."""
    needed = tree.edges_needed(trees, slots, leaves.ended, leaves.legal)
    if needed > trees.edge.shape[1]:
        return needed
    rows = _rows(leaves.ended)
    for i in prange(len(slots)):
        _complete_one(trees, slots[i], leaves, i, rows[i], rule, noise)
    return 0


@njit(cache=True, nogil=True)
def select_several(
    trees: tree.Trees, b: int, leaves_max: int, rule: tuple, noise: root.Noise, num_players: int
) -> tuple:
    """Descend one tree, whose root is expanded, up to `leaves_max` times. Return the simulations that lead to new
    leaves, all different: (nodes int64 [m], actions int64 [m], states [m, S], paths int32 [m, D + 1], each path after
    its length). Known results are backed up.

    A descent leaves a visit on its path that changes no Q, until all are done: later descents turn to other actions for
    their exploration alone (Liu et al. 2020, "Watch the Unobserved"). One that ends where another did is no simulation;
    after `leaves_max` of these the search continues with the leaves that it has.
    """
    prepare_root(trees, b, rule)
    nodes, actions, paths, is_new = _descend_several(trees, b, leaves_max, rule, noise)
    _back_up_known(trees, b, nodes, actions, paths, is_new, rule, np.empty(num_players, np.float32))
    return _new_leaves(trees, b, nodes, actions, paths, is_new)


@njit(cache=True, nogil=True)
def _descend_several(trees, b, leaves_max, rule, noise):
    """Descend until `leaves_max` descents are simulations, or as many are not; leave the tree as it was. Return, of
    each descent, what `_descend` returned, its path after the path's length, and whether it is a simulation: (nodes,
    actions, paths, is_new)."""
    most = 2 * leaves_max
    depth = trees.path.shape[1]
    nodes = np.empty(most, np.int64)
    actions = np.empty(most, np.int64)
    paths = np.empty((most, depth + 1), np.int32)
    saved = np.empty((most, depth, 2))
    is_new = np.ones(most, np.bool_)
    num = 0
    num_new = 0
    while num_new < leaves_max and num < most:
        nodes[num], actions[num] = _descend(trees, b, rule, noise, False)
        paths[num, 0] = trees.tree[b].path_length
        paths[num, 1:] = trees.path[b]
        for i in range(num):
            if actions[num] != KNOWN and nodes[i] == nodes[num] and actions[i] == actions[num]:
                is_new[num] = False
        _visit(trees, b, paths[num], saved[num])
        num_new += is_new[num]
        num += 1
    for i in range(num - 1, -1, -1):
        _unvisit(trees, b, paths[i], saved[i])
    return nodes[:num], actions[:num], paths[:num], is_new[:num]


@njit(cache=True, nogil=True)
def _back_up_known(trees, b, nodes, actions, paths, is_new, rule, gains):
    """Back up the known results that descents found."""
    for i in range(len(nodes)):
        if is_new[i] and actions[i] == KNOWN:
            _restore(trees, b, paths[i])
            values.exact(trees, b, nodes[i], gains)
            backup(trees, b, nodes[i], gains, rule)


@njit(cache=True, nogil=True)
def _new_leaves(trees, b, nodes, actions, paths, is_new):
    """Return the descents that found new leaves: (nodes, actions, their states, paths). It overwrites what it is
    given."""
    m = 0
    states = np.empty((len(nodes), trees.state.shape[2]), trees.state.dtype)
    for i in range(len(nodes)):
        if is_new[i] and actions[i] != KNOWN:
            nodes[m], actions[m], paths[m] = nodes[i], actions[i], paths[i]
            for k in range(states.shape[1]):
                states[m, k] = trees.state[b, nodes[m], k]
            m += 1
    return nodes[:m], actions[:m], states[:m], paths[:m]


@njit(cache=True, nogil=True)
def _visit(trees, b, path, saved):
    """Add a visit to the nodes and edges of a path, each edge with its mean value, or its node's if it has none."""
    n = np.int64(0)
    for d in range(path[0]):
        node = trees.node[b, n]
        edge = trees.edge[b, path[d + 1]]
        saved[d, 0], saved[d, 1] = node.value_sum, edge.edge_value_sum
        q = edge.edge_value_sum / edge.edge_visits if edge.edge_visits > 0 else node.value_sum / node.visits
        node.visits += 1
        node.value_sum += q
        edge.edge_visits += 1
        edge.edge_value_sum += q
        tree.note_visit(trees, b, n, np.int64(path[d + 1]))
        n = np.int64(edge.edge_child)


@njit(cache=True, nogil=True)
def _unvisit(trees, b, path, saved):
    """Undo the newest `_visit`."""
    n = np.int64(0)
    for d in range(path[0]):
        node = trees.node[b, n]
        edge = trees.edge[b, path[d + 1]]
        node.visits -= 1
        edge.edge_visits -= 1
        node.value_sum, edge.edge_value_sum = saved[d, 0], saved[d, 1]
        n = edge.edge_child


@njit(cache=True, nogil=True)
def _restore(trees, b, path):
    """Make a path that of the simulation under way."""
    trees.tree[b].path_length = path[0]
    for d in range(path[0]):
        trees.path[b, d] = path[d + 1]


@njit(cache=True, nogil=True)
def _link(trees, b, n):
    """Make the nodes on the path that ends in node n, above a new leaf, children of each other."""
    for d in range(trees.tree[b].path_length - 2, -1, -1):
        trees.edge[b, trees.path[b, d]].edge_child = n
        n = trees.node[b, n].parent


@njit(cache=True, nogil=True)
def complete_several(
    trees: tree.Trees, b: int, paths: np.ndarray, leaves: Leaves, rule: tuple, noise: root.Noise
) -> int:
    """Complete the simulations that `select_several` returned with these paths, as `complete` does."""
    needed = trees.tree[b].edges_used
    for i in range(leaves.legal.shape[0]):
        for a in range(leaves.legal.shape[1]):
            needed += leaves.legal[i, a]
    if needed > trees.edge.shape[1]:
        return needed
    rows = _rows(leaves.ended)
    for i in range(len(paths)):
        _restore(trees, b, paths[i])
        _link(trees, b, leaves.nodes[i])
        _complete_one(trees, b, leaves, i, rows[i], rule, noise)
    return 0
