"""The back ends that sum gradients over the trainers, by their names in the configuration."""

from az_mpi.core.problems import Refusal
from az_mpi.mpi.placement import gpu_of
from az_mpi.mpi.world import World
from az_mpi.train.backends.ddp_backend import DdpBackend
from az_mpi.train.backends.horovod_backend import MIXED, HorovodBackend
from az_mpi.train.backends.local_backend import LocalBackend

Backend = HorovodBackend | DdpBackend | LocalBackend
KINDS: dict[str, type[HorovodBackend] | type[DdpBackend]] = {"horovod": HorovodBackend, "ddp": DdpBackend}


def make(name: str, world: World, trainers: World | None, device: str) -> Backend | None:
    """Return the backend called `name` over the world `trainers`; None if that is None. A single trainer has nothing to
    sum and gets `LocalBackend`. Collective over world.

    name: of KINDS, or "auto": the first of them that every rank can use; the backend's `remark` says why it is not the
    first one. device: the torch device that this rank trains on. Raises Refusal, on every rank, if a rank cannot use
    the backend, or if loading Horovod has loaded another MPI.
    """
    problems: list[str] = []
    for kind in KINDS if name == "auto" else (name,):
        backend = None
        if trainers:
            gpus = trainers.collect(gpu_of(device))
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
