"""The compiled loop: simulations of many games without Python, for games whose rules are compiled functions.

For each game one call completes the simulation whose evaluation has come, and begins others: it descends, applies the
rules, and looks the leaf up. What is known at once, such as an ended game or a cached evaluation, is backed up at once,
until a leaf needs the network or the search is complete.

Trees do not fit a processor's caches, and each step of a descent reads another line of memory. So GROUP trees descend
together, a level at a time, and what a tree reads next is asked for while the others are worked on.
Shapes: B trees, A actions, K symmetries, T threads, n games, m evaluations, S bytes of a state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from az_mpi.core.intrinsics import call1, call2, prefetch
from az_mpi.search import evaluation_table, root, simulation, tree
from az_mpi.search.evaluation_table import Known
from az_mpi.search.simulation import EVALUATE, KNOWN
from az_mpi.search.tree import EDGE, IDLE, LEAF, NO_CHILD, NODE, UNDECIDED, WAITS

GROUP = 32
FAILED = -1  # what a function of the game returns when its own code raised an exception
LINE = 64  # bytes of memory that are read together
NODE_BYTES, EDGE_BYTES = NODE.itemsize, EDGE.itemsize


class Compiled(NamedTuple):
    """A game's rules. entries: the addresses of its functions, `games.entry_points.Entries`; actions int32 [K, A]: its
    `symmetry_actions`; max_plies: a game is a draw after so many."""

    entries: tuple
    actions: np.ndarray
    max_plies: int


class Evaluated(NamedTuple):
    """Evaluations that have come: logits float32 [m, A] and value float32 [m], of the image that was asked for."""

    logits: np.ndarray
    value: np.ndarray


class Scratch(NamedTuple):
    """Room for the loop. keys uint64 [B]: of the leaves that wait. The others are for each thread: legal bool
    [T, A + LINE], logits float32 [T, A + LINE], value float32 [T, LINE], key uint64 [T, LINE]; trees, nodes, edges,
    depths int64 [T, GROUP]: of the descents; told int64 [T, LINE]: see NEEDED."""

    keys: np.ndarray
    legal: np.ndarray
    logits: np.ndarray
    value: np.ndarray
    key: np.ndarray
    trees: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    depths: np.ndarray
    told: np.ndarray


# In `Scratch.told`: edges that a tree lacks room for; simulations; positions looked up; 1 + the tree of which the
# rules raised an exception or returned what they must not.
NEEDED, SIMULATIONS, POSITIONS, BROKEN = range(4)


def scratch(num_trees: int, num_actions: int, num_threads: int) -> Scratch:
    """Return room for the loop."""
    t, group, line = num_threads, (num_threads, GROUP), (num_threads, LINE)
    return Scratch(
        np.zeros(num_trees, np.uint64),
        np.zeros((t, num_actions + LINE), np.bool_),
        np.zeros((t, num_actions + LINE), np.float32),
        np.zeros(line, np.float32),
        np.zeros(line, np.uint64),
        np.zeros(group, np.int64),
        np.zeros(group, np.int64),
        np.zeros(group, np.int64),
        np.zeros(group, np.int64),
        np.zeros(line, np.int64),
    )


@njit(cache=True, nogil=True)
def simulate(
    trees: tree.Trees,
    slots: np.ndarray,
    target: np.ndarray,
    rule: tuple,
    noise: root.Noise,
    game: Compiled,
    known: Known,
    evaluated: Evaluated,
    descends: bool,
    room: Scratch,
) -> None:
    """Run simulations in the trees of `slots`, int64 [n], all different, until each waits for an evaluation or has
    `target` simulations, int32 [B], or a known result. trees: states as bytes, uint8 [B, N, S].

    descends: begin simulations; else complete only those that are under way. Where a tree lacks room for edges, or the
    rules fail, it stays as it is, and `room.told` says so; the caller may call again."""
    _simulate_part(trees, slots, target, rule, noise, game, known, evaluated, descends, room, 0, 0, len(slots))


@njit(cache=True, nogil=True, parallel=True)
def simulate_parallel(
    trees: tree.Trees,
    slots: np.ndarray,
    target: np.ndarray,
    rule: tuple,
    noise: root.Noise,
    game: Compiled,
    known: Known,
    evaluated: Evaluated,
    descends: bool,
    room: Scratch,
) -> None:
    """Do what `simulate` does, in T threads."""
    num = len(room.told)
    for t in prange(num):
        first, last = t * len(slots) // num, (t + 1) * len(slots) // num
        _simulate_part(trees, slots, target, rule, noise, game, known, evaluated, descends, room, t, first, last)


@njit(cache=True, nogil=True)
def _simulate_part(trees, slots, target, rule, noise, game, known, evaluated, descends, room, t, first, last):
    """Do what `simulate` does for slots[first:last], as thread t."""
    told = room.told[t]
    told[:4] = 0
    active = room.trees[t]
    for begin in range(first, last, GROUP):
        end = min(begin + GROUP, last)
        for i in range(begin, end):
            _prefetch_path(trees, slots[i])
        num = 0
        for i in range(begin, end):
            b = slots[i]
            this = trees.tree[b]
            if this.stage == WAITS and this.row >= 0:
                _complete(trees, b, rule, noise, game, known, evaluated, room, t)
            if descends and (this.stage == LEAF or (this.stage == IDLE and not complete(trees, b, target))):
                active[num] = b
                num += 1
        while num > 0 and told[BROKEN] == 0:
            _descend_together(trees, active[:num], rule, noise, room, t)
            _reach_leaves(trees, active[:num], rule, game, known, room, t)
            num = _look_up(trees, active[:num], target, rule, noise, game, known, room, t)


@njit(cache=True, nogil=True)
def complete(trees: tree.Trees, b: int, target: np.ndarray) -> bool:
    """Return whether the search of tree b is complete: it has run `target` simulations, or the root's result is known.
    The first visit is the root's own evaluation; each simulation after it descends one edge."""
    return trees.node[b, 0].exact or trees.node[b, 0].visits > target[b]


