"""Games whose rules are written for one position. The program compiles them, and makes the loops over batches.

Shapes: B batch, S numbers a state, A actions, C planes, H rows, W columns.
"""

from __future__ import annotations

import functools
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from az_mpi.core.aligned import LINE
from az_mpi.core.hashing import FNV_OFFSET, FNV_PRIME
from az_mpi.core.intrinsics import FAILED, SHARED_BYTES, call1, call2, finish_shared, inner, shared_call, uncounted
from az_mpi.games.base import Game
from az_mpi.games.compiled_rules import as_python, compiled, observed
from az_mpi.games.entry_points import Entries, written

_NO_ROWS = np.zeros((0, 0), np.uint8)


class PositionGame(Game):
    """A game of which a subclass writes the rules of one position: `apply`, `legal_actions`, `result`,
    `current_player`, `observe`, and `canonical` if the game has symmetries. A game of three players or more writes
    `results` in place of `result`; one with chance moves also `outcome_chances`.

    Numba compiles these functions. They may use attributes of the game that are numbers, arrays or tuples of numbers,
    which are constants there, and functions of the file with Numba's `@njit`. The methods of `Game`, for batches, are
    derived. `compiled = False` runs the functions as plain Python, some hundred times slower: to debug them."""

    compiled = True

    def apply(self, state: np.ndarray, action: int) -> None:
        """Play a legal action, or an outcome where it is chance's move: change `state`, state_dtype [S], which is a
        copy."""
        raise NotImplementedError

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        """Set legal[a] = True for each legal action a. legal: bool [A], all False before."""
        raise NotImplementedError

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        """Return (whether the game is over, its value for the player to move in [-1, 1], 0 if it is not over). In a
        game of one player the value before the end may be what counts if a limit of its length ends it there."""
        raise NotImplementedError

    def results(self, state: np.ndarray, values: np.ndarray) -> bool:
        """Return whether the game is over; if so, set values[p] to the result of player p in [-1, 1]. values: float32
        [P], all 0 before. For three players or more."""
        raise NotImplementedError

    def current_player(self, state: np.ndarray) -> int:
        """Return who is to move: 0 for the player who begins, then 1 to P - 1; `base.CHANCE`, -1, where a move is drawn
        by lot. In a state where the game is over it is a player."""
        return 0

    def outcome_chances(self, state: np.ndarray, chances: np.ndarray) -> None:
        """Where it is chance's move, set chances[o] to the probability of outcome o. chances: float32 [O], all 0
        before."""
        raise NotImplementedError

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        """Set the network's input as the player to move sees it. planes: planes_dtype [C, H, W], all 0 before."""
        raise NotImplementedError

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        """Return (a key of 64 bits that all images of the position share, the number of the symmetry that turns it into
        the image that the key is of). By default a hash of the state and 0, so that images have different keys."""
        return hash_of(state), 0

    @cached_property
    def entries(self) -> Entries:
        """The compiled functions."""
        return compiled(self)

    @property
    def has_entries(self) -> bool:
        """Whether compiled code may call `entries` in place of the methods for batches: not if a class, or this very
        object, has one of these methods of its own, which changes the rules or the planes there."""
        kind = getattr(self, "unguarded_class", type(self))
        derived = "play", "legal", "planes", "terminal", "to_play", "canonical_key", "chances"
        own = any(name in vars(self) or getattr(kind, name) is not getattr(PositionGame, name) for name in derived)
        return self.compiled and not own

    def __getstate__(self) -> dict:
        """Of a copy, whose attributes may be changed: compiled functions are not copied."""
        return {name: value for name, value in vars(self).items() if name not in ("entries", "_python")}

    @cached_property
    def _python(self):
        """The functions as Python, by their names."""
        functions = {name: as_python(getattr(type(self), name)) for name in written(self).values()}
        return {name: functools.partial(_wrapping, function, self) for name, function in functions.items()}

    def initial(self, n: int) -> np.ndarray:
        return np.zeros((n, self.state_size), self.state_dtype)

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        after = self._contiguous(states, copy=True)
        actions = np.ascontiguousarray(actions, np.int64)
        if self.compiled:
            self._check("apply", states, _apply_all(self.entries.apply, _rows(after), actions), actions)
        else:
            for state, action in zip(after, actions.tolist()):
                self._python["apply"](state, action)
        return after

    def legal(self, states: np.ndarray) -> np.ndarray:
        return self._filled("legal_actions", states, np.zeros((len(states), self.num_actions), np.bool_))

    def planes(self, states: np.ndarray) -> np.ndarray:
        return self._filled("observe", states, np.zeros((len(states), *observed(self)), self.planes_dtype))

    def _contiguous(self, states, copy=None):
        states = np.array(states, self.state_dtype, order="C", copy=copy)
        if states.shape != (len(states), self.state_size):
            raise ValueError(f"states have the shape {states.shape}; expected: {len(states), self.state_size}")
        return states

    def turned_planes(self, states: np.ndarray, symmetry: np.ndarray, out: np.ndarray, num_threads: int = 1) -> None:
        if not self.has_entries:
            super().turned_planes(states, symmetry, out)
            return
        states, flat = self._contiguous(states), out.reshape(*out.shape[:2], -1)
        apart = 2 + LINE // flat[0].nbytes if len(flat) else 1  # threads that write to one line wait for each other
        plain = np.empty((num_threads * apart, *flat.shape[1:]), flat.dtype)
        failed, shared = np.full(num_threads, -1), np.empty(SHARED_BYTES, np.uint8)
        given = self.entries.observe, _rows(states), self.symmetry_cells, symmetry, flat, plain, failed
        finish_shared(_turned_all(*given, shared), shared, num_threads)
        self._check("observe", states, failed.max())

    def _filled(self, name, states, out, entry=None):
        if self.compiled:
            states = self._contiguous(states)
            self._check(name, states, _fill_all(getattr(self.entries, entry or name), _rows(states), _rows(out)))
        else:
            for state, row in zip(states, out):
                self._python[name](state, row)
        return out

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        several = self.num_players if self.num_players > 2 else 1
        ended, value = np.zeros(len(states), np.bool_), np.zeros((len(states), several), np.float32)
        name = "result" if several == 1 else "results"
        if self.compiled:
            states = self._contiguous(states)
            self._check(name, states, _result_all(self.entries.result, _rows(states), ended, value))
        else:
            for i, state in enumerate(states):
                if several == 1:
                    ended[i], value[i] = self._python[name](state)
                else:
                    ended[i] = self._python[name](state, value[i])
        return ended, value if several > 1 else value[:, 0]

    def to_play(self, states: np.ndarray) -> np.ndarray:
        player = np.zeros(len(states), np.int8)
        if self.compiled:
            states = self._contiguous(states)
            self._check("current_player", states, _player_all(self.entries.current_player, _rows(states), player))
        else:
            player[:] = [self._python["current_player"](state) for state in states]
        return player

    def chances(self, states: np.ndarray) -> np.ndarray:
        if not self.num_outcomes:
            return super().chances(states)
        out = np.zeros((len(states), self.num_outcomes), np.float32)
        return self._filled("outcome_chances", states, out, "chances")

    def canonical_key(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, symmetry = np.zeros(len(states), np.uint64), np.zeros(len(states), np.int64)
        if self.compiled:
            states = self._contiguous(states)
            self._check("canonical", states, _key_all(self.entries.canonical, _rows(states), keys, symmetry))
        else:
            for i, state in enumerate(states):
                keys[i], symmetry[i] = self._python["canonical"](state)
        return keys, symmetry

    def _check(self, name, states, failed, actions=None):
        """Raise what the function `name` raises for state number `failed`; nothing if that is -1."""
        if failed >= 0:
            out = {
                "legal_actions": (self.num_actions, np.bool_),
                "observe": (observed(self), self.planes_dtype),
                "results": (self.num_players, np.float32),
                "outcome_chances": (self.num_outcomes, np.float32),
            }
            given: list[Any] = [np.zeros(*out[name])] if name in out else []
            given += [] if actions is None else [int(actions[failed])]
            self._python[name](np.array(states[failed]), *given)
            raise RuntimeError(f"{name} raises an exception where it is compiled, and none as plain Python")


def _wrapping(function, *given):
    with np.errstate(over="ignore"):  # whole numbers wrap around, as in compiled code
        return function(*given)


def _rows(array):
    """Return the bytes of an array's rows, uint8 [B, bytes], so that the loops are compiled for no other type."""
    return array.reshape(len(array), -1).view(np.uint8) if len(array) else _NO_ROWS


def _whole(state):
    """Return the numbers of a state, as whole ones: of fractions, whose whole parts may be alike, the bits."""
    return state.view(f"u{state.itemsize}") if state.dtype.kind == "f" else state


@overload(_whole)
def _compile_whole(state):
    if not isinstance(state.dtype, types.Float):
        return lambda state: state
    bits = np.dtype(f"u{state.dtype.bitwidth // 8}").type
    return lambda state: state.view(bits)


@njit(cache=True, nogil=True)
def hash_of(state: np.ndarray) -> int:
    """Return a hash of the numbers of a state, of 64 bits."""
    h = FNV_OFFSET
    for number in _whole(state):
        h = (h ^ np.uint64(number)) * FNV_PRIME
        h ^= h >> np.uint64(29)
    return h


@njit(cache=True, nogil=True)
def _apply_all(entry, states, actions):
    for b in range(len(actions)):
        if call2(entry, _at(states, b), actions[b]) == FAILED:
            return b
    return -1


@njit(cache=True, nogil=True)
def _at(rows, b):
    return np.int64(rows.ctypes.data) + b * rows.shape[1]


@njit(cache=True, nogil=True)
def _fill_all(entry, states, out):
    for b in range(len(out)):
        if call2(entry, _at(states, b), _at(out, b)) == FAILED:
            return b
    return -1


@uncounted()
def _turned_all(entry, states, tables, symmetry, out, plain, failed, shared):
    """Write the planes of all states to `out`. plain [k T, C, H W]: room, k rows apart for each thread. failed int64
    [T], -1: the last state for which the game's function failed. Return what `finish_shared` takes."""
    at = np.int64(shared.ctypes.data)
    call = shared_call(at, _turned_part, (entry, states, tables, symmetry, out, plain, failed))
    return call if len(failed) > 1 else call2(call, at, 0)


@inner()
def _turned_part(entry, states, tables, symmetry, out, plain, failed, t):
    num, row_bytes = len(failed), out.shape[1] * out.shape[2] * out.itemsize
    own = t * (len(plain) // num)
    for b in range(t * len(out) // num, (t + 1) * len(out) // num):
        turned = symmetry[b] != 0
        at = np.int64(plain.ctypes.data) + own * row_bytes if turned else np.int64(out.ctypes.data) + b * row_bytes
        if call2(entry, _at(states, b), at) == FAILED:
            failed[t] = b
        elif turned:
            table = tables[symmetry[b]]
            for c in range(out.shape[1]):
                for j in range(out.shape[2]):
                    out[b, c, j] = plain[own, c, table[j]]


@njit(cache=True, nogil=True)
def _result_all(entry, states, ended, value):
    for b in range(len(ended)):
        found = call2(entry, _at(states, b), np.int64(value.ctypes.data) + 4 * value.shape[1] * b)
        if found == FAILED:
            return b
        ended[b] = found != 0
    return -1


@njit(cache=True, nogil=True)
def _player_all(entry, states, player):
    for b in range(len(player)):
        found = call1(entry, _at(states, b))
        if found == FAILED:
            return b
        player[b] = found
    return -1


@njit(cache=True, nogil=True)
def _key_all(entry, states, keys, symmetry):
    for b in range(len(keys)):
        found = call2(entry, _at(states, b), np.int64(keys.ctypes.data) + 8 * b)
        if found == FAILED:
            return b
        symmetry[b] = found
    return -1
