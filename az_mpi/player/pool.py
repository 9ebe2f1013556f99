"""Searches of many positions at a time, whose leaves are evaluated as one batch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.session import TREE_BYTES, node_bytes
from az_mpi.search.reading import RootMove, root_moves

CACHE_BYTES = 2**26
ROOM = 1000  # simulations that trees have room for at first, if TREE_BYTES is enough for all of them


@dataclass
class Position:
    """A position to search.

    state: [S]. plies: the moves before it. visits: simulations. priority: of two positions the one with more comes
    first. about: whatever the caller knows it by. moves, value: what was found, for the player to move, see `Pool`."""

    state: np.ndarray
    plies: int
    visits: int
    priority: int = 0
    about: Any = None
    moves: list[RootMove] = field(default_factory=list)
    value: float = 0.0
    simulations: int = 0


class Pool:
    """Searches positions of a game, up to `num_slots` at a time, fewer where the trees of so many would take more than
    TREE_BYTES together. The others wait.

    done(position): called when a position has been searched. cache_bytes: to remember evaluations in."""

    def __init__(
        self, player: LoadedPlayer, num_slots: int, done: Callable[[Position], None], cache_bytes: int = CACHE_BYTES
    ):
        self._player, self._num_slots, self._done, self._cache_bytes = player, num_slots, done, cache_bytes
        self.waiting: list[Position] = []  # those that no search has begun of
        self._slots: dict[int, Position] = {}  # by slot
        self._room = self._num_trees = 0
        game = player.game
        self._most = TREE_BYTES // node_bytes(game, game.initial(1)[0])  # simulations in all trees together
        self._search: Any = None

    def __len__(self) -> int:
        return len(self.waiting) + len(self._slots)

    def all(self) -> list[Position]:
        """Return the positions that are being searched, and those that wait."""
        return [*self._slots.values(), *self.waiting]

    def emptied(self) -> "Pool":
        """Return a pool as this one, without positions."""
        return Pool(self._player, self._num_slots, self._done, self._cache_bytes)

    def add(self, positions: list[Position]) -> None:
        """Search these positions too."""
        self.waiting += positions
        self.waiting.sort(key=lambda position: -position.priority)  # this keeps the order of equals

    def remove(self, is_meant: Callable[[Position], bool]) -> list[Position]:
        """Give up positions; return them, with what was found so far."""
        self.waiting, meant = [p for p in self.waiting if not is_meant(p)], [p for p in self.waiting if is_meant(p)]
        for slot, position in list(self._slots.items()):
            if is_meant(position):
                self._look(slot, position)
                del self._slots[slot]
                meant.append(position)
        return meant

    def look(self) -> list[Position]:
        """Return the positions that are being searched, with what was found so far."""
        for slot, position in self._slots.items():
            self._look(slot, position)
        return list(self._slots.values())

    def step(self) -> None:
        """Run one simulation in each search under way."""
        self._fill()
        slots = np.array(sorted(self._slots), np.int64)
        if not len(slots):
            return
        open_ones = slots[~self._search.done(slots)]
        if len(open_ones):
            self._search.step(open_ones)
        for slot in slots[self._search.done(slots)].tolist():
            position = self._slots.pop(slot)
            self._look(slot, position)
            self._done(position)

    def _look(self, slot, position):
        position.moves = root_moves(self._search, slot)
        position.value = float(self._search.value(np.array([slot]))[0])
        position.simulations = max(int(self._search.trees.visits[slot, 0]) - 1, 0)

    def _fill(self):
        """Begin the search of positions that wait, as far as there are slots and their trees have room. Where more
        wait than can begin, and there could be more trees of the size that they need, none begins before all slots are
        free: otherwise few large trees would stay as long as other positions come."""
        if not self.waiting:
            return
        room, num_trees = self._wanted()
        if not self._slots:
            self._make_room(room, num_trees)
        free = [slot for slot in range(self._num_trees) if slot not in self._slots]
        if len(self.waiting) > len(free) and num_trees > self._num_trees:
            return
        begun = []
        while free and self.waiting and self.waiting[0].visits <= self._room:
            begun.append((free.pop(0), self.waiting.pop(0)))
        if begun:
            self._slots.update(begun)
            slots = np.array([slot for slot, _ in begun])
            states = np.array([position.state for _, position in begun])
            plies = np.array([position.plies for _, position in begun])
            self._search.reset(slots, states, np.zeros(len(slots), np.uint64), plies)
            self._search.target[slots] = [position.visits for _, position in begun]

    def _wanted(self):
        """Return (the simulations that each tree needs room for, the number of trees) for those that wait: as many
        trees as TREE_BYTES is enough for, and at least one."""
        visits = max(position.visits for position in self.waiting[: self._num_slots])
        room = max(visits, min(ROOM, self._most // self._num_slots))
        return room, max(min(self._most // room, self._num_slots), 1)

    def _make_room(self, room, num_trees):
        if room > self._room or num_trees > self._num_trees:
            self._search = None  # its memory is free before the next one takes any
            self._search = self._player.new_search(room, self._cache_bytes, num_trees)
            self._room, self._num_trees = room, num_trees
