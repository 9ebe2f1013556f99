"""The metrics of a run: root hands records to sinks, and `read` returns those of metrics.jsonl.

A sink that fails or hangs does not stop the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core import files
from az_mpi.core.earlier_names import modern_keys
from az_mpi.core.registry import SINKS
from az_mpi.telemetry.background_writer import BackgroundWriter

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.mpi.world import World
    from az_mpi.telemetry.sinks import Sink

PATIENCE_S = 1.0  # how long the run waits for a record to be written
LAST_LINES_S = 5.0  # how long the end of the run waits for the last records


class Metrics:
    """Hands records to metrics.jsonl and the other sinks of `config.report`, in a thread.

    start: the number of this start. shown: true on root; the other ranks drop their records."""

    def __init__(self, folder: Path, start: int | None, settings: schema.Report, shown: bool):
        names = dict.fromkeys(["jsonl", *["tensorboard"] * settings.tensorboard, *settings.sinks])
        self._names = list(names)
        self._offered = {"folder": folder, "start": start}
        self._sinks: list[Sink] | None = None
        self.dropped = not shown  # whether records are dropped here
        self._background = BackgroundWriter("metrics", self._write) if shown else None

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Write one record. kind, step, values: see `Sink.write`.

        The record is in metrics.jsonl when this returns, unless the file system fails or hangs for PATIENCE_S."""
        if self.dropped:
            return
        if self._sinks is None:
            self._sinks = []
            for name in self._names:
                with self._without_failing(name):
                    self._sinks.append(SINKS.make(name, **self._offered))
        hangs = not self._background.flush(0.0)
        self._background.put((kind, time.time(), step, values))
        self._background.flush(0.0 if hangs else PATIENCE_S)

    def close(self) -> None:
        """Wait until the last records are written, for at most LAST_LINES_S, and close the sinks."""
        if self.dropped or not self._background.close(LAST_LINES_S):
            return
        for sink in self._sinks or []:
            with self._without_failing(sink):
                sink.close()

    def _write(self, record):
        for sink in list(self._sinks):
            with self._without_failing(sink):
                sink.write(*record)

    @contextmanager
    def _without_failing(self, sink):
        """If this block raises an exception, log that and drop the sink. sink: a `Sink`, or the name of one that is
        being made."""
        try:
            yield
        except Exception as error:
            name = sink if isinstance(sink, str) else type(sink).__name__
            text = "metrics: %s gets no more records in this start: %s: %s"
            logging.getLogger("az_mpi").warning(text, name, type(error).__name__, error)
            self._sinks = [other for other in self._sinks if other is not sink]


class Timers:
    """The seconds of each named phase since the last `take`, and for how many of them a rank waited for others.

    A barrier over `world` ends each phase, so that a rank that is done early waits within that phase.
    """

    def __init__(self, world: World, on_change: Callable[[str | None], None] = lambda phase: None):
        """on_change: called with a phase's name when it begins, and with None when this rank has done its part."""
        self._world = world
        self._seconds = {}
        self._idle = {}
        self._on_change = on_change

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the seconds of this block to the phase `name`. Collective over the world: every rank enters the same
        phases in the same order."""
        start = time.perf_counter()
        waited = self._world.waited_s
        self._on_change(name)
        try:
            yield
            self._on_change(None)
            self._world.barrier()
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start
            self._idle[name] = self._idle.get(name, 0.0) + self._world.waited_s - waited

    def take(self) -> dict[str, float]:
        """Return {phase_s, phase_idle_s, phase_idle_max_s: seconds} and begin again at 0. Collective over the world.

        phase_s: of this rank. phase_idle_s, phase_idle_max_s: mean and maximum over ranks of `World.waited_s`, which
        counts the waiting for others and, in an exchange, the transfer too.
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


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a metrics file in order. Lines that are no records are left out, such as a last line that a
    crash has cut off. Raises OSError."""
    records = []
    for line in files.read(path, files.LINES_BYTES_MAX).splitlines():
        with suppress(ValueError):
            record = files.parse_json(line, object_hook=modern_keys)
            if isinstance(record, dict) and "kind" in record:
                records.append(record)
    return records


def newest(records: list[dict[str, Any]], kind: str, key: str) -> list[dict[str, Any]]:
    """Return the records of one kind ordered by `key`. A record takes the place of all before it whose key is the same
    or larger: a run that was resumed from an older checkpoint has done these again, or never will. A record of an
    iteration tells where the run is to all kinds."""
    chosen: list[dict[str, Any]] = []
    for record in records:
        is_meant = record["kind"] == kind
        if key not in record or not (is_meant or record["kind"] == "iteration"):
            continue
        while chosen and (chosen[-1][key] > record[key] or is_meant and chosen[-1][key] == record[key]):
            chosen.pop()
        chosen += [record] * is_meant
    return chosen
