"""The report of `python -m az_mpi scaling`: tables (CSV, Markdown), plots (SVG, PDF) and one HTML page."""

import csv
import io
import math
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi import __version__
from az_mpi.core.printing import counted
from az_mpi.core.problems import write_file
from az_mpi.plan import scaling_figures, scaling_model
from az_mpi.plan.scaling_figures import TERMS, Figure, Size
from az_mpi.plan.scaling_model import Model
from az_mpi.report import chart, html_report, pdf
from az_mpi.report.chart import Series
from az_mpi.report.picture import Plot, picture

KINDS = {"strong": "strong scaling (the same games for all ranks)", "weak": "weak scaling (games for each rank)"}
MIB = 2**20
USED = (  # of `Size.used`: name, heading, unit in which it is shown
    ("largest_rank_bytes", "largest rank with its part of shared memory, MiB", MIB),
    ("mean_rank_bytes", "mean rank with all memory that it shares, MiB", MIB),
    ("written_bytes_per_s", "written, MiB/s", MIB),
    ("sent_bytes_per_s", "sent, MiB/s", MIB),
    ("opened_per_s", "files opened a second", 1),
    ("opened_at_start", "files a rank opens at first", 1),
    ("processor_load", "share of the cores' time used", 1),
    ("core_hours", "core-hours for 1,000 games", 1),
    ("kilojoules", "kJ for 1,000 games", 1),
)
FINE = 60  # points of a model's curve


class Measured(NamedTuple):
    """All that a report shows. sizes, models: by kind. least: the efficiency that is asked of useful ranks. about:
    {what: text} on the configuration and the machine."""

    sizes: dict[str, list[Size]]
    models: dict[str, Model | None]
    least: float
    about: dict[str, str]


def measured(state: dict[str, Any], least: float) -> Measured:
    """Return what the state of a scaling, the content of DIR/scaling.json, has measured."""
    found = {kind: scaling_figures.sizes(state["cases"], kind, state["options"]["smallest"]) for kind in KINDS}
    found = {kind: sizes for kind, sizes in found.items() if sizes}
    models = {kind: scaling_model.model(sizes) for kind, sizes in found.items()}
    return Measured(found, models, least, state["about"])


def write(folder: Path, state: dict[str, Any], least: float) -> list[Path]:
    """Write the report of a state into a folder; return the paths, the page last. Raises Refusal."""
    what = measured(state, least)
    contents: dict[str, str | bytes] = {"scaling.csv": as_csv(what), "scaling.md": as_markdown(what)}
    for name, title, plots in (
        ("scaling", "Scaling: " + what.about["configuration"], [_rates(what), _efficiencies(what)]),
        ("time", "Where the time of an iteration goes", [_shares(sizes) for sizes in what.sizes.values()]),
    ):
        contents[f"{name}.svg"] = picture(title, plots)
        contents[f"{name}.pdf"] = pdf.pdf(picture(title, plots))
    contents["scaling.html"] = as_page(what)
    for name, content in contents.items():
        write_file(folder / name, content)
    return [folder / name for name in contents]


def rows(what: Measured, kind: str) -> list[dict[str, str]]:
    """Return a row for each size of a kind: {heading: text}, with intervals in brackets."""
    first = what.sizes[kind][0]
    found = []
    for one in what.sizes[kind]:
        found.append(
            {
                "ranks": f"{one.num_ranks}{'*' if one.is_crowded else ''}",
                "hosts": f"{one.num_hosts}",
                "cores": f"{one.cores}",
                "iterations": f"{one.num_iterations} in {counted(one.num_repeats, 'run')}",
                "s an iteration": shown(one.iteration_s),
                "games/s": shown(one.games_per_s),
                "positions/s": shown(one.positions_per_s),
                "efficiency": shown(efficiency(one, first)),
                "games/s a core": shown(Figure(one.games_per_s.value / one.cores)),
            }
        )
    return found


def efficiency(one: Size, first: Size) -> Figure:
    """Return games/s of each rank divided by that of each rank of the smallest size."""
    return one.games_per_s.over(first.games_per_s, first.num_ranks / one.num_ranks)


def shown(figure: Figure) -> str:
    """Return a figure as text with its interval in brackets."""
    text = _number(figure.value)
    return text if figure.low is None or not figure.error else f"{text} [{_number(figure.low)}, {_number(figure.high)}]"


