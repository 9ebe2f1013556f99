"""Trees as arrays: the memory of a search over B games at once, and the kernels that change it.

Shapes: B trees, N nodes a tree, E edges a tree, S numbers a state, A actions.
Node 0 is the root. A node's edges lie side by side, one for each legal action, so that selection reads them in order
and illegal actions cost nothing. Children have larger indices than their parents; compaction relies on it.
"""

from collections import namedtuple

import numpy as np
from numba import njit

NO_CHILD = -1

Trees = namedtuple(
    "Trees",
    [
        "state",  # [B, N, S] the game's own states
        "player",  # int8 [B, N] who is to move
        "parent",  # int32 [B, N]
        "ended",  # bool [B, N] the game is over here
        "visits",  # int32 [B, N] N(s): simulations that ended at or passed through the node
        "value_sum",  # float64 [B, N] W(s), for the player to move here
        "first_edge",  # int32 [B, N]
        "edge_count",  # int32 [B, N] 0 until expanded
        "edge_action",  # int32 [B, E]
        "edge_child",  # int32 [B, E] or NO_CHILD
        "edge_prior",  # float32 [B, E] P(s, a)
        "edge_visits",  # int32 [B, E] N(s, a)
        "edge_value_sum",  # float64 [B, E] W(s, a), for the player who chooses the edge
        "nodes_used",  # int32 [B]
        "edges_used",  # int32 [B]
        "path",  # int32 [B, D] edges from the root to the leaf of the simulation under way
        "path_length",  # int32 [B]
    ],
)


def allocate(game, num_trees, num_nodes):
    """Return empty trees. Memory is taken from the system as it is touched: edges for legal actions only."""
    nodes, edges = (num_trees, num_nodes), (num_trees, num_nodes * game.num_actions)
    depth = min(num_nodes, game.max_plies) + 1
    return Trees(
        state=np.empty((*nodes, game.state_size), game.state_dtype),
        player=np.empty(nodes, np.int8),
        parent=np.empty(nodes, np.int32),
        ended=np.empty(nodes, np.bool_),
        visits=np.empty(nodes, np.int32),
        value_sum=np.empty(nodes, np.float64),
        first_edge=np.empty(nodes, np.int32),
        edge_count=np.empty(nodes, np.int32),
        edge_action=np.empty(edges, np.int32),
        edge_child=np.empty(edges, np.int32),
        edge_prior=np.empty(edges, np.float32),
        edge_visits=np.empty(edges, np.int32),
        edge_value_sum=np.empty(edges, np.float64),
        nodes_used=np.zeros(num_trees, np.int32),
        edges_used=np.zeros(num_trees, np.int32),
        path=np.empty((num_trees, depth), np.int32),
        path_length=np.zeros(num_trees, np.int32),
    )


def bytes_per_tree(game, num_nodes, legal_actions):
    """Return how many bytes one full tree touches with `legal_actions` edges a node."""
    one = allocate(game, 1, num_nodes)
    edge_arrays = [a for name, a in one._asdict().items() if name.startswith("edge_") and name != "edge_count"]
    edges = sum(a.itemsize for a in edge_arrays) * num_nodes * legal_actions
    return int(edges + sum(a.nbytes for a in one) - sum(a.nbytes for a in edge_arrays))


@njit(cache=True, nogil=True)
def add_node(trees, b, parent, state, player, ended):
    """Append a node without edges to tree b and return its index."""
    n = trees.nodes_used[b]
    trees.nodes_used[b] = n + 1
    trees.state[b, n] = state
    trees.player[b, n] = player
    trees.parent[b, n] = parent
    trees.ended[b, n] = ended
    trees.visits[b, n] = 0
    trees.value_sum[b, n] = 0.0
    trees.first_edge[b, n] = 0
    trees.edge_count[b, n] = 0
    return n


@njit(cache=True, nogil=True)
def reset(trees, slots, states, players, ended):
    """Make the tree of each slot a single root node."""
    for i in range(len(slots)):
        trees.nodes_used[slots[i]] = 0
        trees.edges_used[slots[i]] = 0
        add_node(trees, slots[i], NO_CHILD, states[i], players[i], ended[i])


