"""How PUCT decides: the edge that a descent takes, the visits that count at the root, the policy target and the move.

Shapes: n slots, M actions of all slots together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from az_mpi.core.intrinsics import UNCOUNTED, floats_on_stack, inlined, inner
from az_mpi.search import choices, root, streams, tree
from az_mpi.search.tree import NO_CHILD, WIN

if TYPE_CHECKING:
    from az_mpi.config import schema

LAST = 1e6  # -LAST, below any score, is the Q of a proven loss


class Rule(NamedTuple):
    """How PUCT chooses among a node's edges: `exploration_table`, the reduction of first-play urgency, the factor of
    `forced_visits`, and the slots whose root explores, bool [B].

    The kernels of a search take such a tuple. Its type selects, when they are compiled, what `choices.choose_edge`
    and `choices.prepare_root` do."""

    exploration: np.ndarray
    reduction: float
    forced: float
    explores: np.ndarray


def exploration_table(settings: schema.Search) -> np.ndarray:
    """Return c(s) sqrt(N(s)) for each visit count N(s), float32 [simulations + 2].

    c(s) = log((1 + N(s) + c_base) / c_base) + c_init. N(s) counts the node's own evaluation, so that the first choice
    at a node follows the priors; the paper's sum over the children would make every term 0 there.
    """
    n = np.arange(settings.simulations + 2, dtype=np.float64)
    rate = np.log((1.0 + n + settings.c_puct_base) / settings.c_puct_base) + settings.c_puct
    return (rate * np.sqrt(n)).astype(np.float32)


@inlined()
def best_edge(trees: tree.Trees, b: int, n: int, exploration: np.ndarray, fpu_reduction: float) -> int:
    """Return the edge with the highest Q(s, a) + w c(s) P(s, a) sqrt(N(s)) / (1 + N(s, a)); the first of equals. w: the
    tree's `width`.

    First-play urgency: an unvisited action counts as Q = V(s) - w fpu_reduction sqrt(sum of the visited priors).
    If the result behind an edge is known, Q is that result, and a loss comes after all other actions.
    """
    node = trees.node[b, n]
    first = node.first_edge
    last = node.first_edge + node.edge_count
    visited = 0.0
    for e in range(first, last):
        if trees.edge[b, e].edge_child != NO_CHILD:
            visited += trees.edge[b, e].edge_prior
        elif n > 0 and trees.edge[b, e].edge_visits == 0:  # a visit under way, of several, has no child yet
            last = e + 1  # of the edges that were not visited the first has the largest prior
            break
    width = trees.tree[b].width
    unvisited_q = node.value_sum / node.visits - width * fpu_reduction * math.sqrt(visited)
    scale = width * exploration[node.visits]
    best = first
    best_score = -np.inf
    for e in range(first, last):
        edge = trees.edge[b, e]
        q = unvisited_q
        visits = edge.edge_visits
        if edge.edge_child != NO_CHILD:
            q = edge.edge_value_sum / visits
            known, value = tree.exact_edge(trees, b, n, e)
            if known:
                q = value if value > -WIN else -LAST
        score = q + scale * edge.edge_prior / (1 + visits)
        if score > best_score:
            best = e
            best_score = score
    return best


choices.BEGIN_WITH_PRIOR.add(Rule)


@overload(choices.prepare_root, jit_options=UNCOUNTED)
def _prepare_for_puct(trees, b, rule):
    return (lambda trees, b, rule: None) if rule.instance_class is Rule else None


@overload(choices.choose_edge, jit_options=UNCOUNTED)
def _choose_by_puct(trees, b, n, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, n, rule: (
            _exploring_edge(trees, b, n, rule)
            if n == 0 and rule.explores[b]
            else best_edge(trees, b, n, rule.exploration, rule.reduction)
        )
    return None


@inner()
def _exploring_edge(trees, b, n, rule):
    """Return the edge of a root that explores: the first that lacks forced visits, else the best, by first-play urgency
    without a reduction."""
    if rule.forced > 0:
        num = trees.node[b, n].visits - 1
        for e in range(trees.node[b, n].first_edge, trees.node[b, n].first_edge + trees.node[b, n].edge_count):
            edge = trees.edge[b, e]
            if 0 < edge.edge_visits < forced_visits(rule.forced, edge.edge_prior, num) and not edge.edge_exact:
                return np.int64(e)
    return best_edge(trees, b, n, rule.exploration, 0.0)


@inner()
def counts(trees: tree.Trees, b: int, rule: Rule, visits: np.ndarray) -> None:
    """Write what `root.counted` does, with forced visits taken off."""
    root.counted(trees, b, visits)
    if rule.forced > 0 and rule.explores[b]:
        _take_off_forced(trees, b, rule, visits)


@inlined()
def forced_visits(factor: float, prior: float, num: int) -> float:
    """Return the visits that an action of the root gets once it was tried (Wu 2019, "Accelerating Self-Play Learning in
    Go", section 3.2): sqrt(factor P(a) N). num: N, the visits of all actions."""
    return math.sqrt(factor * prior * num)


@inner()
def _take_off_forced(trees, b, rule, visits):
    """Policy target pruning (the same section): take from each action but the most visited one up to its forced visits,
    as long as its PUCT score stays below that one's. What has one visit left then has none."""
    node = trees.node[b, 0]
    best = root.largest(visits, node.edge_count)
    scale = trees.tree[b].width * rule.exploration[node.visits]
    num = node.visits - 1
    top = trees.edge[b, node.first_edge + best]
    if top.edge_visits == 0:
        return
    known, value = tree.exact_edge(trees, b, np.int64(0), node.first_edge + best)
    if not known:
        value = top.edge_value_sum / top.edge_visits
    highest = value + scale * top.edge_prior / (1 + top.edge_visits)
    for k in range(node.edge_count):
        edge = trees.edge[b, node.first_edge + k]
        if k == best or visits[k] == 0 or edge.edge_exact:
            continue
        gap = highest - edge.edge_value_sum / edge.edge_visits
        if gap > 0:
            least = max(visits[k] - forced_visits(rule.forced, edge.edge_prior, num), scale * edge.edge_prior / gap - 1)
            visits[k] = min(visits[k], max(math.ceil(least), 0))
        if visits[k] <= 1:
            visits[k] = 0


@njit(cache=True, nogil=True)
def policy(trees: tree.Trees, slots: np.ndarray, rule: Rule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (the number of actions with a probability, int32 [n]; these actions, int32 [M], in order, slot by slot;
    their shares of `counts`, float32 [M])."""
    nums, actions, probabilities = root.policy_room(trees, slots)
    m = 0
    weights = floats_on_stack()
    for i in range(len(slots)):
        counts(trees, slots[i], rule, weights)
        nums[i] = root.write_policy(trees, slots[i], weights, actions[m:], probabilities[m:])
        m += nums[i]
    return nums, actions[:m], probabilities[:m]


@njit(cache=True, nogil=True)
def choose(trees: tree.Trees, slots: np.ndarray, temperature: np.ndarray, random: np.ndarray, rule: Rule) -> np.ndarray:
    """Return an action for each slot, int64 [n], drawn from counts^(1 / temperature[i]); at 0 the first largest."""
    actions = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        actions[i] = trees.edge[slots[i], _drawn_edge(trees, slots[i], temperature[i], random, rule)].edge_action
    return actions


@inner()
def _drawn_edge(trees, b, temperature, random, rule):
    """Return the edge whose action `choose` returns."""
    visits = floats_on_stack()
    counts(trees, b, rule, visits)
    node = trees.node[b, 0]
    chosen = best = root.largest(visits, node.edge_count)
    if temperature > 0:
        total = 0.0
        for k in range(node.edge_count):
            total += _weight(visits[k], visits[best], temperature)
        mark = streams.uniform(random, b) * total
        for k in range(node.edge_count):
            if visits[k] > 0:
                weight = _weight(visits[k], visits[best], temperature)
                mark -= weight
                if weight > 0:
                    chosen = np.int64(k)
                    if mark < 0:
                        break
    return np.int64(node.first_edge + chosen)


@inlined()
def _weight(visits, most, temperature):
    """Return visits^(1 / temperature), relative to the most visited, so that a low temperature cannot overflow."""
    return (np.float64(visits) / np.float64(max(most, 1))) ** (1.0 / temperature)


@overload(choices.begin_search, jit_options=UNCOUNTED)
def _begin_by_puct(b, explores, noise, rule):
    if rule.instance_class is Rule:
        return lambda b, explores, noise, rule: _begin(b, explores, noise, rule)
    return None


@inlined()
def _begin(b, explores, noise, rule):
    """Do what `puct.Search._begin_search` does in self-play, of tree b alone."""
    noise.due[b] = explores


@overload(choices.move_edge, jit_options=UNCOUNTED)
def _move_by_puct(trees, b, temperature, random, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, temperature, random, rule: _drawn_edge(trees, b, temperature, random, rule)
    return None


@overload(choices.weigh, jit_options=UNCOUNTED)
def _weigh_by_puct(trees, b, rule, weights):
    if rule.instance_class is Rule:
        return lambda trees, b, rule, weights: counts(trees, b, rule, weights)
    return None


@overload(choices.root_value, jit_options=UNCOUNTED)
def _value_by_puct(trees, b, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, rule: _mean(trees, b)
    return None


@inlined()
def _mean(trees, b):
    """Return what `puct.Search.value` does, of tree b alone."""
    node = trees.node[b, 0]
    return np.float32(node.exact_value if node.exact else node.value_sum / max(node.visits, 1))
