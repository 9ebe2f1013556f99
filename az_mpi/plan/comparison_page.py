"""The page of a comparison, DIR/compare.html: a table, and curves over minutes and over simulations."""

from argparse import Namespace
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from az_mpi import __version__
from az_mpi.core.printing import counted
from az_mpi.core.problems import write_file
from az_mpi.plan import figures
from az_mpi.plan.variants import Variant
from az_mpi.report import chart, html_report

NAME = "compare.html"
INTERVALS = {
    figures.ELO: "Intervals of Elo are of 95 %, and count all games, or all pairs with the same dice, as independent.",
    figures.SHARE: "Its intervals are of 95 %, of sets of games in which each seat is taken once.",
    figures.DIFFERENCE: "Its intervals are of 95 %, of pairs of games with the same seed.",
}


def write(folder: Path, state: dict[str, Any], variants: Sequence[Variant], options: Namespace) -> Path:
    """Write the page and return its path."""
    found = figures.rows(state, variants, options.seeds)
    last = figures.heading(state)
    head = sorted(dict.fromkeys(name for row in found for name in row), key=last.__eq__)
    table = html_report.html_table(head, [[row.get(name, "-") for name in head] for row in found])
    spread = "the least and the largest" if options.seeds > 1 else "95 % intervals"
    about = (
        f"Each configuration trained {options.minutes:g} minutes with {counted(options.seeds, 'seed')} each, "
        f"alternately on the same cores. Measured with {options.simulations} simulations a move. Numbers are means "
        f"over the seeds, with {spread}. The last column is of matches of {options.games} games against "
        f"{variants[0].label} of the same seed. {INTERVALS[last]}"
    )
    content = (
        f"<header><h1>{escape(str(folder.resolve()))}</h1><p>{escape(about)}</p></header>"
        f"<h2>After {options.minutes:g} minutes</h2>{table}<h2>On the way there</h2>"
        f'<div class="charts">{_charts(state, variants, options.seeds)}</div>'
    )
    write_file(folder / NAME, html_report.document(f"{escape(folder.name)}: comparison", content, __version__))
    return folder / NAME


def _charts(state, variants, seeds):
    drawn = []
    in_units = {
        name: one.in_unit
        for variant in variants
        for point in _points(state, variant, 1)
        for name, one in figures.scores(point).items()
    }
    for name, in_unit in in_units.items():
        for axis in ("minutes", "simulations"):
            series = [_series(state, variant, seeds, name, axis) for variant in variants]
            y_label = name if in_unit else "share"
            drawn.append(chart.lines(name, axis, y_label, series, limits=None if in_unit else (0, 1)))
    return "".join(drawn)


def _points(state, variant, seed):
    return state["runs"][variant.run_name(seed)]["points"]


def _series(state, variant, seeds, name, axis):
    """Return the curve of a variant: means over its seeds, the band from the least to the largest, with one seed the
    95 % interval. A run that trained for some seconds beyond a part of the time is drawn at the end of that part."""
    x, y, low, high = [], [], [], []
    part = state["options"]["minutes"] / state["options"]["points"]
    for k, points in enumerate(zip(*(_points(state, variant, seed) for seed in range(1, seeds + 1))), start=1):
        points = [point for point in points if name in figures.scores(point)]
        if not points:
            continue
        measured = [figures.scores(point)[name] for point in points]
        values = [one.value for one in measured]
        on_axis = [k * part if axis == "minutes" and not point["complete"] else point[axis] for point in points]
        x.append(sum(on_axis) / len(points))
        y.append(sum(values) / len(values))
        low.append(min(values) if seeds > 1 else measured[0].low)
        high.append(max(values) if seeds > 1 else measured[0].high)
    return chart.Series(variant.label, x, y, low, high)
