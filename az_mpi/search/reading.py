"""What a search has found about the moves at its root, in a form for people and other programs."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from az_mpi.search.proof_length import proof_lengths
from az_mpi.search.tree import NO_CHILD

if TYPE_CHECKING:
    from az_mpi.search.puct import Search


class RootMove(NamedTuple):
    """One move at the root of a search.

    visits: the simulations that went through it. share: its probability in the search's policy.
    value: in [-1, 1] for the player to move at the root, None if unvisited; exact: whether that is a proven result.
    prior: of the network. variation: the principal variation, which begins with the move itself; after a proven result
    the shortest win and the longest defence that the tree has proven.
    """

    action: int
    visits: int
    share: float
    value: float | None
    exact: bool
    prior: float
    variation: list[int]


def root_moves(search: "Search", b: int) -> list[RootMove]:
    """Return all moves at the root of tree b, best first: the first is the one that the search would play, and of
    several that are proven to win or to lose the one that wins soonest or loses latest. The list is empty until the
    root has been evaluated."""
    trees = search.trees
    slots = np.array([b])
    node = trees.node[b, 0]
    moves = []
    if not node["edge_count"]:
        return []
    _, actions, probabilities = search.policy(slots)
    shares = dict(zip(actions.tolist(), probabilities.tolist()))
    best = int(search.choose(slots, np.zeros(1))[0])
    edges = trees.edge[b, node["first_edge"] : node["first_edge"] + node["edge_count"]]
    lengths = proof_lengths(trees, b) if edges["edge_exact"].any() else None
    for k in range(int(node["edge_count"])):
        edge = trees.edge[b, node["first_edge"] + k]
        visits = int(edge["edge_visits"])
        child = int(edge["edge_child"])
        value, exact = _value(trees, b, 0, edge)
        below = [] if child == NO_CHILD else _variation(trees, b, child, lengths)
        action = int(edge["edge_action"])
        moves.append(
            RootMove(action, visits, shares.get(action, 0.0), value, exact, float(edge["edge_prior"]), [action, *below])
        )
    if node["exact"] and node["exact_value"]:
        best = _by_length(moves, float(node["exact_value"]), best)
    # Among moves that the search would not play, visits and priors tell.
    return sorted(
        moves,
        key=lambda move: (
            move.action != best,
            -move.share,
            0 if move.share else -move.visits,
            0 if move.share else -move.prior,
        ),
    )


def _by_length(moves, value, best):
    """Return the action that reaches a proven win soonest, or loses latest; of equals `best` if it is among them, else
    the first."""
    reach = [move for move in moves if (move.value, move.exact) == (value, True)]
    sign = 1 if value > 0 else -1
    return min(reach, key=lambda move: (sign * len(move.variation), move.action != best)).action if reach else best


def _value(trees, b, n, edge):
    """Return (the value of an edge of node n for the player to move there, whether it is proven)."""
    if not edge["edge_visits"]:
        return None, False
    if edge["edge_exact"]:
        child = trees.node[b, edge["edge_child"]]
        if trees.several.shape[2]:
            # As `tree.exact_edge` does: results of nodes are float32, and the expectations here are not.
            return float(np.float32(trees.several[b, edge["edge_child"], trees.node[b, n]["player"]])), True
        same = child["player"] == trees.node[b, n]["player"]
        return float(child["exact_value"] if same else -child["exact_value"]), True
    return float(edge["edge_value_sum"] / edge["edge_visits"]), False


def _variation(trees, b, n, lengths):
    """Return the actions that the search expects from node n on, up to a move of chance: the most visited ones, and at
    a node with a known result those of its proof. lengths: of `proof_lengths`, or None if no move at the root is
    proven."""
    actions = []
    while n != NO_CHILD and trees.node[b, n]["edge_count"] and not trees.node[b, n]["chance"]:
        node = trees.node[b, n]
        edges = trees.edge[b, node["first_edge"] : node["first_edge"] + node["edge_count"]]
        visits = edges["edge_visits"]
        if node["exact"]:
            reach = np.array([_value(trees, b, n, edge) == (float(node["exact_value"]), True) for edge in edges])
            if lengths is not None and lengths[n] > 0:
                reach &= lengths[edges["edge_child"]] + 1 == lengths[n]
            visits = np.where(reach, visits, 0)
        best = edges[np.argmax(visits)]
        if not best["edge_visits"]:
            break
        actions.append(int(best["edge_action"]))
        n = int(best["edge_child"])
    return actions
