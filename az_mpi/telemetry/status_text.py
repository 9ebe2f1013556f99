"""The status of a run as text, which is the content of status.txt and what `python -m az_mpi status` prints."""

from typing import Any

from az_mpi.core.printing import counted
from az_mpi.core.problems import escape
from az_mpi.telemetry.console import table

BAR = 24  # characters between the brackets of a bar


def render(values: dict[str, Any]) -> str:
    """Return the content of status.json as text for people. Control characters are escaped."""
    iteration = "-"
    if values["iteration"] is not None:  # how many are complete; the text names the one under way
        iteration = min(values["iteration"] + (values["job"] != "finished"), values["iterations"])
    said = {name: escape(str(values[name])) for name in ("run", "game", "start", "job", "written", "phase")}
    lines = [
        f"{said['run']}: {said['game']}, start {said['start']}, {said['job']}",
        f"written {said['written']}, {duration(values['elapsed_s'])} after the start",
        "",
        f"iteration  {iteration} of {values['iterations']}; {_count(values['num_games'], 'game')}, "
        f"{_count(values['num_positions'], 'position')}, {_count(values['step'], 'step')} "
        + ("in all" if values["job"] == "finished" else "before it"),
    ]
    if values["job"] in ("starting", "running"):
        lines.append(f"phase      {said['phase']}{_progress(values['progress'])}")
        lines.append(f"time left  {duration(values['time_left_s'])}")
    rows = [("rank", "host", "device", "roles", "state", "games", "games/s", "last seen")]
    for row in values["ranks"]:
        texts = [escape(row[name] or "-") for name in ("host", "device", "roles", "state")]
        seen = "now" if row["last_seen_s"] < 2 else f"{row['last_seen_s']:.0f} s ago"
        rows.append((row["rank"], *texts, f"{row['num_games']:,}", f"{row['games_per_s']:.1f}", seen))
    lines += [
        "",
        *table(rows),
        "",
        *_games(values),
        f"Games/second     {values['games_per_s']:.1f}",
        f"Workers active   {values['workers_active']}/{values['num_workers']}",
        f"Model sync time  {_number(values['model_sync_s'], ' s')}",
        f"Network MB/min   {_number(values['network_mb_per_min'])}",
        f"Staleness        {_number(values['staleness'], ' iterations')}",
    ]
    lines += [f"Ranked by        {escape(values['threshold'])}"] if values.get("threshold") else []
    lines += [f"FAILED  {escape(text)}" for text in values["failures"]]
    return "\n".join(lines) + "\n"


def duration(seconds: float | None) -> str:
    """Return a duration as text: 41 s, 12 min 05 s, 3 h 07 min; "-" for None."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def progress_text(name: str, done: int, total: int, unit: str) -> str:
    """Return a bar and the numbers that it stands for: "self-play [######..................] 16 of 64 games"."""
    done = min(done, total)
    full = BAR * done // total
    return f"{escape(name)} [{'#' * full}{'.' * (BAR - full)}] {done:,} of {total:,} {escape(unit)}"


def _progress(progress):
    if not progress or not progress["total"]:
        return ""
    numbers = progress["done"], progress["total"]
    return ": " + progress_text(str(progress["name"]), *numbers, str(progress["unit"]))


def _games(values):
    """Return lines that explain the two counts of games if they differ, [] if they do not."""
    finished = sum(row["num_games"] for row in values["ranks"])
    if finished == (values["num_games"] or 0):
        return []
    return [
        f"Games of the ranks: {finished:,} in all, finished since this start, stored or not.",
        'Games in the line "iteration": those of complete iterations, of all starts.',
        "",
    ]


def _count(number, noun):
    return f"- {noun}s" if number is None else counted(number, noun)


def _number(value, unit=""):
    return "-" if value is None else f"{value:.3g}{unit}"
