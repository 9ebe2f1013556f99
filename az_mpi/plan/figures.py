"""What a comparison measured, as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core.printing import bounds, counted
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
    found = {
        "minutes": seconds / 60,
        "iteration": len(iterations),
        "complete": complete,
        "games": games,
        "simulations": simulations,
        "matches": measured["matches"],
        "solver": measured.get("solver"),
    }
    # Of one player; the scores of each game are left out.
    kept = {name: value for name, value in measured.items() if name == "score_name" or name.startswith("score_")}
    return found | ({"alone": kept | {"num_games": measured["num_games"]}} if kept else {})


class Measure(NamedTuple):
    """A number with its 95 % interval: a share from 0 to 1, or a score in the game's unit if `in_unit`."""

    value: float
    low: float
    high: float
    in_unit: bool = False


def _measured(found, name, in_unit=False):
    """Return the Measure of this name; a number that one game alone gave has no interval."""
    low, high = (found[f"{name}_{end}"] for end in ("low", "high"))
    return Measure(found[name], found[name] if low is None else low, found[name] if high is None else high, in_unit)


def scores(point: dict[str, Any]) -> dict[str, Measure]:
    """Return {what was measured: its Measure} of a point. Of one player it is the mean score in the game's unit, and
    the difference from each opponent's on the same seeds."""
    found = {}
    if alone := point.get("alone"):
        found[f"mean score ({alone['score_name']})"] = _measured(alone, "score_mean", in_unit=True)
    for name, match in point["matches"].items():
        if "difference" in match:
            found[f"more than {name} ({alone['score_name']})"] = _measured(match, "difference", in_unit=True)
        else:
            found[f"score against {name}"] = _measured(match, "score")
    if solver := point["solver"]:
        keeps = "moves that keep the exact value"
        for name, key, num in (
            (keeps, "overall", "num_positions"),
            (f"{keeps}, where moves differ", "where_moves_differ", "num_positions_differ"),
        ):
            if solver[key] is not None:
                found[name] = Measure(solver[key], *rating.score_interval(solver[key], solver[num]))
    return found


def line(name: str, point: dict[str, Any]) -> str:
    """Return what is printed after a part of a run."""
    done = ", complete" if point["complete"] else ""
    head = (
        f"{name}: {point['minutes']:.1f} minutes, iteration {point['iteration']}, "
        f"{counted(point['games'], 'game')}{done}"
    )
    return "\n".join([head, *evaluation_lines(point | point.get("alone", {}))])


def total(matches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary of several matches of two players together, see `rating.summary`."""

    def add(side):
        return tuple(map(sum, zip(*(match[side] for match in matches))))

    found = rating.summary(MatchResult(add("as_first"), add("as_second")))
    if sets := _joined(matches, "sets"):
        found["score_low"], found["score_high"] = rating.interval_of_sets(sets)
        found |= {f"elo_{end}": rating.elo(found[f"score_{end}"]) for end in ("low", "high")}
    return found


def _joined(matches, name):
    """Return the lists of this name of all matches, one after the other."""
    return [value for match in matches for value in match.get(name, ())]


def rows(state: dict[str, Any], variants: Sequence[Variant], seeds: int) -> list[dict[str, str]]:
    """Return a row for each variant: {heading: text}. Means over seeds, in brackets the least and the largest; with one
    seed the 95 % interval. The last one, Elo or what `heading` says, is of the games of all seeds together, with its
    interval."""
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
            shown = ".5g" if measured[0].in_unit else ".3f"
            row[name] = _mean(measured, lambda one: one.value, shown)
            if len(names) == 1:
                row[name] += f" [{measured[0].low:{shown}}, {measured[0].high:{shown}}]"
        for name in dict.fromkeys(name for one in last for name, match in one["matches"].items() if "elo" in match):
            row[f"Elo against {name}"] = _elo([one["matches"][name] for one in last if name in one["matches"]])
        matches = [state["matches"][name] for name in names if name in state["matches"]]
        head = heading(state)
        row[head] = BETWEEN[head](matches) if matches else f"{'' if head == SHARE else '0 '}(the others' opponent)"
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


def _difference(matches):
    """Return how much more a configuration scores on the same seeds, over all seeds of training, and that of each."""
    ours, theirs = _joined(matches, "scores"), [score for match in matches for score in match["other"]["scores"]]
    both = rating.difference([a - b for a, b in zip(ours, theirs)])
    seeds = f"; by seed {', '.join(format(one['other']['difference'], '+.5g') for one in matches)}"
    return f"{both['difference']:+.5g}{bounds(both, 'difference')}, {counted(len(ours), 'game')}" + (
        seeds if len(matches) > 1 else ""
    )


def _share(matches):
    """Return the share of the points of all matches together with its 95 % interval, and that of each seed."""
    sets = _joined(matches, "sets")
    low, high = rating.interval_of_sets(sets)
    seeds = f"; by seed {', '.join(format(one['score'], '.3f') for one in matches)}" if len(matches) > 1 else ""
    num = sum(match["num_games"] for match in matches)
    return (
        f"{sum(sets) / len(sets):.3f} [{low:.3f}, {high:.3f}] (of equal players {1 / matches[0]['num_players']:.3f}), "
        f"{counted(num, 'game')}{seeds}"
    )


ELO, DIFFERENCE, SHARE = "Elo", "more than the first on the same seeds", "share of the points against the first"
BETWEEN = {ELO: _elo, DIFFERENCE: _difference, SHARE: _share}


def heading(state: dict[str, Any]) -> str:
    """Return what the matches between the configurations measure: Elo of two players, the share of the points of
    several, the difference of scores of one."""
    matches = list(state["matches"].values())
    if matches and "elo" not in matches[0]:
        return DIFFERENCE if "other" in matches[0] else SHARE
    return ELO


def _signed(elo):
    return "without bound" if elo is None else f"{elo:+.0f}"
