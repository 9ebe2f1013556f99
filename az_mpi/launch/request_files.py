"""How a run's user talks to the launch that supervises the run: by two small files in the run's folder.

launch writes RUN/launch.json: what it does, and its answer to the newest request. The user writes
RUN/launch-request.json, one request at a time; launch removes it when it has read it.
"""

import json
import os
from pathlib import Path
from typing import Any

from az_mpi.core.files import claim_text, read_json, write_text

STATE, REQUEST = "launch.json", "launch-request.json"
BYTES_MAX = 2**16


class RequestFiles:
    """The two files of the run in `folder`."""

    def __init__(self, folder: str | Path):
        self.state = Path(folder) / STATE
        self.request = Path(folder) / REQUEST

    def look(self) -> dict[str, Any] | None:
        """Return what launch has published, None where no launch supervises the run."""
        return _read(self.state)

    def publish(self, content: dict[str, Any]) -> None:
        """Write what launch does, and its answer, JSON-able. Raises OSError."""
        write_text(self.state, json.dumps(content) + "\n", durable=False)

    def ask(self, content: dict[str, Any]) -> None:
        """Write a request, JSON-able. Raises FileExistsError if another one is waiting; OSError."""
        claim_text(self.request, json.dumps(content) + "\n")

    def take(self) -> dict[str, Any] | None:
        """Remove and return the request, None where there is none. If it cannot be removed now, a later call does."""
        content = _read(self.request)
        try:
            if content is not None:
                self.request.unlink(missing_ok=True)
        except OSError:
            return None
        return content

    def withdraw(self, id_: str) -> bool:
        """Remove the request with this id; return whether launch had not taken it yet."""
        if (_read(self.request) or {}).get("id") != id_:
            return False
        self.request.unlink(missing_ok=True)
        return True

    def close(self, id_: str) -> None:
        """Remove what the launch `id_` has published."""
        try:
            if (self.look() or {}).get("id") == id_:
                self.state.unlink(missing_ok=True)
        except OSError:
            pass  # the disk fails


def _read(path):
    """Return the JSON object in a plain file of this user, else None."""
    try:
        if os.stat(path, follow_symlinks=False).st_uid != os.geteuid():
            return None
        content = read_json(path, BYTES_MAX)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
