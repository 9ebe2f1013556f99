"""A few games of a run, drawn: from its first iteration and from its newest one."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from az_mpi import games
from az_mpi.data import segment

POSITIONS_MAX = 8  # drawn of each game


class Sample(NamedTuple):
    """A game: what it is, its actions, and (caption, drawing) of some of its positions, the last one included."""

    title: str
    actions: list
    drawings: list


def choose(folder, game_name):
    """Return samples of a run: one game of the first segment; the shortest, a middling and the longest of the newest.

    Raises segment.SegmentError for a damaged file.
    """
    game = games.make(game_name)
    paths = sorted((Path(folder) / "games").glob("[0-9]*-[0-9]*.h5"))
    records = [(path, segment.read(path, game)) for path in dict.fromkeys([*paths[:1], *paths[-1:]])]
    samples = []
    for path, record in records:
        order = np.argsort(record.games["length"], kind="stable")
        if not len(order):
            continue
        chosen = {"a game of middling length": order[len(order) // 2]}
        if path == paths[-1]:
            chosen = {"the shortest game": order[0], **chosen, "the longest game": order[-1]}
        samples += [_draw(game, record, index, what) for what, index in chosen.items()]
    return samples


def _draw(game, record, index, what):
    row = record.games[index]
    rows = record.positions[record.positions["game"] == row["id"]]
    last = game.play(rows["state"][-1:], rows["action"][-1:])[0]
    states = [*rows["state"], last]
    plies = np.unique(np.linspace(0, len(rows), min(POSITIONS_MAX, len(rows) + 1)).round().astype(int))
    drawings = []
    for ply in plies:
        value = "end"
        if ply < len(rows):
            for_first = float(rows["root_value"][ply]) * (1 if rows["to_play"][ply] == 0 else -1)
            value = f"{round(for_first, 2) + 0.0:+.2f}"  # no -0.00
        drawings.append((f"{ply} plies, {value}", game.show(states[ply])))
    result = {1: "the first player won", -1: "the second player won", 0: "drawn"}.get(
        float(row["outcome"]), f"outcome {row['outcome']:+.2f} for the first player")
    end = " (ended by the move cap)" if row["truncated"] else ""
    title = f"Begun in iteration {row['iteration'] + 1}, {what}: {row['length']} plies, {result}{end}"
    return Sample(f"{title}, played by rank {row['rank']}", rows["action"].tolist(), drawings)
