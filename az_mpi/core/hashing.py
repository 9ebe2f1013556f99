"""Hashing in compiled code: FNV-1a over bytes, and the mixer of SplitMix64 (Steele, Lea, Flood 2014)."""

import numpy as np
from numba import njit

FNV_OFFSET = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)


@njit(cache=True, nogil=True)
def mix(word: np.uint64) -> np.uint64:
    """Return the output function of SplitMix64 of one uint64: a bijection whose bits look independent."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
