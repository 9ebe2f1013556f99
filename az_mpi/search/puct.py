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
from numba import njit
from numba.extending import overload

from az_mpi.core.own_modules import fitting
from az_mpi.search import root, simulation, streams, tree, wins
from az_mpi.search.tree import NO_CHILD, WIN

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.games.base import Game
    from az_mpi.network.evaluators import Evaluator

LAST = 1e6  # -LAST, below any score, is the Q of a proven loss


class Rule(NamedTuple):
    """How PUCT chooses among a node's edges: `exploration_table`, the reduction of first-play urgency, the factor of
    `root.forced_visits`, and the slots whose root explores, bool [B].

    The kernels of a search take such a tuple. Its type selects, when they are compiled, what `simulation.choose_edge`
    and `simulation.prepare_root` do."""

    exploration: np.ndarray
    reduction: float
    forced: float
    explores: np.ndarray


class Search:
    """Trees for `num_trees` games, called slots.

    noise: explore at the root as self-play does, by Dirichlet noise in its priors; matches do not. threads: of the
    kernels. target: the simulations that each slot's search takes, int32 [B]; no more than there is room for. explores:
    bool [B], false in matches and in fast searches.
    """

    def __init__(
        self, game: Game, evaluate: Evaluator, settings: schema.Search, num_trees: int, noise: bool, threads: int = 1
    ):
        self.game, self.evaluate, self.settings, self.noise = game, evaluate, settings, noise
        # Each simulation adds at most one node to the root; carried nodes were counted when they were visited.
        self.trees = tree.allocate(game, num_trees, settings.simulations + 1)
        self.target = np.full(num_trees, settings.simulations, np.int32)
        self.streams = np.zeros(num_trees, np.uint64)
        self.explores, self._noise_due = np.zeros(num_trees, np.bool_), np.zeros(num_trees, np.bool_)
        self.plays, self._wins = False, np.empty(0, np.int64)
        self._rule = self._make_rule()
        self._kept = np.empty((num_trees, 0), np.float32)
        self._noise = self._make_noise()
        self._select, self._complete = (
            (simulation.select, simulation.complete)
            if threads == 1
            else (simulation.select_parallel, simulation.complete_parallel)
        )

    def _make_rule(self):
        settings = self.settings
        return Rule(exploration_table(settings), settings.fpu_reduction, settings.forced_playouts, self.explores)

    def _make_noise(self):
        settings = self.settings
        return root.Noise(
            self._noise_due,
            self.streams,
            settings.dirichlet_alpha,
            settings.dirichlet_fraction,
            settings.root_policy_temperature,
            self._kept,
        )

    def keep_priors(self) -> None:
        """From now on keep the roots' priors as they are before noise, for `surprise`."""
        self._kept = np.zeros((len(self.target), self.game.num_actions), np.float32)
        self._noise = self._make_noise()

    def adapt_to_play(self) -> None:
        """From now on search as play does, not self-play: each legal action of a new root is played by the rules, once.
        One that wins at once is proven before the search goes on, and is chosen, however small its prior is."""
        self.plays, self._wins = True, np.full(len(self.target), wins.NO_WIN)

    def _look_for_wins(self, slots):
        if self.plays:
            wins.prove_wins(self.trees, slots, self.game, self._wins)

    def _wins_first(self, slots, actions):
        """Return `actions`, one for each slot, but where an action wins at once that one."""
        if not self.plays:
            return actions
        return np.where(self._wins[slots] == wins.NO_WIN, actions, self._wins[slots])

    def reset(
        self, slots: np.ndarray, states: np.ndarray, stream_words: np.ndarray, plies: np.ndarray | int = 0
    ) -> None:
        """Start new trees at `states` [n, S], with the random streams `stream_words`, uint64 [n]. plies: int [n], the
        moves before each state: a position after `game.max_plies` moves is a draw if the rules do not end it."""
        self.trees.tree["root_ply"][slots] = plies
        self._start(slots, states)
        self.streams[slots] = stream_words
        self._begin_search(slots)

    def _begin_search(self, slots):
        """Prepare for the first simulation from a new root. In self-play draw whether the search is a full one."""
        settings = self.settings
        self.target[slots], self.explores[slots] = settings.simulations, self.noise
        if self.noise and settings.full_share < 1:
            drawn = np.array([streams.uniform(self.streams, slot) for slot in slots])
            fast = slots[drawn >= settings.full_share]
            self.target[fast], self.explores[fast] = min(settings.fast_simulations, settings.simulations), False
        self._noise_due[slots] = self.explores[slots]
        self._look_for_wins(slots)  # of roots that were searched before; of the others once they are evaluated

    def step(self, slots: np.ndarray) -> None:
        """Run one simulation in the tree of each slot; slots: int64 [n], all different."""
        self.begin(slots)()

    def begin(self, slots: np.ndarray) -> Callable[[], None]:
        """Begin one simulation in the tree of each slot and return a function that completes it; the evaluator may work
        in between. Until then nothing else may use these slots."""
        slots, nodes, actions, states, num_leaves = self._select(self.trees, slots, self._rule, self._noise)
        states[:num_leaves] = self.game.play(states[:num_leaves], actions[:num_leaves])
        plies = self.trees.tree["root_ply"][slots] + self.trees.tree["path_length"][slots]
        complete = self._evaluating(self._complete, (slots, nodes, actions), states, plies)

        def complete_and_look():
            complete()
            self._look_for_wins(slots[num_leaves:])  # new roots

        return complete_and_look

    def step_several(self, slot: int, leaves_max: int) -> None:
        """Run up to `leaves_max` simulations in the tree of one slot, whose leaves are evaluated as one batch. The tree
        needs room for twice as many."""
        if leaves_max == 1 or not self.trees.node["edge_count"][slot, 0]:
            self.step(np.array([slot]))
            return
        nodes, actions, states, paths = simulation.select_several(self.trees, slot, leaves_max, self._rule, self._noise)
        if len(nodes):
            states = self.game.play(states, actions)
            plies = self.trees.tree["root_ply"][slot] + paths[:, 0]
            self._evaluating(simulation.complete_several, (slot, nodes, actions, paths), states, plies)()

    def _evaluating(self, kernel, simulations, states, plies):
        """Begin to evaluate the leaves `states`; return a function that completes simulations with them by `kernel`.
        plies: the moves before each leaf."""
        game = self.game
        ended, value = self._terminal(states, plies)
        live = ~ended
        live_states = states[live]
        evaluation = self.evaluate.begin(live_states) if len(live_states) else None
        legal, player = game.legal(live_states), game.to_play(states)

        def complete():
            logits = np.empty(legal.shape, np.float32)
            if evaluation:  # `value` has the results of games that ended; these are the others
                logits, value[live] = fitting(evaluation(), legal.shape, self.evaluate)
            arguments = *simulations, states, player, ended, value, logits, legal, self._noise
            if needed := kernel(self.trees, *arguments):  # no room for the new edges: nothing was changed
                self.trees = tree.widened(self.trees, needed)
                kernel(self.trees, *arguments)

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

        A probability is the action's share of the visits that count, see `root.counts`. In self-play a fast search
        makes no target: none of its actions has a probability."""
        makes = self.explores[slots] if self.noise else np.ones(len(slots), np.bool_)
        nums = np.zeros(len(slots), np.int32)
        nums[makes], actions, probabilities = self._policy(slots[makes])
        return nums, actions, probabilities

    def _policy(self, slots):
        return root.policy(self.trees, slots, self._rule)

    def surprise(self, slots: np.ndarray, targets: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        """Return how far the network's policy is from the policy targets of `policy`, float32 [n], see `root.surprise`.
        Needs `keep_priors`."""
        return root.surprise(self.trees, slots, *targets, self._kept)

    def value(self, slots: np.ndarray) -> np.ndarray:
        """Return the value of each root for the player to move, float32 [n]: its result if known, else the mean."""
        node = self.trees.node[slots, 0]
        mean = node["value_sum"] / np.maximum(node["visits"], 1)
        return np.where(node["exact"], node["exact_value"], mean).astype(np.float32)

    def choose(self, slots: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        """Draw an action for each slot from policy^(1/temperature), int64 [n]; at temperature 0 the most visited one.
        temperature: float [n]."""
        return self._wins_first(slots, root.choose(self.trees, slots, temperature, self.streams, self._rule))

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        """Play an action in each slot. The subtree below it is kept if `reuse_tree`, else dropped."""
        before = self.trees.state[slots, 0]
        self.trees.tree["root_ply"][slots] += 1
        kept = root.advance(self.trees, slots, actions) if self.settings.reuse_tree else np.zeros(len(slots), np.bool_)
        self._start(slots[~kept], self.game.play(before[~kept], actions[~kept]))
        self._begin_search(slots)

    def _terminal(self, states, plies):
        """Return what `Game.terminal` does, with a draw for games that are not over after `max_plies` moves: the trees
        have no room for longer ones. plies: the moves before each state."""
        ended, value = self.game.terminal(states)
        return ended | (plies >= self.game.max_plies), value

    def _start(self, slots, states):
        ended, value = self._terminal(states, self.trees.tree["root_ply"][slots])
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
        if trees.edge[b, e].edge_child != NO_CHILD:  # a visit under way, of several, has no child yet
            visited += trees.edge[b, e].edge_prior
    unvisited_q = node.value_sum / node.visits - fpu_reduction * math.sqrt(visited)
    scale = exploration[node.visits]
    best, best_score = first, -np.inf
    for e in range(first, last):
        edge = trees.edge[b, e]
        q, visits = unvisited_q, edge.edge_visits
        if edge.edge_child != NO_CHILD:
            q = edge.edge_value_sum / visits
            known, value = tree.exact_edge(trees, b, n, e)
            if known:
                q = value if value > -WIN else -LAST
        score = q + scale * edge.edge_prior / (1 + visits)
        if score > best_score:
            best, best_score = e, score
    return best


@overload(simulation.prepare_root)
def _prepare_for_puct(trees, b, rule):
    return (lambda trees, b, rule: None) if rule.instance_class is Rule else None


@overload(simulation.choose_edge)
def _choose_by_puct(trees, b, n, rule):
    if rule.instance_class is Rule:
        return lambda trees, b, n, rule: (
            _exploring_edge(trees, b, n, rule)
            if n == 0 and rule.explores[b]
            else best_edge(trees, b, n, rule.exploration, rule.reduction)
        )
    return None


@njit(cache=True, nogil=True)
def _exploring_edge(trees, b, n, rule):
    """Return the edge of a root that explores: the first that lacks forced visits, else the best, by first-play urgency
    without a reduction."""
    if rule.forced > 0:
        num = trees.node[b, n].visits - 1
        for e in range(trees.node[b, n].first_edge, trees.node[b, n].first_edge + trees.node[b, n].edge_count):
            edge = trees.edge[b, e]
            if 0 < edge.edge_visits < root.forced_visits(rule.forced, edge.edge_prior, num) and not edge.edge_exact:
                return np.int64(e)
    return best_edge(trees, b, n, rule.exploration, 0.0)
