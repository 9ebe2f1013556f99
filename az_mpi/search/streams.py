"""Random streams for compiled code: one 64-bit word a stream, SplitMix64 (Steele, Lea, Flood 2014).

A stream depends only on its key, so a game draws the same numbers on any rank and beside any other games.
"""

import math

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.core.intrinsics import uncounted

_STEP = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def keyed(seed: int, keys: np.ndarray) -> np.ndarray:
    """Return one stream for each key, uint64 [n], all different for one seed. seed: int; keys: uint64 [n]."""
    streams = np.empty(len(keys), np.uint64)
    base = mix(mix(np.uint64(seed) + _STEP) + _STEP)  # mixed once more than the keys: the two are not interchangeable
    for i in range(len(keys)):
        streams[i] = mix(base ^ mix(np.uint64(keys[i]) + _STEP))
    return streams


@uncounted()
def uniform(streams: np.ndarray, i: int) -> float:
    """Draw from [0, 1) with 53 random bits, advancing stream i."""
    streams[i] += _STEP
    return (mix(streams[i]) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def uniforms(streams: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Draw from [0, 1) for each of these streams, float64 [n], and advance them. rows: int64 [n]."""
    drawn = np.empty(len(rows))
    for i in range(len(rows)):
        drawn[i] = uniform(streams, rows[i])
    return drawn


@uncounted()
def scaled_log_gamma(streams: np.ndarray, i: int, shape: float) -> float:
    """Draw g from Gamma(shape, 1) by Marsaglia and Tsang (2000), advancing stream i; return shape * log(g). Of a small
    shape g itself would underflow, while this stays near the logarithm of a uniform number."""
    boost = 0.0
    factor = shape
    if shape < 1.0:
        boost = math.log(max(uniform(streams, i), 1e-300))
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        # Box-Muller; 1 - u keeps the logarithm finite.
        radius = math.sqrt(-2.0 * math.log(1.0 - uniform(streams, i)))
        x = radius * math.cos(2.0 * math.pi * uniform(streams, i))
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(1.0 - uniform(streams, i)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost + factor * math.log(d * v)
