"""Gumbel search (Danihelka et al. 2022, "Policy improvement by planning with Gumbel") over the trees of `puct`.

The root draws m actions without replacement, by Gumbel numbers on top of the log priors, and sequential halving divides
the simulations among them. Below it, visits follow the improved policy. That is also the training target:
pi'(a) = softmax(log P(a) + sigma(q(a))), where q(a) is `improved.completed` and sigma(q) = (c_visit + max_b N(b))
c_scale q, q on a scale from 0 to 1, or in the tree's range of values, see `tree.note_value`. Without noise the Gumbel
numbers are 0. Proven losses have probability 0 and are not visited.

A root that is searched beyond its target begins another round of sequential halving, as long as all before together.

In play a tree whose root has more than WIDE legal actions, or more than m, is searched by PUCT instead, and the most
visited action is played: PUCT looks at more of them the longer it searches, and was stronger there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from az_mpi.core.intrinsics import UNCOUNTED, apart, floats_on_stack, inlined, inner
from az_mpi.search import choices, improved, puct, puct_rule, root, streams, tree

WIDE = 16  # docs/results/2026-11-27-gumbel-in-play.md has what was measured
LEAST = 1e-6  # smaller parts of the largest probability are left out of the training target

# Of each tree: the round of sequential halving under way. What it visits next follows from the visits alone, so that
# several descents can be begun, or taken back, before one is completed.
# begun: simulations of the root before the round; length: of the round, 0: none was begun; num: of actions considered.
ROUND = np.dtype([("begun", "i4"), ("length", "i4"), ("num", "i4")], align=True)
# An action of the round: its Gumbel number and its log P; its edge, counted from the root's first; its visits before.
CONSIDERED = np.dtype([("gumbel", "f8"), ("log_prior", "f8"), ("edge", "i4"), ("before", "i4")], align=True)


class Rule(NamedTuple):
    """How Gumbel search chooses among a node's edges. round ROUND [B], considered CONSIDERED [B, m], target int32 [B],
    streams uint64 [B], explores bool [B]: for which slots Gumbel numbers are drawn. A tree whose root has
    more than `wide` edges is searched by PUCT, with `exploration` and `reduction` as in `puct_rule.Rule`."""

    c_visit: float
    c_scale: float
    wide: int
    exploration: np.ndarray
    reduction: float
    round: np.ndarray
    considered: np.ndarray
    target: np.ndarray
    streams: np.ndarray
    explores: np.ndarray


choices.BEGIN_WITH_PRIOR.add(Rule)


class Search(puct.Search):
    """Gumbel search. noise: draw Gumbel numbers (self-play)."""

    def _make_rule(self):
        settings = self.settings
        num_trees = len(self.target)
        considered = np.zeros((num_trees, settings.gumbel_actions), CONSIDERED)
        return Rule(
            settings.gumbel_c_visit,
            settings.gumbel_c_scale,
            tree.MOST_ACTIONS,
            puct_rule.exploration_table(settings),
            settings.fpu_reduction,
            np.zeros(num_trees, ROUND),
            considered,
            self.target,
            self.streams,
            self.explores,
        )

    def adapt_to_play(self) -> None:
        """Also search positions with more than WIDE moves, or than `gumbel_actions`, by PUCT."""
        super().adapt_to_play()
        if isinstance(self.rule, Rule):  # not a subclass's own
            self.rule = self.rule._replace(wide=min(self.settings.gumbel_actions, WIDE))

    def _begin_search(self, slots):
        super()._begin_search(slots)
        self._noise_due[slots] = False  # Dirichlet noise
        self.rule.round[slots] = 0

    def keep_priors(self) -> None:
        """Do nothing: its priors have no noise."""

    def _policy(self, slots):
        return _policy(self._in_bytes, slots, self.rule)

    def value(self, slots: np.ndarray) -> np.ndarray:
        """Return the value of each root for the player to move, float32 [n]: its result if known, else what the
        improved policy expects. The mean over simulations, which PUCT takes, would count the actions that halving
        drops."""
        return _value(self._in_bytes, slots, self.rule)

    def choose(self, slots: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        """Return an action for each slot, int64 [n]: of those most visited in the round, the one with the largest
        Gumbel number + log P + sigma(q).

        temperature: float [n]. Below 1 the Gumbel number counts times the temperature, and all actions of the round are
        compared, as noise chose the most visited ones: a sample of the improved policy at about that temperature."""
        return self._as_played(slots, _choose(self._in_bytes, slots, self.rule, temperature))


choices.DECIDED.add(Search)


@overload(choices.choose_edge, jit_options=UNCOUNTED)
def _choose_by_gumbel(trees, b, n, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, n, rule: (
            puct_rule.best_edge(trees, b, n, rule.exploration, rule.reduction)
            if _is_wide(trees, b, rule)
            else _root_edge(trees, b, rule)
            if n == 0
            else improved.next_edge(trees, b, n, rule)
        )
    return None


@inlined()
def _is_wide(trees, b, rule):
    """Return whether a tree is searched by PUCT."""
    return trees.node[b, 0].edge_count > rule.wide


@inlined()
def _logits(trees, b, rule, logits):
    """Write log P(a) + s q(a) of each edge of the root into logits, float32 [edges]; -inf if it is not `playable`. s:
    `improved.scale`."""
    n = np.int64(0)
    node = trees.node[b, n]
    factor = improved.scale(trees, b, improved.completed(trees, b, n, logits), rule)
    for k in range(node.edge_count):
        prior = max(trees.edge[b, node.first_edge + k].edge_prior, improved.TINY)
        good = root.playable(trees, b, n, node.first_edge + k)
        logits[k] = math.log(prior) + factor * logits[k] if good else -np.inf


@overload(choices.prepare_root, jit_options=UNCOUNTED)
def _prepare_for_gumbel(trees, b, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, rule: _prepare(trees, b, rule)
    return None


@inner()
def _prepare(trees, b, rule):
    """Begin a round if none is under way, or all actions of this one are proven losses."""
    node = trees.node[b, 0]
    this = rule.round[b]
    open_ones = 0
    if node.edge_count == 0 or node.exact or _is_wide(trees, b, rule):
        return
    for i in range(this.num):
        open_ones += root.playable(trees, b, np.int64(0), node.first_edge + rule.considered[b, i].edge)
    if open_ones == 0 or node.visits - 1 - this.begun >= this.length:
        _begin_round(trees, b, rule)


@apart()
def _begin_round(trees, b, rule):
    """Draw the actions that a round considers, in the order of the edges."""
    node = trees.node[b, 0]
    this = rule.round[b]
    logits = floats_on_stack()
    numbers = floats_on_stack()
    chosen = floats_on_stack()  # 1 or 0
    _logits(trees, b, rule, logits)
    for k in range(node.edge_count):
        numbers[k] = 0.0
        chosen[k] = 0.0
    if rule.explores[b]:
        for k in range(node.edge_count):
            numbers[k] = -math.log(-math.log(max(streams.uniform(rule.streams, b), 1e-300)))
    num = 0
    while num < rule.considered.shape[1]:
        best = -1
        best_score = -np.inf
        for k in range(node.edge_count):
            if chosen[k] == 0 and numbers[k] + logits[k] > best_score:
                best = k
                best_score = numbers[k] + logits[k]
        if best < 0:
            break
        chosen[best] = 1.0
        num += 1
    at = 0
    for k in range(node.edge_count):
        if chosen[k] != 0:
            considered = rule.considered[b, at]
            edge = trees.edge[b, node.first_edge + k]
            considered.gumbel, considered.log_prior = numbers[k], math.log(max(edge.edge_prior, improved.TINY))
            considered.edge, considered.before = k, edge.edge_visits
            at += 1
    this.begun, this.num = node.visits - 1, num
    this.length = rule.target[b] - this.begun if rule.target[b] > this.begun else max(this.begun, 1)


@inlined()
def level(num: int, length: int, k: int) -> int:
    """Simulation k of a round, from 0 on, visits an action: return how many visits that action has had in the round
    before. The round has `length` simulations and considers `num` actions.

    Sequential halving: in a sweep each of the best `width` actions gets a visit. The width is num at first, and is
    halved until it is 2; each width gets an equal share of the simulations (Danihelka et al. 2022, section 3.3)."""
    width = num
    visits = 0
    halvings = 1
    while 1 << halvings < num:
        halvings += 1
    while True:
        sweeps = max(length // (halvings * width), 1)
        if k < sweeps * width:
            return visits + k // width
        k -= sweeps * width
        visits += sweeps
        width = max(width // 2, min(width, 2))


@inner()
def _root_edge(trees, b, rule):
    """Return the root's edge that sequential halving visits next. Descents beyond the round's end, of several that were
    begun together, continue its sweeps."""
    node = trees.node[b, 0]
    this = rule.round[b]
    k = node.visits - 1 - this.begun
    best = _best_considered(trees, b, rule, level(this.num, this.length, k), 1.0)
    return np.int64(node.first_edge + rule.considered[b, best].edge)


@inlined()
def _visits(trees, b, rule, i):
    """Return the visits in the round of action i of those considered."""
    considered = rule.considered[b, i]
    return trees.edge[b, trees.node[b, 0].first_edge + considered.edge].edge_visits - considered.before


@inner()
def _best_considered(trees, b, rule, visits, temperature):
    """Return the index of the best of the actions considered; -1 if none is playable.

    Actions with so many `visits` in the round come before all others. Of two such, or of two others, the better one has
    the larger temperature * Gumbel number + log P + sigma(q); of equals it is the first."""
    n = np.int64(0)
    q = floats_on_stack()
    factor = improved.scale(trees, b, improved.completed(trees, b, n, q), rule)
    best = -1
    best_score = -np.inf
    best_due = False
    for i in range(rule.round[b].num):
        considered = rule.considered[b, i]
        if root.playable(trees, b, n, trees.node[b, n].first_edge + considered.edge):
            score = temperature * considered.gumbel + considered.log_prior + factor * q[considered.edge]
            due = _visits(trees, b, rule, i) == visits
            if best < 0 or (due and not best_due) or (due == best_due and score > best_score):
                best = i
                best_due = due
                best_score = score
    return best


@njit(cache=True, nogil=True)
def _policy(trees, slots, rule):
    """Return what `puct_rule.policy` does, of the improved policy."""
    nums, actions, probabilities = root.policy_room(trees, slots)
    m = 0
    policy = floats_on_stack()
    for i in range(len(slots)):
        if trees.node[slots[i], 0].edge_count > 0:
            _weigh(trees, slots[i], rule, policy)
            nums[i] = root.write_policy(trees, slots[i], policy, actions[m:], probabilities[m:])
            m += nums[i]
    return nums, actions[:m], probabilities[:m]


@inner()
def _weigh(trees, b, rule, policy):
    """Write the weights of the root's actions in the policy target."""
    n = np.int64(0)
    if _is_wide(trees, b, rule):
        root.counted(trees, b, policy)
        return
    most = improved.completed(trees, b, n, policy)
    improved.improve(trees, b, n, improved.scale(trees, b, most, rule), policy)
    num = trees.node[b, n].edge_count
    least = LEAST * policy[root.largest(policy, num)]
    for k in range(num):
        policy[k] = policy[k] if policy[k] >= least else 0.0


