"""RUN/imports/NNN.json: which files of games were brought into a run, and what became of them.

An import writes its segments in RUN/games/.importing first. Then a journal there says which names they get, and has the
entry: from that moment on the games belong to the run, and every job that takes the run's lock completes the rest.
"""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from az_mpi.core import files
from az_mpi.core.problems import Refusal, escape

FOLDER = "imports"
WAITING = ".importing"  # in RUN/games
JOURNAL = "journal.json"  # in WAITING
START = 0xFFF  # in the ids of imported games, in place of the number of a start
RANK = -1  # of imported games, which no rank has played


def entries(run: str | Path) -> list[dict[str, Any]]:
    """Return what is known about each import, oldest first: "iteration", "game", "num_games", "num_positions",
    "num_left_out" and "files", a list of {"name", "sha256", "num_games"}. Damaged ones are left out. Raises OSError."""
    folder, found = Path(run) / FOLDER, []
    for name in files.names(folder):
        if name.endswith(".json") and name.removesuffix(".json").isdecimal():
            with suppress(ValueError, KeyError, TypeError):
                found.append(_checked(files.read_json(folder / name, files.LINES_BYTES_MAX)))
    if (journal := _journal(run)) and not files.is_there(folder / journal["name"]):
        found.append(journal["entry"])
    return found


def _checked(entry):
    int(entry["iteration"]), int(entry["num_games"]), list(entry["files"])
    return entry


def _journal(run):
    """Return the journal of an import that is not complete, None if there is none. Raises OSError."""
    path = Path(run) / "games" / WAITING / JOURNAL
    if not files.is_there(path):
        return None
    try:
        journal = files.read_json(path, files.LINES_BYTES_MAX)
        names = {Path(old).name: Path(new).name for old, new in journal["segments"].items()}
        return {"name": Path(journal["name"]).name, "segments": names, "entry": _checked(journal["entry"])}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


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


def commit(
    run: str | Path, path: Path, entry: dict[str, Any], segments: dict[str, str], check: Callable[[], None]
) -> None:
    """Let the games of an import belong to the run; call `complete` then. Raises OSError.

    path: of the entry. segments: {name in WAITING: name in RUN/games}. check: called right before; may raise."""
    journal = {"name": path.name, "segments": segments, "entry": entry}
    files.write_bytes(Path(run) / "games" / WAITING / JOURNAL, json.dumps(journal).encode(), before=check)


def complete(run: str | Path) -> None:
    """Complete an import that has its journal, and remove what one without it has left. For the holder of the run's
    lock. Raises OSError; afterwards it may be called again."""
    games, folder = Path(run) / "games", Path(run) / FOLDER
    if journal := _journal(run):
        for old, new in journal["segments"].items():
            with suppress(FileNotFoundError):  # it has been renamed already
                os.rename(games / WAITING / old, games / new)
        files.sync(games)
        folder.mkdir(exist_ok=True)
        files.write_bytes(folder / journal["name"], (json.dumps(journal["entry"], indent=1) + "\n").encode())
    shutil.rmtree(games / WAITING, ignore_errors=True)


def is_incomplete(run: str | Path) -> bool:
    """Return whether an import has its journal and is not complete. Raises OSError."""
    return _journal(run) is not None


def newest_iteration(run: str | Path) -> int:
    """Return the newest iteration that imported games are stored for, -1 if there are none. Raises OSError."""
    return max((int(entry["iteration"]) for entry in entries(run)), default=-1)
