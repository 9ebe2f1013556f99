"""What a comparison measured, as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from az_mpi.core.printing import counted
from az_mpi.evaluate import rating
from az_mpi.evaluate.tally import MatchResult
from az_mpi.plan.variants import Variant
from az_mpi.telemetry import metrics
from az_mpi.telemetry.summary import evaluation_lines


def point(run: Path, seconds: float, measured: dict[str, Any], complete: bool) -> dict[str, Any]:
    """Return one measurement of a run: the minutes that it has trained, how far it is, and what `--mode eval` found.

    complete: whether it has done all iterations of its configuration."""
    iterations = metrics.newest(metrics.read(run / "metrics.jsonl"), "iteration", "iteration")
    simulations = sum(
        row.get(f"{when}simulations_per_s", 0) * row.get(timed, 0)
        for row in iterations
        for when, timed in (("", "play_s"), ("meanwhile_", "train_s"))
    )
    counted = sum(row["num_games"] for row in iterations)
    games = iterations[-1].get("num_games_stored", counted) if iterations else 0
    # Games that were played before a stop are stored, but no iteration counts them: they count as long as the others.
    simulations *= games / max(counted, 1)
    return {
        "minutes": seconds / 60,
        "iteration": len(iterations),
        "complete": complete,
        "games": games,
        "simulations": simulations,
        "matches": measured["matches"],
        "solver": measured.get("solver"),
    }


def scores(point: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return {what was measured: (share or score, low, high)} of a point, with 95 % intervals."""
    found = {
        f"score against {name}": (match["score"], match["score_low"], match["score_high"])
        for name, match in point["matches"].items()
    }
    if solver := point["solver"]:
        keeps = "moves that keep the exact value"
        for name, key, num in (
            (keeps, "overall", "num_positions"),
            (f"{keeps}, where moves differ", "where_moves_differ", "num_positions_differ"),
        ):
            if solver[key] is not None:
                found[name] = solver[key], *rating.score_interval(solver[key], solver[num])
    return found


def line(name: str, point: dict[str, Any]) -> str:
    """Return what is printed after a part of a run."""
    done = ", complete" if point["complete"] else ""
    head = (
        f"{name}: {point['minutes']:.1f} minutes, iteration {point['iteration']}, "
        f"{counted(point['games'], 'game')}{done}"
    )
    return "\n".join([head, *evaluation_lines(point)])


def total(matches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary of several matches together, see `rating.summary`."""

    def add(side):
        return tuple(map(sum, zip(*(match[side] for match in matches))))

    return rating.summary(MatchResult(add("as_first"), add("as_second")))


def rows(state: dict[str, Any], variants: Sequence[Variant], seeds: int) -> list[dict[str, str]]:
    """Return a row for each variant: {heading: text}. Means over seeds, in brackets the least and the largest; with one
    seed the 95 % interval. Elo is of the games of all seeds together, with its interval."""
    found = []
    for variant in variants:
        names = [variant.run_name(seed) for seed in range(1, seeds + 1)]
        last = [state["runs"][name]["points"][-1] for name in names]
        row = {
            "configuration": variant.label,
            "minutes": _mean(last, lambda p: p["minutes"], ".1f"),
            "iterations": _mean(last, lambda p: p["iteration"], ".0f"),
            "games": _mean(last, lambda p: p["games"], ",.0f"),
            "simulations": _mean(last, lambda p: p["simulations"], ",.0f"),
        }
        for name in dict.fromkeys(name for one in last for name in scores(one)):
            measured = [scores(one)[name] for one in last if name in scores(one)]
            row[name] = _mean(measured, lambda one: one[0], ".3f")
            if len(names) == 1:
                row[name] += " [{1:.3f}, {2:.3f}]".format(*measured[0])
        for name in dict.fromkeys(name for one in last for name in one["matches"]):
            row[f"Elo against {name}"] = _elo([one["matches"][name] for one in last if name in one["matches"]])
        matches = [state["matches"][name] for name in names if name in state["matches"]]
        row["Elo"] = _elo(matches) if matches else "0 (the others' opponent)"
        found.append(row)
    return found


def table(state: dict[str, Any], variants: Sequence[Variant], seeds: int) -> str:
    """Return the rows as text, a heading on each line, as names of configurations are long."""
    found = rows(state, variants, seeds)
    width = max(len(heading) for row in found for heading in row)
    blocks = ["\n".join(f"{heading:<{width}}  {text}" for heading, text in row.items()) for row in found]
    return "\n\n".join(blocks)


def _mean(points, of, shown):
    values = [of(one) for one in points]
    mean = f"{sum(values) / len(values):{shown}}"
    return f"{mean} [{min(values):{shown}}, {max(values):{shown}}]" if len(values) > 1 else mean


def _elo(matches):
    """Return the Elo of all matches together with its 95 % interval, and that of each seed."""
    both = total(matches)
    middle, low, high = (_signed(both[key]) for key in ("elo", "elo_low", "elo_high"))
    seeds = f"; by seed {', '.join(_signed(match['elo']) for match in matches)}" if len(matches) > 1 else ""
    return f"{middle} [{low}, {high}], {counted(both['num_games'], 'game')}{seeds}"


def _signed(elo):
    return "without bound" if elo is None else f"{elo:+.0f}"
