"""Batches of simulations: what self-play and matches drive, whichever way a game is written.

A batch belongs to some trees of a search. Its steps follow each other in a circle: `finish` waits for the evaluations
that were begun, `simulate` uses them and returns the trees whose search is complete, and `evaluate` begins the next
evaluations. In between moves may be played, and trees may be reset, unless they wait for an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from az_mpi.core.intrinsics import finish_shared
from az_mpi.core.own_modules import fitting
from az_mpi.core.players import CHANCE, num_values
from az_mpi.core.problems import OwnCodeError
from az_mpi.search import loop_memory, root, simulation_loop, tree, waiting_leaves

if TYPE_CHECKING:
    from az_mpi.games.base import Game
    from az_mpi.network.evaluators import Evaluator

# Given trees as bytes, returns the addresses of a function and of its arguments: `simulate`'s `play` and `play_at`.
Play = Callable[[tree.Trees], tuple[int, int]]
MOST_ASKED = 10_000  # states after an action, and after the outcomes of chance, that are looked at where rules fail


class Search(Protocol):
    """What a batch needs of a search: see `puct.Search`. evaluate, target, rule, root_noise: the compiled loop alone
    reads them. rule: see `choices.choose_edge`. step: it is called where it is a user's own, and `begin` is not."""

    game: Game
    evaluate: Evaluator
    trees: tree.Trees
    target: np.ndarray
    rule: tuple
    root_noise: root.Noise

    def done(self, slots: np.ndarray) -> np.ndarray: ...

    def begin(self, slots: np.ndarray) -> Callable[[], None]: ...

    def step(self, slots: np.ndarray) -> None: ...


def make(search: Search, size: int, threads: int) -> Batch:
    """Return a batch for up to `size` trees of a search: in the compiled loop, if the game's rules are compiled and the
    search has no methods of its own that the loop would not call."""
    replaced = _is_ours(search, "begin") and _is_ours(search, "step") and _is_ours(search, "done")
    return CompiledBatch(search, size, threads) if replaced and search.game.has_entries else Batch(search)


def _is_ours(search, name):
    """Return whether a method of a search is the program's, not one of a user's own class or of another object."""
    method = getattr(search, name, None)
    return getattr(method, "__self__", None) is search and method.__module__.startswith("az_mpi.")


def need_room(search: Search, simulations: int) -> None:
    """Raise OwnCodeError if a tree of `puct.Search` has no room for so many simulations, as a user's subclass may ask
    for. Each adds a node at most, beside those of chance, for which trees grow; and the rule has a table of visits."""
    room = search.trees.node.shape[1] - 1
    if (table := getattr(search.rule, "exploration", None)) is not None:
        room = min(room, len(table) - 2)
    if simulations > room:
        raise OwnCodeError(
            f"{type(search).__name__} runs more simulations in a tree than the {room:,} that it has room for\n"
            "  expected: no `target` above `settings.simulations`, and a `done` that ends each search there"
        )


class Batch:
    """One simulation in each tree, by the methods of the search. num_simulations: that were begun."""

    def __init__(self, search: Search):
        self._search = search
        self._steps = _is_ours(search, "begin") and not _is_ours(search, "step")
        self._complete: Callable[[], None] | None = None
        self.num_simulations = 0

    @property
    def under_way(self) -> bool:
        """Whether evaluations were begun and not finished."""
        return self._complete is not None

    def finish(self) -> None:
        """Wait for the evaluations that were begun, if any were."""
        if self._complete:
            self._complete()
            self._complete = None

    def simulate(self, slots: np.ndarray, descends: bool = True) -> np.ndarray:
        """Run simulations in these trees, int64 [n], as far as that needs no evaluation; return those whose search is
        complete. descends: also begin simulations."""
        return slots[self._search.done(slots)]

    def evaluate(self, slots: np.ndarray) -> None:
        """Begin what these trees, int64 [n], need to be evaluated; those whose search is complete need nothing."""
        slots = slots[~self._search.done(slots)]
        if len(slots):
            if self._steps:
                self._search.step(slots)
            else:
                self._complete = self._search.begin(slots)
            self.num_simulations += len(slots)


