"""How well a network knows games that people or programs played: the part of a run's report about `--mode fit`."""

from collections.abc import Sequence
from html import escape

from az_mpi.report import chart
from az_mpi.report.chart import Series
from az_mpi.report.run_data import RunData, losses


def section(data: RunData, marks: Sequence[tuple[float, str]]) -> str:
    """Return the section about the run's fits as HTML, "" if there was none. marks: as for `chart.lines`, by step."""
    if not data.fits:
        return ""
    steps = [record["step"] for record in data.fits]
    figures = [chart.lines("Losses, mean of an epoch", "optimiser step", "loss", losses(data.fits), marks)]
    held = [record["held_out"] for record in data.fits]
    if any(held):
        figures += [
            chart.lines(
                "Held out: positions whose move the network knows",
                "optimiser step",
                "share of positions",
                [_known(held, steps, "first choice", "policy_top1"), _known(held, steps, "among five", "policy_top5")],
                marks,
                (0, 1),
            ),
            chart.lines(
                "Held out: errors of the value",
                "optimiser step",
                "mean error",
                [
                    _known(held, steps, "of the result", "value_error"),
                    _known(held, steps, "of the calibration", "calibration_error"),
                ],
                marks,
            ),
            _calibration(held[-1]),
        ]
    return f'<h2>Fit to stored games</h2>{_verdict(data.fits[-1])}<div class="charts">{"".join(figures)}</div>'


def _known(held, steps, label, key):
    return Series(label, steps, [figures.get(key) for figures in held])


def _verdict(newest):
    figures = newest["held_out"]
    if not figures:
        return "<p>No games were held out, so this shows only how well the network knows what it learned from.</p>"
    text = (
        f"After epoch {newest['epoch']}, step {newest['step']:,}: in {100 * figures['policy_top1']:.1f} % of "
        f"{figures['num_positions']:,} positions of games that were held out, the move played is the network's first "
        f"choice, and in {100 * figures['policy_top5']:.1f} % among its first five, without a search. Its value is "
        f"{figures['value_error']:.2f} away from the result, in the mean; results are from -1 to 1."
    )
    return f"<p>{escape(text)}</p>"


def _calibration(figures):
    """Return the chart of what results follow values: on the diagonal where the network is neither too sure of itself
    nor too cautious."""
    bins = [(said, found) for num, said, found in figures.get("calibration", ()) if num]
    series = [
        Series("games", [said for said, _ in bins], [found for _, found in bins]),
        Series("if the value were right", [-1.0, 1.0], [-1.0, 1.0]),
    ]
    return chart.lines("Held out: mean result where the value is about x", "value", "mean result", series, (), (-1, 1))
