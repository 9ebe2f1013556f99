"""Files written by a thread, from a bounded queue: a slow or failing disk does not stop the search.

While the file system is unavailable (it is full, its server is away, a ticket has ended) the thread tries again. Play
goes on until the queue is full or a checkpoint is due. Then the run pauses; it goes on when the file system works
again, or stops after `storage.give_up_s`.
"""

import errno
import logging
import math
import os
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

from az_mpi.core.files import MAY_NOT, REFUSED, Forbidden, passes, retry_while_unavailable, unavailable
from az_mpi.core.problems import NotNow, Refusal
from az_mpi.liveness import watchdog
from az_mpi.storage import segment
from az_mpi.storage.segment import SegmentError

QUEUE_MAX = 4  # records in memory that are not yet on disk, the one being written among them
RESCUE_S = 5.0  # for how long a failing run waits for the file system
STALL_S = 10.0  # a file system that has not answered for so long is reported
STOP_S = 3.0  # for how long a run that was asked to stop waits for a file system that fails
ADVICE = {"ENOSPC": "make room there", "EDQUOT": "remove files of yours there, or have your quota raised",
          "EROFS": "have it mounted for writing again"}  # fmt: skip


class _Job:
    """Something to write: `steps`, (path, action) each, done in order. games_num: how many games are lost with it."""

    def __init__(self, steps, games_num=0, what="written"):
        self.steps, self.games_num, self.what, self.waited = steps, games_num, what, False
        self.result = self.error = None