@njit(cache=True, nogil=True)
def expand(trees, b, node, logits, legal):
    """Give a node one edge for each legal action; priors are the softmax of the legal logits. logits, legal: [A]."""
    highest = -np.inf
    for a in range(len(legal)):
        if legal[a]:
            highest = max(highest, logits[a])
    first, count, total = trees.edges_used[b], 0, 0.0
    for a in range(len(legal)):
        if legal[a]:
            e = first + count
            weight = np.exp(logits[a] - highest)
            trees.edge_action[b, e] = a
            trees.edge_child[b, e] = NO_CHILD
            trees.edge_prior[b, e] = weight
            trees.edge_visits[b, e] = 0
            trees.edge_value_sum[b, e] = 0.0
            total += weight
            count += 1
    for e in range(first, first + count):
        trees.edge_prior[b, e] /= total
    trees.first_edge[b, node] = first
    trees.edge_count[b, node] = count
    trees.edges_used[b] = first + count


@njit(cache=True, nogil=True)
def backup(trees, b, leaf, value):
    """Add `value`, for the player to move at `leaf`, to the leaf and to every edge and node on the path to it."""
    player = trees.player[b, leaf]
    trees.visits[b, leaf] += 1
    trees.value_sum[b, leaf] += value
    node = leaf
    for depth in range(trees.path_length[b] - 1, -1, -1):
        node = trees.parent[b, node]
        e = trees.path[b, depth]
        signed = value if trees.player[b, node] == player else -value
        trees.edge_visits[b, e] += 1
        trees.edge_value_sum[b, e] += signed
        trees.visits[b, node] += 1
        trees.value_sum[b, node] += signed


@njit(cache=True, nogil=True)
def child_of_root(trees, b, action):
    """Return the node that `action` leads to from the root, or NO_CHILD if no simulation went there."""
    first = trees.first_edge[b, 0]
    for e in range(first, first + trees.edge_count[b, 0]):
        if trees.edge_action[b, e] == action:
            return trees.edge_child[b, e]
    return NO_CHILD


@njit(cache=True, nogil=True)
def reroot(trees, b, root):
    """Make node `root` the root of tree b and drop whatever is not below it, in place.

    Nodes and edges keep their order, so each moves to an index no larger than its own and nothing is overwritten
    before it has been moved.
    """
    used = trees.nodes_used[b]
    moved = np.full(used, NO_CHILD, np.int32)
    moved[root] = 0
    kept = 1
    for n in range(root + 1, used):
        if moved[trees.parent[b, n]] != NO_CHILD:
            moved[n] = kept
            kept += 1
    edges = 0
    for n in range(root, used):
        to = moved[n]
        if to == NO_CHILD:
            continue
        first, count = trees.first_edge[b, n], trees.edge_count[b, n]
        for k in range(count):
            e, f = first + k, edges + k
            child = trees.edge_child[b, e]
            trees.edge_action[b, f] = trees.edge_action[b, e]
            trees.edge_child[b, f] = NO_CHILD if child == NO_CHILD else moved[child]
            trees.edge_prior[b, f] = trees.edge_prior[b, e]
            trees.edge_visits[b, f] = trees.edge_visits[b, e]
            trees.edge_value_sum[b, f] = trees.edge_value_sum[b, e]
        parent = trees.parent[b, n]
        trees.parent[b, to] = NO_CHILD if n == root else moved[parent]
        trees.state[b, to] = trees.state[b, n]
        trees.player[b, to] = trees.player[b, n]
        trees.ended[b, to] = trees.ended[b, n]
        trees.visits[b, to] = trees.visits[b, n]
        trees.value_sum[b, to] = trees.value_sum[b, n]
        trees.first_edge[b, to] = edges
        trees.edge_count[b, to] = count
        edges += count
    trees.nodes_used[b] = kept
    trees.edges_used[b] = edges
