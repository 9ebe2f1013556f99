"""The learning curve of a run as a picture, RUN/learning_curve.svg: `python -m az_mpi report RUN --svg`."""

from collections.abc import Sequence
from pathlib import Path

from az_mpi.core.problems import readable, write_file
from az_mpi.report import chart
from az_mpi.report.chart import Series
from az_mpi.report.picture import Plot, picture
from az_mpi.report.run_data import RunData, losses

NAME = "learning_curve.svg"


def draw(data: RunData) -> Path:
    """Draw a run's losses, matches and the comparison with the solver; return the picture's path."""
    plots = [
        _plot("Losses", "optimiser step", "loss", losses(data.train)),
        _strength(data),
        _plot("Moves that keep the exact value", "iteration", "share of positions", data.solver(), (0, 1)),
    ]
    text = picture(readable(data.folder.resolve()), plots)
    write_file(data.folder / NAME, text.encode())
    return data.folder / NAME


def _strength(data):
    if scores := data.scores():
        return _plot("Scores on the same seeds, mean with 95 % interval", "iteration", "score", scores)
    return _plot("Score of matches, with 95 % interval", "iteration", "score", data.matches("score"), (0, 1))


def _plot(
    title: str, x_label: str, y_label: str, series: Sequence[Series], limits: tuple[float, float] | None = None
) -> Plot:
    empty = all(y is None for one in series for y in one.y)
    return Plot(title, None if empty else chart.plot(x_label, y_label, series, limits=limits))
