"""The partner checkpoint: a copy of the only trainer's state on a second rank, so that losing the trainer costs at most
one optimiser step.

Where one rank trains and the others play, no other rank has its newest weights and AdamW moments. So a second rank,
the partner, receives a copy of them after each step (diskless checkpointing: Plank, Li and Puening 1998). A thread on
each side transfers it while the next step is computed and games continue. The weights do not change before the copy has
arrived. If a transfer breaks off, the partner still has the copy before it.
"""

import json
import math
import threading
import traceback
from concurrent import futures

import numpy as np
import torch

from az_mpi.config.schema import Config
from az_mpi.core.exit_codes import INTERNAL
from az_mpi.liveness import watchdog
from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import World, wait
from az_mpi.storage.checkpoint import Checkpoint, Progress
from az_mpi.train.learner import Learner

CLOSE_S = 2.0  # how long `close` waits for the thread to notice a loss
LENGTH = 8  # bytes of the length of the JSON text
WORDS = 1024  # the part before the numbers is padded to a multiple of so many bytes, so that the size seldom changes
END = np.empty(0, np.uint8)  # tells the partner that no more copies follow


def make(config: Config, world: World, num_trainers: int) -> "PartnerCheckpoint | None":
    """Return the `PartnerCheckpoint` of rank 0, which trains, and of its partner; None on the other ranks. Collective.

    The partner is the next rank of the same host, if there is one: if that host is lost, the job ends anyway. There is
    no partner if several ranks train, or if the loss of any rank ends the job.
    """
    if not (world.survives and config.fault.copy_every and num_trainers == 1 < world.size):
        return None
    near = [rank for rank in range(1, world.size) if world.hosts[rank] == world.hosts[0]]
    pair = world.split(world.rank in (0, min(near, default=1)))
    return PartnerCheckpoint(pair) if pair else None


class PartnerCheckpoint:
    """One side of the world `pair`: rank 0, the trainer, sends its state while it trains; rank 1, the partner, keeps
    it."""

    def __init__(self, pair: World):
        self.pair = pair.beside()
        self._work: futures.Future | None = None  # of the thread
        self._sent: tuple[int, int] | None = None  # `_mark` of the state that rank 0 sent last
        self._content: np.ndarray | None = None  # the packed state: sent last, or on rank 1 the newest whole one

    def begin(self) -> None:
        """Receive states, in a thread, until rank 0 calls `finish`. On rank 1."""
        self._start(self._receive)

    def send(self, progress: Progress, learner: Learner) -> None:
        """Start to send the learner's state at `progress`, in a thread. Call `settle` before the state changes. On
        rank 0."""
        state = Checkpoint(progress, learner.average.state_dict(), learner.optimizer_state())
        self._content, self._sent = _pack(state, self._content), _mark(progress)
        self._start(self._carry, self._content)

    def settle(self) -> None:
        """Wait until the transfer under way is complete. Raises PeerLost."""
        work, self._work = self._work, None
        if work:
            with watchdog.waiting():
                wait(work.done)
            work.result()

    def finish(self, progress: Progress, learner: Learner) -> None:
        """Make sure that rank 1 has this state, and let it stop receiving. On rank 0."""
        self.settle()
        if self._sent != _mark(progress):
            self.send(progress, learner)
            self.settle()
        self._start(self.pair.broadcast, END)
        self.settle()

    def keep(self, state: Checkpoint) -> None:
        """Keep a state that this rank has already. On rank 1."""
        self._content = _pack(state)

    def kept(self) -> Checkpoint | None:
        """Return the newest whole state on rank 1; None if there is none, or if it is not finite."""
        return _unpack(self._content) if self._content is not None and not self.pair.is_root else None

    def close(self) -> None:
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
            if not isinstance(error, PeerLost) and not self.pair.is_root:  # root would wait for this rank for ever
                traceback.print_exc()
                self.pair.abort(INTERNAL)

    def _carry(self, content):
        self.pair.broadcast(content)
        self.pair.barrier()  # it is kept

    def _receive(self):
        spare = None
        while len(content := self.pair.broadcast(None, into=spare)):
            spare, self._content = self._content, content
            self.pair.barrier()


def _mark(progress):
    """Return numbers that differ between any two states of a training."""
    return progress.step, progress.rollbacks


def _pack(state, out=None):
    """Return a checkpoint as bytes, uint8 [n], in `out` if that has the right length: the length of a JSON text in
    LENGTH bytes, the text (progress, names and shapes), and the numbers, float32."""
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
        place.copy_(part)  # one by one: a GPU may have no room for a second copy of all
    return out


def _unpack(content):
    """Return the checkpoint in the bytes of `_pack`, as views of them; None if a number is not finite."""
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
