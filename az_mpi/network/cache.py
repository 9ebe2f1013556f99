"""The evaluation cache: a table of fixed size from a position's key to the network's evaluation of it.

A position and its symmetric images share one entry (`Game.canonical_key`): the network sees one of these images, the
canonical one. A position that occurs twice in a batch is evaluated once. The table keeps the logits of legal actions in
a ring: new ones overwrite the oldest, whose entries are empty from then on.
Shapes: n positions, m positions to evaluate, A actions, E entries, L logits.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from az_mpi.games.base import Game
from az_mpi.games.symmetry import permute
from az_mpi.network.evaluators import Evaluation, Evaluator, NetworkEvaluator, searched

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.network.engines.engine import Engine

WAYS = 4  # entries that a key may be in; a new key replaces the oldest of them
NOBODY = 0  # batches are numbered from 1

# Fields that are read together lie together.
ENTRY = np.dtype(
    [
        ("claimed_by", "<i4"),  # the batch that will fill the entry, which is empty until then; else NOBODY
        ("claimed_row", "<i4"),  # the row of that batch
        ("value", "<f4"),
        ("num", "<i4"),  # number of its logits
        ("first", "<i8"),  # number of its first logit, counted from the first one ever stored
    ],
    align=True,
)
LOGIT = np.dtype([("action", "<i2"), ("logit", "<f4")])  # of a legal action in the canonical image
# keys uint64 [E / WAYS, WAYS], 0: empty; oldest uint8 [E / WAYS], the way to replace next; entry ENTRY [E]; logit LOGIT
# [L], with logit number k at k modulo L; stored int64 [1], the number of logits stored so far.
Table = namedtuple("Table", ["keys", "oldest", "entry", "logit", "stored"])
ENTRY_BYTES, FEW = 8 + 1 / WAYS + ENTRY.itemsize, 4


def network_evaluator(game: Game, engine: "Engine", settings: "schema.Network") -> Evaluator:
    """Return the network in an engine, with the cache that `settings`, `config.network`, asks for."""
    return CachedEvaluator(game, engine, settings.cache_bytes) if settings.cache_bytes else (
        NetworkEvaluator(game, engine))


def table_of(num_bytes: int, num_actions: int) -> Table:
    """Return an empty table of at most `num_bytes` bytes, or of the smallest possible size if that is larger.

    The number of entries is the largest power of two that fits if each position has FEW legal actions. If they have
    more, logits are overwritten earlier."""
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
    """The network in an engine, with a cache of `num_bytes` bytes. Logits of illegal actions are meaningless.

    Call `clear` when the weights change."""

    describe = ""

    def __init__(self, game: Game, engine: "Engine", num_bytes: int):
        self.game, self.engine, self.in_background = game, engine, engine.in_background
        self._table = table_of(num_bytes, game.num_actions)
        self._batch = NOBODY
        self.positions_num = self.evaluations_num = 0

    def clear(self) -> None:
        """Empty the table. Evaluations that are under way are not stored; the counts stay."""
        self._table.keys[:] = 0
        self._table.entry["claimed_by"] = NOBODY

    def take_counts(self) -> tuple[int, int]:
        counts = self.positions_num, self.evaluations_num
        self.positions_num = self.evaluations_num = 0
        return counts

    def begin(self, states: np.ndarray) -> Callable[[], Evaluation]:
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
    """Look up keys [n]. Return (logits [n, A], value [n], entries int64 [n], row int64 [n], missing int64 [m]).

    symmetry: [n], of each position to its canonical image. Positions found in the table get logits, value and row -1.
    The others get the evaluation of position missing[row]. A key that is not in the table, or that another batch is
    still evaluating, claims its entry.
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
    """Fill in the new evaluations, turned back, of the positions that `_look_up` did not find."""
    for i in range(len(row)):
        if row[i] >= 0:
            for j in range(logits.shape[1]):
                logits[i, actions[symmetry[i], j]] = new_logits[row[i], j]
            value[i] = new_value[row[i]]


@njit(cache=True, nogil=True)
def _store(table, batch, entries, legal, new_logits, new_value):
    """Store the evaluations of the positions `missing`, but for those whose entry was claimed again since. entries:
    int64 [m]; legal: uint8 [m, A] in the canonical image."""
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
