"""The evaluation cache: a table of fixed size from a position's key to the network's evaluation of it.

A position and its symmetric images share one entry (`Game.canonical_key`): the network sees one of these images, the
canonical one. A position that occurs twice in a batch is evaluated once. The logits of legal actions are in an array of
their own, where new ones overwrite the oldest.

All ranks of a host may use one table at the same time, without locks: an entry has a checksum of all that belongs to
it, so one that another rank is just writing, or whose logits were overwritten, is not found (after Hyatt and Mann 2002,
"A lock-less transposition table implementation for parallel search"). Each rank stores logits in a part of its own.
Shapes: n positions, m positions to evaluate, A actions, E entries, L logits.
"""

import hashlib
from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from az_mpi.core.own_modules import fitting
from az_mpi.games.base import Game
from az_mpi.games.symmetry import permute, turn_cells
from az_mpi.network.evaluators import Evaluation, Evaluator, NetworkEvaluator, searched

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.network.engines.engine import Engine

WAYS = 4  # entries that a key may be in; a new key replaces the oldest of them

KEY, OLDEST = np.dtype(np.uint64), np.dtype(np.uint8)
# Fields that are read together lie together. A uint32 holds the bits of a float32: checksums are of bits.
ENTRY = np.dtype(
    [
        ("checksum", "<u8"),  # of the key, the value and the logits
        ("first", "<i8"),  # place of its first logit
        ("num", "<i4"),  # number of its logits
        ("value", "<u4"),
    ],
    align=True,
)
LOGIT = np.dtype([("action", "<u2"), ("logit", "<u4")])  # of a legal action in the canonical image
# keys uint64 [E / WAYS, WAYS], 0: empty; oldest uint8 [E / WAYS], the way to replace next; entry ENTRY [E]; logit LOGIT
# [L]; part int64 [3]: begin and end of the logits that this process writes, and the place of the next one.
Table = namedtuple("Table", ["keys", "oldest", "entry", "logit", "part"])
ENTRY_BYTES, FEW = KEY.itemsize + ENTRY.itemsize + OLDEST.itemsize / WAYS, 4


def network_evaluator(game: Game, engine: "Engine", settings: "schema.Network") -> Evaluator:
    """Return the network in an engine, with the cache that `settings`, `config.network`, asks for."""
    if settings.cache_bytes:
        return CachedEvaluator(game, engine, settings.cache_bytes)
    return NetworkEvaluator(game, engine)


def table_of(
    num_bytes: int, num_actions: int, memory: np.ndarray | None = None, part: int = 0, parts: int = 1
) -> Table:
    """Return a table of at most `num_bytes` bytes, or of the smallest possible size if that is larger.

    The number of entries is the largest power of two that fits if each position has FEW legal actions. If they have
    more, logits are overwritten earlier.

    memory: uint8 [`table_bytes(...)` or more], aligned to 8 bytes: zeros, or the table of other processes. It was made
    with the same arguments but for `part`. Without `memory` the table gets its own. This process stores logits in
    `part` of `parts`, the number of processes; `num_bytes` is for all of them."""
    sets, logits = _sizes(num_bytes, num_actions, parts)
    if memory is None:
        memory = np.zeros(table_bytes(num_bytes, num_actions, parts), np.uint8)
    arrays = []
    at = 0
    # Those whose numbers must be aligned come first.
    for num, dtype in [(sets * WAYS, KEY), (sets * WAYS, ENTRY), (logits, LOGIT), (sets, OLDEST)]:
        arrays.append(memory[at : at + num * dtype.itemsize].view(dtype))
        at += num * dtype.itemsize
    keys, entry, logit, oldest = arrays
    first = logits // parts * part
    own = np.array([first, first + logits // parts, first])
    return Table(keys.reshape(sets, WAYS), oldest, entry, logit, own)


def table_bytes(num_bytes: int, num_actions: int, parts: int = 1) -> int:
    """Return how many bytes the table takes that `table_of` makes with these arguments."""
    sets, logits = _sizes(num_bytes, num_actions, parts)
    return sets * (WAYS * (KEY.itemsize + ENTRY.itemsize) + OLDEST.itemsize) + logits * LOGIT.itemsize


def _sizes(num_bytes, num_actions, parts):
    """Return (E / WAYS, L) of a table."""
    sets = 1 << max(0, int(num_bytes / (ENTRY_BYTES + FEW * LOGIT.itemsize) / WAYS).bit_length() - 1)
    return sets, max(int((num_bytes - sets * WAYS * ENTRY_BYTES) / LOGIT.itemsize), num_actions * parts)


class CachedEvaluator(Evaluator):
    """The network in an engine, with a cache of `num_bytes` bytes. Logits of illegal actions are meaningless.

    Call `clear` when the weights change."""

    describe = ""

    def __init__(self, game: Game, engine: "Engine", num_bytes: int):
        self.game = game
        self.engine = engine
        self.in_background = engine.in_background
        self.num_bytes = num_bytes
        self._table = table_of(num_bytes, game.num_actions)
        self.num_positions = self.num_evaluations = 0
        self.clear("")

    def bytes_of(self, parts: int) -> int:
        """Return how much memory `share` needs for so many processes."""
        return table_bytes(parts * self.num_bytes, self.game.num_actions, parts)

    def share(self, memory: np.ndarray, part: int, parts: int) -> None:
        """Keep evaluations from now on in this memory, as do `parts` processes of this host, of which this one is
        number `part`. memory: uint8, of `bytes_of(parts)` bytes or more, zeros at first."""
        self._table = table_of(parts * self.num_bytes, self.game.num_actions, memory, part, parts)

    def clear(self, weights: str) -> None:
        # Nothing is erased: the keys of these weights differ from those of others, which are overwritten in time. A
        # batch under way is stored for the weights with which it began.
        name = f"{weights} {self.engine.describe} {self.engine.precision}"
        self._weights = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))
        # So that a run that was resumed here overwrites the same entries as an unbroken one.
        self._table.part[2] = self._table.part[0]

    def take_counts(self) -> tuple[int, int]:
        counts = self.num_positions, self.num_evaluations
        self.num_positions = self.num_evaluations = 0
        return counts

    def begin(self, states: np.ndarray) -> Callable[[], Evaluation]:
        game = self.game
        table = self._table
        keys, symmetry = game.canonical_key(states)
        keys = np.maximum(keys ^ self._weights, np.uint64(1))  # 0 marks an empty entry
        logits, value, row, missing = _look_up(table, keys, symmetry, game.symmetry_actions)
        self.num_positions += len(states)
        self.num_evaluations += len(missing)
        if not len(missing):
            return lambda: (logits.view(np.float32), value.view(np.float32))
        evaluation = self.engine.begin(turn_cells(game, game.planes(states[missing]), symmetry[missing]))
        legal = game.legal(states[missing]).view(np.uint8)
        shape = len(missing), game.num_actions
        turned_legal = permute(legal[:, None, :], game.symmetry_actions, symmetry[missing]).reshape(legal.shape)

        def complete():
            found = fitting(searched(evaluation()), shape, self.engine)
            new = [np.ascontiguousarray(part, np.float32).view(np.uint32) for part in found]
            _answer(row, symmetry, game.symmetry_actions, *new, logits, value)
            _store(table, keys[missing], turned_legal, *new)
            return logits.view(np.float32), value.view(np.float32)

        return complete


