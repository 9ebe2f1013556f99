"""A metrics sink of your own: a CSV file with a row for each iteration, for a spreadsheet."""

import csv

from az_mpi.telemetry.sinks import Sink

COLUMNS = (
    "iteration",
    "num_games",
    "games_per_s",
    "num_positions",
    "num_steps",
    "policy_loss",
    "value_loss",
    "play_s",
    "train_s",
)


class Csv(Sink):
    """Writes RUN/NAME; a resumed run continues the same file."""

    def __init__(self, folder, name="iterations.csv"):
        self.path = folder / name

    def write(self, kind, time, step, values):
        if kind != "iteration":
            return
        begins = not self.path.exists()
        with open(self.path, "a", newline="") as file:
            rows = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="")
            if begins:
                rows.writeheader()
            rows.writerow(values)
