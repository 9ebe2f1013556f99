"""The data of a run's report, from the files in its folder. While the run is under way, most of them may be missing."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.config import load as configuration
from az_mpi.core import files
from az_mpi.core.problems import Refusal, escape
from az_mpi.report.chart import Series
from az_mpi.storage import plugin_sources, run_folder
from az_mpi.telemetry import metrics
from az_mpi.telemetry.summary import loss_names


def losses(records: Sequence[dict[str, Any]]) -> list[Series]:
    """Return each head's loss over the optimiser's steps, from records of training or of fits."""
    steps = [record["step"] for record in records]
    return [
        Series(name.replace("_", " "), steps, [record.get(name) for record in records]) for name in loss_names(records)
    ]


class RunData(NamedTuple):
    """What the files of a run say.

    config: {dotted key: value}. train, iterations, evaluations, fits: records of metrics.jsonl, in order; if an
    iteration was done twice, the newer one. starts: the content of each starts/NNN.json, with "number". status,
    ladder: the content of status.json and of ladder.json; {} if there is no such file. left_out: which descriptions
    of starts are damaged, and why.
    """

    folder: Path
    config: dict[str, Any]
    train: list[dict[str, Any]]
    iterations: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    starts: list[dict[str, Any]]
    status: dict[str, Any]
    ladder: dict[str, Any]
    fits: Sequence[dict[str, Any]] = ()
    left_out: Sequence[str] = ()

    def matches(self, key: str) -> list[Series]:
        """Return a line over iterations for each opponent whose matches have this number, with its interval. It has no
        points where Elo is infinite. key: "score", "win_rate", "elo", "mean_result"; of one player "difference"."""
        found = []
        matches = [(record["iteration"], record["matches"]) for record in self.evaluations]
        for opponent in dict.fromkeys(name for _, by_name in matches for name in by_name):
            played = [(x, by_name[opponent]) for x, by_name in matches if key in by_name.get(opponent, ())]
            values = [[match[f"{key}{end}"] for _, match in played] for end in ("", "_low", "_high")]
            if played:
                found.append(Series(f"against {opponent}", [x for x, _ in played], *values))
        return found

    def scores(self) -> list[Series]:
        """Return the mean score of the network in games of one player over iterations, with its interval, its best
        score, the mean scores of the opponents and the best possible ones; [] in games of more players."""
        scored = [record for record in self.evaluations if "score_mean" in record]
        x = [record["iteration"] for record in scored]
        names = dict.fromkeys(name for record in scored for name in record["matches"])

        def line(label, of):
            return Series(label, x, [of(record).get("score_mean") for record in scored])

        mean = [[record[f"score_mean{end}"] for record in scored] for end in ("", "_low", "_high")]
        best = Series("best game", x, [record["score_best"] for record in scored])
        others = [line(name, lambda record, name=name: record["matches"].get(name, {})) for name in names]
        possible = [line("best possible", lambda record: record.get("optimum", {}))]
        drawn = [one for one in (*others, *possible) if any(y is not None for y in one.y)]
        return [Series("mean", x, *mean), best, *drawn] if scored else []

    def solver(self) -> list[Series]:
        """Return the shares of moves that keep the exact value, over iterations; [] if no evaluation had a solver."""
        solved = [record for record in self.evaluations if record.get("solver")]
        names = {
            "overall": "all positions",
            "where_moves_differ": "where moves differ",
            "random_overall": "random mover, all",
            "random_where_moves_differ": "random mover, where moves differ",
        }
        return [
            Series(label, [r["iteration"] for r in solved], [r["solver"].get(key) for r in solved])
            for key, label in names.items()
            if solved
        ]

    def phases(self) -> list[str]:
        """Return the names of the timed phases, in the order of an iteration."""
        timed = [name for record in [*self.iterations, *self.evaluations] for name in record]
        return list(dict.fromkeys(name[:-7] for name in timed if name.endswith("_idle_s")))

    def phase_seconds(self) -> dict[str, list[float]]:
        """Return {phase: seconds in each iteration}. An evaluation counts to the iteration before it."""
        evaluated = {record["iteration"]: record for record in self.evaluations}
        rows = [
            record | {k: v for k, v in evaluated.get(record["iteration"], {}).items() if k.startswith("evaluate_")}
            for record in self.iterations
        ]
        return {name: [row.get(f"{name}_s", 0.0) for row in rows] for name in self.phases()}

    def idle_shares(self, kind: str) -> list[float]:
        """Return the share of each iteration's time that ranks waited. kind: "idle" (mean of ranks) or "idle_max"."""
        phases = self.phases()  # looks at every record
        return [
            sum(record.get(f"{name}_{kind}_s", 0.0) for name in phases)
            / max(sum(record.get(f"{name}_s", 0.0) for name in phases), 1e-9)
            for record in self.iterations
        ]

    def marks(self, records: Sequence[dict[str, Any]], key: str) -> list[tuple[float, str]]:
        """Return (place, text) for every start but the first. The place is between those of the records before and
        after it. key: of a record's place."""
        found = []
        for start in (one for one in self.starts if one["number"] > 1):
            began = datetime.strptime(start["started"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
            pair = [(a[key], b[key]) for a, b in zip(records, records[1:]) if a["time"] < began <= b["time"]]
            found += [(sum(places) / 2, f"start {start['number']}") for places in pair]
        return found

    def ranks(self) -> list[dict[str, Any]]:
        """Return a dict for each rank of the newest start: rank, host, device, roles, num_games, num_positions and
        games_per_s, the games per second of playing. That is None if the rank did not play, and in runs of versions
        that did not record it."""
        hosts = self.starts[-1]["hosts"]
        began = datetime.strptime(self.starts[-1]["started"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
        records = [r for r in self.iterations if r["time"] >= began and len(r["games_by_rank"]) == len(hosts)]
        known = self.status.get("ranks", []) if self.status.get("start") == self.starts[-1]["number"] else []
        rows = []
        for rank, host in enumerate(hosts):
            about = known[rank] if rank < len(known) else {}
            row = {"rank": rank, "host": host, "device": about.get("device"), "roles": about.get("roles")}
            sums = {f"num_{what}": sum(r[f"{what}_by_rank"][rank] for r in records) for what in ("games", "positions")}
            timed = [r for r in records if "playing_s_by_rank" in r]
            playing_s = sum(r["playing_s_by_rank"][rank] for r in timed)
            num_games = sum(r["games_by_rank"][rank] for r in timed)
            rows.append(row | sums | {"games_per_s": num_games / playing_s if playing_s else None})
        return rows


def load(folder: str | Path) -> RunData:
    """Return the RunData of a run's folder. Raises Refusal if the folder holds no run."""
    folder = Path(folder)
    starts, refusal, left_out = [], None, []
    for path in _read(folder, run_folder.starts):
        try:
            starts.append(_read(path, run_folder.description) | {"number": int(path.stem)})
        except Refusal as error:
            if isinstance(error.__cause__, OSError):
                raise
            refusal = error  # of a damaged one: the others tell of the run
            left_out.append(f"starts/{path.name}: {error.__cause__}")
    if refusal and not starts:
        raise refusal
    if not starts:
        raise Refusal(
            f"python -m az_mpi report: error: {escape(str(folder))} holds no run (no starts/NNN.json)\n"
            "  name the folder of a run (--logdir of run_dist.py)"
        )
    newest = starts[-1]
    config = configuration.flat(
        configuration.validate(newest["config"], f"starts/{newest['number']}", plugin_sources.kept(folder, newest))
    )
    file = folder / "metrics.jsonl"
    records = _read(file, metrics.read) if file.exists() else []
    train, iterations, evaluations = (
        metrics.newest(records, kind, key)
        for kind, key in (("train", "step"), ("iteration", "iteration"), ("evaluation", "iteration"))
    )
    status, ladder = (
        _read(path, _object) if path.exists() else {} for path in (folder / "status.json", folder / "ladder.json")
    )
    fits = metrics.newest(records, "fit", "step")
    return RunData(folder, config, train, iterations, evaluations, starts, status, ladder, fits, left_out)


def _object(path):
    content = files.read_json(path)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content


def _read(path, read):
    """Return read(path). Raises Refusal in place of OSError and ValueError."""
    try:
        return read(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Refusal(f"python -m az_mpi report: error: {escape(str(path))}: cannot be read: {why}") from error
