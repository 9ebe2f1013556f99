"""The jobs of `python -m az_mpi scaling`: each runs a configuration on some ranks for some minutes. What it measured is
kept as numbers, and its run is removed."""

import json
import os
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core.exit_codes import DONE, RESUMABLE
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.launch import check, hosts, mpi_job, mpirun
from az_mpi.plan.measured_rank import COLUMNS
from az_mpi.plan.variants import Variant
from az_mpi.telemetry import metrics

SAMPLED_MAX = 128  # ranks of a job that write what they use, besides the first of each host
LEAST_ITERATIONS = 2  # whole ones that are measured, after the first one, which is left out
# The network must not change, so that every iteration and every size has the same work. A rate of 0 is refused.
NO_LEARNING = "train.learning_rate=1e-30"
KEPT = (  # of a record of metrics.jsonl
    *("iteration", "time", "num_games", "num_positions", "num_steps", "mean_length", "num_exchanges"),
    *("play_s", "play_idle_s", "play_idle_max_s", "exchange_s", "train_s", "sums_s", "broadcast_s", "save_s"),
    *("report_s", "exchange_bytes", "broadcast_bytes", "peak_resident_bytes", "cache_hit_rate", "simulations_per_s"),
)


class Case(NamedTuple):
    """One job. kind: "strong" (the configuration's games for all ranks together) or "weak" (games for each rank)."""

    kind: str
    num_ranks: int
    repeat: int  # from 1

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.num_ranks}-{self.repeat}"