class CompiledBatch(Batch):
    """Simulations in the compiled loop. threads: that run it."""

    def __init__(self, search: Search, size: int, threads: int):
        super().__init__(search)
        game = search.game
        self._threads = threads
        self._num_values = num_values(game.num_players)
        self._room = loop_memory.scratch(len(search.target), game.num_actions, game.num_outcomes, threads)
        self._rows = np.empty(1 << (2 * size - 1).bit_length(), np.int32)
        self._chosen = np.empty(size, np.int64)
        self._states = np.empty((size, game.state_size), game.state_dtype)
        self._symmetry = np.empty(size, np.int64)
        self._evaluation: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None
        self._evaluated = loop_memory.Evaluated(
            np.empty((0, game.num_actions), np.float32), np.empty((0, self._num_values), np.float32)
        )
        self._num_evaluations = 0

    @cached_property
    def _game(self):
        """The rules, which are compiled when they are first needed: until then one rank may compile them for others.
        Their threshold is that of no evaluator."""
        game = self._search.game
        actions = np.ascontiguousarray(game.symmetry_actions)
        rest = game.max_plies, game.num_players, game.num_outcomes
        return loop_memory.Compiled._make([*game.entries, actions, *rest, np.nan])

    @property
    def under_way(self) -> bool:
        return self._evaluation is not None

    def finish(self) -> None:
        if self._evaluation:
            search = self._search
            shape = self._num_evaluations, search.game.num_actions
            found = fitting(self._evaluation(), shape, self._num_values, search.evaluate)
            logits, value = (np.ascontiguousarray(part, np.float32) for part in found)
            self._evaluated = loop_memory.Evaluated(logits, value.reshape(len(value), -1))
            self._evaluation = None

    def simulate(self, slots: np.ndarray, descends: bool = True, play: Play | None = None) -> np.ndarray:
        """Do what `Batch.simulate` does. play: gives the loop what it calls for trees whose search is complete."""
        search = self._search
        need_room(search, search.target.max())
        known = search.evaluate.known(self._threads)
        game, threshold = self._game, float(search.evaluate.threshold)
        if not np.isnan(threshold):
            game = game._replace(threshold=threshold)
        while True:
            trees = tree.in_bytes(search.trees)
            played = play(trees) if play else (0, 0)
            found = simulation_loop.simulate(
                trees,
                slots,
                search.target,
                search.rule,
                search.root_noise,
                game,
                known,
                self._evaluated,
                descends,
                self._room,
                *played,
            )
            finish_shared(found, self._room.shared, self._threads)
            told = self._room.told[:, : loop_memory.NUM_TOLD].tolist()
            most, total = [max(each) for each in zip(*told)], [sum(each) for each in zip(*told)]
            self.num_simulations += total[loop_memory.SIMULATIONS]
            search.evaluate.count(total[loop_memory.POSITIONS], 0)
            if broken := most[loop_memory.BROKEN]:
                _report(search.game, search.trees, broken - 1)
            needed = most[loop_memory.NEEDED], most[loop_memory.NEEDED_NODES]
            if not any(needed):
                return slots[self._room.completed[: len(slots)]]
            search.trees = tree.widened(search.trees, *needed)

    def evaluate(self, slots: np.ndarray) -> None:
        search = self._search
        cached = len(search.evaluate.known(self._threads).keys) > 0
        rows = self._rows if cached else self._rows[:0]
        trees = tree.in_bytes(search.trees)
        num = waiting_leaves.wanted(trees, slots, self._room.keys, rows, self._chosen)
        if num:
            states, symmetry = self._states[:num], self._symmetry[:num]
            found = waiting_leaves.gather(trees, self._chosen[:num], states.view(np.uint8), symmetry, self._room)
            finish_shared(found, self._room.shared, self._threads)
            self._num_evaluations = num
            search.evaluate.count(0, num)
            self._evaluation = search.evaluate.begin_turned(states, symmetry, self._threads)


def _report(game: Game, trees: tree.Trees, b: int) -> NoReturn:
    """Raise what the rules raise, or are found to do wrong, for a position of tree b or one after it."""
    num = int(trees.tree[b]["nodes_used"])
    states, nodes = trees.state[b, :num], trees.node[b, :num]
    plies = np.full(num, trees.tree[b]["root_ply"])
    _ask(game, states[:1], plies[:1])  # of the others each comes after one that has edges
    for n in range(num):
        if n > 0:
            plies[n] = plies[nodes["parent"][n]] + 1
        edges = trees.edge[b, nodes["first_edge"][n] :][: nodes["edge_count"][n]]
        actions = edges["edge_action"].astype(np.int64)
        after, ply = np.repeat(states[n : n + 1], len(actions), axis=0), plies[n]
        while len(after):  # moves of chance may follow each other
            after, ply = np.unique(game.play(after, actions), axis=0)[:MOST_ASKED], ply + 1
            after = after[_ask(game, after, ply)]
            rows, actions = np.nonzero(game.chances(after) > 0) if len(after) else (np.empty(0, np.int64),) * 2
            after = after[rows]
    raise OwnCodeError(
        f"the game {game.name}: its compiled rules fail, or return what they must not, after a position where they do "
        "not do so alone\n  `compiled = False` in its class runs them as Python; docs/games.md says what they return"
    )


def _ask(game, states, plies):
    """Call the methods that the loop needs at these states, [n, S], and no other one. Return where chance is to move,
    bool [n]. plies: the moves before them."""
    ended = game.terminal_at(states, plies)[0]
    drawn = (game.to_play(states) == CHANCE) & ~ended
    asked = states[~ended & ~drawn]
    if len(asked):
        game.legal(asked), game.planes(asked), game.canonical_key(asked)
    return drawn