@njit(cache=True, nogil=True)
def _node_at(trees, b, n):
    return np.int64(trees.node.ctypes.data) + (b * trees.node.shape[1] + n) * NODE_BYTES


@njit(cache=True, nogil=True)
def _edge_at(trees, b, e):
    return np.int64(trees.edge.ctypes.data) + (b * trees.edge.shape[1] + e) * EDGE_BYTES


@njit(cache=True, nogil=True)
def _state_at(trees, b, n):
    return np.int64(trees.state.ctypes.data) + (b * trees.state.shape[1] + n) * trees.state.shape[2]


@njit(cache=True, nogil=True)
def _prefetch_path(trees, b):
    """Ask for what the completion of a tree's simulation reads."""
    this = trees.tree[b]
    if this.stage == WAITS:
        prefetch(_state_at(trees, b, np.int64(this.leaf)))
        prefetch(_node_at(trees, b, np.int64(this.leaf)))
        new = _edge_at(trees, b, np.int64(this.edges_used))
        for k in range(3):
            prefetch(new + k * LINE)
        for depth in range(this.path_length):
            prefetch(_edge_at(trees, b, np.int64(trees.path[b, depth])))


@njit(cache=True, nogil=True)
def _legal(trees, b, n, game, room, t):
    """Write which actions are legal at node n; return how many. If the rules fail, or none is, say that they are
    broken and return 0."""
    num = call2(game.entries.legal_actions, _state_at(trees, b, n), np.int64(room.legal[t].ctypes.data))
    if num <= 0:
        room.told[t, BROKEN] = b + 1
        return np.int64(0)
    if trees.tree[b].edges_used + num > trees.edge.shape[1]:
        room.told[t, NEEDED] = max(room.told[t, NEEDED], trees.tree[b].edges_used + num)
        return np.int64(0)
    return num


@njit(cache=True, nogil=True)
def _complete(trees, b, rule, noise, game, known, evaluated, room, t):
    """Complete the simulation of tree b by the evaluation that it waits for, unless `_legal` says otherwise."""
    this = trees.tree[b]
    leaf = np.int64(this.leaf)
    row = np.int64(this.row)
    num_actions = game.actions.shape[1]
    if _legal(trees, b, leaf, game, room, t) == 0:
        return
    legal = room.legal[t, :num_actions]
    logits = room.logits[t, :num_actions]
    turned = game.actions[this.symmetry]
    for a in range(num_actions):
        logits[turned[a]] = evaluated.logits[row, a]
    value = evaluated.value[row]
    if this.stores:
        bits = evaluated.logits[row].view(np.uint32)
        room.value[t, 0] = value
        evaluation_table.store(
            known.table, known.parts[t], room.keys[b], legal, turned, bits, room.value[t].view(np.uint32)[0]
        )
    _expand(trees, b, leaf, logits, legal, rule, noise)
    simulation.backup(trees, b, leaf, value, rule, False)
    this.stage = IDLE
    this.row = -1


