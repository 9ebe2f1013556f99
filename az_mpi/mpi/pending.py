"""Sums over ranks that do not block."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.mpi.peers import collective

if TYPE_CHECKING:
    from mpi4py import MPI


class PendingSum:
    """A sum over ranks under way. `finished` lets MPI make progress and returns whether `total` is known.

    Counts are gathered on root, and root scatters the sum: MPI's own non-blocking sum passes through other ranks, each
    of which delays it until its next poll.
    """

    LOOKS = 4  # a message that has arrived may need several calls of Test to be seen

    def __init__(self, comm: "MPI.Comm", values: Sequence[int], wait: Callable[[Callable[[], bool]], None]):
        self._wait = wait
        self.comm, is_root = comm, comm.Get_rank() == 0
        sent = np.array(values, np.int64)
        self._received = np.zeros_like(sent)
        self._everyone = np.empty((comm.Get_size(), *sent.shape), np.int64) if is_root else None
        self._to_root, self._from_root = comm.Igather(sent, self._everyone), None
        if not is_root:
            self._from_root = comm.Iscatter(None, self._received)
        self._finished = False

    @collective
    def finished(self) -> bool:
        return self._finished or any(self._advance() for _ in range(self.LOOKS))

    @property
    def total(self) -> list[int]:
        """The sums, a list of ints; blocks until every rank has started this sum."""
        self._wait(self.finished)
        return self._received.tolist()

    def _advance(self):
        if self._from_root is None and self._to_root.Test():
            self._everyone[:] = self._everyone.sum(axis=0)
            self._from_root = self.comm.Iscatter(self._everyone, self._received)
        self._finished = self._from_root is not None and self._to_root.Test() and self._from_root.Test()
        return self._finished
