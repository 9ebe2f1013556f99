"""Which of several moves that win alike is played: the one after which the game is expected to end soonest. Of moves
that lose alike it is the one after which the game lasts longest.

A network that is sure to win with many moves has nothing that leads it to an end, so it may never get there. Leela
Chess Zero adds a gain to the values of moves in its selection, by the network's head `moves_left` (pull request 961 of
LeelaChessZero/lc0, and the defaults of its release 0.26 for the constants here). Here the gain decides at the root
alone, after the search; what is proven needs none.
"""

from collections.abc import Callable, Iterator

import numpy as np

from az_mpi.search.tree import NO_CHILD, Trees

SURE = 0.8  # a position counts as won or lost if its value is beyond this
GAIN, GAIN_MAX = 0.0027, 0.0345  # of a move's value for each ply by which the game is shorter, and at most
TRIED = 0.1  # moves count that have this share of the visits of the search's own choice
NODES = 8  # of a move's subtree, the first ones in breadth, whose mean tells how long the game lasts


def choose(trees: Trees, b: int, action: int, plies_left: Callable[[np.ndarray], np.ndarray]) -> int:
    """Return the action to play at the root of tree b, of a game of two players without chance.

    action: the search's own choice. plies_left: gives the plies to the end of the game, float [n], at states [n, S]."""
    node = trees.node[b, 0]
    edges = trees.edge[b, node["first_edge"] : node["first_edge"] + node["edge_count"]]
    own = edges[edges["edge_action"] == action]
    if node["exact"] or not len(own) or not own["edge_visits"][0] or own["edge_exact"][0]:
        return action
    value = own["edge_value_sum"][0] / own["edge_visits"][0]
    if abs(value) <= SURE:
        return action
    tried = edges["edge_visits"] >= max(TRIED * own["edge_visits"][0], 1)
    values = edges["edge_value_sum"] / np.maximum(edges["edge_visits"], 1)
    alike = edges[tried & ~edges["edge_exact"] & (values > value - 2 * GAIN_MAX)]
    if len(alike) < 2:
        return action
    left = _lengths(trees, b, alike["edge_child"], plies_left)
    shorter = left[alike["edge_action"] == action] - left
    gains = np.sign(value) * np.clip(GAIN * shorter, -GAIN_MAX, GAIN_MAX)
    # A higher value is no reason to leave the search's choice, which has more visits: only the length is.
    gained = np.minimum(alike["edge_value_sum"] / alike["edge_visits"], value) + gains
    best = int(np.argmax(gained))
    return int(alike["edge_action"][best]) if gained[best] > value else action


def _lengths(trees, b, children, plies_left):
    """Return the mean plies to the end of the game after each move, float [n], by nodes below it. children: int [n]."""
    rows = [(k, n, plies) for k, child in enumerate(children) for n, plies in _below(trees, b, int(child))]
    which, nodes, plies = (np.array(column) for column in zip(*rows))
    open_ = ~trees.node["ended"][b, nodes]
    left = plies.astype(np.float64)
    if open_.any():
        left[open_] += plies_left(trees.state[b, nodes[open_]])
    return np.bincount(which, left) / np.bincount(which)


def _below(trees, b, child) -> Iterator[tuple[int, int]]:
    """Yield up to NODES of (node, plies from `child` to it), `child` first."""
    found = [(child, 0)]
    for n, plies in found:  # which grows
        yield n, plies
        node = trees.node[b, n]
        edges = trees.edge[b, node["first_edge"] : node["first_edge"] + node["edge_count"]]
        below = edges["edge_child"][edges["edge_child"] != NO_CHILD]
        found += [(int(n), plies + 1) for n in below[: NODES - len(found)]]