def _number(value):
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def conclusions(what: Measured, kind: str) -> list[str]:
    """Return sentences: the fitted model, how many ranks are useful, and what to change to use more."""
    sizes, model = what.sizes[kind], what.models[kind]
    found = []
    if any(one.is_crowded for one in sizes):
        found.append(
            "Sizes with a * have more ranks than cores, and their cores are busy: they show what ranks cost each other "
            "on these cores, not what more cores would bring. The model leaves them out."
        )
    if model is None:
        found.append("Two sizes whose ranks have cores of their own are needed for a model.")
        return found
    w, a, b, c = (
        f"{value:.3g} [{low:.2g}, {high:.2g}]"
        for value, low, high in zip(model.coefficients, *(list(end) for end in _quantiles(model.draws)))
    )
    shared = f"{w} / N + " if kind == "strong" else ""
    found.append(
        f"The seconds of an iteration on N ranks are fitted by {shared}{a} + {b} log2 N + {c} N, from "
        f"{counted(model.num_sizes, 'size')}; in brackets are 95 % intervals."
        + (" With so few sizes the form of the curve is a guess: measure four or more." if model.num_sizes < 4 else "")
    )
    useful = model.useful(what.least)
    if useful.is_beyond:
        found.append(
            f"By the model the efficiency is still above {what.least:g} on {useful.num_ranks:,} ranks, "
            f"{scaling_model.FAR} times the largest size that was measured [{useful.low:,}, {useful.high:,}]. Measure "
            "larger sizes before you ask for more."
        )
    else:
        found.append(
            f"Useful for this configuration: up to {counted(useful.num_ranks, 'rank')} "
            f"[{useful.low:,}, {useful.high:,}], whose efficiency is at least {what.least:g} by the model."
        )
    lost = [(term, share) for term, share in scaling_model.losses(sizes) if share >= 0.01][:3]
    last = [one for one in sizes if not one.is_crowded][-1]
    if lost:
        found.append(
            f"To use more ranks, lower what {last.num_ranks} ranks lose their time to, the largest part first:"
        )
        found += [f"{100 * share:.0f} %: {scaling_model.CURES[term]}." for term, share in lost]
    return found


def _quantiles(draws):
    """Return the ends of the 95 % intervals of the coefficients of some draws."""
    ordered = [sorted(column) for column in draws.T]
    return [[column[round(share * (len(column) - 1))] for column in ordered] for share in (0.025, 0.975)]


