"""Symmetries of boards: their tables, and permuting rows of numbers by them in compiled code."""

import numpy as np
from numba import njit


def dihedral(rows: int, columns: int) -> np.ndarray:
    """Return the rotations and reflections that map a board to itself, int32 [K, rows * columns] as in
    `Game.symmetry_cells`: eight of a square board, four of another one."""
    board = np.arange(rows * columns).reshape(rows, columns)
    turns = range(4) if rows == columns else (0, 2)
    tables = [np.rot90(side, k) for side in (board, board[:, ::-1]) for k in turns]
    return np.stack(tables).reshape(len(tables), -1).astype(np.int32)


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


def turn_cells(planes: np.ndarray, tables: np.ndarray, symmetry: np.ndarray) -> np.ndarray:
    """Return planes [n, C, H, W], position i turned by the symmetry number symmetry[i] of a game's symmetry_cells."""
    flat = planes.reshape(*planes.shape[:2], planes.shape[2] * planes.shape[3])
    return permute(flat, tables, symmetry).reshape(planes.shape)