@njit(cache=True, nogil=True)
def _expand(trees, b, leaf, logits, legal, rule, noise):
    simulation.expand(trees, b, leaf, logits, legal, rule)
    if leaf == 0 and noise.due[b]:
        root.mix_noise(trees, b, noise)


@njit(cache=True, nogil=True)
def _descend_together(trees, active, rule, noise, room, t):
    """Descend the trees `active`, unless they have a leaf already, a level of all trees at a time. edges[i] is then the
    edge that leads out of tree i, from nodes[i], or EVALUATE or KNOWN."""
    nodes = room.nodes[t]
    edges = room.edges[t]
    depths = room.depths[t]
    under_way = 0
    for i in range(len(active)):
        b = active[i]
        nodes[i] = -1
        depths[i] = 0
        edges[i] = EVALUATE
        if trees.tree[b].stage == IDLE:
            simulation.prepare_root(trees, b, rule)
            if noise.due[b] and trees.node[b, 0].edge_count > 0:  # searched before it became the root
                root.mix_noise(trees, b, noise)
            nodes[i] = 0
            under_way += 1
    while under_way > 0:
        for i in range(len(active)):
            n = nodes[i]
            if n < 0:
                continue
            b = active[i]
            node = trees.node[b, n]
            if node.edge_count == 0 or node.exact:
                edges[i] = KNOWN if node.exact else EVALUATE
                trees.tree[b].leaf = n
                nodes[i] = -1
                under_way -= 1
                continue
            if node.choice == UNDECIDED:
                node.choice = simulation.choose_edge(trees, b, n, rule) - node.first_edge
            e = np.int64(node.first_edge) + node.choice
            trees.path[b, depths[i]] = e
            depths[i] += 1
            child = np.int64(trees.edge[b, e].edge_child)
            if child == NO_CHILD:
                edges[i] = e
                trees.tree[b].leaf = n
                nodes[i] = -1
                under_way -= 1
                new = np.int64(trees.tree[b].nodes_used)
                prefetch(_state_at(trees, b, n))
                prefetch(_state_at(trees, b, new))
                prefetch(_node_at(trees, b, new))
            else:
                nodes[i] = child
                prefetch(_node_at(trees, b, child))
        for i in range(len(active)):
            if nodes[i] >= 0:
                _prefetch_edges(trees, active[i], nodes[i])
    for i in range(len(active)):
        if trees.tree[active[i]].stage == IDLE:
            trees.tree[active[i]].path_length = depths[i]


