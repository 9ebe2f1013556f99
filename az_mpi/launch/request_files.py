"""Where a run's user and the launch that looks after it meet: two small files in the run's folder.

RUN/launch.json is the launch's: what it does, and its answer. RUN/launch-request.json is the user's; it is whole or not
there, and there is one at a time: the launch takes it away.
"""

import json
import os
from pathlib import Path

from az_mpi.core.files import claim_text, read_json, write_text

STATE, REQUEST = "launch.json", "launch-request.json"
BYTES_MAX = 2**16


class RequestFiles:
    """The two files of the run in `folder`."""

    def __init__(self, folder):
        self.state, self.request = Path(folder) / STATE, Path(folder) / REQUEST

    def look(self):
        """Return what the launch says of itself, or None where there is none."""
        return _read(self.state)

    def say(self, content):
        """Let the launch say something of itself, JSON-able. Raises OSError."""
        write_text(self.state, json.dumps(content) + "\n", durable=False)

    def ask(self, content):
        """Leave a request, JSON-able. Raises FileExistsError where there is one; OSError."""
        claim_text(self.request, json.dumps(content) + "\n")

    def take(self):
        """Return the request that is there, having taken it away, or None; where that fails, the next call has it."""
        content = _read(self.request)
        try:
            if content is not None:
                self.request.unlink(missing_ok=True)
        except OSError:
            return None
        return content

    def withdraw(self, id_):
        """Take our own request back; return whether nobody had taken it."""
        if (_read(self.request) or {}).get("id") != id_:
            return False
        self.request.unlink(missing_ok=True)
        return True

    def close(self, id_):
        """Remove what the launch `id_` has said."""
        try:
            if (self.look() or {}).get("id") == id_:
                self.state.unlink(missing_ok=True)
        except OSError:
            pass  # the disk fails


def _read(path):
    """Return a JSON object from one of our own plain files, else None."""
    try:
        if os.stat(path, follow_symlinks=False).st_uid != os.geteuid():
            return None
        content = read_json(path, BYTES_MAX)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
