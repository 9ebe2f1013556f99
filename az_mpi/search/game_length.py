"""Which of several moves that win alike is played: the one after which the game is expected to end soonest. Of moves
that lose alike it is the one after which the game lasts longest.

A network that is sure to win with many moves has nothing that leads it to an end, so it may never get there. Leela
Chess Zero adds a gain to the values of moves in its selection, by the network's head `moves_left` (pull request 961 of
LeelaChessZero/lc0, and the defaults of its release 0.26 for the constants here). Here the gain decides at the root
alone, after the search; what is proven needs none.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from az_mpi.search.tree import NO_CHILD, Trees

SURE = 0.8  # a position counts as won or lost if its value is beyond this
GAIN, GAIN_MAX = 0.0027, 0.0345  # of a move's value for each ply by which the game is shorter, and at most
TRIED = 0.1  # moves count that have this share of the visits of the search's own choice
# Nodes of a move's subtree whose mean tells how long the game lasts, at most, and the share of the search's visits that
# all of a position's moves may take: evaluating them takes time, too.
NODES_MAX, SHARE = 8, 1 / 8


class _Alike(NamedTuple):
    """The moves at a root that win, or lose, alike. edges: EDGE [n]. own: which of them is the search's choice. nodes:
    (number of the edge, node, plies from the edge's end to it) of each node to evaluate."""

    edges: np.ndarray
    own: int
    nodes: list[tuple[int, int, int]]


def choose(
    trees: Trees, slots: np.ndarray, actions: np.ndarray, plies_left: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return the actions to play at the roots of the trees `slots`, int64 [k], of games of two players without chance.

    actions: the search's own choices. plies_left: see `Evaluator.plies_left`; it is asked at most once."""
    found = {i: alike for i, slot in enumerate(slots) if (alike := _alike(trees, slot, actions[i]))}
    chosen = np.array(actions, np.int64)
    if not found:
        return chosen
    at = [(slots[i], node) for i, alike in found.items() for _, node, _ in alike.nodes]
    ended = np.array([trees.ended[place] for place in at])
    left = np.zeros(len(at))
    if not ended.all():
        left[~ended] = plies_left(np.stack([trees.state[place] for place, over in zip(at, ended) if not over]))
    ends = np.cumsum([len(alike.nodes) for alike in found.values()])
    for (i, alike), own_left in zip(found.items(), np.split(left, ends[:-1])):
        chosen[i] = _longest_or_shortest(alike, own_left)
    return chosen


def _longest_or_shortest(alike, left):
    """Return the action to play. left: the plies to the end of the game at each of the nodes."""
    edges, own = alike.edges, alike.own
    number, _, plies = np.array(alike.nodes).T
    lengths = np.bincount(number, plies + left) / np.bincount(number)
    values = edges["edge_value_sum"] / edges["edge_visits"]
    gains = np.sign(values[own]) * np.clip(GAIN * (lengths[own] - lengths), -GAIN_MAX, GAIN_MAX)
    # A higher value is no reason to leave the search's choice, which has more visits: only the length is.
    gained = np.minimum(values, values[own]) + gains
    best = int(np.argmax(gained))
    return edges["edge_action"][best if gained[best] > values[own] else own]


def _alike(trees, b, action):
    """Return the `_Alike` of tree b, None where the search's choice is played at once."""
    node = trees.node[b, 0]
    edges = _edges(trees, b, node)
    own = np.flatnonzero(edges["edge_action"] == action)
    if node["exact"] or not len(own) or not edges["edge_visits"][own[0]] or edges["edge_exact"][own[0]]:
        return None
    visits = edges["edge_visits"]
    values = edges["edge_value_sum"] / np.maximum(visits, 1)
    value = values[own[0]]
    tried = (visits >= max(TRIED * visits[own[0]], 1)) & ~edges["edge_exact"]
    rows = np.flatnonzero(tried & (values > value - GAIN_MAX))
    if abs(value) <= SURE or len(rows) < 2:
        return None
    most = max(min(int(SHARE * node["visits"] / len(rows)), NODES_MAX), 1)
    nodes = [(k, *one) for k, row in enumerate(rows) for one in _below(trees, b, edges["edge_child"][row], most)]
    return _Alike(edges[rows], int(np.flatnonzero(rows == own[0])[0]), nodes)


def _below(trees, b, child, most):
    """Return up to `most` of (node, plies from `child` to it): `child` first, then level by level, and of each node its
    most visited moves first."""
    found = [(int(child), 0)]
    for n, plies in found:  # which grows
        edges = _edges(trees, b, trees.node[b, n])
        edges = edges[edges["edge_child"] != NO_CHILD]
        order = np.argsort(-edges["edge_visits"], kind="stable")
        found += [(int(child), plies + 1) for child in edges["edge_child"][order[: most - len(found)]]]
        if len(found) >= most:
            break
    return found


def _edges(trees, b, node):
    return trees.edge[b, node["first_edge"] : node["first_edge"] + node["edge_count"]]
