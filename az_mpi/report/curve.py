"""The learning curve of a run as a picture, RUN/learning_curve.png: `python -m az_mpi report RUN --png`."""

import io
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core.files import write_bytes
from az_mpi.core.problems import readable
from az_mpi.report import metrics
from az_mpi.report.summary import loss_names

NAME = "learning_curve.png"


class Line(NamedTuple):
    """y over x. look: further arguments of matplotlib's `errorbar`: intervals, colours, markers."""

    label: str
    x: list[int]
    y: list[float | None]
    look: dict[str, Any]


def draw(folder: str | Path) -> Path:
    """Draw losses, matches and the comparison with the solver from RUN/metrics.jsonl; return the picture's path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder = Path(folder)
    records = metrics.read(folder / "metrics.jsonl")
    figure, (losses, matches, moves) = pyplot.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    evaluations = metrics.newest(records, "evaluation", "iteration")
    _draw(losses, "training", "optimiser step", "loss", _losses(metrics.newest(records, "train", "step")))
    _draw(matches, "matches (score with 95 % interval)", "iteration", "score", _matches(evaluations), ylim=(0, 1.02))
    _draw(moves, "moves that keep the exact value", "iteration", "share", _solver(evaluations), ylim=(0, 1.02))
    figure.suptitle(readable(folder.resolve()), parse_math=False)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=110, format="png")
    write_bytes(folder / NAME, picture.getbuffer())
    pyplot.close(figure)
    return folder / NAME


def _losses(records):
    steps = [r["step"] for r in records]
    return [Line(name.replace("_", " "), steps, [r.get(name) for r in records], {})
            for name in loss_names(records)]


def _matches(evaluations):
    found = []
    opponents = dict.fromkeys(["random", "rollout", "best", *(name for r in evaluations for name in r["matches"])])
    for k, opponent in enumerate(opponents):  # an opponent has the same colour in every run
        played = [(r["iteration"], r["matches"][opponent]) for r in evaluations if opponent in r["matches"]]
        score = [m["score"] for _, m in played]
        spread = [[m["score"] - m["score_low"] for _, m in played], [m["score_high"] - m["score"] for _, m in played]]
        look = {"yerr": spread, "capsize": 3, "marker": "o", "markersize": 4, "color": f"C{k}"}
        found.append(Line(f"against {opponent}", [iteration for iteration, _ in played], score, look))
    return found


def _solver(evaluations):
    found, solved = [], [r for r in evaluations if r.get("solver")]
    for k, (name, label) in enumerate((("overall", "all positions"), ("where_moves_differ", "where moves differ"))):
        for key, text, look in ((name, label, {"marker": "o", "markersize": 4}),
                                (f"random_{name}", f"{label}, random mover", {"linestyle": ":"})):
            known = [(r["iteration"], r["solver"][key]) for r in solved if r["solver"].get(key) is not None]
            found.append(Line(text, [x for x, _ in known], [y for _, y in known], {"color": f"C{k}", **look}))
    return found


def _draw(axes, title, x_label, y_label, found, **limits):
    """Draw the lines that have points; if all points have the same x, write their numbers instead."""
    found = [line for line in found if line.x]
    axes.set(title=title)
    places = sorted({x for line in found for x in line.x})
    if len(places) < 2:
        rows = [f"at {x_label} {x}:" for x in places]
        for line in found:
            spread = line.look.get("yerr")
            interval = f" [{line.y[0] - spread[0][0]:.3f}, {line.y[0] + spread[1][0]:.3f}]" if spread else ""
            rows.append(f"{line.label}: {line.y[0]:.3f}{interval}")
        axes.set_axis_off()
        axes.text(0.5, 0.5, "\n".join(rows) or "nothing recorded", transform=axes.transAxes, ha="center", va="center",
                  fontsize=11, linespacing=1.7)
        return
    axes.set(xlabel=x_label, ylabel=y_label, **limits)
    axes.xaxis.get_major_locator().set_params(integer=True)
    for line in found:
        axes.errorbar(line.x, line.y, label=line.label, **line.look)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
