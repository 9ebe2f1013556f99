"""The writer: a thread that writes files from a bounded queue, so that a slow or failing disk does not stop the search.

While the file system is unavailable (full, its server away, a ticket expired) the thread tries again. Play continues
until the queue is full or a checkpoint is due. Then the run pauses; it continues when the file system works again, or
stops after `storage.give_up_s`.
"""

import errno
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from az_mpi.core.files import MAY_NOT, REFUSED, Forbidden, retry_while_unavailable, unavailable
from az_mpi.core.signals import Requests
from az_mpi.games.base import Game
from az_mpi.liveness import watchdog
from az_mpi.selfplay.record import Record
from az_mpi.storage import segment

QUEUE_MAX = 4  # records in memory that are not yet on disk, including the one that is being written
RESCUE_S = 5.0  # how long a failing run waits for the file system
STALL_S = 10.0  # after which a file system that does not answer is reported
STOP_S = 3.0  # how long a run that was asked to stop waits for a file system that fails
ADVICE = {
    "ENOSPC": "make room there",
    "EDQUOT": "remove files of yours there, or have your quota raised",
    "EROFS": "have it mounted for writing again",
}


class _Job:
    """Something to write. steps: (path, action), done in order. num_games: games that are lost if it is not written."""

    def __init__(self, steps: list[tuple[Path, Callable[[], Any]]], num_games: int = 0, what: str = "written"):
        self.steps, self.num_games, self.what, self.waited = steps, num_games, what, False
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """Writes records as segments in `folder`, renews `links`, the file that links to all of them, and writes other
    files, all in the order of the calls.

    Root has one, and perhaps other ranks (`run.writers`); each calls it from one thread. An error that trying again
    does not fix is logged, and each later call of `submit`, `do` or `flush` raises it. All other work is still done if
    possible.
    """

    def __init__(
        self, folder: Path, links: Path | None, game: Game, requests: Requests | None = None, give_up_s: float = 600.0
    ):
        """links: None if another rank renews them. requests: of signals; the writer asks for a stop there when it gives
        up."""
        self.folder, self.game, self.give_up_s = folder, game, give_up_s
        self._links = None if links is None else segment.Links(folder, links)
        self.requests = requests or Requests()
        self.may_appear: Callable[[], None] = lambda: None  # called right before a file appears; raises Forbidden
        self.ended = None  # why nothing is written any more, in words
        self.resumable = True  # then: whether the same command continues later
        self.num_lost_games = 0  # handed over and not written, since it has ended
        self.log = logging.getLogger("az_mpi")
        self._changed = threading.Condition()
        self._unwritten = deque()  # the first is being written
        self._num_handed = self._num_written = 0  # records
        self._error: BaseException | None = None  # the first of work that nobody waits for
        self._step: _Step | None = None  # under way
        # A daemon: a file system that hangs must not keep a failing program alive.
        threading.Thread(target=self._write, name="segments", daemon=True).start()

    def submit(self, iteration: int, record: Record, provenance: dict[str, Any], number: int | None = None) -> None:
        """Queue a segment, as for `segment.write`; wait while QUEUE_MAX records are unwritten.

        The record must not be changed afterwards. Without games it makes no segment, but the links are renewed.
        number: of the segment, where ranks beside this one write too; None: the next one.
        """
        steps: list[tuple[Path, Callable[[], Any]]] = []
        if (links := self._links) is not None:
            steps.append((links.path, lambda: links.renew(self._check)))
        if len(record.games):
            # A second try writes the same file, which may have appeared before the first try failed.
            names = [] if number is None else [segment.path_of(self.folder, iteration, number)]

            def write():
                names[:] = names or [segment.next_path(self.folder, iteration)]
                segment.write(self.folder, iteration, self.game, record, provenance, names[0], self._check)

            steps.insert(0, (self.folder, write))
        with self._changed:
            self._wait(lambda: len(self._unwritten) < QUEUE_MAX)
            self._raise_error()
            self._append(_Job(steps, len(record.games)))

    def do(self, path: Path, action: Callable[[Callable[[], None]], Any], what: str = "written") -> Any:
        """Let `action(check)` write `path` once all queued work is done; wait, and return its result, or None if the
        writer has ended. action may be called several times, and calls `check` right before its file appears.

        what: "read" if it only reads."""
        job = _Job([(path, lambda: action(self._check))], what=what)
        job.waited = True
        with self._changed:
            self._append(job)
            self._wait(lambda: job not in self._unwritten)
            self._raise_error()
        if job.error is not None:
            raise job.error
        return job.result

    @property
    def num_unwritten(self) -> int:
        """How many of the newest records may not be on disk yet."""
        with self._changed:
            return self._num_handed - self._num_written

    def writing_s(self) -> float:
        """Return for how many seconds the present step has been under way, 0.0 if there is none. Any thread may call
        it."""
        step = self._step
        return 0.0 if step is None else time.monotonic() - step.begun

    def wait_for_end(self, seconds: float) -> None:
        """Wait so long, or until the writer has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended is not None, seconds)

    def flush(self) -> None:
        """Wait until all queued work is done, or the writer has ended."""
        with self._changed:
            self._wait(lambda: not self._unwritten)
            self._raise_error()

    def rescue(self) -> int:
        """Wait at most RESCUE_S for the queued work of a run that is failing; return how much of it is unwritten."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unwritten, RESCUE_S)
            return len(self._unwritten)

    def _append(self, job):
        self._num_handed += not job.waited
        if self.ended is not None:
            self.num_lost_games += job.num_games
            return
        self._unwritten.append(job)
        self._changed.notify_all()

    def _raise_error(self):
        if self._error is not None:
            raise self._error

    def _wait(self, done):
        """Wait until `done()`, which is called with `_changed` held, or until the writer ends; log a pause."""
        begun, paused = time.monotonic(), False
        while not done() and self.ended is None:
            self._changed.wait(0.1)
            watchdog.tick()
            trouble = self._step.trouble() if self._step else None
            if not trouble:
                begun = time.monotonic()
                continue
            if not paused:
                self.log.warning(
                    "paused: %s; the run continues once this works, or stops after %.0f s (storage.give_up_s)",
                    trouble,
                    self.give_up_s,
                )
                paused = True
            if time.monotonic() - begun > (min(STOP_S, self.give_up_s) if self.requests.stop else self.give_up_s):
                self._end(trouble)
        if paused and self.ended is None:
            self.log.info("the files can be written again: the run continues")

    def _end(self, why):
        """Write nothing more and ask all ranks to stop. `_changed` is held."""
        self.ended = why
        self.num_lost_games += sum(job.num_games for job in self._unwritten)
        self.requests.stop = True
        self.log.error("nothing is written any more: %s", why)
        self._changed.notify_all()

    def _end_forbidden(self, error):
        with self._changed:
            if self.ended is None:
                self.resumable = error.resumable
                self._end(str(error))

    def _check(self):
        if self.ended is not None:
            raise Forbidden(self.ended)
        self.may_appear()

    def _write(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unwritten)
                job = self._unwritten[0]
            try:
                for path, action in job.steps:
                    self._step = _Step(self, path, action, job.what)
                    job.result = self._step.perform()
            except Forbidden as error:
                self._end_forbidden(error)
                job.result = None
            except BaseException as raised:  # of any kind: the thread that queued this job raises it
                job.error = raised
            job.steps = []  # frees the record
            with self._changed:
                self._step = None
                if not job.waited:
                    if job.error is not None:
                        self.log.error("%s: a segment could not be written: %s", self.folder, job.error)
                    self._error = self._error or job.error
                    self._num_written += job.error is None and self.ended is None
                self._unwritten.popleft()
                self._changed.notify_all()
            del job


