"""The monitor decides from the facts in heartbeats whether a rank or the job is to end. Nothing else in a rank does.

A rank that hangs, or that the run's folder no longer answers, kills itself, and the others continue. If root no longer
hears a rank, or a rank no longer hears root, MPI may never notice it: then the monitor ends the job, which can be
resumed. A rank whose threads no longer run at all is killed by its watchdog, a process of its own.
"""

import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from az_mpi.core.exit_codes import RESUMABLE
from az_mpi.liveness import heartbeat, watchdog
from az_mpi.liveness.hang_detection import HangDetector
from az_mpi.liveness.heartbeat import Beat, Listener, Sender

SPARE_S = 5.0  # beyond fault.hang_s, so that the watchdog kills a rank first, and the survivors recover
LEAVE_S = 8.0  # for root to store games before the job ends: its file system may hang
TELL_EVERY_S = 0.5


class Ranks(Protocol):
    """The ranks of the run: what a monitor uses of `mpi.world.World`."""

    rank: int
    size: int
    is_root: bool
    host: str
    survives: bool

    @property
    def hosts(self) -> Sequence[str]:
        """The host of each rank."""

    def share(self, item: Any, source: int = 0) -> Any:
        """Return root's item on every rank. Collective."""

    def abort(self, code: int) -> object:
        """End the whole job with this exit status. Any thread may call it."""


class Monitor:
    """One rank's part: it sends root heartbeats and acts on what they say. Collective to make."""

    def __init__(
        self,
        world: Ranks,
        folder: Path,
        hang_s: float,
        facts: Callable[[], dict[str, Any]],
        writing_s: Callable[[], float],
        on_failure: Callable[[int, dict[str, Any]], object],
        on_end: Callable[[str], object],
    ):
        """hang_s: `fault.hang_s`. facts(): more that this rank tells root, a dict whose JSON is below
        1 KiB. writing_s(): for how many seconds this rank's writer has been at one step. On root, in threads:
        on_failure(rank, facts) is called when a rank reports its failure; on_end(why) before the job is ended."""
        self._world, self._on_end = world, on_end
        self._told: dict[str, Any] | None = None
        self._told_at = -math.inf
        # A single rank cannot compare itself with others, and no rank waits for it.
        self._detector = HangDetector(folder, world.rank, hang_s if world.size > 1 else 0.0, writing_s)
        self._listener, place, silence_s = None, None, hang_s + SPARE_S if hang_s else math.inf
        if world.is_root:
            token = secrets.token_hex(16)
            here = "127.0.0.1" if set(world.hosts) == {world.host} else ""  # other hosts reach root only if they must
            self._listener = Listener(
                token, world.size, on_failure, silence_s, self._end_job_without, self._tell_ranks, address=here
            )
            place = [world.host, heartbeat.own_addresses(), self._listener.port, token]
        host, addresses, port, token = world.share(place)
        addresses = [(name, port) for name in ["127.0.0.1"] * (host == world.host) + addresses]
        self._sender = Sender(
            addresses,
            token,
            world.rank,
            lambda: facts() | self._detector.facts(),
            silence_s,
            self._end_job_without,
            self._hear,
        )

    def beats(self) -> list[Beat]:
        """Return the newest `Beat` of each rank, by rank. On root."""
        return self._listener.beats()

    @property
    def port(self) -> int:
        """The UDP port at which root hears the ranks. On root."""
        return self._listener.port

    def settle(self) -> None:
        """Wait until it is known whether the run's folder answers this rank, and end the rank if it does not. To be
        called after a loss, which may have had the same reason: this rank could be the next root."""
        if self._sender and (why := self._detector.settle()):
            self._end_rank(why)

    def leave(self, last_words: bool = False) -> None:
        """Send no more heartbeats, and tell root so. last_words: send the facts once more, and wait for root's answer.
        Root keeps receiving until `close`."""
        if self._sender:
            sender, self._sender = self._sender, None
            sender.close_with_last_words() if last_words else sender.close()
            self._detector.close()

    def close(self) -> None:
        """Stop; `beats` can still be called."""
        self.leave()
        if self._listener:
            self._listener.close()

    def _tell_ranks(self):
        """Return what root tells all ranks, in its answers to their heartbeats."""
        now = time.monotonic()
        if now - self._told_at > TELL_EVERY_S:
            beats = enumerate(self._listener.beats()) if self._listener else ()
            heard = {rank: beat.content for rank, beat in beats if beat.content and beat.silent_s < heartbeat.SILENT_S}
            self._told, self._told_at = HangDetector.sum_up(heard), now
        return self._told

    def _hear(self, told):
        if why := self._detector.hear(told):
            self._end_rank(why)

    def _end_rank(self, why):
        """End this rank, so that the others continue; or, if they cannot, end the job, so that it is resumed."""
        text = f"rank {self._world.rank} on {self._world.host}: {why}: killed (fault.hang_s)"
        if self._world.survives:
            watchdog.say(os.getpid(), f"{text}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        self._end_job(text)

    def _end_job_without(self, rank):
        """End the job, so that it is resumed: nothing is heard of a rank, which may be alive or dead."""
        self._end_job(
            f"rank {self._world.rank} on {self._world.host} has heard nothing from rank {rank} on "
            f"{self._world.hosts[rank]} for longer than fault.hang_s; the job ends. Start the same command "
            "again to continue"
        )

    def _end_job(self, text):
        watchdog.say(os.getpid(), f"{text}\n")
        if self._world.is_root:
            thread = threading.Thread(target=self._on_end, args=(text,), daemon=True)
            thread.start()
            thread.join(LEAVE_S)
        self._world.abort(RESUMABLE)
