"""RUN/imports/NNN.json: which files of games were brought into a run, and what became of them."""

import json
from pathlib import Path
from typing import Any

from az_mpi.core import files
from az_mpi.core.problems import Refusal, escape

FOLDER = "imports"
START = 0xFFF  # in the ids of imported games, in place of the number of a start
RANK = -1  # of imported games, which no rank has played


def entries(run: str | Path) -> list[dict[str, Any]]:
    """Return what is known about each import, oldest first: "iteration", "game", "num_games", "num_positions",
    "num_left_out" and "files", a list of {"name", "sha256", "num_games"}. Damaged ones are left out. Raises OSError."""
    folder, found = Path(run) / FOLDER, []
    for name in files.names(folder):
        if name.endswith(".json") and name.removesuffix(".json").isdecimal():
            try:
                entry = files.read_json(folder / name, files.LINES_BYTES_MAX)
                int(entry["iteration"]), int(entry["num_games"]), list(entry["files"])
            except (ValueError, KeyError, TypeError):
                continue
            found.append(entry)
    return found


def check_game(run: str | Path, name: str) -> None:
    """Raise Refusal if games of another game than the one with this name were imported. Raises OSError."""
    others = [entry["game"] for entry in entries(run) if entry.get("num_games") and entry.get("game") != name]
    if others:
        raise Refusal(
            f"{run}: imported games are of {escape(str(others[0]))}, not of {escape(name)}\n"
            "  give the game and its arguments as they were, or another --logdir"
        )


def next_path(run: str | Path) -> Path:
    """Return the path of the next entry. Raises OSError."""
    folder = Path(run) / FOLDER
    taken = [name.partition(".")[0].partition("-")[0] for name in files.names(folder)]
    return folder / f"{1 + max((int(stem) for stem in taken if stem.isdecimal()), default=0):03d}.json"


def write(path: Path, entry: dict[str, Any]) -> None:
    """Write an entry. Raises OSError."""
    files.write_bytes(path, (json.dumps(entry, indent=1) + "\n").encode())


def newest_iteration(run: str | Path) -> int:
    """Return the newest iteration that imported games are stored for, -1 if there are none. Raises OSError."""
    return max((int(entry["iteration"]) for entry in entries(run)), default=-1)
