"""Permuting rows of numbers by tables, as a game's symmetries do, in compiled code."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def permute(values: np.ndarray, tables: np.ndarray, symmetry: np.ndarray) -> np.ndarray:
    """Return values [n, C, M] with element j of each row i taken from tables[symmetry[i], j]; tables: int32 [K, M]."""
    permuted = np.empty(values.shape, values.dtype)
    for i in range(len(values)):
        table = tables[symmetry[i]]
        for c in range(values.shape[1]):
            for j in range(values.shape[2]):
                permuted[i, c, j] = values[i, c, table[j]]
    return permuted
