"""PUCT search (Silver et al. 2018, "A general reinforcement learning algorithm…") over a batch of trees in lock step.

One `step` runs one simulation in every tree it is given: select a leaf, evaluate all leaves as one batch, expand, back
up. A simulation that reaches a node whose result is known, by the rules or by proof, backs up that result and needs no
evaluation. A proven loss is chosen only if all other actions are proven losses too. A root whose result is known is not
searched further.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit, prange
from numba.extending import overload

from az_mpi.search import root, tree
from az_mpi.search.tree import NO_CHILD, WIN

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.games.base import Game
    from az_mpi.network.evaluators import Evaluator

LAST = 1e6  # -LAST, below any score, is the Q of a proven loss


class Rule(NamedTuple):
    """How PUCT chooses among a node's edges: `exploration_table`, and the first-play urgency below the root and at it.

    The kernels of a search take such a tuple. Its type selects, when they are compiled, what `choose_edge` does."""

    exploration: np.ndarray
    reduction: float
    root_reduction: float


class Search:
    """Trees for `num_trees` games, called slots.

    noise: explore at the root as self-play does, by Dirichlet noise in its priors; matches do not. threads: of the
    kernels. target: the simulations that each slot's search takes, int32 [B]; no more than there is room for.
    """

    def __init__(self, game: Game, evaluate: Evaluator, settings: schema.Search, num_trees: int, noise: bool,
                 threads: int = 1):
        self.game, self.evaluate, self.settings, self.noise = game, evaluate, settings, noise
        # Each simulation adds at most one node to the root; carried nodes were counted when they were visited.
        self.trees = tree.allocate(game, num_trees, settings.simulations + 1)
        self.target = np.full(num_trees, settings.simulations, np.int32)
        self.streams = np.zeros(num_trees, np.uint64)
        self._noise_due = np.zeros(num_trees, np.bool_)
        self._rule = self._make_rule()
        self._noise = self._noise_due, self.streams, settings.dirichlet_alpha, settings.dirichlet_fraction
        self._select, self._complete = (_select, _complete) if threads == 1 else (_select_parallel, _complete_parallel)

    def _make_rule(self):
        reduction = self.settings.fpu_reduction
        return Rule(exploration_table(self.settings), reduction, 0.0 if self.noise else reduction)

    def reset(self, slots: np.ndarray, states: np.ndarray, stream_words: np.ndarray) -> None:
        """Start new trees at `states` [n, S], with the random streams `stream_words`, uint64 [n]."""
        self._start(slots, states)
        self.streams[slots] = stream_words
        self._begin_search(slots)

    def _begin_search(self, slots):
        """Prepare for the first simulation from a new root."""
        self._noise_due[slots] = self.noise

    def step(self, slots: np.ndarray) -> None:
        """Run one simulation in the tree of each slot; slots: int64 [n], all different."""
        self.begin(slots)()

    def begin(self, slots: np.ndarray) -> Callable[[], None]:
        """Begin one simulation in the tree of each slot and return a function that completes it; the evaluator may work
        in between. Until then nothing else may use these slots."""
        game = self.game
        slots, nodes, actions, states, leaves_num = self._select(
            self.trees, slots, self._rule, self._noise)
        states[:leaves_num] = game.play(states[:leaves_num], actions[:leaves_num])
        ended, value = game.terminal(states)
        live = ~ended
        live_states = states[live]
        evaluation = self.evaluate.begin(live_states) if len(live_states) else None
        legal, player = game.legal(live_states), game.to_play(states)

        def complete():
            logits = np.empty(legal.shape, np.float32)
            if evaluation:
                logits, value[live] = evaluation()
            simulations = slots, nodes, actions, states, player, ended, value, logits, legal, self._noise
            if needed := self._complete(self.trees, *simulations):
                self.trees = tree.widened(self.trees, needed)
                self._complete(self.trees, *simulations)

        return complete

    def run(self, slots: np.ndarray) -> None:
        """Simulate until every slot's search is complete."""
        while len(slots := slots[~self.done(slots)]):
            self.step(slots)

    def done(self, slots: np.ndarray) -> np.ndarray:
        """Return which searches are complete, bool [n]: `target` simulations have gone through the root, including
        those that were carried over, or the root's result is known."""
        node = self.trees.node[slots, 0]
        # The first visit is the root's own evaluation; each simulation after it descends one edge.
        return (node["visits"] > self.target[slots]) | node["exact"]

    def policy(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the policy targets: (the number of actions of each root with a probability, int32 [n]; these actions,
        int32 [M], in order, root by root; their probabilities, float32 [M]).

        A probability is the action's share of the visits that count, see `root.counts`."""
        return root.policy(self.trees, slots)

    def value(self, slots: np.ndarray) -> np.ndarray:
        """Return the value of each root for the player to move, float32 [n]: its result if known, else the mean."""
        node = self.trees.node[slots, 0]
        mean = node["value_sum"] / np.maximum(node["visits"], 1)
        return np.where(node["exact"], node["exact_value"], mean).astype(np.float32)

    def choose(self, slots: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        """Draw an action for each slot from policy^(1/temperature), int64 [n]; at temperature 0 the most visited one.
        temperature: float [n]."""
        return root.choose(self.trees, slots, temperature, self.streams)

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        """Play an action in each slot. The subtree below it is kept if `reuse_tree`, else dropped."""
        states = self.game.play(self.trees.state[slots, 0], actions)
        kept = root.advance(self.trees, slots, actions) if self.settings.reuse_tree else np.zeros(len(slots), np.bool_)
        self._start(slots[~kept], states[~kept])
        self._begin_search(slots)

    def _start(self, slots, states):
        ended, value = self.game.terminal(states)
        tree.reset(self.trees, slots, states, self.game.to_play(states), ended, value)


def exploration_table(settings: schema.Search) -> np.ndarray:
    """Return c(s) sqrt(N(s)) for each visit count N(s), float32 [simulations + 2].

    c(s) = log((1 + N(s) + c_base) / c_base) + c_init. N(s) counts the node's own evaluation, so that the first choice
    at a node follows the priors; the paper's sum over the children would make every term 0 there.
    """
    n = np.arange(settings.simulations + 2, dtype=np.float64)
    rate = np.log((1.0 + n + settings.c_puct_base) / settings.c_puct_base) + settings.c_puct
    return (rate * np.sqrt(n)).astype(np.float32)


@njit(cache=True, nogil=True)
def best_edge(trees: tree.Trees, b: int, n: int, exploration: np.ndarray, fpu_reduction: float) -> int:
    """Return the edge with the highest Q(s, a) + c(s) P(s, a) sqrt(N(s)) / (1 + N(s, a)); the first of equals.

    First-play urgency: an unvisited action counts as Q = V(s) - fpu_reduction sqrt(sum of the visited priors).
    If the result behind an edge is known, Q is that result, and a loss comes after all other actions.
    """
    node = trees.node[b, n]
    first, last = node.first_edge, node.first_edge + node.edge_count
    visited = 0.0
    for e in range(first, last):
        if trees.edge[b, e].edge_visits > 0:
            visited += trees.edge[b, e].edge_prior
    unvisited_q = node.value_sum / node.visits - fpu_reduction * math.sqrt(visited)
    scale = exploration[node.visits]
    best, best_score = first, -np.inf
    for e in range(first, last):
        edge = trees.edge[b, e]
        q, visits = unvisited_q, edge.edge_visits
        if visits > 0:
            q = edge.edge_value_sum / visits
            known, value = tree.exact_edge(trees, b, n, e)
            if known:
                q = value if value > -WIN else -LAST
        score = q + scale * edge.edge_prior / (1 + visits)
        if score > best_score:
            best, best_score = e, score
    return best


def choose_edge(trees: tree.Trees, b: int, n: int, rule: tuple) -> int:
    """Return the edge of node n, int64, to descend in the simulation under way. For compiled code: a search adds an
    `overload` for the type of its rule."""
    raise NotImplementedError


@overload(choose_edge)
def _choose_by_puct(trees, b, n, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, n, rule: best_edge(
            trees, b, n, rule.exploration, rule.root_reduction if n == 0 else rule.reduction)
    return None


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
    """Return what `_select` does, from what `_descend` returned for each slot."""
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
def _select(trees, slots, rule, noise):
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
def _select_parallel(trees, slots, rule, noise):
    """`_select` over several threads. Not one function compiled twice: Numba's cache would mix them up."""
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
def _complete(trees, slots, nodes, actions, states, player, ended, value, logits, legal, noise):
    """Complete the simulations that `_select` returned and return 0. If the trees lack room for edges, change nothing
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
def _complete_parallel(trees, slots, nodes, actions, states, player, ended, value, logits, legal, noise):
    """`_complete` over several threads."""
    needed = tree.edges_needed(trees, slots, ended, legal)
    if needed > trees.edge.shape[1]:
        return needed
    rows = _rows(ended)
    for i in prange(len(slots)):
        _complete_one(trees, slots[i], nodes[i], actions[i], states[i], player[i], ended[i], value[i], logits, legal,
                      rows[i], noise)
    return 0
