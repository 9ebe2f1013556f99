"""Segments written by a thread, from a bounded queue: a slow file system does not stop the search."""

import threading
from collections import deque

from az_mpi.data import segment
from az_mpi.data.segment import SegmentError

QUEUE_MAX = 4  # records in memory that are not yet on disk, the one being written among them
RESCUE_S = 5.0  # that a failing run waits for the file system


class SegmentWriter:
    """Writes records, in the order in which they are handed over, as segments in `folder`; `links` links to them all.

    One process, root, has one, and calls it from one thread. What could not be written is raised by the next `submit`
    or `flush`, as it was raised in the thread; later calls raise SegmentError. What was handed over before or after
    such an error is still written if it can be.
    """

    def __init__(self, folder, links, game):
        self.folder, self.links, self.game = folder, links, game
        self._changed = threading.Condition()
        self._unwritten = deque()  # the first is being written
        self._error, self._told = None, False
        # A daemon: a file system that never answers must not keep a failing program alive.
        threading.Thread(target=self._write, name="segments", daemon=True).start()

    def submit(self, iteration, record, provenance):
        """Hand over what `segment.write` takes; waits while QUEUE_MAX records are unwritten.

        The record must not be changed afterwards. One without games makes no segment, but the links are renewed.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._unwritten) < QUEUE_MAX)
            self._raise_error()
            self._unwritten.append((iteration, record, provenance))
            self._changed.notify_all()

    @property
    def unwritten_num(self):
        """How many of the newest records handed over may not be durable yet."""
        with self._changed:
            return len(self._unwritten)

    def flush(self):
        """Wait until everything handed over is durable."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unwritten)
            self._raise_error()

    def rescue(self):
        """Wait RESCUE_S at most for what was handed over, in a run that is failing.

        Returns (how many records are still unwritten, an error that no `submit` or `flush` has raised, or None).
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._unwritten, RESCUE_S)
            return len(self._unwritten), None if self._told else self._error

    def _raise_error(self):
        if self._error is None:
            return
        if self._told:
            raise SegmentError(f"{self.folder}: a segment could not be written before") from self._error
        self._told = True
        raise self._error

    def _write(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unwritten)
                iteration, record, provenance = self._unwritten[0]
            error = None
            try:
                if len(record.games):
                    segment.write(self.folder, iteration, self.game, record, provenance)
                segment.link_all(self.folder, self.links)
            except BaseException as raised:  # whatever it is, it belongs to the thread that handed this over
                error = raised
            del record
            with self._changed:
                self._error = self._error or error
                self._unwritten.popleft()
                self._changed.notify_all()
