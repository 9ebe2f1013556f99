"""A callback of your own: which moves games begin with, and how that changes from iteration to iteration."""

import json
from collections import Counter

from az_mpi.telemetry.callbacks import Callback


class Openings(Callback):
    """Writes RUN/openings-RANK.jsonl: the first moves of the games that a rank has finished, and on root a line for
    each iteration and evaluation."""

    def __init__(self, folder, rank, game, plies=2):
        self.path, self.game, self.plies, self.counts = folder / f"openings-{rank}.jsonl", game, plies, Counter()

    def on_game(self, game):
        moves = zip(game.states[: self.plies], game.actions[: self.plies].tolist())
        opening = " ".join(self.game.action_to_text(state, action) for state, action in moves)
        self.counts[opening] += 1
        self.write({"game": game.id, "opening": opening, "outcome": game.outcome})

    def on_iteration(self, summary):
        self.write(
            {
                "iteration": summary["iteration"],
                "num_games": summary["num_games"],
                "most_played_on_root": self.counts.most_common(3),
            }
        )
        self.counts.clear()

    def on_evaluation(self, result):
        self.write(
            {
                "iteration": result["iteration"],
                "scores": {name: match["score"] for name, match in result["matches"].items()},
            }
        )

    def write(self, values):
        with open(self.path, "a") as file:
            file.write(json.dumps(values) + "\n")
