"""The back ends that sum gradients over the trainers, by their names in the configuration."""

from az_mpi.core.problems import Refusal
from az_mpi.mpi.placement import gpu_of
from az_mpi.mpi.world import World
from az_mpi.train.backends.ddp_backend import DdpBackend
from az_mpi.train.backends.horovod_backend import HorovodBackend
from az_mpi.train.backends.local_backend import LocalBackend

Backend = HorovodBackend | DdpBackend | LocalBackend
KINDS: dict[str, type[Backend]] = {"horovod": HorovodBackend, "ddp": DdpBackend}


def make(name: str, world: World, trainers: World | None, device: str) -> Backend | None:
    """Return the backend called `name` over the world `trainers`; None if that is None. A single trainer has nothing to
    sum and gets `LocalBackend`. Collective over world.

    device: the torch device that this rank trains on. Raises Refusal, on every rank, if a rank cannot use the backend.
    """
    kind = LocalBackend if trainers and trainers.size == 1 else KINDS[name]
    backend = kind(trainers, trainers.collect(gpu_of(device))) if trainers else None
    problems = world.collect(backend and backend.problem)
    if ranks := [rank for rank, problem in enumerate(problems) if problem]:
        raise Refusal(f'train.backend: "{name}" cannot be used on rank {ranks}: {problems[ranks[0]]}')
    return backend
