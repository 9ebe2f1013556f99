"""Lines for people: root's on standard output and in RUN/logs/run.log, every rank's in RUN/logs/rank-NNN.log."""

import logging
import os
import sys
from logging.handlers import QueueHandler
from pathlib import Path

from az_mpi.core.files import open_plain
from az_mpi.report.background_writer import BackgroundWriter

LAST_LINES_S = 2.0  # for the log files at the end
PLAIN_EVERY = 0.25  # of the work between two progress lines where there is no terminal


def start(is_root, name, run_dir):
    """Return the program's logger; handlers are replaced, so that a process may start it again.

    name: of this rank's log file. run_dir: where the log files go, or None to write none and to leave standard output
    to the result.
    """
    logger = logging.getLogger("az_mpi")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    # The console first: a file system that hangs must not hold back the line that says so.
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


class _Files(QueueHandler):
    """Writes lines to `files`, descriptors, in a thread.

    The files are not handlers of their own: at the end logging would wait for one whose file system hangs."""

    def __init__(self, files):
        super().__init__(BackgroundWriter("log", lambda record: [_write(file, f"{record.msg}\n") for file in files]))
        self._files = files
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def enqueue(self, record):
        self.queue.put(record)

    def close(self):
        """Write what is queued, for at most LAST_LINES_S, and close the files."""
        if self.queue.close(LAST_LINES_S):
            for file in self._files:
                os.close(file)
            self._files = []
        super().close()


def _write(file, text):
    """Write a line. Where the disk is full it is lost silently."""
    data = text.encode(errors="backslashreplace")
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        pass


def on_terminal():
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
    """Progress of one phase: a bar on a terminal, else a line each `PLAIN_EVERY` of the work. Shown by root alone.

    status: the run's `Status`, which is told as well.
    """

    def __init__(self, logger, shown, name, unit, status=None):
        self.logger, self.shown, self.name, self.unit, self.status = logger, shown, name, unit, status
        self.bar, self.next_line = None, PLAIN_EVERY
        self.on_terminal = shown and on_terminal()

    def update(self, done, total):
        """Say that `done` of `total` is done; cheap enough for every step."""
        if not self.shown or not total:
            return
        if self.status:
            self.status.advance(self.name, done, total, self.unit)
        if self.on_terminal:
            if self.bar is None:
                from tqdm import tqdm

                # mpirun holds back standard error until a line ends. Its pseudo-terminal has no size.
                place = {"file": sys.stdout, "ncols": 100, "nrows": 20, "leave": False}
                self.bar = tqdm(total=total, desc=self.name, unit=f" {self.unit}", **place)
            self.bar.update(min(done, total) - self.bar.n)
        elif done < total and done / total >= self.next_line:
            self.logger.info("  %s: %d of %d %s", self.name, done, total, self.unit)
            self.next_line = done / total + PLAIN_EVERY

    def close(self):
        if self.bar is not None:
            self.bar.close()


def table(rows):
    """Return rows of text, the first of them the heading, as lines of aligned columns."""
    widths = [max(len(str(row[k])) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
