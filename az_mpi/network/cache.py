"""Evaluations remembered: a table of a fixed size from a position's key to what the network said of it.

A position and its turned and mirrored images are one entry (`Game.canonical_key`): all are turned to one image before
the network sees them. Positions that a batch holds twice are evaluated once. Of the logits those of legal actions are
kept, in a ring: the oldest make way, and the entries that they belong to hold nothing any more.
Shapes: n positions, C planes, H rows, W columns, A actions, K symmetries, E entries, L logits.
"""

from collections import namedtuple

import numpy as np
from numba import njit

from az_mpi.games.symmetry import permute
from az_mpi.network.evaluators import Evaluator, NetworkEvaluator, searched

WAYS = 4  # entries a key may be in; the oldest of them makes way
NOBODY = 0  # batches are numbered from 1

# What is read together lies together.
ENTRY = np.dtype(
    [
        ("claimed_by", "<i4"),  # the batch that will fill the entry; until then it holds nothing
        ("claimed_row", "<i4"),  # its row there
        ("value", "<f4"),
        ("num", "<i4"),  # of its logits
        ("first", "<i8"),  # of its logits, counted from the first ever stored
    ],
    align=True,
)
LOGIT = np.dtype([("action", "<i2"), ("logit", "<f4")])  # of a legal action, of the image that the network has seen
# keys uint64 [E / WAYS, WAYS], 0: empty; oldest uint8 [E / WAYS], which way; entry ENTRY [E]; logit LOGIT [L], number k
# is at k modulo L; stored int64 [1], how many logits there were.
Table = namedtuple("Table", ["keys", "oldest", "entry", "logit", "stored"])
ENTRY_BYTES, FEW = 8 + 1 / WAYS + ENTRY.itemsize, 4


def network_evaluator(game, engine, settings):
    """Return the network through an engine, with the cache that `config.network` asks for."""
    return CachedEvaluator(game, engine, settings.cache_bytes) if settings.cache_bytes else (
        NetworkEvaluator(game, engine))


def table_of(num_bytes, num_actions):
    """Return an empty table of at most `num_bytes` bytes, or of the fewest that a table needs. It has entries, a power
    of two, for as many positions as fit with FEW legal moves; where they have more, the oldest logits make way."""
    sets = 1 << max(0, int(num_bytes / (ENTRY_BYTES + FEW * LOGIT.itemsize) / WAYS).bit_length() - 1)
    logits = max(int((num_bytes - sets * WAYS * ENTRY_BYTES) / LOGIT.itemsize), num_actions)
    return Table(
        keys=np.zeros((sets, WAYS), np.uint64),
        oldest=np.zeros(sets, np.uint8),
        entry=np.zeros(sets * WAYS, ENTRY),
        logit=np.empty(logits, LOGIT),
        stored=np.zeros(1, np.int64),
    )


class CachedEvaluator(Evaluator):
    """The network through an engine and a table of `num_bytes` bytes; `clear` when the weights change.

    What it says of illegal actions means nothing."""

    describe = ""

    def __init__(self, game, engine, num_bytes):
        self.game, self.engine, self.in_background = game, engine, engine.in_background
        self._table = table_of(num_bytes, game.num_actions)
        self._batch = NOBODY
        self.positions_num = self.evaluations_num = 0

    def clear(self):
        """Forget everything but the counts; what is being evaluated now will not be remembered."""
        self._table.keys[:] = 0
        self._table.entry["claimed_by"] = NOBODY

    def take_counts(self):
        counts = self.positions_num, self.evaluations_num
        self.positions_num = self.evaluations_num = 0
        return counts

    def begin(self, states):
        game, table = self.game, self._table
        self._batch = batch = self._batch % (2**31 - 1) + 1
        keys, symmetry = game.canonical_key(states)
        logits, value, entries, row, missing = _look_up(table, batch, keys, symmetry, game.symmetry_actions)
        self.positions_num += len(states)
        self.evaluations_num += len(missing)
        if not len(missing):
            return lambda: (logits, value)
        planes = game.planes(states[missing])
        flat = planes.reshape(*planes.shape[:2], planes.shape[2] * planes.shape[3])
        turned = permute(flat, game.symmetry_cells, symmetry[missing]).reshape(planes.shape)
        evaluation = self.engine.begin(turned)
        legal = game.legal(states[missing]).view(np.uint8)
        turned_legal = permute(legal[:, None, :], game.symmetry_actions, symmetry[missing]).reshape(legal.shape)

        def complete():
            new_logits, new_value = searched(evaluation())
            _answer(row, symmetry, game.symmetry_actions, new_logits, new_value, logits, value)
            _store(table, batch, entries[missing], turned_legal, new_logits, new_value)
            return logits, value

        return complete


@njit(cache=True, nogil=True)
def _look_up(table, batch, keys, symmetry, actions):
    """Return (logits [n, A], value [n], entries, row, missing) for keys [n], turned back by `symmetry`.

    What is remembered is filled in and has row -1. Of the rest, row says which of the positions `missing`, to be
    evaluated, gives the result. A key that is not there, or that another batch still evaluates, claims its entry.
    """
    n, sets, oldest_logit = len(keys), len(table.keys), table.stored[0] - len(table.logit)
    logits, value = np.zeros((n, actions.shape[1]), np.float32), np.empty(n, np.float32)
    entries, row = np.empty(n, np.int64), np.full(n, -1, np.int64)
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
        entries[i] = s * WAYS + found
        entry = table.entry[entries[i]]
        if known and entry.claimed_by == NOBODY and entry.first >= oldest_logit:
            at = entry.first % len(table.logit)
            for _ in range(entry.num):
                logits[i, actions[symmetry[i], table.logit[at].action]] = table.logit[at].logit
                at = at + 1 if at + 1 < len(table.logit) else 0
            value[i] = entry.value
        else:
            if not known or entry.claimed_by != batch:
                entry.claimed_by, entry.claimed_row = batch, count
                missing[count] = i
                count += 1
            row[i] = entry.claimed_row
    return logits, value, entries, row, missing[:count]


@njit(cache=True, nogil=True)
def _answer(row, symmetry, actions, new_logits, new_value, logits, value):
    """Fill in the evaluations of the positions `missing`, turned back, where `_look_up` knew nothing."""
    for i in range(len(row)):
        if row[i] >= 0:
            for j in range(logits.shape[1]):
                logits[i, actions[symmetry[i], j]] = new_logits[row[i], j]
            value[i] = new_value[row[i]]


@njit(cache=True, nogil=True)
def _store(table, batch, entries, legal, new_logits, new_value):
    """Keep the evaluations of the positions `missing` whose entry nobody has claimed since. entries: int64 [m]; legal:
    uint8 [m, A], of the image that the network has seen."""
    for r in range(len(entries)):
        entry = table.entry[entries[r]]
        if entry.claimed_by == batch and entry.claimed_row == r:
            k, at = table.stored[0], table.stored[0] % len(table.logit)
            entry.first, entry.value, entry.claimed_by = k, new_value[r], NOBODY
            for a in range(legal.shape[1]):
                if legal[r, a]:
                    table.logit[at].action, table.logit[at].logit = a, new_logits[r, a]
                    at = at + 1 if at + 1 < len(table.logit) else 0
                    k += 1
            entry.num, table.stored[0] = k - entry.first, k
