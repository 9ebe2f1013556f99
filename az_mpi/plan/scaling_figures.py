"""What the jobs of `python -m az_mpi scaling` measured, as figures of each size with their 95 % intervals."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from az_mpi.evaluate.rating import student
from az_mpi.plan.scaling_runs import column

TERMS = ("play", "tail", "exchange", "training", "sums", "broadcast", "write", "rest")
CROWDED = 0.8  # of the cores' time is used: ranks that share cores then wait for each other


class Figure(NamedTuple):
    """A positive number with its interval. error: the standard error of its natural logarithm; None if it was measured
    only once. times: by how many standard errors the interval reaches."""

    value: float
    error: float | None = None
    times: float = 1.96

    @property
    def low(self) -> float | None:
        return None if self.error is None else self.value * math.exp(-self.times * self.error)

    @property
    def high(self) -> float | None:
        return None if self.error is None else self.value * math.exp(self.times * self.error)

    def over(self, other: "Figure", factor: float = 1.0) -> "Figure":
        """Return this number divided by another one, measured independently, times `factor`."""
        value = factor * self.value / other.value
        if self is other:
            return Figure(value, 0.0)
        if self.error is None or other.error is None:
            return Figure(value)
        return Figure(value, math.hypot(self.error, other.error), max(self.times, other.times))


class Size(NamedTuple):
    """What was measured of one number of ranks. Means are over all whole iterations of all repeats.

    terms: {one of TERMS: seconds of an iteration, mean over ranks}. cores: those of all ranks together. is_crowded:
    ranks share cores and use nearly all of their time. used: {what: figure or None if no host tells it}."""

    kind: str
    num_ranks: int
    num_repeats: int
    num_iterations: int
    num_hosts: int
    cores: int
    is_crowded: bool
    iteration_s: Figure
    games_per_s: Figure
    positions_per_s: Figure
    terms: dict[str, float]
    used: dict[str, float | None]


def interval(value: float, repeats: Sequence[Sequence[float]]) -> Figure:
    """Return `value` with the interval that its measurements in all iterations of each repeat show.

    The standard error is that of all iterations as independent ones, or that of the repeats where it is larger: a
    machine may be slower in one repeat as a whole."""
    logs = [[math.log(number) for number in repeat] for repeat in repeats]
    every = [number for repeat in logs for number in repeat]
    if len(every) < 2:
        return Figure(value)
    error = stdev(every) / math.sqrt(len(every))
    if len(logs) > 1:
        error = max(error, stdev(fmean(repeat) for repeat in logs) / math.sqrt(len(logs)))
    return Figure(value, error, student(len(every) - 1))


def sizes(cases: dict[str, dict[str, Any]], kind: str, smallest: int) -> list[Size]:
    """Return the sizes of one kind, ascending; [] if only the smallest was measured.

    cases: {name of a `Case`: what `scaling_runs.read` returned}. smallest: the number of ranks from which sizes grow:
    there both kinds have the same work, and their measurements count for both."""
    by_ranks: dict[int, list[dict[str, Any]]] = {}
    for name, case in sorted(cases.items()):
        its_kind, num_ranks, _ = name.split("-")
        if its_kind == kind or int(num_ranks) == smallest:
            by_ranks.setdefault(int(num_ranks), []).append(case)
    if len(by_ranks) < 2:
        return []
    return [size(kind, num_ranks, by_ranks[num_ranks]) for num_ranks in sorted(by_ranks)]


def size(kind: str, num_ranks: int, repeats: Sequence[dict[str, Any]]) -> Size:
    """Return the figures of one number of ranks from what `scaling_runs.read` returned of each repeat."""
    measured = [case["iterations"][1:] for case in repeats]  # the first one has no end before it, and compiles
    rows = [row for repeat in measured for row in repeat]
    seconds = sum(row["iteration_s"] for row in rows)

    def rate(name):
        each = [[max(row[name], 1) / row["iteration_s"] for row in repeat] for repeat in measured]
        return interval(sum(row[name] for row in rows) / seconds, each)

    terms = dict(zip(TERMS, (sum(column) / len(rows) for column in zip(*map(_terms, rows)))))
    cores, load = _cores(repeats[0], num_ranks), _load(repeats, num_ranks)
    return Size(
        kind=kind,
        num_ranks=num_ranks,
        num_repeats=len(repeats),
        num_iterations=len(rows),
        num_hosts=len({rank["host"] for rank in repeats[0]["ranks"]}) or 1,
        cores=cores,
        is_crowded=cores < num_ranks and load > CROWDED,
        iteration_s=interval(seconds / len(rows), [[row["iteration_s"] for row in repeat] for repeat in measured]),
        games_per_s=rate("num_games"),
        positions_per_s=rate("num_positions"),
        terms=terms,
        used=_used(repeats, rows, seconds, num_ranks, cores) | {"processor_load": load},
    )


def _terms(row):
    """Return the seconds of each of TERMS in an iteration."""
    tail, sums = row.get("play_idle_s", 0.0), row.get("sums_s", 0.0)
    known = [
        row.get("play_s", 0.0) - tail,
        tail,
        row.get("exchange_s", 0.0),
        row.get("train_s", 0.0) - sums,
        sums,
        row.get("broadcast_s", 0.0),
        row.get("save_s", 0.0),
    ]
    return [*known, row["iteration_s"] - sum(known)]


def _cores(case, num_ranks):
    """Return how many cores the ranks of a job may run on. Older versions kept only some of more than 128 ranks: the
    others count like them, on the same hosts."""
    found = case["ranks"]
    if found and len(found) < num_ranks:
        there = {rank["host"]: rank["num_cores"] for rank in found}
        return min(num_ranks * len(found[0]["cores"]), sum(there.values()))
    return len({(rank["host"], core) for rank in found for core in rank["cores"]}) or num_ranks


def _differences(case, name):
    """Return for each rank of a job that wrote samples its increase of a column between the first and the last
    iteration's end; None where the host does not tell it."""
    ends = [(column(rank, name)[0], column(rank, name)[-1]) for rank in case["ranks"] if rank["columns"]]
    return [None if None in pair else pair[1] - pair[0] for pair in ends]


