"""How well the network plays: the part of a run's report about evaluations."""

from collections.abc import Sequence
from html import escape

from az_mpi.core.registry import parse
from az_mpi.report import chart
from az_mpi.report.chart import Series
from az_mpi.report.run_data import RunData
from az_mpi.telemetry.summary import evaluation_lines

OPPONENTS = {  # explanations for readers
    "random": "The opponent random plays any legal move.",
    "greedy": "The opponent greedy plays the move that is best by the rules alone.",
    "rollout": "The opponent rollout searches, and evaluates positions by random games.",
    "mcts_bot": "The opponent mcts_bot is OpenSpiel's own search with random games.",
    "gtp": "The opponent gtp is another program, by the Go Text Protocol.",
    "uci": "The opponent uci is another program, by the Universal Chess Interface.",
    "best": "The opponent best is the best network before this one.",
}
SOLVER = (
    "A move keeps the exact value if, with perfect play from then on, it does not turn a win into a draw or a "
    "loss, nor a draw into a loss. Moves differ in a position where some legal move keeps the value and another "
    "does not. A random mover plays any legal move."
)


def verdict(data: RunData) -> str:
    """Return the section on the newest evaluation, as HTML."""
    if not data.evaluations:
        return "<h2>How well it plays</h2><p>It has not been evaluated yet.</p>"
    newest = data.evaluations[-1]
    items = "".join(f"<li>{escape(line.strip())}</li>" for line in evaluation_lines(newest))
    about = [_about(newest)]
    about += [
        OPPONENTS[name]
        for name in dict.fromkeys(parse(name).attribute for name in newest["matches"])
        if name in OPPONENTS
    ]
    about += [SOLVER] if newest.get("solver") else []
    return (
        f"<h2>How well it plays</h2><p>After iteration {newest['iteration']}, with {newest['simulations']} "
        f"simulations a move:</p><ul>{items}</ul><p><small>{' '.join(about)}</small></p>"
    )


def _about(newest):
    """Return what the numbers of an evaluation are."""
    if "score_mean" in newest:
        return (
            "Everybody plays the same seeds; a difference is the mean over them. In brackets are 95 % intervals, that "
            "of a difference of pairs of games with the same seed."
        )
    if _are_of_several([newest]):
        return (
            "The points of a game are counted from its worst result, and shared; the network sits in every seat, "
            "against its opponent in the others. In brackets are 95 % intervals, of sets of games with the same start "
            "and dice."
        )
    dice = any("sets" in match for match in newest["matches"].values())
    pairs = ", of pairs of games with the same dice and exchanged seats" if dice else ""
    return f"A score counts a win as 1 and a draw as 1/2; in brackets are 95 % intervals{pairs}."


def _are_of_several(evaluations):
    """Return whether evaluations have matches of three or more players."""
    return any("num_players" in match for record in evaluations for match in record["matches"].values())


def charts(data: RunData, marks: Sequence[tuple[float, str]]) -> list[str]:
    """Return the charts of how well the network plays, as HTML; those that there are no data for are "". marks: as for
    `chart.lines`."""
    return [*_matches(data, marks), _ladder(data, marks), _solver(data, marks)]


def _matches(data, marks):
    """Return the charts of evaluations: of the scores of one player, of the shares of several, of the wins and the Elo
    of two."""

    def drawn(title, y_label, series, limits=None, empty="nothing yet"):
        return chart.lines(title, "iteration", y_label, series, marks, limits, empty)

    results = data.matches("mean_result")
    means = [drawn("Mean result, with 95 % interval", "result, from -1 to 1", results)] if results else []
    if scores := data.scores():
        name = data.evaluations[-1].get("score_name", "value")
        return [
            drawn(f"Score ({name}), mean with 95 % interval", name, scores),
            drawn("Difference of scores on the same seeds, with 95 % interval", name, data.matches("difference")),
        ]
    if _are_of_several(data.evaluations):
        return [drawn("Share of the points, with 95 % interval", "share", data.matches("score"), (0, 1)), *means]
    elo = data.matches("elo")
    return [
        drawn("Win rate, with 95 % interval", "share of games won", data.matches("win_rate"), (0, 1)),
        drawn(
            "Elo difference, with 95 % interval",
            "Elo",
            elo,
            empty="none: one side won every game" if elo else "nothing yet",
        ),
        *means,
    ]


def _ladder(data, marks):
    """Return the curve of `python -m az_mpi ladder`, "" if no ladder has been played."""
    if rows := data.ladder.get("scores", []):
        columns = (
            [row[key] for row in rows] for key in ("iteration", "score_mean", "score_mean_low", "score_mean_high")
        )
        title = f"Score by the ladder, with 95 % interval; {data.ladder['simulations']} simulations a move"
        return chart.lines(title, "iteration", data.ladder["score_name"], [Series("ladder", *columns)], marks)
    rows = data.ladder.get("ratings", [])
    if not rows:
        return ""
    columns = ([row[key] for row in rows] for key in ("iteration", "elo", "elo_low", "elo_high"))
    title = f"Elo by the ladder, with 95 % interval; {data.ladder['simulations']} simulations a move"
    return chart.lines(title, "iteration", "Elo above the first network", [Series("ladder", *columns)], marks)


def _solver(data, marks):
    if not (series := data.solver()):
        return ""
    return chart.lines("Moves that keep the exact value", "iteration", "share of positions", series, marks, (0, 1))
