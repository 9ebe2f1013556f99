"""Data-parallel training with Horovod. The only module that imports it.

Horovod's background thread contacts its peers a thousand times a second even when idle, which slows self-play on the
same cores by 40 %. So Horovod is started for each training phase (1 to 5 ms) and shut down after it.
"""

import atexit
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from az_mpi.liveness import watchdog
from az_mpi.mpi.peers import PeerLost, lost
from az_mpi.mpi.world import World
from az_mpi.train.backends.gradient_sums import GradientSums

MIXED = "Horovod and mpi4py use different MPI libraries"  # both are loaded then: nothing may continue with them


class HorovodBackend:
    """Horovod: a `Backend`.

    gpus: the UUID of each rank's GPU, None for a CPU; () if all train on CPUs.
    """

    def __init__(self, world: World, gpus: Sequence[str | None] = ()):
        self.world = world
        self.remark = ""
        self.problem: str | None = _problem(gpus)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Run Horovod during the block."""
        import horovod.torch as hvd
        from horovod.common.exceptions import HorovodInternalError

        try:
            with watchdog.waiting():
                hvd.init(comm=self.world.comm)
        except ValueError as error:  # if a rank dies while Horovod starts (tools/patch_horovod.py)
            hvd.shutdown()
            if not lost(self.world.comm):
                raise
            raise PeerLost(str(error)) from error
        try:
            yield
            # One rank's shutdown ends Horovod on all ranks, even on one that still waits for its last reduction.
            self.world.barrier()
        except HorovodInternalError as error:
            raise PeerLost(str(error)) from error
        finally:
            with watchdog.waiting():
                hvd.shutdown()
            atexit.unregister(hvd.mpi_ops._basics.shutdown)  # each `init` registers it again

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> Callable[[], None]:
        return GradientSums(list(parameters), HorovodSum).synchronize

    def close(self) -> None:
        """Do nothing: a session leaves nothing open."""

    @staticmethod
    def describe() -> str:
        import horovod
        import horovod.torch as hvd

        return f"horovod {horovod.__version__} ({'NCCL' if hvd.nccl_built() else 'MPI'})"


class HorovodSum:
    """The sum of a bucket of gradients that is under way.

    Horovod's DistributedOptimizer hands over each gradient by itself. For a small network that takes a tenth more
    processor time a step."""

    def __init__(self, bucket: torch.Tensor, number: int):
        import horovod.torch as hvd

        self._hvd = hvd
        self._handle = hvd.allreduce_async_(bucket, name=f"gradients {number}", op=hvd.Sum)

    def wait(self) -> None:
        """Wait for the sum. Raises HorovodInternalError if a rank is lost."""
        self._hvd.synchronize(self._handle)


def _problem(gpus):
    """Return why Horovod cannot sum gradients between these devices, in words, or None."""
    try:
        import horovod.torch as hvd
    except (ImportError, OSError) as error:
        return f"{error}\n  build it with make setup, or train without it: --set train.backend=ddp"
    libraries = sorted(set(re.findall(r"\S*/libmpi(?:_cray|ch)?\.so\S*", Path("/proc/self/maps").read_text())))
    if len(libraries) > 1:
        return (
            f"{MIXED}: {', '.join(libraries)}\n"
            "  build it against this one with make setup MPI_HOME=..., or --set train.backend=ddp"
        )
    if not hvd.mpi_built():
        return "this Horovod was built without MPI\n  make setup builds it with MPI; or --set train.backend=ddp"
    on_gpus = [gpu for gpu in gpus if gpu]
    if len(gpus) > 1 and on_gpus and not hvd.cuda_built():
        return (
            "this Horovod reduces gradients on processors only, and several ranks are to train on GPUs\n"
            "  build it for them with make setup HOROVOD_GPU_OPERATIONS=NCCL, or --set train.backend=ddp,\n"
            "  or --set train.ranks=1"
        )
    if len(set(on_gpus)) < len(on_gpus):
        return (
            "two ranks are to train on one GPU, which NCCL does not allow\n"
            "  start as many ranks a host as it has GPUs, or fewer trainers with --set train.ranks=N"
        )
    return None
