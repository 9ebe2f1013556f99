"""One rank without MPI, for checks before a job and for hosts where MPI does not start. It imports the standard library
only."""

import socket
from collections.abc import Callable
from typing import Any

from az_mpi.mpi import cores


class Alone:
    """The part of `World` that checks use: this process is rank 0 of 1, and collectives return what it gives."""

    rank, size, is_root, local_rank = 0, 1, True, 0

    def __init__(self) -> None:
        self.host = socket.gethostname()
        self.hosts = [self.host]

    def barrier(self) -> None:
        pass

    def collect(self, item: Any) -> list[Any]:
        return [item]

    def share(self, item: Any) -> Any:
        return item

    def from_root(self, make: Callable[[], Any]) -> Any:
        return make()

    def cores(self) -> int:
        """Return this process's number of cores, see `cores.share`."""
        mine = cores.Allowed.here(self.host)
        return cores.share(mine, [mine])
