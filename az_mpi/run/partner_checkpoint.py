"""The partner checkpoint: a copy of the only trainer's state on a second rank, so that losing the trainer costs at most
one optimiser step.

Where one rank trains and the others play, no other rank has its newest weights and AdamW moments. So a second rank,
the partner, takes a copy of them after each step (diskless checkpointing: Plank, Li and Puening 1998). Threads on both
sides carry it while the next step is computed and games go on. The weights do not change before the copy has arrived. A
copy that breaks off leaves the one before it.
"""

import json
import math
import threading
import traceback
from concurrent import futures

import numpy as np
import torch

from az_mpi.core.exit_codes import INTERNAL
from az_mpi.liveness import watchdog
from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import wait
from az_mpi.storage.checkpoint import Checkpoint, Progress

CLOSE_S = 2.0  # that a thread is given to hear of a loss
LENGTH = 8
WORDS = 1024  # bytes: what precedes the numbers is a multiple of this long, so that the whole seldom changes its size
END = np.empty(0, np.uint8)


def make(config, world, trainers_num):
    """Return the `PartnerCheckpoint` of rank 0, which trains, and of its partner; None on the other ranks. Collective.

    The partner is the next rank of the same host if there is one: without that host the job ends anyway. There is no
    partner where a lost trainer leaves another one, or where any loss ends the job.
    """
    if not (world.survives and config.fault.copy_every and trainers_num == 1 < world.size):
        return None
    near = [rank for rank in range(1, world.size) if world.hosts[rank] == world.hosts[0]]
    pair = world.split(world.rank in (0, min(near, default=1)))
    return pair and PartnerCheckpoint(pair)


class PartnerCheckpoint:
    """One side of the world `pair`: rank 0, the trainer, sends its state while it trains; rank 1, the partner, keeps
    it."""

    def __init__(self, pair):
        self.pair = pair.beside()
        self._work = None  # a Future of what the thread does
        self._sent, self._content = None, None  # which state rank 0 sent last; that packed, or what rank 1 has

    def begin(self):
        """Keep what is sent from now on, until rank 0 calls `finish`. On rank 1."""
        self._start(self._receive)

    def send(self, progress, learner):
        """Start sending the learner's state at `progress` and return. Call `settle` before the state changes."""
        state = Checkpoint(progress, learner.network.state_dict(), learner.optimizer_state())
        self._content, self._sent = _pack(state, self._content), _mark(progress)
        self._start(self._carry, self._content)

    def settle(self):
        """Wait until the copy under way has arrived. Raises PeerLost."""
        work, self._work = self._work, None
        if work:
            with watchdog.waiting():
                wait(work.done)
            work.result()

    def finish(self, progress, learner):
        """Make sure that rank 1 has this state, and let it stop listening. On rank 0."""
        self.settle()
        if self._sent != _mark(progress):
            self.send(progress, learner)
            self.settle()
        self._start(self.pair.broadcast, END)
        self.settle()

    def keep(self, state):
        """Keep a state, a `Checkpoint`, that this rank has already. On rank 1."""
        self._content = _pack(state)

    def kept(self):
        """Return the newest whole state on rank 1, a `Checkpoint`; None if there is none, or its numbers are not
        finite."""
        return _unpack(self._content) if self._content is not None and not self.pair.is_root else None

    def close(self):
        """Wait for the thread to end, after the world has been revoked."""
        work, self._work = self._work, None
        if work:
            futures.wait([work], CLOSE_S)

    def _start(self, function, *arguments):
        self._work = futures.Future()
        threading.Thread(target=self._do, args=(self._work, function, *arguments), name="partner", daemon=True).start()

    def _do(self, future, function, *arguments):
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, PeerLost) and not self.pair.is_root:  # who would wait for this rank for ever
                traceback.print_exc()
                self.pair.give_up(INTERNAL)

    def _carry(self, content):
        self.pair.broadcast(content)
        self.pair.barrier()  # it is kept

    def _receive(self):
        spare = None
        while len(content := self.pair.broadcast(None, into=spare)):
            spare, self._content = self._content, content
            self.pair.barrier()


def _mark(progress):
    """Return what tells two states of a training apart."""
    return progress.step, progress.rollbacks


def _pack(state, out=None):
    """Return a `Checkpoint` as bytes, uint8 [n], in `out` where that is as long: words as JSON, after their length in
    LENGTH bytes, and the numbers, float32."""
    groups = (state.model, state.optimizer)
    parts = [tensor.detach().reshape(-1) for tensors in groups for tensor in tensors.values()]
    shapes = [{name: list(tensor.shape) for name, tensor in tensors.items()} for tensors in groups]
    words = json.dumps([vars(state.progress), *shapes]).encode()
    head = (len(words).to_bytes(LENGTH, "little") + words).ljust(_start_of_numbers(len(words)))
    sizes = [len(part) for part in parts]
    if out is None or len(out) != len(head) + 4 * sum(sizes):
        out = np.empty(len(head) + 4 * sum(sizes), np.uint8)
    out[: len(head)] = np.frombuffer(head, np.uint8)
    for place, part in zip(torch.from_numpy(out[len(head) :]).view(torch.float32).split(sizes), parts):
        place.copy_(part)  # one by one: a GPU may have no room for all of them once more
    return out


def _unpack(content):
    """Return what `_pack` was given, as views of its bytes; None where a number is not finite."""
    length = int.from_bytes(content[:LENGTH].tobytes(), "little")
    progress, *groups = json.loads(content[LENGTH:][:length].tobytes())
    rest = torch.from_numpy(content[_start_of_numbers(length) :]).view(torch.float32)
    if not rest.isfinite().all():
        return None
    tensors = []
    for shapes in groups:
        sizes = [math.prod(shape) for shape in shapes.values()]
        parts, rest = rest[: sum(sizes)].split(sizes), rest[sum(sizes) :]
        tensors.append({name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts)})
    return Checkpoint(Progress(**progress), *tensors)


def _start_of_numbers(length):
    return WORDS * math.ceil((LENGTH + length) / WORDS)
