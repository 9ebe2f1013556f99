"""Trees as arrays: the memory of a search over B games at once, and the kernels that change it.

Shapes: B trees, N nodes a tree, E edges a tree, S numbers a state, A actions, P players.
Node 0 is the root. A node's edges lie side by side, one for each legal action, so that illegal actions cost nothing.
Children have larger indices than their parents; compaction relies on it.
The edges of the root are in the order of their actions. Below the root, edges that were visited come first, then the
one with the largest prior of the others, the first of equals, then the rest in the order of their actions: a search
that gives all unvisited edges one value reads the first few edges of a node and no others. That holds for rules that
take an edge that was visited or the first other one, as PUCT and Gumbel search do.

A node is exact when the result under best play is known: the game ends there, a move wins at once or by proof, or all
moves are exact (MCTS-Solver: Winands, Björnsson, Saito 2008, with the results of any game instead of win and loss). A
chance node is exact when all of its outcomes are. With three players or more each player chooses what is best for it
(max^n, Luckhardt and Irani 1986, "An algorithmic solution of N-person games").
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from az_mpi.core import aligned
from az_mpi.core.intrinsics import inlined, inner
from az_mpi.core.players import CHANCE
from az_mpi.core.problems import Refusal

if TYPE_CHECKING:
    from az_mpi.games.base import Game

NO_CHILD = -1
UNDECIDED = -1
# Stages of a simulation: none is under way; its leaf is to be looked up; its leaf waits for an evaluation; a move was
# played, after which Python has to begin the next search or to end the game.
IDLE, LEAF, WAITS, MOVED = 0, 1, 2, 3
WIN = 1.0  # no result is better for the player to move
NARROW = 1e-3  # the least `width` of a tree: smaller differences of values count as noise

# Fields that are read together lie together: a node in half a cache line, a node's edges in a row.
NODE = np.dtype(
    [
        ("value_sum", np.float64),  # W(s), for the player to move here
        ("visits", np.int32),  # N(s): simulations that ended at or passed through the node
        ("parent", np.int32),
        ("first_edge", np.int32),
        # If `exact`: the result for the player to move here. Of a chance node that is not: see chance_nodes.py.
        ("exact_value", np.float32),
        ("edge_count", np.int16),  # 0 until expanded
        ("choice", np.int16),  # which of its edges the next simulation descends, or UNDECIDED
        ("player", np.int8),  # to move; at a chance node 0
        ("ended", np.bool_),  # the game is over here
        ("exact", np.bool_),
        ("chance", np.bool_),  # a move is drawn by lot here
    ],
    align=True,
)
EDGE = np.dtype(
    [
        ("edge_value_sum", np.float64),  # W(s, a), for the player who chooses the edge
        ("edge_visits", np.int32),  # N(s, a)
        ("edge_child", np.int32),  # node or NO_CHILD
        ("edge_prior", np.float32),  # P(s, a)
        ("edge_action", np.int16),
        ("edge_exact", np.bool_),  # whether the child is exact
    ],
    align=True,
)
MOST_ACTIONS = np.iinfo(EDGE["edge_action"]).max
EDGES_PER_NODE = 32  # that trees have room for at the start, or all actions if they are fewer
TREE = np.dtype(
    [
        ("nodes_used", np.int32),
        ("edges_used", np.int32),
        ("path_length", np.int32),  # of the simulation under way
        ("root_ply", np.int32),  # moves from the start of the game to the root
        # Of the compiled loop (simulation_loop.py), whose simulations end in another call than they begin in:
        ("leaf", np.int32),  # node that the simulation has reached
        ("row", np.int32),  # of its evaluation in the batch; -1: it is in none yet
        ("symmetry", np.int16),  # that its position is evaluated in
        ("stage", np.int8),  # IDLE, LEAF, WAITS or MOVED
        ("stores", np.bool_),  # whether this tree puts the evaluation into the cache
        # Whether the search takes values relative to those in the tree, as it may in games of one player; then also the
        # smallest and the largest mean value of a node. width: half their difference, at least NARROW; else 1.
        ("ranged", np.bool_),
        ("smallest", np.float32),
        ("largest", np.float32),
        ("width", np.float32),
    ],
    align=True,
)


class Trees(namedtuple("Trees", ["tree", "node", "edge", "state", "path", "several"])):
    """tree TREE [B], node NODE [B, N], edge EDGE [B, E], state [B, N, S], path int32 [B, D]: the edges from the root to
    the leaf of the simulation under way. several float64 [B, N, P]: with three players or more, the sum of each
    player's values at a node, or its result if the node is exact; else [B, N, 0].
    Outside compiled code a column is an attribute too: trees.visits [B, N]."""

    __slots__ = ()

    def __getattr__(self, name: str) -> np.ndarray:
        for rows in (self.tree, self.node, self.edge):
            if name in rows.dtype.names:
                return rows[name]
        raise AttributeError(name)

    @property
    def num_bytes(self) -> int:
        """The size of all arrays, in bytes."""
        return sum(part.nbytes for part in self)


def allocate(game: Game, num_trees: int, num_nodes: int) -> Trees:
    """Return empty trees. `widened` makes more room for edges. Parts of the arrays that were never written take no
    memory."""
    nodes = (num_trees, num_nodes)
    depth = min(num_nodes, game.max_plies) + 1
    if game.num_actions > MOST_ACTIONS:
        raise Refusal(f"{game.name} has {game.num_actions:,} actions; a search takes at most {MOST_ACTIONS:,}")
    return Trees(
        tree=np.zeros(num_trees, TREE),
        node=aligned.empty(nodes, NODE),
        edge=aligned.empty((num_trees, num_nodes * min(game.num_actions, EDGES_PER_NODE)), EDGE),
        state=aligned.empty((*nodes, game.state_size), game.state_dtype),
        path=np.empty((num_trees, depth), np.int32),
        several=np.empty((*nodes, game.num_players if game.num_players > 2 else 0)),
    )


def widened(trees: Trees, num_edges: int = 0, num_nodes: int = 0) -> Trees:
    """Return the same trees with room for so many edges and nodes each. Where that is more than there is, they get room
    for 1.5 times as many as before at least."""
    used = trees.tree["edges_used"].max()
    if num_edges > trees.edge.shape[1]:
        trees = trees._replace(edge=_grown(trees.edge, num_edges, used))
    if num_nodes > trees.node.shape[1]:
        used = trees.tree["nodes_used"].max()
        parts = {name: _grown(getattr(trees, name), num_nodes, used) for name in ("node", "state", "several")}
        trees = trees._replace(**parts, path=_grown(trees.path, num_nodes + 1, trees.path.shape[1]))
    return trees


def _grown(part, needed, used):
    room = aligned.empty((len(part), max(needed, part.shape[1] * 3 // 2), *part.shape[2:]), part.dtype)
    room[:, :used] = part[:, :used]
    return room


def in_bytes(trees: Trees) -> Trees:
    """Return the same trees with states as bytes, uint8 [B, N, S bytes]. Kernels take them so: they are compiled once
    for the states of all games."""
    return Trees(*trees[:3], trees.state.view(np.uint8), *trees[4:])  # a third of the time of `_replace`


@inner()
def edges_needed(trees: Trees, slots: np.ndarray, ended: np.ndarray, legal: np.ndarray) -> int:
    """Return the largest number of edges of one of the trees `slots` after its new leaf is expanded; 0 if all have
    room. ended: bool [n]; legal: bool [m, A], a row for each leaf that has not ended, in order."""
    most = 0
    row = 0
    for i in range(len(slots)):
        if ended[i]:
            continue
        used = trees.tree[slots[i]].edges_used
        if used + legal.shape[1] > trees.edge.shape[1]:
            for a in range(legal.shape[1]):
                used += legal[row, a]
            most = max(most, used)
        row += 1
    return most


@inlined()
def add_node(trees: Trees, b: int, parent: int, state: np.ndarray, player: int, ended: bool, values: np.ndarray) -> int:
    """Append a node without edges to tree b and return its index. player: to move, or CHANCE. values: float32 [P], the
    result of each player if `ended`; else none is read."""
    n = np.int64(trees.tree[b].nodes_used)
    trees.tree[b].nodes_used = n + 1
    for k in range(len(state)):
        trees.state[b, n, k] = state[k]
    node = trees.node[b, n]
    node.value_sum = 0.0
    node.visits = 0
    node.parent = parent
    node.first_edge = 0
    node.edge_count = 0
    node.choice = UNDECIDED
    node.player = max(player, 0)
    node.chance = player == CHANCE
    node.ended = ended
    node.exact = ended
    node.exact_value = values[node.player] if ended else 0
    for p in range(trees.several.shape[2]):
        trees.several[b, n, p] = values[p] if ended else 0
    return n


@njit(cache=True, nogil=True)
def reset(
    trees: Trees, slots: np.ndarray, states: np.ndarray, players: np.ndarray, ended: np.ndarray, values: np.ndarray
) -> None:
    """Make the tree of each slot, int64 [n], a single root node. values: float32 [n, P], see `add_node`."""
    for i in range(len(slots)):
        trees.tree[slots[i]].nodes_used = 0
        trees.tree[slots[i]].edges_used = 0
        trees.tree[slots[i]].stage = IDLE
        forget_range(trees, slots[i])
        add_node(trees, slots[i], NO_CHILD, states[i], players[i], ended[i], values[i])


@inlined()
def note_value(trees: Trees, b: int, n: int) -> None:
    """Widen the range of values of tree b by that of node n, which was visited. (Schrittwieser et al. 2020, "Mastering
    Atari, Go, chess and shogi by planning with a learned model", equation 5, of mean values.)"""
    this = trees.tree[b]
    if this.ranged:
        node = trees.node[b, n]
        value = np.float32(node.exact_value if node.exact else node.value_sum / node.visits)
        this.smallest = min(this.smallest, value)
        this.largest = max(this.largest, value)
        this.width = max((this.largest - this.smallest) / 2, NARROW)


@inner()
def forget_range(trees: Trees, b: int) -> None:
    """Forget the values that the search of tree b has seen."""
    trees.tree[b].smallest = np.inf
    trees.tree[b].largest = -np.inf
    trees.tree[b].width = NARROW if trees.tree[b].ranged else 1.0


@inlined()
def expand(trees: Trees, b: int, n: int, logits: np.ndarray, legal: np.ndarray) -> None:
    """Give node n one edge for each legal action; priors are the softmax of the legal logits. logits, legal: [A]."""
    highest = np.float32(-np.inf)
    for a in range(len(legal)):
        if legal[a]:
            highest = max(highest, logits[a])
    first = trees.tree[b].edges_used
    count = 0
    total = 0.0
    for a in range(len(legal)):
        if legal[a]:
            edge = trees.edge[b, first + count]
            weight = np.exp(logits[a] - highest)
            edge.edge_value_sum = 0.0
            edge.edge_visits = 0
            edge.edge_child = NO_CHILD
            edge.edge_prior = weight
            edge.edge_action = a
            edge.edge_exact = False
            total += weight
            count += 1
    for e in range(first, first + count):
        trees.edge[b, e].edge_prior /= total
    trees.node[b, n].first_edge = first
    trees.node[b, n].edge_count = count
    trees.tree[b].edges_used = first + count


@inlined()
def bring_forward(trees: Trees, b: int, n: int, e: int) -> None:
    """Move the edge with the largest prior, the first of equals, of edge e and those behind it of node n, to e; the
    others keep their order. None of them was visited, so only their priors and actions differ. It stops at an edge that
    was visited, of a rule that does not take edges in this order."""
    end = np.int64(trees.node[b, n].first_edge) + trees.node[b, n].edge_count
    if e >= end or trees.edge[b, e].edge_visits > 0:
        return
    best = e
    for other in range(e + 1, end):
        if trees.edge[b, other].edge_visits > 0:
            break
        if trees.edge[b, other].edge_prior > trees.edge[b, best].edge_prior:
            best = other
    if best > e:
        prior, action = trees.edge[b, best].edge_prior, trees.edge[b, best].edge_action
        for to in range(best, e, -1):
            trees.edge[b, to].edge_prior = trees.edge[b, to - 1].edge_prior
            trees.edge[b, to].edge_action = trees.edge[b, to - 1].edge_action
        trees.edge[b, e].edge_prior, trees.edge[b, e].edge_action = prior, action


@inlined()
def note_visit(trees: Trees, b: int, n: int, e: int) -> None:
    """Keep the order of the edges of node n after a visit of edge e."""
    if n > 0 and trees.edge[b, e].edge_visits == 1 and not trees.node[b, n].chance:
        bring_forward(trees, b, n, e + 1)


@inlined()
def exact_edge(trees: Trees, b: int, n: int, e: int) -> tuple[bool, float]:
    """Return (whether the result of edge e of node n is known, that result for the player who chooses the edge).

    n is an int64 in every call: for an int32 Numba would compile this once more.
    """
    if not trees.edge[b, e].edge_exact:
        return False, 0.0
    child = trees.edge[b, e].edge_child
    node = trees.node[b, child]
    player = trees.node[b, n].player
    if trees.several.shape[2] > 0:
        return True, np.float32(trees.several[b, child, player])
    return True, node.exact_value if node.player == player else -node.exact_value


@inlined()
def prove(trees: Trees, b: int, n: int) -> bool:
    """Mark node n as exact if its edges show its result; return whether they do."""
    node = trees.node[b, n]
    best = -np.inf
    best_child = np.int64(NO_CHILD)
    best_action = -1  # of equals the first action counts: with several players their results may differ
    unknown = False
    for e in range(node.first_edge, node.first_edge + node.edge_count):
        known, value = exact_edge(trees, b, n, e)
        if not known:
            unknown = True
        elif value > best or (value == best and trees.edge[b, e].edge_action < best_action):
            best = value
            best_action = trees.edge[b, e].edge_action
            best_child = np.int64(trees.edge[b, e].edge_child)
    if unknown and best < WIN:
        return False
    node.exact = True
    node.exact_value = best
    for p in range(trees.several.shape[2]):
        trees.several[b, n, p] = trees.several[b, best_child, p]
    return True


@njit(cache=True, nogil=True)
def child_of_root(trees: Trees, b: int, action: int) -> int:
    """Return the child of the root after `action`, or NO_CHILD if no simulation went there."""
    first = trees.node[b, 0].first_edge
    for e in range(first, first + trees.node[b, 0].edge_count):
        if trees.edge[b, e].edge_action == action:
            return trees.edge[b, e].edge_child
    return NO_CHILD