class Runs:
    """Starts the jobs. It raises Refusal, with the end of the job's output, if one fails. The output of all jobs is in
    FOLDER/jobs.log."""

    def __init__(self, options: Namespace, variant: Variant):
        """options: of the command line, with `ranks`, `cores`, `minutes`, `logdir` and those of `hosts`. Raises Refusal
        if the hosts are given wrongly or are too few."""
        self.options = options
        self.variant = variant
        self.folder: Path = options.logdir
        self.log = self.folder / "jobs.log"
        for num_ranks in options.ranks:
            self._hosts(num_ranks)
        self.cores = options.cores or default_cores(*self._hosts(max(options.ranks)))

    def _hosts(self, num_ranks):
        return hosts.choose(hosts.listed(self.options), np=num_ranks)

    def settings(self, case: Case) -> list[str]:
        """Return the settings of a case, KEY=VALUE, besides those of the user: its games and its batch, no evaluations,
        and no learning."""
        games, batch = self.variant.config.selfplay.num_games, self.variant.config.train.batch_size
        if case.kind == "weak":
            share = case.num_ranks / self.options.ranks[0]
            games = round(games * share)
            batch = round(batch * share)
        return [
            f"selfplay.num_games={games}",
            f"train.batch_size={batch}",
            "iterations=1000000",
            "train.hours=0",
            "train.max_steps=0",
            "evaluate.every=0",
            NO_LEARNING,
        ]

    def try_largest(self) -> None:
        """Start the largest size for one short iteration: mistakes show early, and kernels are compiled."""
        # In weak scaling the batch grows with the ranks: it may have more of them than the first batch has samples.
        kind = "strong" if "strong" in self.options.kinds else "weak"
        case = Case(kind, max(self.options.ranks), 0)
        short = ["iterations=1", f"selfplay.num_games={case.num_ranks}", "search.simulations=2"]
        tried = [f"evaluate.{name}" for name in ("num_games=2", "solver_positions=0", "simulations=2", "opponents=[]")]
        self._run(case, [*self.settings(case), *short, *tried])
        shutil.rmtree(self._place(case))

    def measure(self, case: Case) -> dict[str, Any]:
        """Run a case until its minutes after the first iteration are over and enough iterations are complete. Return
        what it measured, see `read`. Raises Refusal if it ended before."""
        file = self._place(case) / "run" / "metrics.jsonl"

        def enough():
            records = metrics.newest(metrics.read(file), "iteration", "iteration") if file.exists() else []
            return len(records) > LEAST_ITERATIONS and time.time() - records[0]["time"] > 60 * self.options.minutes

        self._run(case, self.settings(case), enough)
        found = read(self._place(case))
        if len(found["iterations"]) < 1 + LEAST_ITERATIONS:
            raise Refusal(
                f"{case.name} ended after {counted(len(found['iterations']), 'iteration')}, "
                f"{1 + LEAST_ITERATIONS} are needed; the reason is at the end of {self.log}\n"
                "  the same command continues from here"
            )
        shutil.rmtree(self._place(case))
        return found | {"minutes": self.options.minutes, "settings": self.settings(case), "cores_of_rank": self.cores}

    def _place(self, case):
        return self.folder / "jobs" / case.name

    def _run(self, case, settings, enough=lambda: False):
        place = self._place(case)
        shutil.rmtree(place, ignore_errors=True)  # of a command that was killed
        samples = place / "samples"
        samples.mkdir(parents=True)
        chosen, _ = self._hosts(case.num_ranks)
        stride = -(-case.num_ranks // SAMPLED_MAX)
        words = ["--config_file", str(self.variant.file), "--logdir", str(place / "run")]
        words += [word for setting in (*self.variant.settings, *settings) for word in ("--set", setting)]
        measured = [sys.executable, "-m", "az_mpi.plan.measured_rank", str(samples), str(self.cores), str(stride)]
        job = mpirun.JobSpec([*measured, *words], chosen, case.num_ranks, threads=self.cores)
        command = check.checked_line(job, self.folder, self.options.no_check)
        ended = mpi_job.run_child(command, self.log, enough)
        if ended.status not in (DONE, RESUMABLE):
            raise Refusal(
                f"{case.name} ended with status {ended.status}: {' '.join(command)}\n"
                f"{ended.end}\n  all of its output is in {self.log}\n"
                "  the same command continues from here"
            )


def default_cores(chosen: Sequence[hosts.Host], num_ranks: int) -> int:
    """Return how many cores each rank gets: those of this host, divided by the ranks of the fullest host. The other
    hosts are taken to be like this one. mpirun fills one host after the other with ranks."""
    fullest, left = 1, num_ranks
    for host in chosen:
        there = min(host.slots or 1, left)
        fullest = max(fullest, there)
        left -= there
    return max(1, len(os.sched_getaffinity(0)) // fullest)


def read(place: Path) -> dict[str, Any]:
    """Return what a job has measured, from its folder, JSON-able.

    "iterations": a record of each whole iteration, with those names of KEPT that it has; "iteration_s" from the end of
    the one before, None in the first. "ranks": a dict for each rank, with what `measured_rank.about`
    returned. If it wrote samples, "columns" has them at the end of each iteration ([len(iterations), len(COLUMNS)]) and
    "at_start" has its values at the end of the first second; else "columns" is []. "files": {kind: [number, bytes]}."""
    file = place / "run" / "metrics.jsonl"
    records = metrics.newest(metrics.read(file), "iteration", "iteration") if file.exists() else []
    rows = [{name: record[name] for name in KEPT if name in record} for record in records]
    for before, row in zip([None, *rows], rows):
        row["iteration_s"] = row["time"] - before["time"] if before else None
    times = [row["time"] for row in rows]
    ranks = [_rank(path, times) for path in sorted((place / "samples").glob("rank-*.jsonl"))]
    return {"iterations": rows, "ranks": [rank for rank in ranks if rank], "files": _files(place / "run")}


def _rank(path, times):
    """Return one rank's part of `read`, None if it has written nothing; its columns are [] without a sample."""
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # the last line of a rank that was killed
            continue
    if not lines:
        return None
    about, *samples = lines
    if not samples:
        return about | {"columns": []}
    return about | {"at_start": samples[0], "columns": [at(samples, time) for time in times]}


def at(samples: Sequence[Sequence[float | None]], time: float) -> list[float | None]:
    """Return the values of COLUMNS at a time, on straight lines between samples; the nearest sample's before the first
    and behind the last one."""
    after = next((k for k, sample in enumerate(samples) if sample[0] >= time), len(samples))
    if after in (0, len(samples)):
        return list(samples[min(after, len(samples) - 1)])
    low, high = samples[after - 1], samples[after]
    share = (time - low[0]) / (high[0] - low[0])
    return [None if None in (a, b) else a + share * (b - a) for a, b in zip(low, high)]


def _files(run):
    """Return {kind: [number, bytes]} of the files that a run has written."""
    kinds = {"segments": "games/*.h5", "checkpoints": "checkpoints/*", "logs": "logs/*", "metrics": "metrics.jsonl"}
    found = {}
    for kind, pattern in kinds.items():
        paths = list(run.glob(pattern))
        inside = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
        found[kind] = [len(paths), sum(file.stat().st_size for file in inside)]
    return found


def column(rank: dict[str, Any], name: str) -> list[float | None]:
    """Return one of COLUMNS of a rank of `read` at the end of each iteration."""
    return [values[COLUMNS.index(name)] for values in rank["columns"]]
