"""Sinks of metrics: RUN/metrics.jsonl, one JSON object a line; TensorBoard; and the base of users' own sinks."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from az_mpi.core import files


class Sink:
    """Base of sinks.

    Root makes one at the first record. Its constructor may have any of these arguments: folder (the run's, a Path),
    start (the number of this start, from 1).

    A thread that only writes calls `write`, so that a file system that hangs does not stop the run. If a sink raises an
    exception, the log says so, and it gets no more records.
    """

    def write(self, kind: str, time: float, step: int, values: dict[str, Any]) -> None:
        """Store a record. kind: "train", "iteration", "evaluation", "checkpoint" or "fit". time: seconds since 1970.
        step: optimiser steps. values: by name, JSON-able; some are dicts, see `flat`."""
        raise NotImplementedError

    def close(self) -> None:
        """Called by the main thread when the run ends."""


class JsonLines(Sink):
    """RUN/metrics.jsonl. While its file system fails, lines wait in memory."""

    def __init__(self, folder: Path):
        self._path = folder / "metrics.jsonl"
        self._file: int | None = None  # the descriptor
        self._unwritten = b""
        self._warned = False

    def write(self, kind: str, time: float, step: int, values: dict[str, Any]) -> None:
        record = {"kind": kind, "time": round(time, 3), "step": step, **values}
        self._unwritten += json.dumps(record).encode() + b"\n"
        self._write_lines()

    def close(self) -> None:
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
            if not self._warned:
                logging.getLogger("az_mpi").warning("%s: %s; it is not written", self._path, error.strerror)
            self._unwritten = b""
            self._warned = True
        except OSError:
            pass  # `storage.writer` reports a file system that fails


class TensorBoard(Sink):
    """RUN/tensorboard/start-N for start N. A start without records has no such folder."""

    def __init__(self, folder: Path, start: int):
        import torch.utils.tensorboard  # noqa: F401  # slow: not within the time limit of a record

        self._folder = folder / "tensorboard" / f"start-{start}"
        self._writer: Any = None

    def write(self, kind: str, time: float, step: int, values: dict[str, Any]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self._folder)
        for name, value in flat(values).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._writer.add_scalar(f"{kind}/{name}", value, step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """Return nested dicts as one dict, whose keys are joined by dots."""
    rows = {}
    for name, value in values.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        rows.update({f"{name}.{key}".rstrip("."): item for key, item in inner.items()})
    return rows


def _append(path):
    """Open a file of lines to append to and return its descriptor. If a crash has cut off the last line, end it."""
    file = files.open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
    except OSError:
        os.close(file)
        raise
    return file
