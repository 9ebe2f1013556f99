"""PUCT search (Silver et al. 2018, "A general reinforcement learning algorithm…") over a batch of trees in lock step.

One `step` runs one simulation in every tree it is given: select a leaf, evaluate all leaves as one batch, expand, back
up. A simulation that ends where the game ends backs up the exact result and asks for no evaluation.
"""

import math

import numpy as np
from numba import njit

from az_mpi.search import streams, tree
from az_mpi.search.tree import NO_CHILD


class Search:
    """Trees for `num_trees` games, called slots.

    game: a `Game`. evaluate: states [n, S] -> (logits float32 [n, A], value float32 [n] for the player to move).
    settings: `config.search`. noise: mix Dirichlet noise into the root's priors (self-play, not matches).
    """

    def __init__(self, game, evaluate, settings, num_trees, noise):
        self.game, self.evaluate, self.settings, self.noise = game, evaluate, settings, noise
        # Each simulation adds at most one node to the root; carried nodes were counted when they were visited.
        self.trees = tree.allocate(game, num_trees, settings.simulations + 1)
        self.streams = np.zeros(num_trees, np.uint64)
        self._noise_due = np.zeros(num_trees, np.bool_)
        self._exploration = exploration_table(settings)

    def reset(self, slots, states, stream_words):
        """Start new trees at `states` [n, S], drawing from the random streams `stream_words`, uint64 [n]."""
        ended, _ = self.game.terminal(states)
        tree.reset(self.trees, slots, states, self.game.to_play(states), ended)
        self.streams[slots] = stream_words
        self._noise_due[slots] = self.noise

    def step(self, slots):
        """Run one simulation in the tree of each slot; slots: int64 [n], all different."""
        trees, game = self.trees, self.game
        self._mix_noise(slots)  # into roots that were searched before they became roots
        root_reduction = 0.0 if self.noise else self.settings.fpu_reduction
        node, action = _select(trees, slots, self._exploration, self.settings.fpu_reduction, root_reduction)
        states = trees.state[slots, node]
        new = action >= 0
        states[new] = game.play(states[new], action[new])
        ended, value = game.terminal(states)
        live = ~ended
        live_states = states[live]
        logits = np.empty((0, game.num_actions), np.float32)
        if len(live_states):
            logits, value[live] = self.evaluate(live_states)
        legal, player = game.legal(live_states), game.to_play(states)
        _expand_and_backup(trees, slots, node, action, states, player, ended, value, logits, legal)
        self._mix_noise(slots)

    def _mix_noise(self, slots):
        if self.noise:
            alpha, fraction = self.settings.dirichlet_alpha, self.settings.dirichlet_fraction
            _mix_noise(self.trees, slots, self._noise_due, self.streams, alpha, fraction)

    def run(self, slots):
        """Simulate until `simulations` have gone through every slot's root, those carried over included."""
        while len(slots := slots[~self.done(slots)]):
            self.step(slots)

    def done(self, slots):
        """Return whose search is complete, bool [n]."""
        # The first visit is the root's own evaluation; each simulation after it descends one edge.
        return self.trees.visits[slots, 0] > self.settings.simulations

    def visits(self, slots):
        """Return N(root, a), int32 [n, A]; 0 for illegal actions."""
        return _root_visits(self.trees, slots, self.game.num_actions)

    def value(self, slots):
        """Return the mean value of each root for its player to move, float32 [n]."""
        trees = self.trees
        return (trees.value_sum[slots, 0] / np.maximum(trees.visits[slots, 0], 1)).astype(np.float32)

    def choose(self, slots, temperature):
        """Draw an action a slot from N(root, a)^(1/temperature), int64 [n]; at temperature 0 the most visited."""
        return _choose(self.visits(slots), slots, temperature, self.streams)

    def advance(self, slots, actions):
        """Play an action in each slot; what was searched below it is kept if `reuse_tree`, else dropped."""
        trees = self.trees
        states = self.game.play(trees.state[slots, 0], actions)
        kept = _advance(trees, slots, actions) if self.settings.reuse_tree else np.zeros(len(slots), np.bool_)
        fresh = slots[~kept]
        ended, _ = self.game.terminal(states[~kept])
        tree.reset(trees, fresh, states[~kept], self.game.to_play(states[~kept]), ended)
        self._noise_due[slots] = self.noise


def exploration_table(settings):
    """Return c(s) sqrt(N(s)) for each visit count N(s), float32 [simulations + 2].

    c(s) = log((1 + N(s) + c_base) / c_base) + c_init. N(s) counts the node's own evaluation, so that the first choice
    at a node follows the priors; the paper's sum over the children would make every term 0 there.
    """
    n = np.arange(settings.simulations + 2, dtype=np.float64)
    rate = np.log((1.0 + n + settings.c_puct_base) / settings.c_puct_base) + settings.c_puct
    return (rate * np.sqrt(n)).astype(np.float32)


