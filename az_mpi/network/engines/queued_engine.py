"""Engines whose device works in the background: what is on this side of it. Each batch has a lane, which holds its
planes and its outputs in host memory, and is not used for another batch before the device has finished."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from az_mpi.games.base import Game
from az_mpi.network.engines.engine import Engine, pieces

LARGEST = 4096  # positions that the device computes at once
SMALLEST, DOUBLED_TO, STEP = 64, 512, 256  # sizes that it computes: powers of two, then multiples of STEP


class Lane:
    """Host memory of one batch: planes [N, C, H, W], which the device reads, and outputs, {name: float32 [N, …]}, which
    it writes. N is a multiple of LARGEST. pinned: page-locked, so that the device reads and writes it by itself."""

    def __init__(self, num: int, planes: np.ndarray, shapes: dict[str, tuple[int, ...]], pinned: bool):
        """num: of positions, at least. planes: any number of them, for their shape and dtype. shapes: of outputs."""
        whole = -(-num // LARGEST) * LARGEST
        dtype = torch.from_numpy(planes).dtype
        self.planes = torch.zeros((whole, *planes.shape[1:]), dtype=dtype, pin_memory=pinned)
        self.outputs = {name: torch.empty((whole, *shape), pin_memory=pinned) for name, shape in shapes.items()}


class QueuedEngine(Engine):
    """An engine that queues the work on a batch. A subclass defines `_queue`. As many batches as the caller likes are
    under way: each finds a free lane, or gets a new one."""

    in_background = True

    def __init__(self, game: Game, shapes: dict[str, tuple[int, ...]], pinned: bool):
        """shapes: of one position's outputs. pinned: see `Lane`."""
        self._made = np.zeros((0, *game.planes_shape), game.planes_dtype), shapes, pinned
        self._free: list[Lane] = []
        self._next: Lane | None = None  # of which `room` returned `_filled`
        self._filled: np.ndarray | None = None

    def _queue(self, lane: Lane, cuts: Iterator[tuple[slice, int]]) -> Callable[[], None]:
        """Queue the work: for each (rows of the lane, their number, which is a `queued_size`) the device reads these
        planes and writes these outputs. Return a function that waits until it has done so."""
        raise NotImplementedError

    def room(self, num: int) -> np.ndarray:
        if self._next is None and self._free:
            self._next = self._free.pop()
        if self._next is None or len(self._next.planes) < num:
            self._next = Lane(num, *self._made)
        self._filled = self._next.planes.numpy()[:num]
        return self._filled

    def begin(self, planes: np.ndarray) -> Callable[[], dict[str, np.ndarray]]:
        n = len(planes)
        if planes is not self._filled:
            self.room(n)[:] = planes
        used = [self._next]
        self._next = self._filled = None
        wait = self._queue(used[0], _cuts(n))

        def complete():
            wait()
            lane = used.pop()  # so that a second call fails, and no two batches ever get one lane
            outputs = {name: output[:n].numpy().copy() for name, output in lane.outputs.items()}
            self._free.append(lane)
            return outputs

        return complete


def _cuts(n):
    for start, end, _ in pieces(n, LARGEST, SMALLEST):
        size = queued_size(end - start)
        yield slice(start, start + size), size


def queued_size(n: int) -> int:
    """Return how many positions the device computes for a piece of n positions, 1 to LARGEST."""
    if n <= DOUBLED_TO:
        return max(SMALLEST, 1 << (n - 1).bit_length())
    return -(-n // STEP) * STEP