@njit(cache=True, nogil=True)
def _prefetch_edges(trees, b, n):
    """Ask for the edge that will be descended at node n, and for those that its backup will read."""
    node = trees.node[b, n]
    prefetch(_edge_at(trees, b, np.int64(node.first_edge) + max(node.choice, 0)))
    first = _edge_at(trees, b, np.int64(node.first_edge))
    for k in range(min(np.int64(node.edge_count) * EDGE_BYTES // LINE + 1, 4)):
        prefetch(first + k * LINE)


@njit(cache=True, nogil=True)
def _reach_leaves(trees, active, rule, game, known, room, t):
    """Add the leaves that the descents have found, and look at each: stage LEAF has a key to look up, IDLE was backed
    up."""
    edges = room.edges[t]
    for i in range(len(active)):
        b = active[i]
        this = trees.tree[b]
        if this.stage == IDLE:
            room.told[t, SIMULATIONS] += 1
            n = np.int64(this.leaf)
            if edges[i] == KNOWN:
                simulation.backup(trees, b, n, trees.node[b, n].exact_value, rule, False)
                continue
            if edges[i] != EVALUATE and not _add_leaf(trees, b, n, edges[i], rule, game, room, t):
                continue
            this.stage = LEAF
            this.row = -1
            this.symmetry = 0
            room.told[t, POSITIONS] += 1
            if len(known.table.keys) > 0:
                _find_key(trees, b, game, known, room, t)


@njit(cache=True, nogil=True)
def _add_leaf(trees, b, n, e, rule, game, room, t):
    """Add the position that edge e of node n leads to. Return whether it is to be evaluated; if not, the game is over
    there and that was backed up, or the rules are broken."""
    leaf = tree.add_node(trees, b, n, trees.state[b, n], np.int8(0), False, np.float32(0))
    at = _state_at(trees, b, leaf)
    failed = call2(game.entries.apply, at, np.int64(trees.edge[b, e].edge_action)) == FAILED
    ended = call2(game.entries.result, at, np.int64(room.value[t].ctypes.data))
    player = call1(game.entries.current_player, at)
    value = room.value[t, 0]
    if failed or ended == FAILED or not -1 <= value <= 1 or not 0 <= player <= 1:
        trees.tree[b].nodes_used -= 1
        room.told[t, BROKEN] = b + 1
        return False
    trees.edge[b, e].edge_child = leaf
    this = trees.tree[b]
    node = trees.node[b, leaf]
    node.player = player
    if ended == 0:
        value = np.float32(0)
    if ended != 0 or this.root_ply + this.path_length >= game.max_plies:
        node.ended = True
        node.exact = True
        node.exact_value = value
        simulation.backup(trees, b, leaf, value, rule, True)
        return False
    this.leaf = leaf
    return True


@njit(cache=True, nogil=True)
def _find_key(trees, b, game, known, room, t):
    """Find the key of the leaf of tree b, and ask for the table's entry."""
    this = trees.tree[b]
    at = _state_at(trees, b, np.int64(this.leaf))
    symmetry = call2(game.entries.canonical, at, np.int64(room.key[t].ctypes.data))
    if not 0 <= symmetry < len(game.actions):
        room.told[t, BROKEN] = b + 1
        symmetry = 0
    this.symmetry = symmetry
    key = max(room.key[t, 0] ^ known.weights, np.uint64(1))  # 0 marks an empty entry
    room.keys[b] = key
    place = np.int64(key & np.uint64(len(known.table.keys) - 1))
    prefetch(np.int64(known.table.keys.ctypes.data) + place * evaluation_table.SET_BYTES)


@njit(cache=True, nogil=True)
def _look_up(trees, active, target, rule, noise, game, known, room, t):
    """Look up the leaves of these trees and complete those that are found; the others wait for an evaluation. Return
    how many trees need another descent; these are then the first of `active`."""
    num = 0
    num_actions = game.actions.shape[1]
    for i in range(len(active)):
        b = active[i]
        this = trees.tree[b]
        if this.stage == LEAF:
            leaf = np.int64(this.leaf)
            logits = room.logits[t, :num_actions]
            at = np.int64(-1)
            if len(known.table.keys) > 0:
                at = evaluation_table.find(known.table, room.keys[b])
            if at < 0 or not evaluation_table.read(
                known.table,
                room.keys[b],
                at,
                game.actions[this.symmetry],
                logits.view(np.uint32),
                room.value[t].view(np.uint32),
            ):
                this.stage = WAITS
            else:
                value = room.value[t, 0]
                if _legal(trees, b, leaf, game, room, t) > 0:
                    _expand(trees, b, leaf, logits, room.legal[t, :num_actions], rule, noise)
                    simulation.backup(trees, b, leaf, value, rule, False)
                    this.stage = IDLE
        if this.stage == IDLE and not complete(trees, b, target):
            active[num] = b
            num += 1
    return num


@njit(cache=True, nogil=True)
def wanted(
    trees: tree.Trees, slots: np.ndarray, keys: np.ndarray, rows: np.ndarray, states: np.ndarray, symmetry: np.ndarray
) -> int:
    """Give each leaf of the trees `slots` that waits the row of its evaluation, and write the positions to evaluate:
    states [n, S] and symmetry int64 [n]; return their number m. Leaves with one key share a row; the first stores it.

    keys: `Scratch.keys`. rows: int32 [a power of two, at least 2 n]; without a cache [0]: no leaves share a row."""
    m = 0
    rows[:] = -1
    for i in range(len(slots)):
        b = slots[i]
        this = trees.tree[b]
        if this.stage != WAITS or this.row >= 0:
            continue
        this.stores = len(rows) > 0
        if this.stores:
            place = np.int64(keys[b] & np.uint64(len(rows) - 1))
            while rows[place] >= 0 and keys[slots[rows[place]]] != keys[b]:
                place = (place + 1) % len(rows)
            if rows[place] >= 0:
                this.row = trees.tree[slots[rows[place]]].row
                this.stores = False
                continue
            rows[place] = i
        this.row = m
        symmetry[m] = this.symmetry
        states[m] = trees.state[b, this.leaf]
        m += 1
    return m


@njit(cache=True, nogil=True)
def completed(trees: tree.Trees, slots: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the slots whose search is `complete`, int64."""
    ready = np.empty(len(slots), np.int64)
    num = 0
    for i in range(len(slots)):
        if complete(trees, slots[i], target):
            ready[num] = slots[i]
            num += 1
    return ready[:num]
