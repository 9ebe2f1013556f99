"""The names of checkpoints in a folder, without loading what reads them."""

import re
from pathlib import Path

from az_mpi.core import files

_NAME = re.compile(r"\d+(-\d+)?")


def find(folder: str | Path) -> list[Path]:
    """Return the checkpoint folders, oldest first. Raises OSError."""
    found = [name for name in files.names(folder) if _NAME.fullmatch(name)]
    return [Path(folder) / name for name in sorted(found, key=lambda name: tuple(map(int, name.split("-"))))]
