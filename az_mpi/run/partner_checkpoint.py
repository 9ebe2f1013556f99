"""A copy of the only trainer's state on a second rank, its partner, so that its loss costs one optimiser step at most.

Where one rank trains and the others play, nobody else has its newest weights and moments of AdamW. So its partner takes
a copy of them after each step (diskless checkpointing: Plank, Li and Puening 1998). Threads on both sides carry it
while the next step is computed and games go on; the weights do not change again before it has arrived. A copy that
breaks off leaves the one before it.
"""

import json
import math
import threading
import traceback
from concurrent import futures

import numpy as np
import torch

from az_mpi.liveness import watchdog
from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import wait
from az_mpi.storage.checkpoint import Checkpoint, Progress

CLOSE_S = 2.0  # that a thread is given to hear of a loss
LENGTH = 8
WORDS = 1024  # bytes: what precedes the numbers is a multiple of this long, so that the whole seldom changes its size
END = np.empty(0, np.uint8)


def make(config, world, trainers_num):
    """Return the `Partner` of rank 0, which trains, and of the next rank, of its host if there is one: without the host
    the job ends anyway. None on the others, and on all where a lost trainer leaves another or ends the job. Collective.
    """
    if not (world.survives and config.fault.copy_every and trainers_num == 1 < world.size):
        return None
    near = [rank for rank in range(1, world.size) if world.hosts[rank] == world.hosts[0]]
    pair = world.split(world.rank in (0, min(near, default=1)))
    return pair and Partner(pair)


class Partner:
    """One of the two ranks of the world `pair`: rank 0 sends its state during its training, rank 1 keeps it."""

    def __init__(self, pair):
        self.pair = pair.beside()
        self._work = None  # a Future of what the thread does
        self._sent, self._content = None, None  # which state rank 0 sent last; that packed, or what rank 1 has

    def begin(self):
        """Keep from now on what is sent, until the other's `finish`. On rank 1."""
        self._start(self._receive)

    def send(self, progress, learner):
        """Begin to send the learner's state, which `progress` describes, and return. `settle` has been called since its
        last change."""
        state = Checkpoint(progress, learner.network.state_dict(), learner.optimizer_state())
        self._content, self._sent = _pack(state, self._content), _mark(progress)
        self._start(self._carry, self._content)

    def settle(self):
        """Wait until nothing is under way. Raises PeerLost."""
        work, self._work = self._work, None
        if work:
            with watchdog.waiting():
                wait(work.done)
            work.result()

    def finish(self, progress, learner):
        """See to it that the other rank keeps this state, and end its keeping. On rank 0."""
        self.settle()
        if self._sent != _mark(progress):
            self.send(progress, learner)
            self.settle()
        self._start(self.pair.broadcast, END)
        self.settle()

    def keep(self, state):
        """Hold a state, a `Checkpoint`, that this rank has already. On rank 1."""
        self._content = _pack(state)

    def kept(self):
        """Return the newest state that rank 1 has as a whole, a `Checkpoint`; None without one of finite numbers."""
        return _unpack(self._content) if self._content is not None and not self.pair.is_root else None

    def close(self):
        """Let the thread end, once the world has been revoked."""
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
                self.pair.give_up(70)

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