def as_csv(what: Measured) -> str:
    """Return the table of all sizes as CSV, a column for each number."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    intervals = ("iteration_s", "games_per_s", "positions_per_s", "efficiency")
    head = ["scaling", "ranks", "hosts", "cores", "crowded", "repeats", "iterations"]
    head += [f"{name}{end}" for name in intervals for end in ("", "_low", "_high")]
    head += [f"{term}_s" for term in TERMS] + [name for name, _, _ in USED]
    writer.writerow(head)
    for kind, sizes in what.sizes.items():
        for one in sizes:
            figures = (one.iteration_s, one.games_per_s, one.positions_per_s, efficiency(one, sizes[0]))
            writer.writerow(
                [
                    *(kind, one.num_ranks, one.num_hosts, one.cores, int(one.is_crowded)),
                    *(one.num_repeats, one.num_iterations),
                    *(_exact(value) for figure in figures for value in (figure.value, figure.low, figure.high)),
                    *(_exact(one.terms[term]) for term in TERMS),
                    *(_exact(one.used[name]) for name, _, _ in USED),
                ]
            )
    return file.getvalue()


def _exact(value):
    return "" if value is None else f"{value:.6g}"


def _tables(what, kind):
    """Yield (title, heading, rows of text) of the tables of a kind."""
    sizes = what.sizes[kind]
    figures = rows(what, kind)
    yield "Rates", list(figures[0]), [list(row.values()) for row in figures]
    parts = [
        [str(one.num_ranks), *(f"{100 * one.terms[t] / one.iteration_s.value:.1f}" for t in TERMS)] for one in sizes
    ]
    yield "Where the time of an iteration goes, % of its seconds, mean over ranks", ["ranks", *TERMS], parts
    for title, group in (("Memory, bytes and files", USED[:6]), ("Cores and energy", USED[6:])):
        told = [row for row in group if any(one.used[row[0]] is not None for one in sizes)]
        used = [[_in_unit(one.used[name], unit) for name, _, unit in told] for one in sizes]
        head = ["ranks", *(heading for _, heading, _ in told)]
        yield title, head, [[str(one.num_ranks), *cells] for one, cells in zip(sizes, used)]


def _in_unit(value, unit):
    return "-" if value is None else _number(value / unit)


def as_markdown(what: Measured) -> str:
    """Return the report as Markdown, without pictures."""
    lines = ["# Scaling of " + what.about["configuration"], "", *(f"- {k}: {v}" for k, v in what.about.items()), ""]
    for kind in what.sizes:
        lines += ["## " + KINDS[kind].capitalize(), ""]
        for title, head, body in _tables(what, kind):
            lines += [
                f"{title}:",
                "",
                *("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)),
                "",
            ]
        lines += [f"- {text}" for text in conclusions(what, kind)] + [""]
    return "\n".join([*lines, *HOW, ""])


HOW = (
    "Intervals are of 95 %. They take iterations as independent, or repeats where those differ more.",
    "Efficiency is games/s of each rank, divided by that of each rank of the smallest size.",
    "The first iteration of each run is left out. The network does not learn meanwhile, so that all iterations and all "
    "sizes do the same work: games of a trained network have other lengths, and the cache answers more of them.",
    "Play is self-play, tail the wait for its last games, training without sums of gradients, write the checkpoints; "
    "segments are written beside the next phases. Rest is reporting, and waiting between phases.",
    "Sent bytes are games and weights, without the sums of gradients. Energy is that of whole hosts.",
)


def as_page(what: Measured) -> str:
    """Return the report as one HTML page."""
    name = escape(what.about["configuration"])
    about = "; ".join(f"{key}: {value}" for key, value in what.about.items() if key != "configuration")
    parts = [f"<header><h1>Scaling of {name}</h1><p>{escape(about)}</p></header>"]
    parts.append(f'<h2>Rates</h2><div class="charts">{_figures(what)}</div>')
    for kind in what.sizes:
        parts.append(f"<h2>{escape(KINDS[kind].capitalize())}</h2>")
        parts += [f"<p>{escape(text)}</p>" for text in conclusions(what, kind)]
        parts += [
            f"<h3>{escape(title)}</h3>{html_report.html_table(head, body)}" for title, head, body in _tables(what, kind)
        ]
    parts.append(f"<h2>How it was measured</h2>{''.join(f'<p>{escape(text)}</p>' for text in HOW)}")
    return html_report.document(f"{name}: scaling", "\n".join(parts), __version__)


def _figures(what):
    plots = [_rates(what), _efficiencies(what), *(_shares(sizes) for sizes in what.sizes.values())]
    return "".join(chart.figure(plot.title, *plot.drawn) for plot in plots)


def _rates(what):
    """Return the plot of games/s by ranks, on axes of powers of 2."""
    series = []
    for kind, sizes in what.sizes.items():
        x = [math.log2(one.num_ranks) for one in sizes]
        figures = [one.games_per_s for one in sizes]
        series.append(Series(kind, x, *([_log(value) for value in column] for column in _columns(figures))))
        start = math.log2(figures[0].value)
        if not any(one.name == "in proportion" for one in series[:-1]) or len(what.sizes) == 1:
            series.append(Series("in proportion", [x[0], x[-1]], [start, start + x[-1] - x[0]]))
    return Plot("Games/s by ranks", chart.plot("ranks", "games/s", series, doubling="xy"))


def _efficiencies(what):
    """Return the plot of the efficiency by ranks, with the model's curves."""
    series = []
    for kind, sizes in what.sizes.items():
        x = [math.log2(one.num_ranks) for one in sizes]
        figures = [efficiency(one, sizes[0]) for one in sizes]
        series.append(Series(f"{kind}, measured", x, *_columns(figures)))
        if model := what.models[kind]:
            first, last = math.log2(model.first), math.log2(scaling_model.FAR * model.largest)
            fine = [first + (last - first) * k / FINE for k in range(FINE + 1)]
            curves = zip(*(model.efficiency(2**value) for value in fine))
            series.append(Series(f"{kind}, model", fine, *map(list, curves)))
    top = max([1.0, *(y for one in series for y in one.y if y is not None)])
    plot = chart.plot("ranks", "efficiency", series, limits=(0, math.ceil(5 * top) / 5), doubling="x")
    return Plot("Efficiency by ranks, with 95 % intervals", plot)


def _shares(sizes: Sequence[Size]):
    """Return the stacked bars of where the time goes."""
    parts: dict[str, Sequence[float]] = {}
    for term in TERMS:
        parts[term] = [100 * max(one.terms[term], 0) / one.iteration_s.value for one in sizes]
    parts = {term: heights for term, heights in parts.items() if any(heights)}
    x = [math.log2(one.num_ranks) for one in sizes]
    kind = sizes[0].kind
    return Plot(
        f"Time of an iteration, {kind} scaling", chart.bars("ranks", "% of its seconds", x, parts, doubling="x")
    )


def _columns(figures):
    return [[getattr(figure, name) for figure in figures] for name in ("value", "low", "high")]


def _log(value):
    return None if value is None else math.log2(value)


def machine(hosts: Sequence[str], facts: dict[str, Any]) -> dict[str, str]:
    """Return what a report says of the machine. facts: of `HostFacts.to_dict` on the host that runs the command."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if version)
    return {
        "processor": facts["processor"],
        "cores of this host": str(len(facts["cores"])),
        "hosts": ", ".join(hosts) or "this machine",
        "software": f"az_mpi {facts['az_mpi']}, Python {facts['python']}, {packages}",
        "date": time.strftime("%Y-%m-%d"),
    }