@njit(cache=True, nogil=True)
def best_edge(trees, b, node, exploration, fpu_reduction):
    """Return the edge with the highest Q(s, a) + c(s) P(s, a) sqrt(N(s)) / (1 + N(s, a)); the first of equals.

    First-play urgency: an unvisited action counts as Q = V(s) - fpu_reduction sqrt(sum of the visited priors).
    """
    first = trees.first_edge[b, node]
    last = first + trees.edge_count[b, node]
    visited = 0.0
    for e in range(first, last):
        if trees.edge_visits[b, e] > 0:
            visited += trees.edge_prior[b, e]
    visits = trees.visits[b, node]
    unvisited_q = trees.value_sum[b, node] / visits - fpu_reduction * math.sqrt(visited)
    scale = exploration[visits]
    best, best_score = first, -np.inf
    for e in range(first, last):
        n = trees.edge_visits[b, e]
        q = trees.edge_value_sum[b, e] / n if n > 0 else unvisited_q
        score = q + scale * trees.edge_prior[b, e] / (1 + n)
        if score > best_score:
            best, best_score = e, score
    return best


@njit(cache=True, nogil=True)
def _select(trees, slots, exploration, fpu_reduction, root_reduction):
    """Descend each tree. Return (node int64 [n], action int64 [n]): action >= 0 asks for a new child of node, and -1
    says that the leaf is the node itself: an ended game or a root that is not expanded yet."""
    nodes, actions = np.empty(len(slots), np.int64), np.full(len(slots), -1, np.int64)
    for i in range(len(slots)):
        b, node, depth = slots[i], 0, 0
        while trees.edge_count[b, node] > 0:
            e = best_edge(trees, b, node, exploration, root_reduction if node == 0 else fpu_reduction)
            trees.path[b, depth] = e
            depth += 1
            child = trees.edge_child[b, e]
            if child == NO_CHILD:
                actions[i] = trees.edge_action[b, e]
                break
            node = child
        nodes[i] = node
        trees.path_length[b] = depth
    return nodes, actions


@njit(cache=True, nogil=True)
def _expand_and_backup(trees, slots, nodes, actions, states, player, ended, value, logits, legal):
    """Add the new leaves, expand those in play (rows of logits and legal, in order) and back up every value."""
    row = 0
    for i in range(len(slots)):
        b, leaf = slots[i], nodes[i]
        if actions[i] >= 0:
            leaf = tree.add_node(trees, b, nodes[i], states[i], player[i], ended[i])
            trees.edge_child[b, trees.path[b, trees.path_length[b] - 1]] = leaf
        if not ended[i]:
            tree.expand(trees, b, leaf, logits[row], legal[row])
            row += 1
        tree.backup(trees, b, leaf, value[i])


@njit(cache=True, nogil=True)
def _mix_noise(trees, slots, due, random, alpha, fraction):
    """P(root, a) <- (1 - fraction) P(root, a) + fraction Dir(alpha / legal actions), once a root, once expanded."""
    for b in slots:
        count = trees.edge_count[b, 0]
        if not due[b] or count == 0:
            continue
        due[b] = False
        first = trees.first_edge[b, 0]
        noise = np.empty(count)
        for k in range(count):
            noise[k] = streams.gamma(random, b, alpha / count)
        total = noise.sum()
        if total == 0.0:  # an alpha so small that every draw underflows
            continue
        noise /= total
        for k in range(count):
            trees.edge_prior[b, first + k] = (1 - fraction) * trees.edge_prior[b, first + k] + fraction * noise[k]


@njit(cache=True, nogil=True)
def _root_visits(trees, slots, num_actions):
    visits = np.zeros((len(slots), num_actions), np.int32)
    for i in range(len(slots)):
        b = slots[i]
        first = trees.first_edge[b, 0]
        for e in range(first, first + trees.edge_count[b, 0]):
            visits[i, trees.edge_action[b, e]] = trees.edge_visits[b, e]
    return visits


@njit(cache=True, nogil=True)
def _choose(visits, slots, temperature, random):
    actions = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        best = np.argmax(visits[i])
        actions[i] = best
        if temperature[i] > 0:
            # Relative to the most visited, so that a low temperature cannot overflow.
            weights = (visits[i] / visits[i, best]) ** (1.0 / temperature[i])
            mark = streams.uniform(random, slots[i]) * weights.sum()
            for a in range(len(weights)):
                mark -= weights[a]
                if weights[a] > 0:
                    actions[i] = a
                    if mark < 0:
                        break
    return actions


@njit(cache=True, nogil=True)
def _advance(trees, slots, actions):
    """Reroot where the action was searched; return where it was, bool [n]."""
    kept = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        child = tree.child_of_root(trees, slots[i], actions[i])
        if child != NO_CHILD:
            tree.reroot(trees, slots[i], child)
            kept[i] = True
    return kept
