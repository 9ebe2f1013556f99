"""The progress of one phase of a run: a bar on root's terminal, or log lines where there is none."""

from __future__ import annotations

import logging
import os
import sys
import time

from az_mpi.telemetry.status import Status
from az_mpi.telemetry.status_text import duration, progress_text

PLAIN_EVERY = 0.25  # share of the work between two log lines
DRAW_EVERY_S = 0.1  # between two drawings of the bar
COLUMNS = 79  # characters of the bar at most: mpirun's pseudo-terminal does not say how wide the terminal is
TO_LINE_START, ERASE_REST = "\r", "\x1b[K"


class ProgressBar:
    """Progress of one phase: a bar on a terminal, else a line each `PLAIN_EVERY` of the work. shown: true on root.
    status: of the run, which shows the progress as well. in_lines: no bar, since other lines are logged meanwhile."""

    def __init__(
        self,
        logger: logging.Logger,
        shown: bool,
        name: str,
        unit: str,
        status: Status | None = None,
        in_lines: bool = False,
    ):
        self.logger = logger
        self.shown = shown
        self.name = name
        self.unit = unit
        self.status = status
        self.on_terminal = shown and not in_lines and on_terminal()
        self._next_line = PLAIN_EVERY
        self._drawn_at: float | None = None  # seconds of the monotonic clock; None: no bar is on the terminal
        self._first: tuple[float, int] | None = None  # when the first update came, and how much was done by then

    def update(self, done: int, total: int) -> None:
        """`done` of `total` is done; cheap enough for every step."""
        if not self.shown or not total:
            return
        if self.status:
            self.status.advance(self.name, done, total, self.unit)
        if self.on_terminal:
            self._draw(done, total)
        elif done < total and done / total >= self._next_line:
            self.logger.info("  %s: %d of %d %s", self.name, done, total, self.unit)
            self._next_line = done / total + PLAIN_EVERY

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._drawn_at is not None:
            self._write("")
            self._drawn_at = None

    def _draw(self, done, total):
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        if self._drawn_at is None or now - self._drawn_at >= DRAW_EVERY_S:
            self._drawn_at = now
            self._write(progress_text(self.name, done, total, self.unit) + self._pace(now, done, total))

    def _pace(self, now, done, total):
        """Return the rate since the first update and the time that is left at this rate."""
        begun, done_before = self._first
        if done <= done_before or now <= begun:
            return ""
        rate = (done - done_before) / (now - begun)
        return f", {rate:,.1f}/s, {duration(max(total - done, 0) / rate)} left"

    def _write(self, text):
        """Replace the line of the terminal. It is standard output, since mpirun delays standard error until a line
        ends."""
        sys.stdout.write(TO_LINE_START + text[:COLUMNS] + ERASE_REST)
        sys.stdout.flush()


def on_terminal() -> bool:
    """Return whether this rank's standard output reaches a terminal.

    Open MPI gives every rank a pseudo-terminal and copies from it to mpirun's output, which may be a file. So under
    mpirun the output of mpirun decides. If mpirun runs on another host, this returns False.
    """
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return sys.stdout.isatty()
    try:
        return os.readlink(f"/proc/{os.getppid()}/fd/1").startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False