class Writer:
    """Writes records as segments in `folder`, in the order of `submit`, and other files between them. The file `links`
    links to all segments.

    Root has one and calls it from one thread. An error that will not pass is raised by the next `submit` or `flush`;
    later calls raise SegmentError. Other records are still written if possible.
    """

    def __init__(self, folder, links, game, requests=None, give_up_s=600.0):
        """requests: `signals.Requests`; the writer requests a stop here when it gives up."""
        self.folder, self.links, self.game, self.give_up_s = folder, links, game, give_up_s
        self.requests = requests or SimpleNamespace(stop=False)
        self.may_appear = lambda: None  # called right before a file appears; raises Forbidden
        self.ended = None  # once nothing is written any more: why, in words
        self.resumable = True  # then: whether the same command can go on later
        self.lost_games_num = 0  # then: games that were submitted and not written
        self._log = logging.getLogger("az_mpi")
        self._changed = threading.Condition()
        self._unwritten = deque()  # the first is being written
        self._handed_num = self._written_num = 0  # records
        self._error, self._told = None, False
        self._path, self._tried, self._failure = None, 0.0, None  # of the step under way; its newest error in words
        self._begun = None  # when that step was first tried
        # A daemon, so that a file system that never answers does not keep a failing program alive.
        threading.Thread(target=self._write, name="segments", daemon=True).start()

    def submit(self, iteration, record, provenance):
        """Let the thread write a segment, see `segment.write`. Blocks while QUEUE_MAX records are unwritten.

        The record must not be changed afterwards. One without games makes no segment, but renews the links.
        """
        steps = [(self.links, lambda: segment.link_all(self.folder, self.links, self._check))]
        if len(record.games):
            names = []  # a second try uses the name of the first, whose file may have appeared before it failed

            def write():
                names[:] = names or [segment.next_path(self.folder, iteration)]
                segment.write(self.folder, iteration, self.game, record, provenance, names[0], self._check)

            steps.insert(0, (self.folder, write))
        with self._changed:
            self._wait(lambda: len(self._unwritten) < QUEUE_MAX)
            self._raise_error()
            self._append(_Job(steps, len(record.games)))

    def do(self, path, action, what="written"):
        """Let the thread call `action(check)`, which writes `path`, after all that was submitted; wait and return its
        result, None once the writer has ended. `action` may be called several times; it has to call `check` right
        before its file appears.

        what: "read" for an action that only reads."""
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
    def unwritten_num(self):
        """How many of the newest submitted records may not be durable yet."""
        with self._changed:
            return self._handed_num - self._written_num

    def writing_s(self):
        """Return for how many seconds the step under way has taken; 0.0 if there is none. For any thread."""
        begun = self._begun
        return 0.0 if begun is None else time.monotonic() - begun

    def flush(self):
        """Wait until everything submitted is durable, or the writer has ended."""
        with self._changed:
            self._wait(lambda: not self._unwritten)
            self._raise_error()

    def rescue(self):
        """Wait at most RESCUE_S for submitted records, in a run that is failing.

        Returns (how many records are still unwritten, an error that no `submit` or `flush` has raised, or None).
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._unwritten, RESCUE_S)
            return len(self._unwritten), None if self._told else self._error

    def _append(self, job):
        self._handed_num += not job.waited
        if self.ended is not None:
            self.lost_games_num += job.games_num
            return
        self._unwritten.append(job)
        self._changed.notify_all()

    def _raise_error(self):
        if self._error is None:
            return
        if self._told:
            raise SegmentError(f"{self.folder}: a segment could not be written before") from self._error
        self._told = True
        raise self._error

    def _wait(self, done):
        """Wait until `done()`, called with `_changed` held, or until the writer ends. Logs a pause."""
        begun, paused = time.monotonic(), False
        while not done() and self.ended is None:
            self._changed.wait(0.1)
            watchdog.tick()
            trouble = self._trouble()
            if not trouble:
                begun = time.monotonic()
                continue
            if not paused:
                self._log.warning("paused: %s; the run goes on by itself once this works, and stops after %.0f s "
                                  "(storage.give_up_s)", trouble, self.give_up_s)
                paused = True
            if time.monotonic() - begun > (min(STOP_S, self.give_up_s) if self.requests.stop else self.give_up_s):
                self._end(trouble)
        if paused and self.ended is None:
            self._log.info("the files can be written again: the run goes on")

    def _trouble(self):
        """Return in words why the step under way makes no progress, or None."""
        if self._unwritten and self._failure is not None:
            return f"{self._path} cannot be {self._unwritten[0].what}: {self._failure}"
        silent_s = time.monotonic() - self._tried
        if self._unwritten and silent_s > STALL_S:
            what = self._unwritten[0].what
            return f"{self._path} is being {what} for {silent_s:.0f} s: the file system does not answer"
        return None

    def _end(self, why):
        """Write nothing any more, and ask all ranks to stop. Called with `_changed` held."""
        self.ended = why
        self.lost_games_num += sum(job.games_num for job in self._unwritten)
        self.requests.stop = True
        self._log.error("nothing is written any more: %s", why)
        self._changed.notify_all()

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
                    job.result = self._perform(path, action, job.what)
            except BaseException as raised:  # of any kind: it is raised in the thread that submitted the job
                job.error = raised
            job.steps = self._begun = None  # frees the record
            with self._changed:
                self._failure = None
                if not job.waited:
                    self._error = self._error or job.error
                    self._written_num += job.error is None and self.ended is None
                self._unwritten.popleft()
                self._changed.notify_all()
            del job

    def _perform(self, path, action, what):
        """Return what `action()` returns, called until the file system is available; None once the writer ends."""
        self._begun = time.monotonic()

        def attempt():
            if self.ended is not None:
                return None
            self._path, self._tried = path, time.monotonic()
            try:
                return action()
            except OSError as error:
                if unavailable(error):
                    self._failure = describe(path, error)
                else:
                    self.may_appear()  # raises Forbidden where the run's folder is gone, which is the cause then
                raise

        def say(error):
            kept = "it is kept in memory and " if what == "written" else ""
            self._log.warning("%s cannot be %s: %s; %stried again", path, what, self._failure, kept)

        def sleep(seconds):
            with self._changed:
                self._changed.wait_for(lambda: self.ended is not None, seconds)

        try:
            result = retry_while_unavailable(attempt, math.inf, say, sleep=sleep)
        except Forbidden as error:
            with self._changed:
                if self.ended is None:
                    self.resumable = error.resumable
                    self._end(str(error))
            return None
        if self._failure is not None and self.ended is None:
            self._log.info("%s: %s now", path, what)
            self._failure = None
        return result


def read_through(writer, path, look):
    """Return what `look()`, which reads `path`, returns; `writer` calls it again while the file system is unavailable.

    None where the writer has given up, and the run is to stop. writer None: called once. Raises Refusal."""
    try:
        return look()
    except OSError as error:
        if writer is None:
            if not unavailable(error):
                raise
            kind = NotNow if passes(error) else Refusal
            raise kind(f"{path} cannot be read: {describe(path, error)}") from error
    return writer.do(path, lambda check: look(), "read")


def describe(path, error):
    """Return an OSError in words: what is wrong, how much room there is, and what helps."""
    name = errno.errorcode.get(error.errno, "")
    try:
        room = os.statvfs(path if os.path.isdir(path) else os.path.dirname(path))
        free = f"{room.f_bavail * room.f_frsize / 2**20:,.1f} MiB and {room.f_favail:,} files free"
    except OSError:
        free = "free space unknown"
    usual = MAY_NOT if error.errno in REFUSED else "look at the file system, or at the host that serves it"
    file = Path(error.filename or path)
    file = "" if file == Path(path) or file.name.startswith(".") else f": {file.name}"  # no temporary names
    return f"{error.strerror}{file} ({free}): {ADVICE.get(name, usual)}"
