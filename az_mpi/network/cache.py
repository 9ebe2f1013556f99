"""The evaluation cache: an evaluator that asks the network only for positions that it has not seen.

`core.evaluation_table` has the table. A position that occurs twice in a batch is evaluated once. Shapes: n positions,
m positions to evaluate, A actions, V values.
"""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from az_mpi.core import evaluation_table
from az_mpi.core.evaluation_table import Known, table_bytes, table_of
from az_mpi.core.own_modules import fitting
from az_mpi.core.players import num_values
from az_mpi.games.base import Game
from az_mpi.network.evaluators import Evaluation, Evaluator, NetworkEvaluator

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.network.engines.engine import Engine


def network_evaluator(game: Game, engine: "Engine", settings: "schema.Network") -> Evaluator:
    """Return the network in an engine, with the cache that `settings`, `config.network`, asks for."""
    if settings.cache_bytes:
        return CachedEvaluator(game, engine, settings.cache_bytes)
    return NetworkEvaluator(game, engine)


class CachedEvaluator(NetworkEvaluator):
    """The network in an engine, with a cache of `num_bytes` bytes. Logits of illegal actions are meaningless.

    Call `clear` when the weights change."""

    def __init__(self, game: Game, engine: "Engine", num_bytes: int):
        super().__init__(game, engine)
        self.num_bytes = num_bytes
        self._keep(table_of(num_bytes, game.num_actions))
        self.num_positions = self.num_evaluations = 0
        self.clear("")

    def bytes_of(self, parts: int) -> int:
        """Return how much memory `share` needs for so many processes."""
        return table_bytes(parts * self.num_bytes, self.game.num_actions, parts)

    def share(self, memory: np.ndarray, part: int, parts: int) -> None:
        """Keep evaluations from now on in this memory, as do `parts` processes of this host, of which this one is
        number `part`. memory: uint8, of `bytes_of(parts)` bytes or more, zeros at first."""
        self._keep(table_of(parts * self.num_bytes, self.game.num_actions, memory, part, parts))

    def _keep(self, table):
        self._table, self._parts = table, evaluation_table.parts_of(table, 1)

    def clear(self, weights: str) -> None:
        # Nothing is erased: the keys of these weights differ from those of others, which are overwritten in time. A
        # batch under way is stored for the weights with which it began.
        name = f"{weights} {self.engine.describe} {self.engine.precision}"
        self._weights = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))
        # So that a run that was resumed here overwrites the same entries as an unbroken one.
        self._table.part[2] = self._table.part[0]
        self._parts[:, 2] = self._parts[:, 0]

    def known(self, num_threads: int) -> Known:
        if len(self._parts) != num_threads:
            self._parts = evaluation_table.parts_of(self._table, num_threads)
        return evaluation_table.known(self._table, self._parts, self._weights)

    def count(self, num_positions: int, num_evaluations: int) -> None:
        self.num_positions += num_positions
        self.num_evaluations += num_evaluations

    def take_counts(self) -> tuple[int, int]:
        counts = self.num_positions, self.num_evaluations
        self.num_positions = self.num_evaluations = 0
        return counts

    def begin(self, states: np.ndarray) -> Callable[[], Evaluation]:
        game = self.game
        table = self._table
        keys, symmetry = game.canonical_key(states)
        keys = np.maximum(keys ^ self._weights, np.uint64(1))  # 0 marks an empty entry
        several = num_values(game.num_players)
        logits, value, row, missing = _look_up(table, keys, symmetry, game.symmetry_actions, several)
        self.count(len(states), len(missing))
        if not len(missing):
            return lambda: _as_evaluation(logits, value)
        evaluation = self.begin_turned(states[missing], symmetry[missing])
        legal = game.legal(states[missing])
        shape = len(missing), game.num_actions

        def complete():
            found = fitting(evaluation(), shape, several, self.engine)
            new = [np.ascontiguousarray(part, np.float32).reshape(shape[0], -1).view(np.uint32) for part in found]
            _answer(row, symmetry, game.symmetry_actions, *new, logits, value)
            _store_all(table, keys[missing], legal, game.symmetry_actions, symmetry[missing], *new)
            return _as_evaluation(logits, value)

        return complete


def _as_evaluation(logits, value):
    """Return an evaluation from the bits of logits [n, A] and value [n, V]."""
    value = value.view(np.float32)
    return logits.view(np.float32), value[:, 0] if value.shape[1] == 1 else value


@njit(cache=True, nogil=True)
def _look_up(table, keys, symmetry, actions, num_values):
    """Look up keys [n]. Return (logits [n, A], value [n, V], both the bits of float32 as uint32; row int64 [n]; missing
    int64 [m]).

    symmetry: [n], of each position to its canonical image. Positions found in the table get logits, value and row -1.
    The others get the evaluation of position missing[row]; equal keys get the same row.
    """
    n = len(keys)
    logits = np.zeros((n, actions.shape[1]), np.uint32)
    value = np.zeros((n, num_values), np.uint32)
    row = np.full(n, -1, np.int64)
    missing = np.empty(n, np.int64)
    count = 0
    num_places = 1
    while num_places < 2 * n:
        num_places *= 2
    rows = np.full(num_places, -1, np.int64)  # a hash table with open addressing: the rows of missing keys
    for i in range(n):
        at = evaluation_table.find(table, keys[i])
        if at >= 0 and evaluation_table.read(table, keys[i], at, actions, symmetry[i], logits[i], value[i]):
            continue
        place = np.int64(keys[i] & np.uint64(num_places - 1))
        while rows[place] >= 0 and keys[missing[rows[place]]] != keys[i]:
            place = (place + 1) % num_places
        if rows[place] < 0:
            rows[place], missing[count] = count, i
            count += 1
        row[i] = rows[place]
    return logits, value, row, missing[:count]


@njit(cache=True, nogil=True)
def _answer(row, symmetry, actions, new_logits, new_value, logits, value):
    """Fill in the new evaluations, turned back, of the positions that `_look_up` did not find."""
    for i in range(len(row)):
        if row[i] >= 0:
            for j in range(logits.shape[1]):
                logits[i, actions[symmetry[i], j]] = new_logits[row[i], j]
            for k in range(value.shape[1]):
                value[i, k] = new_value[row[i], k]


@njit(cache=True, nogil=True)
def _store_all(table, keys, legal, actions, symmetry, logits, value):
    for r in range(len(keys)):
        evaluation_table.store(table, table.part, keys[r], legal[r], actions, symmetry[r], logits, r, value[r])
