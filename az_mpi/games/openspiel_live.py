"""OpenSpiel's own objects for the states that were used last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import psutil

from az_mpi.games.base import CHANCE

SAMPLES_MAX, SAMPLES_BYTES = 16_000, 2**22  # copies of a state that are made to measure its size


class Live(NamedTuple):
    """OpenSpiel's object for a state, and OpenSpiel's number of the player who makes the first move that is not
    chance's, below 0 while only chance has moved."""

    state: Any
    first: int

    def followed_by(self, state: Any) -> Live:
        """Return what is there once OpenSpiel's object for the next state is known."""
        return Live(state, self.first if self.first >= 0 else state.current_player())

    def seat(self, num_players: int) -> int:
        """Return who is to move, as `Game.to_play` counts; 0 in a terminal state."""
        player = self.state.current_player()
        if player < 0:
            return CHANCE if self.state.is_chance_node() else 0
        return (player - self.first) % num_players


class LiveStates:
    """What `Live` has for states by their keys: at most `most` of those used last, in two halves, the older of which
    goes. make(key): makes a state that is not there."""

    def __init__(self, make: Callable[[bytes], Live], most: int):
        self._make = make
        self._half = max(most // 2, 1)
        self._new: dict[bytes, Live] = {}
        self._old: dict[bytes, Live] = {}

    def __getitem__(self, key: bytes) -> Live:
        live = self._new.get(key)
        if live is None:
            live = self._old.get(key)
            if live is None:
                live = self._make(key)
            self.add(key, live)
        return live

    def add(self, key: bytes, live: Live) -> None:
        if len(self._new) >= self._half:
            self._old = self._new
            self._new = {}
        self._new[key] = live


def state_bytes(game: Any) -> int:
    """Return the memory of one state of OpenSpiel's `game` in bytes, measured on copies of one in the middle of a game;
    at least 1 KiB."""
    live = game.new_initial_state()
    rng = np.random.default_rng(0)
    for _ in range(40):
        after = live.child(int(rng.choice(live.legal_actions())))
        if after.is_terminal():
            break
        live = after
    process = psutil.Process()
    copies: list[Any] = []
    grown = 0
    # The first copies go where memory was freed before, so that this process does not grow.
    while grown < SAMPLES_BYTES and len(copies) < SAMPLES_MAX:
        before = process.memory_info().rss
        num = max(len(copies), 500)
        copies += [live.clone() for _ in range(num)]
        grown = process.memory_info().rss - before
    return max(grown // num, 1024)
