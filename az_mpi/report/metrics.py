"""Numbers for programs: RUN/metrics.jsonl, one JSON object a line, and TensorBoard beside it. Written by root.

A file system that fails or hangs does not stop the run: lines wait in memory, and TensorBoard's files end.
"""

import json
import logging
import os
import time
from contextlib import contextmanager, suppress

from az_mpi.core import files
from az_mpi.report.background_writer import BackgroundWriter

PATIENCE_S = 1.0  # a write may take so long before the run goes on without it
LAST_LINES_S = 5.0  # and the last lines so long, at the end


class Metrics:
    """Appends records to `run_dir`; with `shown` false (every rank but root) it accepts and drops them."""

    def __init__(self, run_dir, attempt, tensorboard, shown):
        self._path = run_dir / "metrics.jsonl" if shown else None
        self._file, self._unwritten, self._told = None, b"", False
        self._board, self._board_dir = None, None
        if shown and tensorboard:
            self._board_dir = run_dir / "tensorboard" / f"attempt-{attempt}"
        self._background = shown and BackgroundWriter("metrics", lambda record: self._write(*record))

    def write(self, kind, step, values):
        """Record `values`, numbers by name, as one line of `kind`, at optimiser step `step`.

        It is in the file when this returns, unless the file system fails, or hangs for PATIENCE_S."""
        if self.dropped:
            return
        if self._board_dir is not None and self._board is None:
            with suppress(Exception):  # the thread reports it. Imported here since it takes longer than PATIENCE_S.
                import torch.utils.tensorboard  # noqa: F401
        line = json.dumps({"kind": kind, "time": round(time.time(), 3), "step": step, **values}) + "\n"
        hangs = not self._background.flush(0.0)
        self._background.put((line, kind, step, values))
        self._background.flush(0.0 if hangs else PATIENCE_S)

    @property
    def dropped(self):
        """Whether records are dropped here."""
        return self._path is None

    def close(self):
        if self.dropped or not self._background.close(LAST_LINES_S):
            return
        self._write_lines()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._board_dir is not None and self._board is not None:
            try:
                self._board.close()
            except Exception as error:
                logging.getLogger("az_mpi").warning("TensorBoard's files are not whole: %s", error)

    def _write(self, line, kind, step, values):
        self._unwritten += line.encode()
        self._write_lines()
        if self._board_dir is not None:
            try:
                self._write_board(kind, step, values)
            except Exception as error:
                logging.getLogger("az_mpi").warning("TensorBoard's files of this attempt end here: %s", error)
                self._board_dir = None

    def _write_lines(self):
        try:
            if self._file is None:
                self._file = _append(self._path)
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
        except files.Foreign as error:
            if not self._told:
                logging.getLogger("az_mpi").warning("%s: %s; it is not written", self._path, error.strerror)
            self._unwritten, self._told = b"", True
        except OSError:
            pass  # the writer of games reports it

    def _write_board(self, kind, step, values):
        if self._board is None:  # an attempt with nothing to do leaves none
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(self._board_dir)
        for name, value in flat(values).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._board.add_scalar(f"{kind}/{name}", value, step)
        self._board.flush()


def _append(path):
    """Open a file of lines to append to; return its descriptor. A last line that a crash cut off is ended first."""
    file = files.open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
    except OSError:
        os.close(file)
        raise
    return file


def flat(values):
    """Return nested dicts as one, keys joined by dots."""
    rows = {}
    for name, value in values.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        rows.update({f"{name}.{key}".rstrip("."): item for key, item in inner.items()})
    return rows


class Timers:
    """Seconds spent in named phases since the last `take`, and how many of them a rank waited for others.

    A phase ends with a barrier over `world`: a rank that is done early is idle in this phase, not in the next.
    """

    def __init__(self, world, on_change=lambda phase: None):
        """on_change: called with a phase's name as it begins, and with None when this rank has done its part of it."""
        self._world, self._seconds, self._idle, self._on_change = world, {}, {}, on_change

    @contextmanager
    def __call__(self, name):
        """Collective over the world: every rank enters the same phases in the same order."""
        start, waited = time.perf_counter(), self._world.waited_s
        self._on_change(name)
        try:
            yield
            self._on_change(None)
            self._world.barrier()
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start
            self._idle[name] = self._idle.get(name, 0.0) + self._world.waited_s - waited

    def take(self):
        """Return {phase_s, phase_idle_s, phase_idle_max_s: seconds} and begin anew. Collective over the world.

        phase_s: of this rank. phase_idle_s and phase_idle_max_s: the mean and the largest `waited_s` over ranks, which
        is waiting for others and, in an exchange, also the transfer itself.
        """
        seconds, self._seconds = self._seconds, {}
        idle, self._idle = self._idle, {}
        everyone = self._world.collect(idle)
        values = {f"{name}_s": round(value, 4) for name, value in seconds.items()}
        for name in seconds:
            by_rank = [one[name] for one in everyone]
            values[f"{name}_idle_s"] = round(sum(by_rank) / len(by_rank), 4)
            values[f"{name}_idle_max_s"] = round(max(by_rank), 4)
        return values


def read(path):
    """Return the records of a metrics file in order. Lines that are not records, such as a last one cut off by a crash,
    are left out. Raises OSError."""
    records = []
    for line in files.read(path, files.LINES_BYTES_MAX).splitlines():
        with suppress(ValueError):
            record = files.parse_json(line)
            if isinstance(record, dict) and "kind" in record:
                records.append(record)
    return records


def newest(records, kind, key):
    """Return the records of one kind ordered by `key`. Of several with the same key the last counts."""
    chosen = {record[key]: record for record in records if record["kind"] == kind and key in record}
    return [chosen[value] for value in sorted(chosen)]
