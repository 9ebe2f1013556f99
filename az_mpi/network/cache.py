"""Evaluations remembered: a table of a fixed size from a position's key to what the network said of it.

A position and its turned and mirrored images are one entry: all are turned to the image with the smallest key before
the network sees them. Positions that a batch holds twice are evaluated once.
Shapes: n positions, C planes, H rows, W columns, A actions, K symmetries, E entries.
"""

import numpy as np
from numba import njit

from az_mpi.hashing import FNV_OFFSET, FNV_PRIME, mix

WAYS = 4  # entries a key may be in; the oldest of them makes way


class CachedEvaluator:
    """The network through an engine and a table of at least `entries` entries; `clear` when the weights change."""

    def __init__(self, game, engine, entries):
        self.game, self.engine = game, engine
        sets = 1 << max(0, int(np.ceil(np.log2(entries / WAYS))))
        self._keys = np.zeros((sets, WAYS), np.uint64)  # 0: empty
        self._next = np.zeros(sets, np.uint8)  # which way is the oldest
        self._logits = np.empty((sets * WAYS, game.num_actions), np.float32)
        self._value = np.empty(sets * WAYS, np.float32)
        self._claimed = np.full(sets * WAYS, -1, np.int32)  # row of the batch under way that will fill the entry
        self.positions_num = self.evaluations_num = 0

    def clear(self):
        """Forget everything but the counts."""
        self._keys[:] = 0

    def take_counts(self):
        """Return (positions asked for, positions that the engine evaluated) since the last call."""
        counts = self.positions_num, self.evaluations_num
        self.positions_num = self.evaluations_num = 0
        return counts

    def __call__(self, states):
        """Return (logits float32 [n, A], value float32 [n]) of states [n, S]."""
        game, planes = self.game, self.game.planes(states)
        flat = planes.reshape(*planes.shape[:2], planes.shape[2] * planes.shape[3])
        keys, symmetry = canonical_keys(flat, game.symmetry_cells)
        entry, row, missing = _find(self._keys, self._next, self._claimed, keys)
        self.positions_num += len(states)
        self.evaluations_num += len(missing)
        logits, value = np.empty((len(missing), game.num_actions), np.float32), np.empty(len(missing), np.float32)
        if len(missing):
            cells = game.symmetry_cells[symmetry[missing]]
            turned = np.take_along_axis(flat[missing], cells[:, None, :], axis=2)
            logits, value = self.engine.evaluate(turned.reshape(-1, *game.planes_shape))
        turned_actions = game.symmetry_actions[symmetry]
        return _collect(self._logits, self._value, self._claimed, entry, row, logits, value, missing, turned_actions)


@njit(cache=True, nogil=True)
def canonical_keys(planes, cells):
    """Return (the smallest key over all images of each position, uint64 [n], and which symmetry gives it, int64 [n]).

    planes: uint8 [n, C, H * W]; cells: int32 [K, H * W], see `Game`.
    """
    keys, best = np.empty(len(planes), np.uint64), np.zeros(len(planes), np.int64)
    for i in range(len(planes)):
        keys[i] = np.uint64(0xFFFFFFFFFFFFFFFF)
        for k in range(len(cells)):
            h = FNV_OFFSET
            for c in range(planes.shape[1]):
                for j in cells[k]:
                    h = (h ^ np.uint64(planes[i, c, j])) * FNV_PRIME
            h = max(mix(h), np.uint64(1))  # 0 marks an empty entry
            if h < keys[i]:
                keys[i], best[i] = h, k
    return keys, best


@njit(cache=True, nogil=True)
def _find(table, oldest, claimed, keys):
    """Look up keys. Return, for each position, (its entry, the row of `missing` that evaluates it or -1) and
    which positions must be evaluated. A key that is not there claims the oldest entry of its set at once."""
    n, sets = len(keys), len(table)
    entry, row = np.empty(n, np.int64), np.empty(n, np.int64)
    missing, count = np.empty(n, np.int64), 0
    for i in range(n):
        s = np.int64(keys[i] & np.uint64(sets - 1))
        found = -1
        for way in range(WAYS):
            if table[s, way] == keys[i]:
                found = way
        if found < 0:
            found = oldest[s]
            oldest[s] = (found + 1) % WAYS
            table[s, found] = keys[i]
            claimed[s * WAYS + found] = count
            missing[count] = i
            count += 1
        entry[i] = s * WAYS + found
        row[i] = claimed[entry[i]]
    return entry, row, missing[:count]


@njit(cache=True, nogil=True)
def _collect(logits, value, claimed, entry, row, new_logits, new_value, missing, actions):
    """Return each position's evaluation, turned back, from its row of the new ones or from its entry; then store the
    new ones whose entry no later position of the batch has taken."""
    n, num_actions = len(entry), logits.shape[1]
    out_logits, out_value = np.empty((n, num_actions), np.float32), np.empty(n, np.float32)
    for i in range(n):
        for j in range(num_actions):
            out_logits[i, actions[i, j]] = new_logits[row[i], j] if row[i] >= 0 else logits[entry[i], j]
        out_value[i] = new_value[row[i]] if row[i] >= 0 else value[entry[i]]
    for r in range(len(missing)):
        e = entry[missing[r]]
        if claimed[e] == r:
            logits[e] = new_logits[r]
            value[e] = new_value[r]
    for r in range(len(missing)):
        claimed[entry[missing[r]]] = -1
    return out_logits, out_value
