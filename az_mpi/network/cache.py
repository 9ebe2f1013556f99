"""Evaluations remembered: a table of a fixed size from a position's key to what the network said of it.

A position and its turned and mirrored images are one entry (`Game.canonical_key`): all are turned to one image before
the network sees them. Positions that a batch holds twice are evaluated once.
Shapes: n positions, C planes, H rows, W columns, A actions, K symmetries, E entries.
"""

from collections import namedtuple

import numpy as np
from numba import njit

from az_mpi.games.symmetry import permute
from az_mpi.network.evaluators import Evaluator, NetworkEvaluator

WAYS = 4  # entries a key may be in; the oldest of them makes way
NOBODY = 0  # batches are numbered from 1

# keys uint64 [E / WAYS, WAYS], 0: empty; oldest uint8 [E / WAYS], which way; logits float32 [E, A]; value float32 [E];
# claimed_by, claimed_row int32 [E]: the batch, and its row, that will fill the entry; until then it holds nothing.
Table = namedtuple("Table", ["keys", "oldest", "logits", "value", "claimed_by", "claimed_row"])


def network_evaluator(game, engine, settings):
    """Return the network through an engine, with the cache that `config.network` asks for."""
    return CachedEvaluator(game, engine, settings.cache_entries) if settings.cache_entries else (
        NetworkEvaluator(game, engine))


class CachedEvaluator(Evaluator):
    """The network through an engine and a table of at least `entries` entries; `clear` when the weights change."""

    describe = ""

    def __init__(self, game, engine, entries):
        self.game, self.engine, self.in_background = game, engine, engine.in_background
        sets = 1 << max(0, int(np.ceil(np.log2(entries / WAYS))))
        self._table = Table(
            keys=np.zeros((sets, WAYS), np.uint64),
            oldest=np.zeros(sets, np.uint8),
            logits=np.empty((sets * WAYS, game.num_actions), np.float32),
            value=np.empty(sets * WAYS, np.float32),
            claimed_by=np.zeros(sets * WAYS, np.int32),
            claimed_row=np.empty(sets * WAYS, np.int32),
        )
        self._batch = NOBODY
        self.positions_num = self.evaluations_num = 0

    def clear(self):
        """Forget everything but the counts; what is being evaluated now will not be remembered."""
        self._table.keys[:] = 0
        self._table.claimed_by[:] = NOBODY

    def take_counts(self):
        counts = self.positions_num, self.evaluations_num
        self.positions_num = self.evaluations_num = 0
        return counts

    def begin(self, states):
        game, table = self.game, self._table
        self._batch = batch = self._batch % (2**31 - 1) + 1
        keys, symmetry = game.canonical_key(states)
        logits, value, entry, row, missing = _look_up(table, batch, keys, symmetry, game.symmetry_actions)
        self.positions_num += len(states)
        self.evaluations_num += len(missing)
        if not len(missing):
            return lambda: (logits, value)
        planes = game.planes(states[missing])
        flat = planes.reshape(*planes.shape[:2], planes.shape[2] * planes.shape[3])
        turned = permute(flat, game.symmetry_cells, symmetry[missing]).reshape(planes.shape)
        evaluation = self.engine.begin(turned)

        def complete():
            _fill(table, batch, entry, row, symmetry, game.symmetry_actions, missing, *evaluation(), logits, value)
            return logits, value

        return complete


@njit(cache=True, nogil=True)
def _look_up(table, batch, keys, symmetry, actions):
    """Return (logits [n, A], value [n], entry, row, missing) for keys [n], turned back by `symmetry`.

    What is remembered is filled in and has row -1. Of the rest, row says which of the positions `missing`, to be
    evaluated, gives the result. A key that is not there, or that another batch still evaluates, claims its entry.
    """
    n, num_actions, sets = len(keys), table.logits.shape[1], len(table.keys)
    logits, value = np.empty((n, num_actions), np.float32), np.empty(n, np.float32)
    entry, row = np.empty(n, np.int64), np.full(n, -1, np.int64)
    missing, count = np.empty(n, np.int64), 0
    for i in range(n):
        key = max(keys[i], np.uint64(1))  # 0 marks an empty entry
        s = np.int64(key & np.uint64(sets - 1))
        found = -1
        for way in range(WAYS):
            if table.keys[s, way] == key:
                found = way
        known = found >= 0
        if not known:
            found = table.oldest[s]
            table.oldest[s] = (found + 1) % WAYS
            table.keys[s, found] = key
        e = entry[i] = s * WAYS + found
        if known and table.claimed_by[e] == NOBODY:
            for j in range(num_actions):
                logits[i, actions[symmetry[i], j]] = table.logits[e, j]
            value[i] = table.value[e]
        else:
            if not known or table.claimed_by[e] != batch:
                table.claimed_by[e], table.claimed_row[e] = batch, count
                missing[count] = i
                count += 1
            row[i] = table.claimed_row[e]
    return logits, value, entry, row, missing[:count]


@njit(cache=True, nogil=True)
def _fill(table, batch, entry, row, symmetry, actions, missing, new_logits, new_value, logits, value):
    """Fill in the evaluations of the positions `missing`; store those whose entry nobody has claimed since."""
    for i in range(len(entry)):
        if row[i] >= 0:
            for j in range(logits.shape[1]):
                logits[i, actions[symmetry[i], j]] = new_logits[row[i], j]
            value[i] = new_value[row[i]]
    for r in range(len(missing)):
        e = entry[missing[r]]
        if table.claimed_by[e] == batch and table.claimed_row[e] == r:
            for j in range(logits.shape[1]):  # assigning the row would take seconds to compile: its error message does
                table.logits[e, j] = new_logits[r, j]
            table.value[e] = new_value[r]
            table.claimed_by[e] = NOBODY
