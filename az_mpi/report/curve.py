"""The learning curve of a run as a picture, RUN/learning_curve.png: `python -m az_mpi report RUN --png`."""

import io
import math
from pathlib import Path

from az_mpi.core.problems import readable, write_file
from az_mpi.report.run_data import RunData

NAME = "learning_curve.png"
MARKED = 50  # points of a line that are marked, if there are no more
# The same in every run; a random mover has the colour of the network on the same positions, and a dotted line.
COLOURS = {
    "against random": "C0",
    "against rollout": "C1",
    "against best": "C2",
    "all positions": "C0",
    "random mover, all": "C0",
    "where moves differ": "C1",
    "random mover, where moves differ": "C1",
}


def draw(data: RunData) -> Path:
    """Draw a run's losses, matches and the comparison with the solver; return the picture's path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (losses, matches, moves) = pyplot.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    _draw(losses, "training", "optimiser step", "loss", data.losses())
    _draw(matches, "matches (score with 95 % interval)", "iteration", "score", data.matches("score"), ylim=(0, 1.02))
    _draw(moves, "moves that keep the exact value", "iteration", "share", data.solver(), ylim=(0, 1.02))
    figure.suptitle(readable(data.folder.resolve()), parse_math=False)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=110, format="png")
    write_file(data.folder / NAME, picture.getvalue())
    pyplot.close(figure)
    return data.folder / NAME


def _draw(axes, title, x_label, y_label, series, **limits):
    """Draw the lines that have points; if all points have the same x, write their numbers instead."""
    series = [line for line in series if any(y is not None for y in line.y)]
    axes.set(title=title)
    places = sorted({x for line in series for x in line.x})
    if len(places) < 2:
        rows = [f"at {x_label} {x}:" for x in places]
        for line in series:
            interval = f" [{line.low[0]:.3f}, {line.high[0]:.3f}]" if line.low else ""
            rows.append(f"{line.name}: {line.y[0]:.3f}{interval}")
        axes.set_axis_off()
        axes.text(
            0.5,
            0.5,
            "\n".join(rows) or "nothing recorded",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=11,
            linespacing=1.7,
        )
        return
    axes.set(xlabel=x_label, ylabel=y_label, **limits)
    axes.xaxis.get_major_locator().set_params(integer=True)
    for k, line in enumerate(series):
        y = [math.nan if value is None else value for value in line.y]
        spread = [[at - low for at, low in zip(y, line.low)], [high - at for at, high in zip(y, line.high)]]
        look = {"color": COLOURS.get(line.name, f"C{k + 3}"), "marker": "o" if len(y) <= MARKED else ""}
        look["linestyle"] = ":" if line.name.startswith("random mover") else "-"
        axes.errorbar(line.x, y, spread if line.low else None, label=line.name, markersize=4, capsize=3, **look)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
