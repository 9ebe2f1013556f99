"""Data-parallel training with torch.distributed, set up from MPI: where Horovod cannot be built.

NCCL carries the sums where every trainer has a GPU of its own, gloo (TCP) otherwise. An idle process group costs
nothing, unlike an idle Horovod, so one group serves all training phases; it ends with its backend or with a failure.

The groups are objects of our own, not torch's one group of the process (`init_process_group`): that one names its keys
in the store after a count of all attempts, and ranks of which a loss stopped only some would never find each other.
"""

import atexit
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from az_mpi.liveness import watchdog
from az_mpi.mpi.peers import PeerLost, is_lost, lost
from az_mpi.mpi.world import World
from az_mpi.train.backends import tcp_address

CONNECT_S = 300.0  # to where all meet, which may stand still for as long as a rank may (fault.hang_s)
POLL_S = 0.005  # how often MPI is asked for losses while a group is made
BUCKET_BYTES = 1 << 20  # of gradients that travel together while those of earlier layers are computed


class DdpBackend:
    """torch.distributed over the ranks of `world`. Making one and every method is collective over that world.

    gpus: the UUID of each rank's GPU, None for a processor; () where all train on processors.
    problem: why it cannot be used, in words, or None; the same on every rank.
    """

    def __init__(self, world: World, gpus: Sequence[str | None] = ()):
        self.world, self.problem, self._group = world, None, None
        self.carrier = "nccl" if gpus and all(gpus) and len(set(gpus)) == len(gpus) else "gloo"
        self._address = tcp_address.meeting_address(world) if world.size > 1 else None
        self._interface = self._address and tcp_address.interface_towards(self._address)
        if world.size > 1 and not self._address:
            chosen = f" with {tcp_address.INTERFACES}={tcp_address.CHOSEN}" if tcp_address.CHOSEN else ""
            self.problem = (f"root has no IPv4 address that every host reaches{chosen}\n"
                            f"  open its ports to them, or name a network of all hosts with {tcp_address.INTERFACES}")

    @contextmanager
    def session(self) -> Iterator[None]:
        """Have a process group while the block lasts. It is kept for the next block, unless this one fails."""
        try:
            if self.world.size > 1 and not all(self.world.collect(self._group is not None)):
                with watchdog.waiting():
                    self._start()
            yield
        except BaseException as error:
            # Gloo's connections close with the last reference to the group, which sums under way have too. The ranks
            # that wait for this one, and not for the dead one, learn by it that theirs will never end.
            traceback.clear_frames(error.__traceback__)
            self.close()
            if isinstance(error, RuntimeError) and lost(self.world.comm):  # gloo saw a connection close
                raise PeerLost(str(error)) from error
            raise

    def close(self) -> None:
        """End the process group, if there is one; the next session makes another. Not collective."""
        group, self._group = self._group, None
        if group is not None:
            atexit.unregister(self.close)
            with watchdog.waiting():
                group.shutdown()
                del group  # gloo's end is that of its last reference

    def wrap(self, optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> Any:
        """Return the optimiser with gradients summed over ranks by `synchronize`, as Horovod's are."""
        parameters = [parameter for _, parameter in named_parameters]
        sums = GradientSums(parameters, self._sum) if self.world.size > 1 else None
        optimizer.synchronize = sums.synchronize if sums else lambda: None
        optimizer.skip_synchronize = nullcontext  # its step never synchronises
        return optimizer

    def describe(self) -> str:
        """Return torch.distributed's version and what carries its reductions, one line."""
        over = f" over {self._interface}" if self._interface and self.carrier == "gloo" else ""
        return f"torch.distributed {torch.__version__} ({self.carrier}{over})"

    def _sum(self, tensor):
        """Begin to add up a tensor over the ranks, in place, and return what waits for it."""
        return self._group.allreduce(tensor)

    def _start(self):
        self.close()  # of this rank, where another one's has failed
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if self.world.is_root else None
        port = self.world.share(server and server.port)
        # Without this gloo would look up this host's name, which may lead to loopback.
        os.environ[tcp_address.INTERFACES] = self._interface

        def make():
            store = server or connect(self._address, port)
            return process_group(self.carrier, store, self.world.rank, self.world.size)

        self._group = self._unless_lost(make)
        atexit.register(self.close)  # of a program that Python tidies up: gloo's threads come back to it

    def _unless_lost(self, make):
        """Return `make()`, which waits for all ranks and cannot know that one of them is dead. Raises PeerLost then.

        Where that happens its thread is left behind. It waits for the dead until torch's time is up, and what it
        would have made is nobody's.
        """
        made = Future()

        def work():
            try:
                made.set_result(make())
            except BaseException as error:
                made.set_exception(error)

        threading.Thread(target=work, name="process-group", daemon=True).start()
        while not wait([made], POLL_S).done:
            if is_lost(self.world.comm):
                raise PeerLost("a rank died while the process group was made")
        return made.result()


def connect(address: str, port: int) -> dist.TCPStore:
    """Return this rank's access to the store in which the ranks meet, root's."""
    store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=CONNECT_S))
    store.set_timeout(dist.default_pg_timeout)  # what is waited for there may take longer
    return store


def process_group(carrier: str, store: dist.Store, rank: int, size: int) -> dist.ProcessGroup:
    """Return torch's process group of ranks that meet in `store`. Every rank of 0 … size - 1 makes one."""
    kind = dist.ProcessGroupNCCL if carrier == "nccl" else dist.ProcessGroupGloo  # not in every build of torch
    return kind(store, rank, size)


class GradientSums:
    """Sums gradients over the ranks in buckets, each under way as soon as backward has made all of it."""

    def __init__(self, parameters: list[torch.nn.Parameter], begin_sum: Callable[[torch.Tensor], Any]):
        self._begin_sum, self._buckets, size = begin_sum, [[]], 0
        for parameter in reversed(parameters):  # the order, nearly, in which backward makes their gradients
            if size >= BUCKET_BYTES:
                self._buckets.append([])
                size = 0
            self._buckets[-1].append(parameter)
            size += parameter.nbytes
            parameter.register_post_accumulate_grad_hook(self._arrived)
        self._arrivals, self._under_way = set(), []

    def synchronize(self) -> None:
        """Wait until every gradient is the sum over ranks. A rank without a gradient adds zeros. Collective."""
        try:
            self._begin(len(self._buckets))
            for (work, total), bucket in zip(self._under_way, self._buckets, strict=True):
                work.wait()
                parts = total.split([parameter.numel() for parameter in bucket])
                for parameter, part in zip(bucket, parts):
                    parameter.grad = part.view_as(parameter)
        finally:
            self._arrivals, self._under_way = set(), []

    def _arrived(self, parameter):
        self._arrivals.add(parameter)
        ready = len(self._under_way)
        while ready < len(self._buckets) and self._arrivals.issuperset(self._buckets[ready]):
            ready += 1
        self._begin(ready)

    def _begin(self, end):
        """Begin the sums of all buckets before `end`, in the same order on every rank."""
        for bucket in self._buckets[len(self._under_way) : end]:
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            total = torch.cat([part.reshape(-1) for part in parts])
            self._under_way.append((self._begin_sum(total), total))
