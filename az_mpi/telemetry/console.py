"""Log lines and progress bars: root's on standard output and in RUN/logs/run.log, each rank's in logs/rank-NNN.log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core.files import open_plain
from az_mpi.telemetry.background_writer import BackgroundWriter

if TYPE_CHECKING:
    from az_mpi.telemetry.status import Status

LAST_LINES_S = 2.0  # how long the end of the program waits for the log files
PLAIN_EVERY = 0.25  # share of the work between two progress lines when there is no terminal


def start(is_root: bool, name: str, run_dir: Path | None) -> logging.Logger:
    """Return the program's logger with new handlers; a process may call this again.

    name: of this rank's log file. run_dir: the run's folder; None: no log files, and root's lines go to standard error.
    """
    logger = logging.getLogger("az_mpi")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    # The console first: a file system that hangs must not delay the line that says so.
    if is_root:
        console = logging.StreamHandler(sys.stderr if run_dir is None else sys.stdout)
        console.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(console)
    if run_dir is not None:
        folder, opened = Path(run_dir) / "logs", []
        for log in [f"{name}.log"] + ["run.log"] * is_root:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                opened.append(open_plain(folder / log, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
            except OSError as error:
                logger.warning("%s: %s; this log is not written", folder / log, error.strerror)
        logger.addHandler(_Files(opened))
    return logger


class _Files(logging.Handler):
    """Writes lines to `files`, descriptors, in a thread, so that a file system that hangs delays neither the run nor
    its end."""

    def __init__(self, files: list[int]):
        super().__init__()
        self._files = files
        self._background = BackgroundWriter("log", lambda line: [_write(file, line) for file in files])
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record):
        try:
            self._background.put(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)

    def close(self):
        """Write what is queued, for at most LAST_LINES_S, and close the files."""
        if self._background.close(LAST_LINES_S):
            for file in self._files:
                os.close(file)
            self._files = []
        super().close()


def _write(file, text):
    """Write a line; on a full disk it is lost silently."""
    data = text.encode(errors="backslashreplace")
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        pass


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


class ProgressBar:
    """Progress of one phase: a bar on a terminal, else a line each `PLAIN_EVERY` of the work. shown: true on root.
    status: of the run, which shows the progress as well."""

    def __init__(self, logger: logging.Logger, shown: bool, name: str, unit: str, status: Status | None = None):
        self.logger, self.shown, self.name, self.unit, self.status = logger, shown, name, unit, status
        self.next_line = PLAIN_EVERY
        self.bar: Any = None
        self.on_terminal = shown and on_terminal()

    def update(self, done: int, total: int) -> None:
        """`done` of `total` is done; cheap enough for every step."""
        if not self.shown or not total:
            return
        if self.status:
            self.status.advance(self.name, done, total, self.unit)
        if self.on_terminal:
            if self.bar is None:
                from tqdm import tqdm

                # mpirun delays standard error until a line ends. Its pseudo-terminal has no size.
                place = {"file": sys.stdout, "ncols": 100, "nrows": 20, "leave": False}
                self.bar = tqdm(total=total, desc=self.name, unit=f" {self.unit}", **place)
            self.bar.update(min(done, total) - self.bar.n)
        elif done < total and done / total >= self.next_line:
            self.logger.info("  %s: %d of %d %s", self.name, done, total, self.unit)
            self.next_line = done / total + PLAIN_EVERY

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def table(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return rows, the first of them the heading, as lines of text in aligned columns."""
    widths = [max(len(str(row[k])) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
