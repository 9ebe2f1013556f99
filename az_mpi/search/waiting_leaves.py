"""The leaves for which the compiled loop waits: which of them are to be evaluated, and their states as one batch.

See simulation_loop.py. Shapes: B trees, n games, m evaluations, S bytes of a state.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from az_mpi.core.intrinsics import call2, inner, prefetch, shared_call, uncounted
from az_mpi.search import loop_memory, tree
from az_mpi.search.loop_memory import Scratch
from az_mpi.search.tree import WAITS


@njit(cache=True, nogil=True)
def wanted(trees: tree.Trees, slots: np.ndarray, keys: np.ndarray, rows: np.ndarray, chosen: np.ndarray) -> int:
    """Give each leaf of the trees `slots` that waits the row of its evaluation, and write the trees whose leaves are to
    be evaluated, int64 [n]; return their number m. Leaves with one key share a row; the first stores it.

    keys: `Scratch.keys`. rows: int32 [a power of two, at least 2 n]; without a cache [0]: no leaves share a row."""
    m = 0
    rows[:] = -1
    for i in range(len(slots)):
        b = slots[i]
        this = trees.tree[b]
        if this.stage != WAITS or this.row >= 0:
            continue
        this.stores = len(rows) > 0
        if this.stores:
            place = np.int64(keys[b] & np.uint64(len(rows) - 1))
            while rows[place] >= 0 and keys[slots[rows[place]]] != keys[b]:
                place = (place + 1) % len(rows)
            if rows[place] >= 0:
                this.row = trees.tree[slots[rows[place]]].row
                this.stores = False
                continue
            rows[place] = i
        this.row = m
        chosen[m] = b
        prefetch(loop_memory.state_at(trees, b, np.int64(this.leaf)))
        m += 1
    return m


@uncounted()
def gather(trees: tree.Trees, chosen: np.ndarray, states: np.ndarray, symmetry: np.ndarray, room: Scratch) -> int:
    """Write the leaves of the trees `chosen`, int64 [m], states as bytes [m, S], and their symmetries, int64 [m].

    Return what `simulate` does: see `finish_shared`."""
    at = np.int64(room.shared.ctypes.data)
    num_threads = len(room.told)
    entry = shared_call(at, _gather_part, (trees, chosen, states, symmetry, num_threads))
    return entry if num_threads > 1 else call2(entry, at, 0)


@inner()
def _gather_part(trees, chosen, states, symmetry, num_threads, t):
    for r in range(t * len(chosen) // num_threads, (t + 1) * len(chosen) // num_threads):
        b = chosen[r]
        leaf = np.int64(trees.tree[b].leaf)
        symmetry[r] = trees.tree[b].symmetry
        for k in range(states.shape[1]):
            states[r, k] = trees.state[b, leaf, k]
