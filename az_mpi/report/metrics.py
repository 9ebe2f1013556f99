"""Numbers for programs: the records of a run, handed to sinks by root; and what is read of them again.

A sink that fails or hangs does not stop the run.
"""

import logging
import time
from contextlib import contextmanager, suppress

from az_mpi.core import files
from az_mpi.core.registry import SINKS
from az_mpi.report.background_writer import BackgroundWriter

PATIENCE_S = 1.0  # a write may take so long before the run goes on without it
LAST_LINES_S = 5.0  # and the last lines so long, at the end


class Metrics:
    """Hands records to metrics.jsonl and the other sinks of `config.report`, in a thread. With `shown` false (every
    rank but root) it accepts and drops them."""

    def __init__(self, folder, attempt, settings, shown):
        names = dict.fromkeys(["jsonl", *["tensorboard"] * settings.tensorboard, *settings.sinks])
        self._names, self._offered = list(names), {"folder": folder, "attempt": attempt}
        self._sinks, self.dropped = None, not shown  # dropped: whether records are dropped here
        self._background = shown and BackgroundWriter("metrics", self._write)

    def write(self, kind, step, values):
        """Record `values`, numbers by name, as one record of `kind`, at optimiser step `step`.

        It is in metrics.jsonl when this returns, unless the file system fails, or hangs for PATIENCE_S."""
        if self.dropped:
            return
        if self._sinks is None:
            self._sinks = []
            for name in self._names:
                with self._told(name):
                    self._sinks.append(SINKS.make(name, **self._offered))
        hangs = not self._background.flush(0.0)
        self._background.put((kind, time.time(), step, values))
        self._background.flush(0.0 if hangs else PATIENCE_S)

    def close(self):
        if self.dropped or not self._background.close(LAST_LINES_S):
            return
        for sink in self._sinks or []:
            with self._told(sink):
                sink.close()

    def _write(self, record):
        for sink in list(self._sinks):
            with self._told(sink):
                sink.write(*record)

    @contextmanager
    def _told(self, sink):
        """Go on without a sink that raises an exception, and tell of it."""
        try:
            yield
        except Exception as error:
            name = sink if isinstance(sink, str) else type(sink).__name__
            text = "metrics: %s gets no more records in this attempt: %s: %s"
            logging.getLogger("az_mpi").warning(text, name, type(error).__name__, error)
            self._sinks = [other for other in self._sinks if other is not sink]


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
