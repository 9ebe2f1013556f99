"""What a command has done, in a file of its folder, so that the same command continues where it was stopped."""

import json
from pathlib import Path
from typing import Any

from az_mpi.config import load as configuration
from az_mpi.config.schema import Config
from az_mpi.core import files
from az_mpi.core.problems import Refusal, escape


def read(path: Path, what: str) -> dict[str, Any] | None:
    """Return the content of a state file; None if there is none yet, and then make its folder. what: the command's
    result, for messages. Raises Refusal if the folder holds something else."""
    if path.exists():
        return files.read_json(path)
    folder = path.parent
    if folder.exists() and any(folder.iterdir()):
        raise Refusal(f"--logdir {escape(str(folder))}: holds something else than a {what}\n  give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return None


def changes(path: Path, before: dict[str, Any], config: Config) -> str:
    """Return in words which keys differ between a configuration that a state file holds and `config`; "" if none do."""
    changed = configuration.changes(configuration.validate(before, str(path)), config)
    return "; ".join(f"{one.key} {json.dumps(one.old)}, now {json.dumps(one.new)}" for one in changed)
