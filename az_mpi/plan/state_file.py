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
    result, for messages. Raises Refusal if the folder holds something else, or cannot be used."""
    folder = path.parent
    named = f"--logdir {escape(str(folder))}"
    try:
        if files.is_there(path):
            content = files.read_json(path)
            if not isinstance(content, dict) or "options" not in content:
                raise ValueError("a part of it is missing")
            return content
        if folder.exists() and any(folder.iterdir()):
            raise Refusal(f"{named}: holds something else than a {what}\n  give a new folder")
        folder.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        cure = f"give a new folder, or remove this one to start the {what} again"
        raise Refusal(f"{named}: {path.name} is damaged: {error}\n  {cure}") from error
    except OSError as error:
        cure = files.MAY_NOT if error.errno in files.REFUSED else "give another folder"
        raise Refusal(f"{named}: {error.strerror}\n  {cure}") from error
    return None


def changes(path: Path, before: dict[str, Any], config: Config) -> str:
    """Return in words which keys differ between a configuration that a state file holds and `config`; "" if none do."""
    changed = configuration.changes(configuration.validate(before, str(path)), config)
    return "; ".join(f"{one.key} {json.dumps(one.old)}, now {json.dumps(one.new)}" for one in changed)
