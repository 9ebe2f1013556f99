"""Data-parallel training with torch.distributed, set up over MPI: where Horovod cannot be built or used.

NCCL sums gradients if every trainer has a GPU of its own, gloo (TCP) otherwise. An idle process group costs nothing,
unlike idle Horovod, so one group serves all training phases, until the backend is closed or a session fails.

The groups are not made by `init_process_group`, which names its keys in the store by a count of calls: after a loss
that interrupted only some ranks the counts differ, and the ranks would never find each other.
"""

import atexit
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from az_mpi.liveness import watchdog
from az_mpi.mpi.peers import PeerLost, is_lost, lost
from az_mpi.mpi.world import World
from az_mpi.train.backends import tcp_address
from az_mpi.train.backends.gradient_sums import GradientSums

if TYPE_CHECKING:
    from mpi4py import MPI

CONNECT_S = 300.0  # to connect to root, which may stand still for as long as fault.hang_s
POLL_S = 0.005  # between two checks for lost ranks while a group is made
SUM_POLL_S = 5e-5  # the same during a sum by NCCL, which training waits for


class DdpBackend:
    """torch.distributed: a `Backend`, whose constructor is collective too. Its `problem` is the same on every rank.

    gpus: the name of each rank's board (`placement.board_of`), None for a CPU; () if all train on CPUs.
    """

    def __init__(self, world: World, gpus: Sequence[str | None] = ()):
        self.world = world
        self.remark = ""
        self.problem: str | None = None
        self._group: dist.ProcessGroup | None = None
        self._on_gpus = any(gpus)
        self.carrier = "nccl" if gpus and all(gpus) and len(set(gpus)) == len(gpus) else "gloo"
        self._address = tcp_address.meeting_address(world)
        self._interface = self._address and tcp_address.interface_towards(self._address)
        if not self._address:
            chosen = f" with {tcp_address.INTERFACES}={tcp_address.CHOSEN}" if tcp_address.CHOSEN else ""
            self.problem = (
                f"root has no IPv4 address that every host reaches{chosen}\n"
                f"  open its ports to them, or name a network of all hosts with {tcp_address.INTERFACES}"
            )

    @contextmanager
    def session(self) -> Iterator[None]:
        """Have a process group during the block. The next block uses it too, unless this one fails. Raises PeerLost."""
        try:
            if not all(self.world.collect(self._group is not None)):
                with watchdog.waiting():
                    self._start()
            yield
        except BaseException as error:
            # Gloo closes its connections with the last reference to the group, and sums under way hold references.
            # Ranks that wait for this rank, not for the dead one, fail when its connections are closed.
            traceback.clear_frames(error.__traceback__)
            self.close(failed=True)
            if isinstance(error, RuntimeError) and lost(self.world.comm):  # gloo saw a connection close
                raise PeerLost(str(error)) from error
            raise

    def close(self, failed: bool = False) -> None:
        """End the process group, if there is one; the next session makes another. failed: do not wait for sums that
        are under way."""
        group, self._group = self._group, None
        if group is not None:
            atexit.unregister(self.close)
            with watchdog.waiting():
                # NCCL would wait for a lost rank.
                group.abort() if failed and self.carrier == "nccl" else group.shutdown()
                del group  # gloo ends with its last reference

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> Callable[[], None]:
        return GradientSums(list(parameters), self._sum).synchronize

    def describe(self) -> str:
        over = f" over {self._interface}" if self._interface and self.carrier == "gloo" else ""
        if self.carrier == "gloo" and self._on_gpus:
            over += ", since ranks share a GPU or have none: train.ranks=gpu trains with one rank a GPU, by NCCL"
        return f"torch.distributed {torch.__version__} ({self.carrier}{over})"

    def _sum(self, tensor, number):
        """Begin to add up a bucket over the ranks, in place, and return what waits for it."""
        work = self._group.allreduce(tensor)
        return NcclSum(work, self.world.comm) if self.carrier == "nccl" else work

    def _start(self):
        self.close()  # this rank's old group, if only another rank's has failed
        server = listen(self._address) if self.world.is_root else None
        port = self.world.share(server and server.port)
        # Otherwise gloo takes the address of this host's name, which may be a loopback address.
        os.environ[tcp_address.INTERFACES] = self._interface

        def make():
            store = server or connect(self._address, port)
            return process_group(self.carrier, store, self.world.rank, self.world.size)

        self._group = self._unless_lost(make)
        atexit.register(self.close)  # gloo's threads must end before the interpreter

    def _unless_lost(self, make):
        """Return `make()`, which waits for all ranks. Raises PeerLost if one dies, which `make` does not notice.

        Its thread is left behind then: it waits until torch's timeout, and its result is dropped.
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


def listen(address: str) -> dist.TCPStore:
    """Return the store in which the ranks meet, at one address of this host: torch would listen at all of them."""
    server = socket.create_server((address, 0), backlog=4096)
    port = server.getsockname()[1]
    return dist.TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=server.detach())


def connect(address: str, port: int) -> dist.TCPStore:
    """Connect to the store in which the ranks meet: root's."""
    store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=CONNECT_S))
    store.set_timeout(dist.default_pg_timeout)  # to wait for a key; longer than to connect
    return store


def process_group(carrier: str, store: dist.Store, rank: int, size: int) -> dist.ProcessGroup:
    """Return torch's process group of the ranks 0 to size - 1, which meet in `store`. Collective over them."""
    if carrier != "nccl":
        return dist.ProcessGroupGloo(store, rank, size)
    # With this an error of NCCL is raised by `wait`; otherwise torch ends the process, before a loss can be handled.
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    return dist.ProcessGroupNCCL(store, rank, size)  # not in every build of torch


class NcclSum:
    """A sum by NCCL that is under way. NCCL itself may wait for a lost rank for ever."""

    def __init__(self, work: dist.Work, comm: "MPI.Comm"):
        self._work, self._comm = work, comm

    def wait(self) -> None:
        """Wait for the sum. Raises PeerLost."""
        while not self._work.is_completed():
            if is_lost(self._comm):
                raise PeerLost("a rank died during a sum over GPUs")
            time.sleep(SUM_POLL_S)
        self._work.wait()  # raises what went wrong
