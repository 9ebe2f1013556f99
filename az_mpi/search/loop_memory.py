"""What the compiled loop works on beside the trees: its arrays, the addresses of what is in the trees, and prefetching.

Trees do not fit a processor's caches, and each step of a descent reads another line of memory. So GROUP trees descend
together, a level at a time, and what a tree reads next is asked for while the others are worked on.
Shapes: B trees, A actions, K symmetries, T threads, m evaluations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from az_mpi.core import evaluation_table
from az_mpi.core.aligned import LINE
from az_mpi.core.evaluation_table import Known
from az_mpi.core.intrinsics import SHARED_BYTES, inlined, prefetch
from az_mpi.search import tree
from az_mpi.search.tree import EDGE, NODE, WAITS

GROUP = 32
NODE_BYTES, EDGE_BYTES = NODE.itemsize, EDGE.itemsize


class Compiled(NamedTuple):
    """A game's rules: the addresses of its functions, see `games.entry_points.Entries`; actions int32 [K, A]: its
    `symmetry_actions`; max_plies: it ends after so many; num_players, num_outcomes: of the game; threshold: for
    `core.ranks`, or NaN. Numba's threads take no tuple in a tuple."""

    apply: int
    legal_actions: int
    result: int
    current_player: int
    observe: int
    canonical: int
    chances: int
    actions: np.ndarray
    max_plies: int
    num_players: int
    num_outcomes: int
    threshold: float


class Evaluated(NamedTuple):
    """Evaluations that have come: logits float32 [m, A] and value float32 [m, V], of the image that was asked for. V is
    1, and P with three players or more: see `values.of_evaluation`."""

    logits: np.ndarray
    value: np.ndarray


class Scratch(NamedTuple):
    """Room for the loop. keys uint64 [B]: of the leaves that wait. completed bool [B]: whether the search of each of
    the trees `slots` is complete, in their order. again int64 [B]: those of them in which another search begins at
    once. The others are for each thread: legal bool [T, A + LINE], logits float32 [T, A + LINE], chances float32 [T, O
    + LINE], value and gains float32 [T, LINE], key uint64 [T, LINE];
    trees, nodes, edges, depths int64 [T, GROUP]: of the descents; told int64 [T, LINE]: see NEEDED. shared uint8: of
    `shared_call`."""

    keys: np.ndarray
    completed: np.ndarray
    again: np.ndarray
    legal: np.ndarray
    logits: np.ndarray
    chances: np.ndarray
    value: np.ndarray
    gains: np.ndarray
    key: np.ndarray
    trees: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    depths: np.ndarray
    told: np.ndarray
    shared: np.ndarray


class Mine(NamedTuple):
    """What a thread has of `Scratch`, and views of it as bits. value [V]: an evaluation; gains [P]: of the players."""

    keys: np.ndarray
    legal: np.ndarray
    logits: np.ndarray
    logits_bits: np.ndarray
    chances: np.ndarray
    value: np.ndarray
    value_bits: np.ndarray
    gains: np.ndarray
    key: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    depths: np.ndarray
    told: np.ndarray
    part: np.ndarray
    evaluated_bits: np.ndarray


# In `Scratch.told`: edges, and nodes, that a tree needs and lacks room for; simulations; positions looked up; 1 + the
# tree of which the rules raised an exception or returned what they must not.
NEEDED, NEEDED_NODES, SIMULATIONS, POSITIONS, BROKEN, NUM_TOLD = range(6)


def scratch(num_trees: int, num_actions: int, num_outcomes: int, num_threads: int) -> Scratch:
    """Return room for the loop."""
    t, group, line = num_threads, (num_threads, GROUP), (num_threads, LINE)
    return Scratch(
        np.zeros(num_trees, np.uint64),
        np.zeros(num_trees, np.bool_),
        np.zeros(num_trees, np.int64),
        np.zeros((t, num_actions + LINE), np.bool_),
        np.zeros((t, num_actions + LINE), np.float32),
        np.zeros((t, num_outcomes + LINE), np.float32),
        np.zeros(line, np.float32),
        np.zeros(line, np.float32),
        np.zeros(line, np.uint64),
        np.zeros(group, np.int64),
        np.zeros(group, np.int64),
        np.zeros(group, np.int64),
        np.zeros(group, np.int64),
        np.zeros(line, np.int64),
        np.zeros(SHARED_BYTES, np.uint8),
    )


@inlined()
def prefetch_edges(trees: tree.Trees, b: int, n: int) -> None:
    """Ask for the first edges of node n, of which one is descended, and those that were visited are read at the
    backup."""
    node = trees.node[b, n]
    first = edge_at(trees, b, np.int64(node.first_edge))
    last = first + np.int64(node.edge_count) * EDGE_BYTES - 1
    for line in range(first // LINE, min(last // LINE, first // LINE + 2) + 1):
        prefetch(line * LINE)


@inlined()
def prefetch_new_edges(trees: tree.Trees, b: int) -> None:
    """Ask for where the edges of tree b's next node will be."""
    new = edge_at(trees, b, np.int64(trees.tree[b].edges_used))
    for k in range(3):
        prefetch(new + k * LINE)


@inlined()
def node_at(trees: tree.Trees, b: int, n: int) -> int:
    """Return the address of a node."""
    return np.int64(trees.node.ctypes.data) + (b * trees.node.shape[1] + n) * NODE_BYTES


@inlined()
def edge_at(trees: tree.Trees, b: int, e: int) -> int:
    """Return the address of an edge."""
    return np.int64(trees.edge.ctypes.data) + (b * trees.edge.shape[1] + e) * EDGE_BYTES


@inlined()
def state_at(trees: tree.Trees, b: int, n: int) -> int:
    """Return the address of a node's state."""
    return np.int64(trees.state.ctypes.data) + (b * trees.state.shape[1] + n) * trees.state.shape[2]


@inlined()
def prefetch_paths(trees: tree.Trees, slots: np.ndarray, known: Known, keys: np.ndarray) -> None:
    """Ask for what the completion of these trees' simulations reads. Each loop asks for what the next one reads."""
    for b in slots:
        prefetch(np.int64(trees.path.ctypes.data) + b * trees.path.shape[1] * trees.path.itemsize)
    for b in slots:
        this = trees.tree[b]
        if this.stage == WAITS:
            prefetch(state_at(trees, b, np.int64(this.leaf)))
            prefetch(node_at(trees, b, np.int64(this.leaf)))
            prefetch(node_at(trees, b, np.int64(0)))
            prefetch_new_edges(trees, b)
            if this.stores:
                evaluation_table.ask_for_set(known, keys[b])
                evaluation_table.ask_for_entries(known, keys[b])
            for depth in range(this.path_length):
                prefetch(edge_at(trees, b, np.int64(trees.path[b, depth])))
    for b in slots:
        if trees.tree[b].stage == WAITS:
            for depth in range(trees.tree[b].path_length - 1):
                child = np.int64(trees.edge[b, trees.path[b, depth]].edge_child)
                prefetch(node_at(trees, b, child))
    for b in slots:
        if trees.tree[b].stage == WAITS and trees.tree[b].path_length > 0:
            n = np.int64(0)
            for depth in range(trees.tree[b].path_length):
                prefetch_edges(trees, b, n)
                n = np.int64(trees.edge[b, trees.path[b, depth]].edge_child)
