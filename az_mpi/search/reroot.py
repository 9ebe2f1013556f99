"""A tree after a move: the node that the move led to becomes the root, and the rest is dropped."""

import numpy as np

from az_mpi.core.intrinsics import inner, uncounted
from az_mpi.search import tree
from az_mpi.search.tree import NO_CHILD, UNDECIDED


@uncounted()
def reroot(trees: tree.Trees, b: int, root: int, moved: np.ndarray) -> None:
    """Make node `root` the root of tree b and drop everything that is not below it, in place. moved: int32 [N], which
    is overwritten.

    Nodes and edges keep their order, so each moves to an index no larger than its own and nothing is overwritten
    before it has been moved.
    """
    used = trees.tree[b].nodes_used
    moved[:used] = NO_CHILD
    moved[root] = 0
    kept = 1
    for n in range(root + 1, used):
        if moved[trees.node[b, n].parent] != NO_CHILD:
            moved[n] = kept
            kept += 1
    edges = 0
    for n in range(root, used):
        to = moved[n]
        if to == NO_CHILD:
            continue
        first = trees.node[b, n].first_edge
        count = trees.node[b, n].edge_count
        for e in range(first, first + count):
            child = trees.edge[b, e].edge_child
            trees.edge[b, edges + e - first] = trees.edge[b, e]
            trees.edge[b, edges + e - first].edge_child = NO_CHILD if child == NO_CHILD else moved[child]
        parent = trees.node[b, n].parent
        for k in range(trees.state.shape[2]):
            trees.state[b, to, k] = trees.state[b, n, k]
        for p in range(trees.several.shape[2]):
            trees.several[b, to, p] = trees.several[b, n, p]
        trees.node[b, to] = trees.node[b, n]
        trees.node[b, to].parent = NO_CHILD if n == root else moved[parent]
        trees.node[b, to].first_edge = edges
        edges += count
    _sort_by_action(trees, b)
    trees.node[b, 0].choice = UNDECIDED  # roots are searched otherwise than nodes below
    trees.tree[b].nodes_used = kept
    trees.tree[b].edges_used = edges
    tree.forget_range(trees, b)
    for n in range(kept):
        if trees.node[b, n].visits > 0:
            tree.note_value(trees, b, n)


@inner()
def _sort_by_action(trees, b):
    """Bring the edges of the root into the order of their actions."""
    node = trees.node[b, 0]
    if node.chance:
        return
    for e in range(node.first_edge + 1, node.first_edge + node.edge_count):
        moved = trees.edge[b, e]
        to = e
        while to > node.first_edge and trees.edge[b, to - 1].edge_action > moved.edge_action:
            to -= 1
        if to < e:
            value_sum, visits, child = moved.edge_value_sum, moved.edge_visits, moved.edge_child
            prior, action, exact = moved.edge_prior, moved.edge_action, moved.edge_exact
            for k in range(e, to, -1):
                trees.edge[b, k] = trees.edge[b, k - 1]
            place = trees.edge[b, to]
            place.edge_value_sum, place.edge_visits, place.edge_child = value_sum, visits, child
            place.edge_prior, place.edge_action, place.edge_exact = prior, action, exact