@njit(cache=True, nogil=True)
def _look_up(table, keys, symmetry, actions):
    """Look up keys [n]. Return (logits [n, A], value [n], both the bits of float32 as uint32; row int64 [n]; missing
    int64 [m]).

    symmetry: [n], of each position to its canonical image. Positions found in the table get logits, value and row -1.
    The others get the evaluation of position missing[row]; equal keys get the same row.
    """
    n = len(keys)
    logits = np.zeros((n, actions.shape[1]), np.uint32)
    value = np.zeros(n, np.uint32)
    row = np.full(n, -1, np.int64)
    missing = np.empty(n, np.int64)
    count = 0
    num_places = 1
    while num_places < 2 * n:
        num_places *= 2
    rows = np.full(num_places, -1, np.int64)  # a hash table with open addressing: the rows of missing keys
    for i in range(n):
        at = _find(table, keys[i])
        if at >= 0 and _read(table, keys[i], at, actions[symmetry[i]], logits[i], value[i : i + 1]):
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
def _find(table, key):
    """Return the number of a key's entry, -1 if it has none."""
    s = np.int64(key & np.uint64(len(table.keys) - 1))
    for way in range(WAYS):
        if table.keys[s, way] == key:
            return s * WAYS + way
    return -1


@njit(cache=True, nogil=True)
def _read(table, key, at, actions, logits, value):
    """Copy entry number `at` to logits [A] and value [1], turned by `actions`; return whether it is whole and that of
    this key. If not, what was copied is meaningless."""
    first = table.entry[at].first
    num = table.entry[at].num
    value[0] = table.entry[at].value
    if first < 0 or num < 0 or first + num > len(table.logit):
        return False
    checksum = _mix(key, value[0])
    for k in range(first, first + num):
        action = np.int64(table.logit[k].action)
        logit = table.logit[k].logit
        checksum = _mix(checksum, (np.uint64(action) << np.uint64(32)) | np.uint64(logit))
        logits[actions[min(action, len(actions) - 1)]] = logit
    return checksum == table.entry[at].checksum


@njit(cache=True, nogil=True)
def _mix(checksum, number):
    """Return a checksum that has taken up one more number."""
    mixed = (np.uint64(checksum) ^ np.uint64(number)) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


@njit(cache=True, nogil=True)
def _answer(row, symmetry, actions, new_logits, new_value, logits, value):
    """Fill in the new evaluations, turned back, of the positions that `_look_up` did not find."""
    for i in range(len(row)):
        if row[i] >= 0:
            for j in range(logits.shape[1]):
                logits[i, actions[symmetry[i], j]] = new_logits[row[i], j]
            value[i] = new_value[row[i]]


@njit(cache=True, nogil=True)
def _store(table, keys, legal, new_logits, new_value):
    """Store evaluations. keys: uint64 [m]; legal: uint8 [m, A] in the canonical image."""
    begin, end, k = table.part
    for r in range(len(keys)):
        if k + np.int64(legal[r].sum()) > end:
            k = begin
        first = k
        checksum = _mix(keys[r], new_value[r])
        for a in range(legal.shape[1]):
            if legal[r, a]:
                table.logit[k].action, table.logit[k].logit = a, new_logits[r, a]
                checksum = _mix(checksum, (np.uint64(a) << np.uint64(32)) | np.uint64(new_logits[r, a]))
                k += 1
        at = _find(table, keys[r])
        if at < 0:
            s = np.int64(keys[r] & np.uint64(len(table.keys) - 1))
            way = np.int64(table.oldest[s]) % WAYS
            table.oldest[s] = (way + 1) % WAYS
            at = s * WAYS + way
            table.keys[s, way] = keys[r]
        entry = table.entry[at]
        entry.first, entry.num, entry.value, entry.checksum = first, k - first, new_value[r], checksum
    table.part[2] = k