def _per_second(repeats, name, total):
    """Return the mean increase of a column per second of a rank (or, if `total`, of all those that tell it together);
    None if no rank tells it."""
    increase, seconds = [], 0.0
    for case in repeats:
        known = [value for value in _differences(case, name) if value is not None]
        if not known:
            return None
        increase.append(sum(known) if total else fmean(known))
        seconds += case["iterations"][-1]["time"] - case["iterations"][0]["time"]
    return sum(increase) / seconds


def _load(repeats, num_ranks):
    """Return which share of their cores' time the ranks use, from 0 to 1."""
    each = _per_second(repeats, "cpu_s", total=False)
    return 0.0 if each is None else each * num_ranks / _cores(repeats[0], num_ranks)


def _used(repeats, rows, seconds, num_ranks, cores):
    """Return {what: figure}; None for what no host tells."""
    games = sum(row["num_games"] for row in rows)
    sent = sum(row.get("exchange_bytes", 0) + row.get("broadcast_bytes", 0) for row in rows)
    ranks = [rank for case in repeats for rank in case["ranks"] if rank["columns"]]
    written = _per_second(repeats, "written_bytes", total=False)
    opened = _per_second(repeats, "opened", total=False)
    watts = [_per_second(repeats, name, total=True) for name in ("joules", "gpu_joules")]
    resident = [value for rank in ranks if (value := column(rank, "resident_bytes")[-1]) is not None]
    return {
        "largest_rank_bytes": max(
            (row["peak_resident_bytes"] for row in rows if "peak_resident_bytes" in row), default=None
        ),
        "mean_rank_bytes": fmean(resident) if resident else None,
        "sent_bytes_per_s": sent / seconds,
        "written_bytes_per_s": None if written is None else written * num_ranks,
        "opened_per_s": None if opened is None else opened * num_ranks,
        "opened_at_start": fmean(column(rank, "opened")[0] for rank in ranks) if ranks else None,
        "core_hours": cores * seconds / 3600 / games * 1000,
        "kilojoules": None if watts == [None, None] else sum(filter(None, watts)) * seconds / games,
    }
