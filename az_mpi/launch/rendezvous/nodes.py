"""The nodes of a rendezvous: how each describes itself in the shared folder and reads the others.

Each node rewrites its file `node-K` every BEAT_S with a new number. Others take it for alive as long as the number
changes; they measure that by their own clocks. Time in which the folder cannot be read or written does not count as
silence. Every process has a random id and reads only files addressed to it, so those of an earlier launch do no harm.
"""

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from az_mpi.core.problems import NotNow, Refusal, escape, refusal_of
from az_mpi.core.silence import SilenceTimer
from az_mpi.launch import mpi_job
from az_mpi.launch.rendezvous.private_folder import PrivateFolder

BEAT_S = 1
STALE_S = 10  # a file that was not rewritten for so long belongs to a dead process
DEAD_S = 30  # a node of a running job may be silent for so long, since a file system may be slow
SAY_EVERY_S = 10
POLL_S = 0.2
SLOW_S = 5  # of the time between two reads of a file, at most so much counts as silence: the file system hung longer
BLIND_S = 600  # a folder that could not be read for so long is given up
GONE_S = 3  # a file that is missing for so long was removed, and is not being rewritten
COME_S = 600  # that all nodes have to come, unless --timeout says otherwise


class Node:
    """This process as a node. Within the block its file exists and is rewritten. Raises Refusal if another living
    process has this index, or if the folder cannot be written to; NotNow if that may pass."""

    def __init__(self, folder: PrivateFolder, index: int, content: dict[str, Any]):
        self.folder = folder
        self.index = index
        self.name = f"node-{index}"
        self.id = secrets.token_hex(8)
        self.taken_by: dict[str, Any] | None = None  # the description of a process that took this node's place
        self.content = {**content, "index": index, "id": self.id}
        self.beat = 0
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._keep_beating, daemon=True)

    def __enter__(self) -> "Node":
        other = Other(self.folder, self.index)
        if other.look():
            mpi_job.say(f"node {self.index} was here before; waiting {STALE_S} s to see whether it still lives")
        while other.look() and other.silent_s() < STALE_S:
            if other.lives:
                raise Refusal(taken(self.index, other.content))
            if other.blind_s() > STALE_S:
                raise NotNow(
                    "--rendezvous: the folder cannot be read now\n"
                    "  start the same command again once its file system works"
                )
            time.sleep(POLL_S)
        try:
            self._write()
        except OSError as error:
            raise refusal_of(error)(f"--rendezvous: the folder cannot be written to: {error.strerror}") from error
        self.thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.ended.set()
        self.thread.join()
        with suppress(OSError):  # files that are left behind do no harm
            for name in self.folder.names():
                if name.startswith((f"command-{self.id}", f"result-{self.id}")):
                    self.folder.remove(name)
            if (self.folder.read(self.name) or {}).get("id") == self.id:
                self.folder.remove(self.name)

    def tell(self, **news: Any) -> None:
        """Change this node's description. If the file cannot be written now, the next beat writes it."""
        with self.lock:
            self.content |= news
        with suppress(OSError):
            self._write()

    def check(self) -> None:
        """Raise Refusal when another process has taken this node's place."""
        if self.taken_by:
            raise Refusal(taken(self.index, self.taken_by))

    def _keep_beating(self):
        while not self.ended.wait(BEAT_S):
            try:
                self.folder.names()
                found = self.folder.read(self.name)
                if found and found.get("id") != self.id:  # both started at once: the one that wrote last stays
                    self.taken_by = found
                    return
                self._write()
            except OSError:
                pass  # if it fails for long, the others see a silent node

    def _write(self):
        with self.lock:
            self.beat += 1
            self.folder.write(self.name, {**self.content, "beat": self.beat})


class Other:
    """Another node as its file shows it. content: of the file when it was last read. lives: whether the file has been
    seen to change. failed: whether it could not be read the last time."""

    def __init__(self, folder: PrivateFolder, index: int, clock: Callable[[], float] = time.monotonic):
        self.folder = folder
        self.index = index
        self.content: dict[str, Any] | None = None
        self.lives = self.failed = False
        self.silence, self.readable = SilenceTimer(SLOW_S, clock), SilenceTimer(clock=clock)

    def look(self) -> dict[str, Any] | None:
        """Read the file again and return its content, None if there is none; the last content if it cannot be read."""
        failed_before = self.failed
        self.failed = False
        try:
            self.folder.names()
            content = self.folder.read(f"node-{self.index}")
        except OSError:
            self.failed = True
        if self.failed or failed_before or self.folder.failing:  # the other node may be unable to write, too
            self.silence.rest()
        if not self.failed:
            before = self.silence.value
            beat = content and (content.get("id"), content.get("beat"))
            self.lives = bool(beat and before and beat[0] == before[0] and (self.lives or beat != before))
            self.content = content
            self.readable.hear()
            self.silence.look(beat)
        return self.content

    def silent_s(self) -> float:
        """Return for how many seconds the file has not changed."""
        return self.silence.seconds()

    def blind_s(self) -> float:
        """Return for how many seconds the file could not be read."""
        return self.readable.seconds()

    def is_lost(self, id_: str) -> bool:
        """Return whether the process `id_`, which was this node, has ended or cannot be seen any more. Call `look`
        before."""
        if self.blind_s() > BLIND_S:
            return True
        if self.content is None:
            return self.silent_s() > GONE_S
        return self.content["id"] != id_ or self.silent_s() > DEAD_S


def taken(index: int, content: dict[str, Any]) -> str:
    return (
        f"--node_index {index}: another process is this node, on {escape(str(content.get('host')))}\n"
        "  give each node another index, or end that process first"
    )
