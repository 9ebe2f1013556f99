"""Names in files of versions before 1.0, whose counts are called games_num and the like, and a start of a run attempt.

They are num_games and start now. What reads JSON files of runs reads both, and classes of users that take `attempt`, or
import what has another place now, still work.
"""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

_COUNT = re.compile(r"([a-z_]+)_num")
# Bases of users' own classes: where they were, and where they are.
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
    """Let the module that once had this name be imported by it too; return whether there is one that was not so yet."""
    if name not in _MODULES or name in sys.modules:
        return False
    sys.modules[name] = importlib.import_module(_MODULES[name])
    return True
