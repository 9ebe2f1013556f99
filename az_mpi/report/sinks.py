"""Where metrics go: RUN/metrics.jsonl, one JSON object a line; TensorBoard; and sinks of the user's own."""

import json
import logging
import os

from az_mpi.core import files


class Sink:
    """Takes the records of a run. Made on root, at the first record, with those of these arguments that it names:
    folder (the run's, a Path) and attempt (the number of this start, from 1).

    Its methods are called by a thread beside the main one, so that a file system that hangs holds up no run. A sink
    that raises an exception is told of in the log and gets no more records.
    """

    def write(self, kind, time, step, values):
        """Take a record. kind: "train", "iteration", "evaluation" or "checkpoint". time: seconds since 1970. step:
        optimiser steps. values: by name, JSON-able; some are dicts, see `flat`."""
        raise NotImplementedError

    def close(self):
        """The run ends. Called by the main thread."""


class JsonLines(Sink):
    """RUN/metrics.jsonl. Where its file system fails, lines wait in memory."""

    def __init__(self, folder):
        self._path, self._file, self._unwritten, self._told = folder / "metrics.jsonl", None, b"", False

    def write(self, kind, time, step, values):
        record = {"kind": kind, "time": round(time, 3), "step": step, **values}
        self._unwritten += json.dumps(record).encode() + b"\n"
        self._write_lines()

    def close(self):
        self._write_lines()
        if self._file is not None:
            os.close(self._file)
            self._file = None

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
            pass  # the writer of games tells of it


class TensorBoard(Sink):
    """RUN/tensorboard/attempt-N. An attempt without records leaves none."""

    def __init__(self, folder, attempt):
        import torch.utils.tensorboard  # noqa: F401  # slow, and no part of the time that a record may take

        self._folder, self._writer = folder / "tensorboard" / f"attempt-{attempt}", None

    def write(self, kind, time, step, values):
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self._folder)
        for name, value in flat(values).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._writer.add_scalar(f"{kind}/{name}", value, step)
        self._writer.flush()

    def close(self):
        if self._writer is not None:
            self._writer.close()


def flat(values):
    """Return nested dicts as one, keys joined by dots."""
    rows = {}
    for name, value in values.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        rows.update({f"{name}.{key}".rstrip("."): item for key, item in inner.items()})
    return rows


def _append(path):
    """Return the descriptor of a file of lines to add to; a last line that a crash cut off is ended first."""
    file = files.open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
    except OSError:
        os.close(file)
        raise
    return file
