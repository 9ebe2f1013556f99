"""The ranks of one MPI job, as the rest of the program sees them. The only module that imports mpi4py.

Every method marked "Collective" must be called by every rank of the world, in the same order. Waiting sleeps between
polls instead of spinning, so that a waiting rank leaves its core to a working one. Bulk data is sent as buffers in
rounds of at most `chunk_bytes` a rank, so that no message or displacement comes near 2 GiB.
"""

import functools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from az_mpi.core import room
from az_mpi.core.host_facts import free_bytes
from az_mpi.core.problems import NotNow, Refusal
from az_mpi.core.waiting import poll
from az_mpi.liveness import watchdog
from az_mpi.mpi import cores
from az_mpi.mpi.messages import as_bytes, pack, unpack
from az_mpi.mpi.peers import PeerLost, collective
from az_mpi.mpi.pending import PendingSum

if TYPE_CHECKING:
    from mpi4py import MPI

Made = TypeVar("Made")
Rebuilt = TypeVar("Rebuilt")
LONGEST_SLEEP_S, LONGEST_SLEEP_BESIDE_S = 0.002, 0.02
ABORT_S = 3.0  # for MPI to end the job


class World:
    """Ranks 0 … size - 1 of an MPI communicator; rank 0 is root. Made by `start` and `split`. Collective."""

    # Seconds that this rank has spent in collectives, waiting for others or for bulk data. One count for all worlds of
    # a process: a rank waits in one place at a time. Time in Horovod does not count.
    waited_s = 0.0
    # Whether the job continues when a rank dies. False until `start`, which sets it if mpirun has --with-ft ulfm.
    survives = False
    # Bytes of bulk data that this rank has sent to others. Horovod's do not count.
    sent_bytes = 0

    @collective
    def __init__(self, comm: "MPI.Comm", chunk_bytes: int = 1 << 28):
        from mpi4py import MPI

        self._mpi, self.comm, self.chunk_bytes, self._wait_for = MPI, comm, chunk_bytes, wait
        self._sums = comm.Dup()  # so that a sum may be under way during other collectives
        self._derived: list[World] = []
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.is_root = self.rank == 0
        self.host = socket.gethostname()
        self.hosts: list[str] = self.collect(self.host)
        # Selects a device, and a part of shared memory, on this host; never used as a rank.
        self.local_rank = self.hosts[: self.rank].count(self.host)

    @classmethod
    def start(cls) -> "World":
        """Join the job that mpirun or srun started; without one, be a world of one rank."""
        # Horovod waits inside MPI, and must yield its core if threads outnumber cores. Open MPI reads this once.
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
        if not any(name.startswith(("OMPI_COMM_", "PMIX_", "PMI_")) for name in os.environ):
            # Started without mpirun, hence without the settings of tools/setup.sh: this one saves a second.
            os.environ.setdefault("OMPI_MCA_btl", "^ofi,sm")  # a rank alone needs no room in /dev/shm
        note = room.fit_into_shared_memory(free_bytes("/dev/shm"))
        if note and os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0") == "0":
            print(f"{socket.gethostname()}: {note}", file=sys.stderr, flush=True)
        cls.survives = os.environ.get("OMPI_MCA_mpi_ft_enable") in ("1", "true")
        from mpi4py import MPI

        size, names = MPI.COMM_WORLD.Get_size(), ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
        name = next((name for name in names if name in os.environ), None)  # a Slurm step around mpirun may set PMI_SIZE
        if name and (started := int(os.environ[name])) != size:
            raise Refusal(
                f"{name} says that {started} ranks were started, MPI sees {size}: the launcher is of another MPI\n"
                f"  this program uses {MPI.Get_library_version().splitlines()[0]}; start it with that mpirun"
            )
        tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))  # under mpirun, its daemons
        if size == 1 < tasks and name is None:
            raise Refusal(
                f"srun started {tasks} tasks, MPI sees one rank: each would be a job of its own\n"
                "  srun --mpi=pmix joins them, if Slurm and this MPI have it; or mpirun (-np 1 for one rank)"
            )
        return cls(MPI.COMM_WORLD)

    @classmethod
    def finish(cls) -> None:
        """Finalise MPI, right before this process ends. Does nothing if ranks can be lost: MPI would wait for lost
        ranks, and Open MPI's ULFM sometimes waits for ranks that have left."""
        from mpi4py import MPI

        if not cls.survives:
            MPI.Finalize()

    def library(self) -> str:
        """Return the MPI library's name and version, one line."""
        words = self._mpi.Get_library_version().split(",")[0].strip().splitlines()[0].split()
        return " ".join(word for word in words if word != "Version:")  # MPICH's

    def limits(self) -> str | None:
        """Return, as one line, what this MPI lacks that Open MPI has; None if nothing."""
        if self.library().startswith("Open MPI"):
            return None
        return f"{self.library()} has no ULFM here: a lost rank ends the job, and the same command resumes it"

    @collective
    def barrier(self) -> None:
        """Wait for every rank. Collective."""
        self._wait(self.comm.Ibarrier())

    @collective
    def collect(self, item: Any) -> list[Any]:
        """Return every rank's small JSON-able item, in rank order, on every rank. Collective."""
        mine = np.frombuffer(json.dumps(item).encode(), np.uint8)
        sizes = self._all_sizes(len(mine))
        everything = np.empty(sum(sizes), np.uint8)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._wait(self.comm.Iallgatherv(mine, [everything, sizes, starts, self._mpi.BYTE]))
        return [json.loads(everything[a : a + n].tobytes()) for a, n in zip(starts, sizes)]

    def share(self, item: Any, source: int = 0) -> Any:
        """Return the small JSON-able item of rank `source` on every rank; the others' are ignored. Collective."""
        return json.loads(self.broadcast(np.frombuffer(json.dumps(item).encode(), np.uint8), source).tobytes())

    def from_root(self, make: Callable[[], Any]) -> Any:
        """Return on every rank the small JSON-able result of `make()`, which only root calls. Collective. If `make`
        raises Refusal or NotNow, every rank raises it with the same text and exit status."""
        made, refused = self.share(_tried(make) if self.is_root else None)
        _raise(refused)
        return made

    def on_root(self, make: Callable[[], Made]) -> Made | None:
        """Return on root the result of `make()`, of any type, which only root calls, and None on the other ranks.
        Collective. Raises as `from_root` does."""
        made, refused = _tried(make) if self.is_root else (None, None)
        _raise(self.share(refused))
        return made

    @collective
    def sum(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over ranks of an array of int64 or float64. Collective."""
        total = np.empty_like(values)
        self._wait(self.comm.Iallreduce(values, total))
        return total

    @collective
    def start_sum(self, values: Sequence[int]) -> PendingSum:
        """Start a sum of a few integers a rank and return a `PendingSum`. Collective: every rank starts its sums in the
        same order. Does not block; only asking for the result does."""
        return PendingSum(self._sums, values, self._wait_for)

    @collective
    def broadcast(self, array: np.ndarray | None, source: int = 0, into: np.ndarray | None = None) -> np.ndarray:
        """Return the array of rank `source`, of a plain dtype, on every rank; other ranks' are ignored. Collective.
        into: used for the result on other ranks if it has the same dtype and shape."""
        if self.rank == source:
            result = np.ascontiguousarray(array)
            self._broadcast_form([result.dtype.str, result.shape], source)
        else:
            dtype, shape = self._broadcast_form(None, source)
            if into is not None and [into.dtype.str, list(into.shape)] == [dtype, shape]:
                result = into
            else:
                result = np.empty(shape, dtype)
        content = as_bytes(result)
        if self.rank == source:
            World.sent_bytes += len(content) * (self.size - 1)
        for start in range(0, len(content), self.chunk_bytes):
            self._wait(self.comm.Ibcast(content[start : start + self.chunk_bytes], source))
        return result

    def _broadcast_form(self, form, source):
        """Return [dtype as text, shape] of the array that rank `source` is about to send. form: that, there."""
        length, header = np.zeros(1, np.int64), None
        if self.rank == source:
            header = np.frombuffer(json.dumps(form).encode(), np.uint8)
            length[0] = len(header)
        self._wait(self.comm.Ibcast(length, source))
        if header is None:
            header = np.empty(length[0], np.uint8)
        self._wait(self.comm.Ibcast(header, source))
        return json.loads(header.tobytes())

    @collective
    def gather(self, rows: np.ndarray, compress: bool = False) -> np.ndarray | None:
        """Return the rows of every rank, in rank order, on root; None elsewhere. Collective.

        rows: [n, …], any fixed-size dtype, the same on every rank; n may differ and may be 0.
        """
        content = pack(rows, compress)
        sizes = self._all_sizes(len(content))
        World.sent_bytes += 0 if self.is_root else len(content)
        chunk = self._chunk(max(sizes))
        whole = np.empty(sum(sizes) if self.is_root else 0, np.uint8)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        for done in range(0, max(sizes), chunk):
            counts = [min(max(n - done, 0), chunk) for n in sizes]
            places = np.arange(self.size) * chunk
            stage = np.empty(self.size * chunk if self.is_root else 0, np.uint8)
            sent = content[done : done + chunk]
            self._wait(self.comm.Igatherv(sent, [stage, counts, places, self._mpi.BYTE] if self.is_root else None))
            if self.is_root:
                for rank, n in enumerate(counts):
                    whole[starts[rank] + done :][:n] = stage[places[rank] :][:n]
        if not self.is_root:
            return None
        return unpack([whole[a : a + n] for a, n in zip(starts, sizes)], rows, compress)

    @collective
    def exchange(self, rows: np.ndarray, destination: np.ndarray, compress: bool = False) -> np.ndarray:
        """Send each row to a rank and return the rows sent here, by source rank, in their order there. Collective.

        rows: [n, …], any fixed-size dtype, the same on every rank. destination: int [n], the rank of each row.
        """
        parts = [pack(rows[destination == rank], compress) for rank in range(self.size)]
        to_send = np.array([len(part) for part in parts], np.int64)
        World.sent_bytes += int(to_send.sum() - to_send[self.rank])
        to_receive = np.empty_like(to_send)
        self._wait(self.comm.Ialltoall(to_send, to_receive))
        longest = max(self._all_sizes(int(to_send.max())))
        chunk = self._chunk(longest)
        received = [np.empty(n, np.uint8) for n in to_receive]
        places = np.arange(self.size) * chunk
        # Each round goes through staging buffers, so that displacements stay below chunk_bytes.
        outgoing, incoming = np.empty(self.size * chunk, np.uint8), np.empty(self.size * chunk, np.uint8)
        for done in range(0, longest, chunk):
            sends, receives = np.clip(to_send - done, 0, chunk), np.clip(to_receive - done, 0, chunk)
            for place, part, n in zip(places, parts, sends):
                outgoing[place:][:n] = part[done:][:n]
            byte = self._mpi.BYTE
            self._wait(self.comm.Ialltoallv([outgoing, sends, places, byte], [incoming, receives, places, byte]))
            for place, part, n in zip(places, received, receives):
                part[done:][:n] = incoming[place:][:n]
        return unpack(received, rows, compress)

    @collective
    def reorder(self, first: bool) -> "World":
        """Return a world of the same ranks, those with a true `first` first, else in order. Collective."""
        return self._derive(self.comm.Split(0, self.rank + (0 if first else self.size)))

    @collective
    def split(self, member: bool) -> "World | None":
        """Return a world of the ranks where `member` is true, in order; None on the others. Collective."""
        comm = self.comm.Split(0 if member else self._mpi.UNDEFINED, self.rank)
        return self._derive(comm) if member else None

    @collective
    def part(self, number: int) -> "World":
        """Return a world of the ranks that give the same `number`, from 0, in order. Collective."""
        return self._derive(self.comm.Split(number, self.rank))

    def beside(self) -> "World":
        """Return this world, for use in a thread: from now on its waiting is neither idle time nor a sign of life."""
        self._wait_for = functools.partial(poll, longest_s=LONGEST_SLEEP_BESIDE_S)
        return self

    def _derive(self, comm):
        self._derived.append(World(comm, self.chunk_bytes))
        return self._derived[-1]

    def recover(self, rebuild: Callable[["World"], Rebuilt]) -> Rebuilt:
        """Return `rebuild(world of the survivors)` once it has succeeded on all of them. To be called after PeerLost.
        Collective over survivors. If one more dies meanwhile, `rebuild` is called again with those that are left.

        Needs MPI with ULFM, see `survives`.
        """
        while True:
            self.revoke()
            comm = self.comm.Shrink()
            survivors: World | None = None
            try:
                survivors = World(comm, self.chunk_bytes)
                result = rebuild(survivors)
            except PeerLost:
                comm.Revoke()
                if survivors:
                    survivors.revoke()
                self._all_succeeded(comm, False)
            else:
                if self._all_succeeded(comm, True):
                    return result

    def _all_succeeded(self, comm, here):
        """Return whether all survivors have succeeded; here: whether this rank has. Collective over them."""
        with suppress(self._mpi.Exception):
            # MPI_Comm_agree gives all survivors the same answer, or all of them an error.
            return bool(comm.Agree(int(here)))
        return False

    def settle(self) -> None:
        """Wait for every living rank, before this one leaves. Collective."""
        with suppress(PeerLost):  # this rank has nothing to do but to leave
            self.barrier()

    def revoke(self) -> None:
        """End all collectives of this world, and of worlds made from it, on every rank. Any rank may call it alone."""
        for world in self._derived:
            world.revoke()
        for comm in (self._sums, self.comm):
            comm.Revoke()

    def cores(self) -> int:
        """Return this rank's number of cores, see `cores.share`. Collective."""
        mine = cores.Allowed.here(self.host)
        return cores.share(mine, [cores.Allowed(*other) for other in self.collect(mine)])

    def abort(self, code: int) -> NoReturn:
        """End the whole job with exit status `code`, and this process even if MPI fails to end the others. Any thread
        of any rank may call it alone."""
        threading.Thread(target=self._mpi.COMM_WORLD.Abort, args=(code,), daemon=True).start()
        time.sleep(ABORT_S)
        os._exit(code)

    def _all_sizes(self, n):
        sizes = np.empty(self.size, np.int64)
        self._wait(self.comm.Iallgather(np.array([n], np.int64), sizes))
        return [int(size) for size in sizes]

    def _chunk(self, longest):
        """Return how many bytes a pair of ranks exchanges in one round if no message is longer than `longest`."""
        return max(1, min(longest, self.chunk_bytes // self.size))

    def _wait(self, request):
        self._wait_for(request.Test)


def split_evenly(total: int, parts: int) -> list[int]:
    """Return `parts` counts that add up to `total` and differ by at most one, the larger ones first."""
    return [total // parts + (k < total % parts) for k in range(parts)]


def _tried(make):
    """Return (the result of `make()`, None), or (None, [text, exit status]) if it raises Refusal."""
    try:
        return make(), None
    except Refusal as error:
        return None, [str(error), error.status]


def _raise(refused):
    """Raise the Refusal that `_tried` has returned, if it is one."""
    if refused:
        text, status = refused
        refusal = (NotNow if status == NotNow.status else Refusal)(text)
        refusal.status = status
        raise refusal


def wait(done: Callable[[], object]) -> None:
    """Call `done` until it returns true. The time is added to `World.waited_s`."""
    start = time.perf_counter()
    poll(done, LONGEST_SLEEP_S, watchdog.tick)
    World.waited_s += time.perf_counter() - start
