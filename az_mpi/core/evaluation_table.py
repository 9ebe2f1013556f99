"""The table of the evaluation cache: from a position's key to the network's evaluation of it.

A position and its symmetric images share one entry (`Game.canonical_key`): the network sees one of these images, the
canonical one. The logits of legal actions are in an array of their own, where new ones overwrite the oldest.

All ranks of a host, and all threads of a rank, may use one table at the same time, without locks: an entry has a
checksum of all that belongs to it, so one that another rank is just writing, or whose logits were overwritten, is not
found (after Hyatt and Mann 2002, "A lock-less transposition table implementation for parallel search"). Each stores
logits in a part of its own. Shapes: A actions, E entries, L logits.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from az_mpi.core import aligned
from az_mpi.core.aligned import LINE
from az_mpi.core.intrinsics import inlined, prefetch

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
# Of a legal action in the canonical image. An evaluation with several values has, after these, all values but the first
# as "actions" A, A + 1, and so on.
LOGIT = np.dtype([("action", "<u2"), ("logit", "<u4")])
# keys uint64 [E / WAYS, WAYS], 0: empty; oldest uint8 [E / WAYS], the way to replace next; entry ENTRY [E]; logit LOGIT
# [L]; part int64 [3]: begin and end of the logits that this process writes, and the place of the next one.
Table = namedtuple("Table", ["keys", "oldest", "entry", "logit", "part"])
SET_BYTES = WAYS * KEY.itemsize
_ENTRY_SIZE, _LOGIT_SIZE = ENTRY.itemsize, LOGIT.itemsize  # compiled code cannot read these
ENTRY_BYTES, FEW = KEY.itemsize + ENTRY.itemsize + OLDEST.itemsize / WAYS, 4


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
        memory = aligned.zeros(table_bytes(num_bytes, num_actions, parts), np.uint8)
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


@inlined()
def find(table: Table, key: int) -> int:
    """Return the number of a key's entry, -1 if it has none."""
    s = _set_of(table, key)
    for way in range(WAYS):
        if table.keys[s, way] == key:
            return s * WAYS + way
    return -1


@inlined()
def ask_for_set(table: Table, key: int) -> None:
    """Ask the processor for what `find` reads for a key."""
    prefetch(np.int64(table.keys.ctypes.data) + _set_of(table, key) * SET_BYTES)


@inlined()
def ask_for_entries(table: Table, key: int) -> None:
    """Ask the processor for what `store` writes for a key, beside its logits."""
    s = _set_of(table, key)
    first = np.int64(table.entry.ctypes.data) + s * WAYS * _ENTRY_SIZE
    prefetch(first)
    prefetch(first + WAYS * _ENTRY_SIZE - 1)
    prefetch(np.int64(table.oldest.ctypes.data) + s)


@inlined()
def ask_for_entry(table: Table, at: int) -> None:
    """Ask the processor for entry number `at`."""
    prefetch(np.int64(table.entry.ctypes.data) + at * _ENTRY_SIZE)


@inlined()
def ask_for_logits(table: Table, at: int) -> None:
    """Ask the processor for the first logits of entry number `at`: eleven, which a line has room for, or a few more."""
    first = np.int64(table.logit.ctypes.data) + table.entry[at].first * _LOGIT_SIZE
    prefetch(first)
    prefetch(first + LINE)


@inlined()
def _set_of(table, key):
    return np.int64(key & np.uint64(len(table.keys) - 1))


@inlined()
def read(
    table: Table, key: int, at: int, actions: np.ndarray, symmetry: int, logits: np.ndarray, value: np.ndarray
) -> bool:
    """Copy entry number `at` to logits [A] and value [V], both uint32; return whether it is whole and that of this key.
    If not, what was copied is meaningless. Action a of the entry is action actions[symmetry, a] of the position."""
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
        if action < actions.shape[1]:
            logits[actions[symmetry, action]] = logit
        else:
            value[min(action - actions.shape[1] + 1, len(value) - 1)] = logit
    return checksum == table.entry[at].checksum


@inlined()
def _mix(checksum, number):
    """Return a checksum that has taken up one more number."""
    mixed = (np.uint64(checksum) ^ np.uint64(number)) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


@inlined()
def store(
    table: Table,
    part: np.ndarray,
    key: int,
    legal: np.ndarray,
    actions: np.ndarray,
    symmetry: int,
    logits: np.ndarray,
    row: int,
    value: np.ndarray,
) -> None:
    """Store an evaluation. part: `Table.part`, or one like it. logits: uint32 [n, A], the bits of float32, of which
    `row` is that of the canonical image, whose action a is action actions[symmetry, a] of the position; legal: bool
    [A], of the position. value: uint32 [V], the bits of float32."""
    num = len(value) - 1
    for a in range(len(legal)):
        num += legal[a]
    if num > part[1] - part[0]:  # a part of a thread may be small
        return
    first = part[2] if part[2] + num <= part[1] else part[0]
    k = first
    checksum = _mix(key, value[0])
    for a in range(len(legal)):
        if legal[actions[symmetry, a]]:
            table.logit[k].action, table.logit[k].logit = a, logits[row, a]
            checksum = _mix(checksum, (np.uint64(a) << np.uint64(32)) | np.uint64(logits[row, a]))
            k += 1
    for a in range(len(legal), len(legal) + len(value) - 1):
        more = value[a - len(legal) + 1]
        table.logit[k].action, table.logit[k].logit = a, more
        checksum = _mix(checksum, (np.uint64(a) << np.uint64(32)) | np.uint64(more))
        k += 1
    part[2] = k
    at = find(table, key)
    if at < 0:
        s = _set_of(table, key)
        way = np.int64(table.oldest[s]) % WAYS
        table.oldest[s] = (way + 1) % WAYS
        at = s * WAYS + way
        table.keys[s, way] = key
    entry = table.entry[at]
    entry.first, entry.num, entry.value, entry.checksum = first, num, value[0], checksum


class Known(NamedTuple):
    """Where a search finds evaluations that are known, and stores new ones: a `Table`, without entries if there is no
    cache, of which each thread has a part.

    parts: int64 [T, LINE], `Table.part` for each thread of this process, in the first three columns: threads that write
    to one line of memory would wait for each other. weights: uint64, is mixed into the keys, so that
    evaluations by other weights are not found."""

    keys: np.ndarray
    oldest: np.ndarray
    entry: np.ndarray
    logit: np.ndarray
    parts: np.ndarray
    weights: np.uint64


def parts_of(table: Table, num_threads: int) -> np.ndarray:
    """Divide the logits that this process writes among its threads, int64 [T, LINE], see `Known`."""
    begin, end, _ = table.part
    edges = np.linspace(begin, end, num_threads + 1).astype(np.int64)
    parts = np.zeros((num_threads, LINE), np.int64)
    parts[:, 0], parts[:, 1], parts[:, 2] = edges[:-1], edges[1:], edges[:-1]
    return parts


def known(table: Table, parts: np.ndarray, weights: np.uint64) -> Known:
    """Return a table as a search takes it."""
    return Known(*table[:4], parts, weights)


def nothing(num_threads: int) -> Known:
    """Return what a search without a cache is given."""
    return known(NO_TABLE, np.zeros((num_threads, LINE), np.int64), np.uint64(0))


NO_TABLE = Table(
    np.zeros((0, WAYS), KEY), np.zeros(0, OLDEST), np.zeros(0, ENTRY), np.zeros(0, LOGIT), np.zeros(3, np.int64)
)
