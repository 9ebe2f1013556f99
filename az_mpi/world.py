"""The ranks of one MPI job, as the rest of the program sees them. The only module that imports mpi4py.

Every method marked "Collective" must be called by every rank of the world, in the same order. Waiting sleeps between
looks instead of spinning, so that a rank which waits leaves its core to a rank which works. Bulk data travels as
buffers in rounds of at most `chunk_bytes` a rank, so that no message or displacement comes near 2 GiB.
"""

import json
import os
import socket
import time
import zlib

import numpy as np

from az_mpi.problems import Refusal

SPIN_S, LONGEST_SLEEP_S = 0.0002, 0.002


class World:
    """Ranks 0 … size - 1 of an MPI communicator; rank 0 is root. Made by `start` and `split`. Collective."""

    # Seconds that this rank has spent in collectives, waiting for others or for bulk data to travel. One count for all
    # worlds of a process: a rank waits in one place at a time. What waits inside Horovod is not seen.
    waited_s = 0.0
    # Bytes that this rank has sent to others in bulk. Horovod's are not seen.
    sent_bytes = 0

    def __init__(self, comm, chunk_bytes=1 << 28):
        from mpi4py import MPI

        self._mpi, self.comm, self.chunk_bytes = MPI, comm, chunk_bytes
        self._sums = comm.Dup()  # so that a sum may be under way during other collectives
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.is_root = self.rank == 0
        self.host = socket.gethostname()
        self.hosts = self.collect(self.host)
        # Selects a device on this host; never used as a rank.
        self.local_rank = self.hosts[: self.rank].count(self.host)

    @classmethod
    def start(cls):
        """Join the job that mpirun or srun started; without one, be a world of one rank."""
        # Horovod waits inside MPI: with more threads than cores it must give way (Open MPI reads this at start).
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
        from mpi4py import MPI

        size = MPI.COMM_WORLD.Get_size()
        for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
            started = int(os.environ.get(name, size))
            if started != size:
                raise Refusal(
                    f"{name} says that {started} ranks were started, MPI sees {size}: the launcher is of another MPI\n"
                    f"  this program uses {MPI.Get_library_version().splitlines()[0]}; start it with that mpirun"
                )
        return cls(MPI.COMM_WORLD)

    def library(self):
        """Return the MPI library's name and version, one line."""
        return self._mpi.Get_library_version().split(",")[0].strip().splitlines()[0]

    def barrier(self):
        """Wait for every rank. Collective."""
        self._wait(self.comm.Ibarrier())

    def collect(self, item):
        """Return every rank's small JSON-able item, in rank order, on every rank. Collective."""
        mine = np.frombuffer(json.dumps(item).encode(), np.uint8)
        sizes = self._all_sizes(len(mine))
        everything = np.empty(sum(sizes), np.uint8)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._wait(self.comm.Iallgatherv(mine, [everything, sizes, starts, self._mpi.BYTE]))
        return [json.loads(everything[a : a + n].tobytes()) for a, n in zip(starts, sizes)]

    def share(self, item):
        """Return root's small JSON-able item on every rank; the others' is ignored. Collective."""
        return json.loads(self.broadcast(np.frombuffer(json.dumps(item).encode(), np.uint8)).tobytes())

    def from_root(self, make):
        """Return on every rank the small JSON-able result of `make()`, which root alone calls. Collective.

        Raises Refusal, with the same text, on every rank where `make` raises one on root.
        """
        outcome = None
        if self.is_root:
            try:
                outcome = {"result": make()}
            except Refusal as error:
                outcome = {"refusal": str(error)}
        outcome = self.share(outcome)
        if "refusal" in outcome:
            raise Refusal(outcome["refusal"])
        return outcome["result"]

    def agree(self, item):
        """Return the ranks whose item differs from root's, [] where all agree. Collective."""
        items = self.collect(item)
        return [rank for rank, other in enumerate(items) if other != items[0]]

    def sum(self, values):
        """Return the sum over ranks of an array of int64 or float64. Collective."""
        total = np.empty_like(values)
        self._wait(self.comm.Iallreduce(values, total))
        return total

    def start_sum(self, values):
        """Begin to add up a few integers a rank and return a `PendingSum`. Collective: every rank begins its sums in
        the same order, and no rank waits for another before it asks for the result."""
        return PendingSum(self._sums, values)

    def broadcast(self, array):
        """Return root's array, of a plain dtype, on every rank; the others' is ignored. Collective."""
        length = np.zeros(1, np.int64)
        if self.is_root:
            array = np.ascontiguousarray(array)
            header = np.frombuffer(json.dumps([array.dtype.str, array.shape]).encode(), np.uint8)
            length[0] = len(header)
        self._wait(self.comm.Ibcast(length))
        if not self.is_root:
            header = np.empty(length[0], np.uint8)
        self._wait(self.comm.Ibcast(header))
        dtype, shape = json.loads(header.tobytes())
        result = array if self.is_root else np.empty(shape, dtype)
        content = _as_bytes(result)
        if self.is_root:
            World.sent_bytes += len(content) * (self.size - 1)
        for start in range(0, len(content), self.chunk_bytes):
            self._wait(self.comm.Ibcast(content[start : start + self.chunk_bytes]))
        return result

    def gather(self, rows, compress=False):
        """Return the rows of every rank, in rank order, on root; None elsewhere. Collective.

        rows: [n, …], any fixed-size dtype, the same on every rank; n may differ and may be 0.
        """
        content = _pack(rows, compress)
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
        return _unpack([whole[a : a + n] for a, n in zip(starts, sizes)], rows, compress)

    def exchange(self, rows, destination, compress=False):
        """Send each row to a rank and return the rows sent here, by source rank, in their order there. Collective.

        rows: [n, …], any fixed-size dtype, the same on every rank. destination: int [n], the rank of each row.
        """
        parts = [_pack(rows[destination == rank], compress) for rank in range(self.size)]
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
        return _unpack(received, rows, compress)

    def reorder(self, first):
        """Return a world of the same ranks where those with a true `first` come first, else in order. Collective."""
        return World(self.comm.Split(0, self.rank + (0 if first else self.size)), self.chunk_bytes)

    def split(self, member):
        """Return a world of the ranks where `member` is true, in the same order; None on the others. Collective."""
        comm = self.comm.Split(0 if member else self._mpi.UNDEFINED, self.rank)
        return World(comm, self.chunk_bytes) if member else None

    def cores(self):
        """Return how many cores this rank may use: those it may run on, shared with its neighbours. Collective."""
        allowed = sorted(os.sched_getaffinity(0))
        everyone = self.collect([self.host, allowed])
        sharing = sum(host == self.host and bool(set(allowed) & set(cores)) for host, cores in everyone)
        return max(1, len(allowed) // sharing)

    def abort(self, code):
        """End the whole job at once with exit status `code`. Any rank may call it alone."""
        self._mpi.COMM_WORLD.Abort(code)

    def _all_sizes(self, n):
        sizes = np.empty(self.size, np.int64)
        self._wait(self.comm.Iallgather(np.array([n], np.int64), sizes))
        return [int(size) for size in sizes]

    def _chunk(self, longest):
        """Return how many bytes a pair of ranks exchanges in one round when no message has more than `longest`."""
        return max(1, min(longest, self.chunk_bytes // self.size))

    @staticmethod
    def _wait(request):
        wait(request.Test)


class PendingSum:
    """A sum over ranks under way. `finished` gives MPI a chance to go on and returns whether `total` is known.

    Counts go straight to root and the sum straight back: MPI's own non-blocking sum passes through other ranks, each
    of which would hold it up until it looks next.
    """

    LOOKS = 4  # messages that have arrived may need several calls of Test until they are seen

    def __init__(self, comm, values):
        self._comm, is_root = comm, comm.Get_rank() == 0
        sent = np.array(values, np.int64)
        self._received = np.zeros_like(sent)
        self._everyone = np.empty((comm.Get_size(), *sent.shape), np.int64) if is_root else None
        self._to_root, self._from_root = comm.Igather(sent, self._everyone), None
        if not is_root:
            self._from_root = comm.Iscatter(None, self._received)
        self._finished = False

    def finished(self):
        return self._finished or any(self._advance() for _ in range(self.LOOKS))

    @property
    def total(self):
        """The sums, a list of ints; waits until every rank has begun it."""
        wait(self.finished)
        return self._received.tolist()

    def _advance(self):
        if self._from_root is None and self._to_root.Test():
            self._everyone[:] = self._everyone.sum(axis=0)
            self._from_root = self._comm.Iscatter(self._everyone, self._received)
        self._finished = self._from_root is not None and self._to_root.Test() and self._from_root.Test()
        return self._finished


def split_evenly(total, parts):
    """Return `parts` counts that add up to `total` and differ by at most one, the larger ones first."""
    return [total // parts + (k < total % parts) for k in range(parts)]


def wait(done):
    """Call `done` until it returns true: busily for a moment, then with sleeps that grow to LONGEST_SLEEP_S.

    The seconds count as `World.waited_s`.
    """
    start, pause = time.perf_counter(), 2e-5
    while not done():
        if time.perf_counter() - start > SPIN_S:
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_SLEEP_S)
    World.waited_s += time.perf_counter() - start


def _as_bytes(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _pack(rows, compress):
    """Return rows as bytes to send, uint8."""
    content = _as_bytes(rows)
    return np.frombuffer(zlib.compress(content, 1), np.uint8) if compress and len(content) else content


def _unpack(parts, like, compress):
    """Return the rows of all `parts`, each as `_pack` gave it, joined; of the dtype and row shape of `like`."""
    if compress:
        parts = [np.frombuffer(zlib.decompress(part), np.uint8) if len(part) else part for part in parts]
    return np.concatenate(parts).view(like.dtype).reshape(-1, *like.shape[1:])
