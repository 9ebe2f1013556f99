"""Log lines: root's on standard output and in RUN/logs/run.log, each rank's in logs/rank-NNN.log. Tables as text."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from az_mpi.core.files import open_plain
from az_mpi.telemetry.background_writer import BackgroundWriter

LOG_BYTES_MAX = 2**24  # of a log file; then it becomes NAME.log.1, in place of an earlier one
LAST_LINES_S = 2.0  # how long the end of the program waits until the last lines are in the log files


def start(is_root: bool, name: str, run_dir: Path | None, warns: bool = False) -> logging.Logger:
    """Return the program's logger with new handlers; a process may call this again.

    name: of this rank's log file. run_dir: the run's folder; None: there are no log files, and root's lines go to
    standard error. warns: whether this rank's warnings go there too, if it is not root.
    """
    logger = logging.getLogger("az_mpi")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    # The console comes first, since a file system that hangs must not delay the line that says so.
    if is_root:
        console = logging.StreamHandler(sys.stderr if run_dir is None else sys.stdout)
        console.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(console)
    elif warns:
        console = logging.StreamHandler(sys.stderr)
        console.setFormatter(logging.Formatter(f"{name}: %(message)s"))
        console.setLevel(logging.WARNING)
        logger.addHandler(console)
    if run_dir is not None:
        folder = Path(run_dir) / "logs"
        opened = []
        for log in [f"{name}.log"] + (["run.log"] if is_root else []):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                opened.append(_File(folder / log))
            except OSError as error:
                logger.warning("%s: %s; this log is not written", folder / log, error.strerror)
        logger.addHandler(_Files(opened))
    return logger


class _Files(logging.Handler):
    """Writes lines to `files` in a thread, so that a file system that hangs delays neither the run nor its end."""

    def __init__(self, files: list[_File]):
        super().__init__()
        self._files = files
        self._background = BackgroundWriter("log", self._write)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record):
        try:
            self._background.put(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)

    def _write(self, line):
        for file in self._files:
            file.write(line)

    def close(self):
        """Write what is queued, for at most LAST_LINES_S, and close the files."""
        if self._background.close(LAST_LINES_S):
            for file in self._files:
                file.close()
            self._files = []
        super().close()


class _File:
    """A log file, of which the newest LOG_BYTES_MAX to 2 LOG_BYTES_MAX bytes are kept. Raises OSError when made."""

    def __init__(self, path: Path):
        self._path, self._descriptor = path, _append_to(path)

    def write(self, text: str) -> None:
        """Write a line. A line that cannot be written, as on a full disk, is lost silently."""
        data = text.encode(errors="backslashreplace")
        with suppress(OSError):
            self._begin_again_if_long()
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        os.close(self._descriptor)

    def _begin_again_if_long(self):
        if os.fstat(self._descriptor).st_size < LOG_BYTES_MAX:
            return
        os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
        full, self._descriptor = self._descriptor, _append_to(self._path)
        os.close(full)


def _append_to(path):
    return open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def table(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return rows as lines of text with aligned columns. The first row is the heading."""
    widths = [max(len(str(row[k])) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
