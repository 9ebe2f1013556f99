"""Names up to version 1.0.0: a count was called games_num, which is num_games now, and a start of a run an attempt.

JSON files of runs are read with either name. Classes of users that take `attempt`, or import a module that has moved
since, still work.
"""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

_COUNT = re.compile(r"([a-z_]+)_num")
# Modules with base classes for users' own classes: {the earlier name: the name now}.
_MODULES = {"az_mpi.report.sinks": "az_mpi.telemetry.sinks", "az_mpi.report.callbacks": "az_mpi.telemetry.callbacks"}
_WORDS = {"attempt": "start", "attempts": "starts"}


def modern(name: str) -> str:
    """Return the name that a key has now: modern("games_num") is "num_games"."""
    count = _COUNT.fullmatch(name)
    return f"num_{count[1]}" if count else _WORDS.get(name, name)


def modern_keys(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON with the names of now. A hook of `json.loads`, which calls it for inner objects too."""
    return {modern(name): value for name, value in item.items()}


def starts_folder(run: Path) -> Path:
    """Return the folder with a file for each start of a run: RUN/starts, or RUN/attempts if an earlier version made it.
    Raises OSError."""
    earlier = run / "attempts"
    return earlier if earlier.is_dir() else run / "starts"


def give_earlier_name(name: str | None) -> bool:
    """Make a module importable by the name that it had earlier. Return whether this was needed: whether a module had
    this name, and could not be imported by it yet."""
    if name not in _MODULES or name in sys.modules:
        return False
    sys.modules[name] = importlib.import_module(_MODULES[name])
    return True
