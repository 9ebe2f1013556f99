"""Names in files of versions before 1.0, whose counts are called games_num and the like, and a start of a run attempt.

They are num_games and start now. What reads JSON files of runs reads both.
"""

import re
from pathlib import Path
from typing import Any

_COUNT = re.compile(r"([a-z_]+)_num")
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