@njit(cache=True, nogil=True)
def _value(trees, slots, rule):
    values = np.empty(len(slots), np.float32)
    for i in range(len(slots)):
        values[i] = _root_value(trees, slots[i], rule)
    return values


@apart()
def _root_value(trees, b, rule):
    """Return what `Search.value` does, of tree b alone."""
    n = np.int64(0)
    node = trees.node[b, n]
    if node.exact:
        return np.float32(node.exact_value)
    if _is_wide(trees, b, rule):
        return np.float32(node.value_sum / node.visits)
    value = np.float32(0)
    if node.edge_count > 0:
        q = floats_on_stack()
        policy = floats_on_stack()
        factor = improved.scale(trees, b, improved.completed(trees, b, n, q), rule)
        for k in range(node.edge_count):
            policy[k] = q[k]
        improved.improve(trees, b, n, factor, policy)
        for k in range(node.edge_count):
            value += policy[k] * q[k]
    return value


@njit(cache=True, nogil=True)
def _choose(trees, slots, rule, temperature):
    actions = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        actions[i] = trees.edge[slots[i], _move_edge(trees, slots[i], rule, temperature[i])].edge_action
    return actions


@apart()
def _move_edge(trees, b, rule, temperature):
    """Return the edge whose action `Search.choose` returns."""
    node = trees.node[b, 0]
    numbers = floats_on_stack()
    most = 0
    if _is_wide(trees, b, rule):
        root.counted(trees, b, numbers)
        return np.int64(node.first_edge + root.largest(numbers, node.edge_count))
    for i in range(rule.round[b].num):
        if root.playable(trees, b, np.int64(0), node.first_edge + rule.considered[b, i].edge):
            most = max(most, _visits(trees, b, rule, i))
    cold = rule.explores[b] and temperature < 1
    best = _best_considered(trees, b, rule, -1 if cold else most, temperature if cold else 1.0)
    if best >= 0:
        return np.int64(node.first_edge + rule.considered[b, best].edge)
    _logits(trees, b, rule, numbers)  # no round has any action
    return np.int64(node.first_edge + root.largest(numbers, node.edge_count))


@overload(choices.begin_search, jit_options=UNCOUNTED)
def _begin_by_gumbel(b, explores, noise, rule):
    if rule.instance_class is Rule:
        return lambda b, explores, noise, rule: _begin(b, explores, noise, rule)
    return None


@inlined()
def _begin(b, explores, noise, rule):
    """Do what `Search._begin_search` does in self-play, of tree b alone."""
    noise.due[b] = False
    rule.round[b].begun = 0
    rule.round[b].length = 0
    rule.round[b].num = 0


@overload(choices.move_edge, jit_options=UNCOUNTED)
def _move_by_gumbel(trees, b, temperature, random, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, temperature, random, rule: _move_edge(trees, b, rule, temperature)
    return None


@overload(choices.weigh, jit_options=UNCOUNTED)
def _weigh_by_gumbel(trees, b, rule, weights):
    if rule.instance_class is Rule:
        return lambda trees, b, rule, weights: _weigh(trees, b, rule, weights)
    return None


@overload(choices.root_value, jit_options=UNCOUNTED)
def _value_by_gumbel(trees, b, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, rule: _root_value(trees, b, rule)
    return None
