"""The learning curve of a run as a picture: `python -m az_mpi.report.curve RUN` draws RUN/learning_curve.png."""

import io
import sys
from pathlib import Path

from az_mpi.files import write_bytes
from az_mpi.report import metrics
from az_mpi.report.summary import loss_names

NAME = "learning_curve.png"


def draw(folder):
    """Draw losses, matches and the solver's judgement from RUN/metrics.jsonl; return the picture's path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder = Path(folder)
    records = metrics.read(folder / "metrics.jsonl")
    figure, (losses, matches, moves) = pyplot.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    _draw_losses(losses, metrics.newest(records, "train", "step"))
    evaluations = metrics.newest(records, "evaluation", "iteration")
    _draw_matches(matches, evaluations)
    _draw_solver(moves, evaluations)
    for axes in (losses, matches, moves):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=9)
    figure.suptitle(folder.resolve().name)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=110, format="png")
    write_bytes(folder / NAME, picture.getbuffer())
    pyplot.close(figure)
    return folder / NAME


def _draw_losses(axes, records):
    axes.set(title="training", xlabel="optimiser step", ylabel="loss")
    steps = [r["step"] for r in records]
    for name in loss_names(records):
        axes.plot(steps, [r.get(name) for r in records], label=name.replace("_", " "))


def _draw_matches(axes, evaluations):
    axes.set(title="matches (score with 95 % interval)", xlabel="iteration", ylabel="score", ylim=(0, 1.02))
    for opponent in ("random", "rollout", "best"):
        played = [(r["iteration"], r["matches"][opponent]) for r in evaluations if opponent in r["matches"]]
        x = [iteration for iteration, _ in played]
        score = [m["score"] for _, m in played]
        spread = [[m["score"] - m["score_low"] for _, m in played], [m["score_high"] - m["score"] for _, m in played]]
        axes.errorbar(x, score, yerr=spread, capsize=3, marker="o", markersize=4, label=f"against {opponent}")


def _draw_solver(axes, evaluations):
    axes.set(title="moves that keep the exact value", xlabel="iteration", ylabel="share", ylim=(0, 1.02))
    judged = [r for r in evaluations if r.get("solver")]
    x = [r["iteration"] for r in judged]
    for name, label in (("overall", "all positions"), ("where_moves_differ", "where moves differ")):
        (line,) = axes.plot(x, [r["solver"][name] for r in judged], marker="o", markersize=4, label=label)
        uniform = [r["solver"].get(f"random_{name}") for r in judged]
        if None not in uniform:
            axes.plot(x, uniform, linestyle=":", color=line.get_color(), label=f"{label}, random mover")


if __name__ == "__main__":
    print(draw(sys.argv[1]))
