"""Arrays whose first byte is the first of a line of memory."""

from typing import Any

import numpy as np

LINE = 64  # bytes that a processor reads from memory together


def empty(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return what `np.empty` does. Records of 32 bytes, for example, lie within one line each."""
    return _begun_on_a_line(np.empty, shape, dtype)


def zeros(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return what `np.zeros` does, as `empty` returns what `np.empty` does."""
    return _begun_on_a_line(np.zeros, shape, dtype)


def _begun_on_a_line(make, shape, dtype):
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = make(num_bytes + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + num_bytes].view(dtype).reshape(shape)
