"""python -m az_mpi status RUN: show how far a run is and what each of its ranks does, from RUN/status.json."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from az_mpi.core.arguments import Parser
from az_mpi.core.files import read_json, retry_while_unavailable
from az_mpi.core.problems import Refusal, escape
from az_mpi.core.silence import SilenceTimer
from az_mpi.telemetry.status_text import render

PROG = "python -m az_mpi status"
ABOUT = "Show how far a run is and what each of its ranks does, from RUN/status.json."
STALLED_S = 6.0  # root writes every 2 s; once the count has not changed for so long, root counts as dead
LOOK_EVERY_S, WATCH_EVERY_S = 0.25, 2.0  # between two readings of the file, while waiting and with --watch
CLEAR = "\x1b[H\x1b[2J"  # the terminal
EPILOG = """\
states: Active (plays or evaluates), Training, Syncing (exchanges, or waits for others), Error, Offline (no heartbeat
for 5 s), Finished. "Workers active" counts the ranks in the first three. The games of a rank are those that it has
finished since this start, stored or not. The games in the line "iteration" are those of complete iterations, of all
starts, so the sum over the ranks is often another number. Games/s is measured while a rank plays; for a finished run it
is the mean of this start. Staleness is the number of iterations between the weights that games began with and those at
their exchange. The command notices a killed job after some seconds of silence.
Without Python: watch cat RUN/status.txt
"""


def main(arguments: list[str]) -> int:
    """Show the status of the run that `arguments` name; return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG, run=True)
    parser.add_argument("--watch", action="store_true", help="show it again every 2 s until the run ends or Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print the status as JSON, one object a line")
    given = parser.parse_args(arguments)
    watched = Watched(given.run)
    values = watched.look()
    try:
        while given.watch:
            _show(values, given.json, clear=sys.stdout.isatty() and not given.json)
            if values["job"] not in ("starting", "running"):
                return 0
            time.sleep(WATCH_EVERY_S)
            values = watched.look()
        _show(watched.settle(values), given.json)
    except KeyboardInterrupt:
        pass
    return 0


class Watched:
    """A run's status.json, which is read repeatedly. Root is alive as long as the count in it changes."""

    def __init__(self, folder: str | Path):
        self.folder = folder
        self._timer = SilenceTimer(2 * WATCH_EVERY_S)

    def look(self) -> dict[str, Any]:
        """Return the present status. If its count has not changed for STALLED_S, return what `dead` makes of it."""
        values = read(self.folder)
        silent_s = self._timer.look((values["start"], values["count"]))
        return dead(values, silent_s) if values["job"] in ("starting", "running") and silent_s > STALLED_S else values

    def settle(self, values: dict[str, Any]) -> dict[str, Any]:
        """Wait until it is known whether root is alive, and return the status. That is known at once if the run has
        ended, and else when the count changes, or has not changed for STALLED_S."""
        first = self._timer.value
        while values["job"] in ("starting", "running") and self._timer.value == first:
            time.sleep(LOOK_EVERY_S)
            values = self.look()
        return values


def read(folder: str | Path, program: str = PROG) -> dict[str, Any]:
    """Return the content of RUN/status.json. Raises Refusal, whose text begins with the name of `program`."""
    path = Path(folder) / "status.json"
    try:
        # On NFS a file that was just replaced may be missing for a moment.
        values = retry_while_unavailable(
            lambda: read_json(path), 0.05, unavailable=lambda error: isinstance(error, FileNotFoundError)
        )
        render(values)  # raises an exception unless the status is complete and of this version
        return values
    except OSError as error:
        raise Refusal(_refusal(program, folder, error.strerror or error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Refusal(_refusal(program, folder, "it is not a status of this version")) from error


def _refusal(program, folder, reason):
    name = escape(str(folder))
    return (
        f"{program}: error: {name}/status.json: {reason}\n"
        "  name the folder of a run (--logdir of run_dist.py); the file is there as soon as the run has started"
    )


def dead(values: dict[str, Any], silent_s: float) -> dict[str, Any]:
    """Return the status of a job whose root has written nothing for silent_s seconds: the job is dead, and each rank is
    Offline unless it is in Error."""
    ranks = [
        row
        | {
            "state": row["state"] if row["state"] == "Error" else "Offline",
            "games_per_s": 0.0,
            "last_seen_s": round(row["last_seen_s"] + silent_s, 1),
        }
        for row in values["ranks"]
    ]
    failures = [
        *values["failures"],
        f"root has written nothing for {STALLED_S:.0f} s: the job is dead (or its folder "
        "cannot be written). Start it again to continue from its last checkpoint",
    ]
    return values | {"job": "dead", "ranks": ranks, "failures": failures, "games_per_s": 0.0, "workers_active": 0}


def _show(values, as_json, clear=False):
    """Print a status. clear: on a terminal that is cleared first; else an empty line follows the text."""
    if as_json:
        text = json.dumps(values) + "\n"
    elif clear:
        text = CLEAR + render(values)
    else:
        text = render(values) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()
