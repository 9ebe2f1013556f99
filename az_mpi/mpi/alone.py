"""A world of one rank without MPI, for what is checked before a job: the functions of a start run in it as they are."""

import json
import socket
from typing import Any

import numpy as np

from az_mpi.mpi.world import World


class Alone(World):
    """This process as the only rank, rank 0, of a job. It has the collectives that a start needs before it makes
    communicators of its own; they return what this rank gives."""

    def __init__(self) -> None:
        self.rank, self.size, self.local_rank, self.is_root = 0, 1, 0, True
        self.host = socket.gethostname()
        self.hosts = [self.host]

    def collect(self, item: Any) -> list[Any]:
        return [json.loads(json.dumps(item))]

    def broadcast(self, array: np.ndarray | None, source: int = 0, into: np.ndarray | None = None) -> np.ndarray:
        return np.ascontiguousarray(array)

    def barrier(self) -> None:
        pass