class _Step:
    """A step of a job under way: `action()` writes or reads `path`. It is tried until the file system is available."""

    def __init__(self, writer: Writer, path: Path, action: Callable[[], Any], what: str):
        self.writer, self.path, self.action, self.what = writer, path, action, what
        self.begun = time.monotonic()  # when it was first tried
        self.failure: str | None = None  # why the newest try failed
        self.repeated = False  # whether a name that is missing, or there already, was looked for again

    def trouble(self) -> str | None:
        """Return why the step is not done yet, in words; None while that is no trouble. Any thread may call it."""
        silent_s = time.monotonic() - self.begun
        if self.failure is not None:
            return f"{self.path} cannot be {self.what}: {self.failure}"
        if silent_s > STALL_S:
            return f"{self.path} could not be {self.what} for {silent_s:.0f} s: the file system does not answer"
        return None

    def perform(self) -> Any:
        """Return the result of `action()` once the file system is available; None if the writer ends before. Raises
        Forbidden, and errors that trying again does not fix."""
        result = retry_while_unavailable(self._try, math.inf, self._tell, sleep=self._pause)
        if self.failure is not None and self.writer.ended is None:
            self.writer.log.info("%s: %s now", self.path, self.what)
        return result

    def _try(self):
        if self.writer.ended is not None:
            return None
        try:
            return self.action()
        except OSError as error:
            if unavailable(error):
                self.failure = describe(self.path, error)
                raise
            self.writer.may_appear()  # raises Forbidden if the run's folder is gone, which is the cause then
            if self.repeated or not isinstance(error, (FileNotFoundError, FileExistsError)):
                raise
        # A file server that restarts may lose the answer to a rename or mkdir that it has done. A client of NFS then
        # asks again, and hears that the old name is missing, or that the new one is there.
        self.repeated = True
        return self._try()

    def _tell(self, error):
        kept = "it is kept in memory and " if self.what == "written" else ""
        self.writer.log.warning("%s cannot be %s: %s; %stried again", self.path, self.what, self.failure, kept)

    def _pause(self, seconds):
        self.writer.wait_for_end(seconds)


def describe(path: Path, error: OSError) -> str:
    """Return the text about an OSError: what is wrong, how much room there is, and what helps."""
    name = errno.errorcode.get(error.errno or 0, "")
    try:
        room = os.statvfs(path if os.path.isdir(path) else os.path.dirname(path))
        free = f"{room.f_bavail * room.f_frsize / 2**20:,.1f} MiB and {room.f_favail:,} files free"
    except OSError:
        free = "free space unknown"
    usual = MAY_NOT if error.errno in REFUSED else "look at the file system, or at the host that serves it"
    file = Path(error.filename or path)
    shown = "" if file == Path(path) or file.name.startswith(".") else f": {file.name}"  # not its temporary name
    return f"{error.strerror}{shown} ({free}): {ADVICE.get(name, usual)}"
