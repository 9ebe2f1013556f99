"""The back ends that sum gradients over the trainers, by their names in the configuration."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from az_mpi.core.problems import Refusal
from az_mpi.mpi.placement import board_of
from az_mpi.mpi.world import World
from az_mpi.train.backends.ddp_backend import DdpBackend
from az_mpi.train.backends.horovod_backend import MIXED, HorovodBackend
from az_mpi.train.backends.local_backend import LocalBackend


class Backend(Protocol):
    """What sums gradients over the trainers, the ranks of `world`. All methods but `close` are collective over them."""

    world: World
    problem: str | None  # why it cannot be used, in words
    remark: str  # why it is used in place of another one: a note for the start-up table; "" for none

    def session(self) -> AbstractContextManager[None]:
        """Sum gradients in the block, which training steps need. Raises PeerLost if a rank has died, or has left
        because another one died."""
        ...

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> Callable[[], None]:
        """Let `backward` begin the sums of these parameters' gradients, in every session from now on. Return the
        function that waits after it until the gradients are the sums over the trainers."""
        ...

    def close(self) -> None:
        """End what a session has left open for the next one. Not collective."""

    def describe(self) -> str:
        """Return what carries the sums, with its version, one line."""
        ...


# Each is made from the world of the trainers and the name of each one's board, None for a CPU.
KINDS: dict[str, Callable[[World, Sequence[str | None]], Backend]] = {"horovod": HorovodBackend, "ddp": DdpBackend}


def make(name: str, world: World, trainers: World | None, device: str) -> Backend | None:
    """Return the backend called `name` over the world `trainers`; None if that is None. A single trainer has nothing to
    sum and gets `LocalBackend`. Collective over world.

    name: of KINDS, or "auto": the first of them that every rank can use; the backend's `remark` says why it is not the
    first one. device: the torch device that this rank trains on. Raises Refusal, on every rank, if a rank cannot use
    the backend, or if loading Horovod has loaded another MPI.
    """
    problems: list[str] = []
    for kind in KINDS if name == "auto" else (name,):
        backend: Backend | None = None
        if trainers:
            gpus = trainers.collect(board_of(device, world.host))
            backend = LocalBackend(trainers) if trainers.size == 1 else KINDS[kind](trainers, gpus)
        found = world.collect(backend and backend.problem)
        ranks = [rank for rank, problem in enumerate(found) if problem]
        if not ranks:
            if backend and problems:
                backend.remark = f"{kind} sums the gradients: {problems[0].splitlines()[0]}"
            return backend
        problems.append(f'"{kind}" cannot be used on rank {ranks}: {found[ranks[0]]}')
        if any(problem and problem.startswith(MIXED) for problem in found):
            break
    raise Refusal("train.backend: " + "\n".join(problems))
