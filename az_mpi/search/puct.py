"""PUCT search (Silver et al. 2018, "A general reinforcement learning algorithm…") over a batch of trees in lock step.

One `step` runs one simulation in every tree it is given: select a leaf, evaluate all leaves as one batch, expand, back
up. A simulation that reaches a node whose result is known, by the rules or by proof, backs up that result and needs no
evaluation. A proven loss is chosen only if all other actions are proven losses too. A root whose result is known is not
searched further.

Where the evaluator's values are ranks (`Evaluator.threshold`), the ends of games are ranked, too, and prove nothing: an
end above the threshold would end a search that may find a better one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.core.intrinsics import SHARED_BYTES, finish_shared
from az_mpi.core.own_modules import fitting
from az_mpi.core.players import CHANCE, by_player, num_values, of_players
from az_mpi.core.ranks import all_ranked
from az_mpi.search import batches, chance_nodes, choices, game_length, puct_rule, root, simulation, streams, tree, wins

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.games.base import Game
    from az_mpi.network.evaluators import Evaluator


class Search:
    """Trees for `num_trees` games, called slots.

    noise: explore at the root as self-play does, by Dirichlet noise in its priors; matches do not. threads: of the
    kernels. target: the simulations that each slot's search takes, int32 [B]; no more than there is room for. explores:
    bool [B], false in matches and in fast searches.
    """

    def __init__(
        self, game: Game, evaluate: Evaluator, settings: schema.Search, num_trees: int, noise: bool, threads: int = 1
    ):
        self.game = game
        self.evaluate = evaluate
        self.settings = settings
        self.noise = noise
        # Each simulation adds at most one node to the root; carried nodes were counted when they were visited.
        self.trees = tree.allocate(game, num_trees, settings.simulations + 1)
        self.trees.tree["ranged"] = settings.relative_values and game.num_players == 1
        self.target = np.full(num_trees, settings.simulations, np.int32)
        self.streams = np.zeros(num_trees, np.uint64)
        self.explores = np.zeros(num_trees, np.bool_)
        self._noise_due = np.zeros(num_trees, np.bool_)
        self.plays = False
        self._plies_left: Callable[[np.ndarray], np.ndarray] | None = None
        self._kept_actions: dict[int, tuple[tuple[int, int], int]] = {}  # of `_by_length`: {slot: (key, action)}
        self._wins = np.empty(0, np.int64)
        self.rule = self._make_rule()
        self._kept = np.empty((num_trees, 0), np.float32)
        self.root_noise = self._make_noise()
        self._threads, self._shared = threads, np.empty(SHARED_BYTES, np.uint8)
        self._batch: batches.Batch | None = None  # of `run`
        self._select, self._complete = (
            (simulation.select, simulation.complete)
            if threads == 1
            else (simulation.select_parallel, simulation.complete_parallel)
        )

    @property
    def _in_bytes(self):
        return tree.in_bytes(self.trees)

    def _bytes_of(self, states):
        return np.ascontiguousarray(states, self.game.state_dtype).view(np.uint8)

    def _make_rule(self):
        settings = self.settings
        exploration = puct_rule.exploration_table(settings)
        return puct_rule.Rule(exploration, settings.fpu_reduction, settings.forced_playouts, self.explores)

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
        self.root_noise = self._make_noise()

    def adapt_to_play(self) -> None:
        """From now on search as play does, not self-play: each legal action of a new root is played by the rules, once.
        One that wins at once is proven before the search continues, and is chosen, however small its prior is. Among
        moves that win or lose alike the evaluator's `plies_left` decides."""
        self.plays, self._wins = True, np.full(len(self.target), wins.NO_WIN)
        if self.game.num_players == 2 and not self.game.num_outcomes:
            self._plies_left = self.evaluate.plies_left

    def _look_for_wins(self, slots):
        if self.plays:
            wins.prove_wins(self.trees, slots, self.game, self.rule, self._wins)

    def _as_played(self, slots, actions):
        """Return what is played where the search chose `actions`, one for each slot. In self-play it is the same. In
        play an action that wins at once comes first, and among moves that win or lose alike game_length.py chooses."""
        if not self.plays:
            return actions
        if self._plies_left:
            actions = self._by_length(slots, actions)
        return np.where(self._wins[slots] == wins.NO_WIN, actions, self._wins[slots])

    def _by_length(self, slots, actions):
        """Return the actions of `game_length.choose`, which are kept until there is another simulation: programs ask
        several times."""
        keys = list(zip(self.trees.node["visits"][slots, 0].tolist(), actions.tolist()))
        new = [i for i, slot in enumerate(slots.tolist()) if self._kept_actions.get(slot, ((), 0))[0] != keys[i]]
        if new:
            found = game_length.choose(self.trees, slots[new], actions[new], self._plies_left).tolist()
            self._kept_actions |= {int(slots[i]): (keys[i], action) for i, action in zip(new, found)}
        return np.array([self._kept_actions[slot][1] for slot in slots.tolist()], np.int64)

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
        if self._kept_actions:
            for slot in slots.tolist():
                self._kept_actions.pop(slot, None)
        self.target[slots], self.explores[slots] = settings.simulations, self.noise
        if self.noise and settings.full_share < 1:
            drawn = streams.uniforms(self.streams, slots)
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
        batches.need_room(self, self.trees.node["visits"][slots, 0].max(initial=0))
        slots, nodes, actions, states, num_leaves = self._select(
            self._in_bytes, slots, self.rule, self.root_noise, self.game.num_players
        )
        states = states.view(self.game.state_dtype)
        new = slice(num_leaves)
        states[new] = self.game.play(states[new], actions[new])
        if self.game.num_outcomes:
            self._through_chance(slots[new], nodes[new], actions[new], states[new])
        plies = self.trees.tree["root_ply"][slots] + self.trees.tree["path_length"][slots]
        leaves = self._begin_evaluation(nodes, actions, states, plies)

        def complete():
            self._complete_with_room(self._complete, slots, leaves())
            self._look_for_wins(slots[num_leaves:])  # new roots

        return complete

    def _through_chance(self, slots, nodes, actions, states, num_leaves=1):
        """Lead simulations that have reached chance nodes on to the positions after them, in place: each in a tree of
        its own. The arguments are as in `chance_nodes.through`. num_leaves: that each tree will get."""
        self._make_room(slots, num_leaves)
        while len(rows := np.flatnonzero(self._chance_due(slots, states))):
            self._make_room(slots[rows], num_leaves)
            chances = self.game.chances(states[rows])
            leads = slots[rows], nodes[rows], actions[rows]
            chance_nodes.through(self._in_bytes, *leads, self._bytes_of(states[rows]), chances, self.streams)
            nodes[rows], actions[rows] = leads[1:]
            states[rows] = self.game.play(states[rows], actions[rows])

    def _chance_due(self, slots, states):
        plies = self.trees.tree["root_ply"][slots] + self.trees.tree["path_length"][slots]
        return (self.game.to_play(states) == CHANCE) & (plies < self.game.max_plies)

    def _make_room(self, slots, num_leaves):
        """Make room in these trees for a chance node and for so many leaves."""
        if len(slots):
            used = self.trees.tree[slots]
            num_edges = int(used["edges_used"].max()) + self.game.num_outcomes
            self.trees = tree.widened(self.trees, num_edges, int(used["nodes_used"].max()) + 1 + num_leaves)

    def step_several(self, slot: int, leaves_max: int) -> None:
        """Run up to `leaves_max` simulations in the tree of one slot, whose leaves are evaluated as one batch. The tree
        needs room for twice as many."""
        if leaves_max == 1 or not self.trees.node["edge_count"][slot, 0]:
            self.step(np.array([slot]))
            return
        nodes, actions, states, paths = simulation.select_several(
            self._in_bytes, slot, leaves_max, self.rule, self.root_noise, self.game.num_players
        )
        if len(nodes):
            states = self.game.play(states.view(self.game.state_dtype), actions)
            if self.game.num_outcomes:
                paths = self._each_through_chance(slot, nodes, actions, states, paths)
            plies = self.trees.tree["root_ply"][slot] + paths[:, 0]
            leaves = self._begin_evaluation(nodes, actions, states, plies)
            self._complete_with_room(simulation.complete_several, slot, paths, leaves())

    def _each_through_chance(self, slot, nodes, actions, states, paths):
        """Do what `_through_chance` does for simulations of one tree, one after the other. Return their paths, int32
        [m, D + 1], which are longer than `paths`. The chance nodes are no children yet: nothing has visited them."""
        slots = np.array([slot])
        longer = []
        for i in range(len(nodes)):
            one = slice(i, i + 1)
            self.trees.tree["path_length"][slot] = length = paths[i, 0]
            self.trees.path[slot, :length] = paths[i, 1 : 1 + length]
            self._through_chance(slots, nodes[one], actions[one], states[one], len(nodes))
            if self.trees.tree["path_length"][slot] > length:
                self.trees.edge["edge_child"][slot, paths[i, length]] = tree.NO_CHILD
            longer.append(self.trees.path[slot, : self.trees.tree["path_length"][slot]].copy())
        paths = np.zeros((len(nodes), self.trees.path.shape[1] + 1), np.int32)
        for row, path in zip(paths, longer):
            row[0] = len(path)
            row[1 : 1 + len(path)] = path
        return paths

    def _begin_evaluation(self, nodes, actions, states, plies):
        """Begin to evaluate the positions `states` that simulations led to; return a function that waits for that and
        returns `simulation.Leaves`. plies: the moves before each position."""
        game = self.game
        ended, value = self._results(states, plies)
        player = game.to_play(states)
        values = of_players(game.num_players, value, player).astype(np.float32)
        live = ~ended
        live_states = states[live]
        evaluation = self.evaluate.begin(live_states) if len(live_states) else None
        legal = game.legal(live_states)
        proves = bool(np.isnan(self.evaluate.threshold))

        def leaves():
            logits = np.empty(legal.shape, np.float32)
            if evaluation:  # `values` has the results of games that ended; these are the others
                several = num_values(game.num_players)
                logits, found = fitting(evaluation(), legal.shape, several, self.evaluate)
                values[live] = by_player(game.num_players, found, player[live])
            return simulation.Leaves(
                nodes, actions, self._bytes_of(states), player, ended, values, logits, legal, proves
            )

        return leaves

    def _results(self, states, plies):
        """Return what `Game.terminal_at` does, ranked if the evaluator's values are."""
        ended, value = self.game.terminal_at(states, plies)
        return ended, all_ranked(value, self.evaluate.threshold)

    def _complete_with_room(self, kernel, *simulations):
        """Complete simulations by a kernel of simulation.py, in trees that have room for their edges."""
        if needed := kernel(self._in_bytes, *simulations, self.rule, self.root_noise):  # no room: nothing was changed
            self.trees = tree.widened(self.trees, needed)
            kernel(self._in_bytes, *simulations, self.rule, self.root_noise)

    def run(self, slots: np.ndarray) -> None:
        """Simulate until every slot's search is complete."""
        if self._batch is None:
            self._batch = batches.make(self, len(self.target), self._threads)
        if self.plays:  # `begin` looks for wins at new roots
            self.step(slots[(self.trees.node["edge_count"][slots, 0] == 0) & ~self.done(slots)])
        while True:
            self._batch.finish()
            ready = self._batch.simulate(slots)
            slots = np.setdiff1d(slots, ready)
            if not len(slots):
                return
            self._batch.evaluate(slots)

    def done(self, slots: np.ndarray) -> np.ndarray:
        """Return which searches are complete, bool [n]: `target` simulations have gone through the root, including
        those that were carried over, or the root's result is known."""
        node = self.trees.node[slots, 0]
        # The first visit is the root's own evaluation; each simulation after it descends one edge.
        return (node["visits"] > self.target[slots]) | node["exact"]

    def policy(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the policy targets: (the number of actions of each root with a probability, int32 [n]; these actions,
        int32 [M], in order, root by root; their probabilities, float32 [M]).

        A probability is the action's share of the visits that count, see `puct_rule.counts`. In self-play a fast search
        makes no target: none of its actions has a probability."""
        makes = self.explores[slots] if self.noise else np.ones(len(slots), np.bool_)
        nums = np.zeros(len(slots), np.int32)
        nums[makes], actions, probabilities = self._policy(slots[makes])
        return nums, actions, probabilities

    def _policy(self, slots):
        return puct_rule.policy(self._in_bytes, slots, self.rule)

    def surprise(self, slots: np.ndarray, targets: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        """Return how far the network's policy is from the policy targets of `policy`, float32 [n], see `root.surprise`.
        Needs `keep_priors`."""
        return root.surprise(self._in_bytes, slots, *targets, self.root_noise)

    def value(self, slots: np.ndarray) -> np.ndarray:
        """Return the value of each root for the player to move, float32 [n]: its result if known, else the mean."""
        node = self.trees.node[slots, 0]
        mean = node["value_sum"] / np.maximum(node["visits"], 1)
        return np.where(node["exact"], node["exact_value"], mean).astype(np.float32)

    def choose(self, slots: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        """Draw an action for each slot from policy^(1/temperature), int64 [n]; at temperature 0 the most visited one.
        temperature: float [n]."""
        return self._as_played(slots, puct_rule.choose(self._in_bytes, slots, temperature, self.streams, self.rule))

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        """Play an action in each slot, or an outcome where the root is a chance node. The subtree below it is kept if
        `reuse_tree`, else dropped. A root that is a chance node is not searched: play an outcome, too."""
        self.trees.tree["root_ply"][slots] += 1
        kept = np.zeros(len(slots), np.bool_)
        if self.settings.reuse_tree:
            threads = self._threads if len(slots) >= root.SHARED_FROM else 1
            moved = np.empty((threads, self.trees.node.shape[1]), np.int32)
            found = root.advance(self._in_bytes, slots, actions, kept, moved, self._shared)
            finish_shared(found, self._shared, threads)
        self.begin_moved(slots, actions, kept)

    def begin_moved(self, slots: np.ndarray, actions: np.ndarray, kept: np.ndarray) -> None:
        """Prepare the searches of trees in which actions were played. kept: bool [n], whether the root is the position
        after the action already; elsewhere it is the one before."""
        if not kept.all():
            new = slots[~kept]
            self._start(new, self.game.play(self.trees.state[new, 0], actions[~kept]))
        self._begin_search(slots[~self.trees.node["chance"][slots, 0]] if self.game.num_outcomes else slots)

    def _start(self, slots, states):
        ended, value = self._results(states, self.trees.tree["root_ply"][slots])
        player = self.game.to_play(states)
        values = of_players(self.game.num_players, value, player).astype(np.float32)
        tree.reset(self._in_bytes, slots, self._bytes_of(states), player, ended, values)


choices.DECIDED.add(Search)
