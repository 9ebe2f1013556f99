"""Rows of an array as bytes of a message, and back."""

import zlib
from collections.abc import Sequence

import numpy as np


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array, uint8; a view where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def pack(rows: np.ndarray, compress: bool) -> np.ndarray:
    """Return rows as bytes to send, uint8."""
    content = as_bytes(rows)
    return np.frombuffer(zlib.compress(content.data, 1), np.uint8) if compress and len(content) else content


def unpack(parts: Sequence[np.ndarray], like: np.ndarray, compress: bool) -> np.ndarray:
    """Return the rows of all `parts`, each as `pack` gave it, joined; of the dtype and row shape of `like`."""
    if compress:
        parts = [np.frombuffer(zlib.decompress(part.data), np.uint8) if len(part) else part for part in parts]
    return np.concatenate(parts).view(like.dtype).reshape(-1, *like.shape[1:])
