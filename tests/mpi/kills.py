"""Runs whose ranks a test kills or stops: their options, when the moment has come, and what must hold at the end."""

import json
import re
import time

import psutil
from jobs import ids

BASE = [
    "--config_file",
    "configs/smoke.json",
    "--summary_frequency",
    "1",
    "--set",
    "report.tensorboard=false",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "exchange.every_s=0.5",
]


def wait_for(condition, process):
    """Wait until a condition holds, which must be before the process ends and within 150 s."""
    deadline = time.monotonic() + 150
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def said(folder, text):
    """Return a condition: the root of that time has logged `text`, a regular expression."""
    log = folder / "logs" / "run.log"
    return lambda: log.exists() and re.search(text, log.read_text())


def ranks_of(process, program="run_dist.py"):
    """Return {rank at the start: process} of the living ranks."""
    children = psutil.Process(process.pid).children(recursive=True)
    alive = [
        child
        for child in children
        if child.status() != psutil.STATUS_ZOMBIE and any(word.endswith(program) for word in child.cmdline())
    ]
    return {int(child.environ()["OMPI_COMM_WORLD_RANK"]): child for child in alive}


def state(folder):
    """Return the state of a run's newest checkpoint."""
    return json.loads((max((folder / "checkpoints").iterdir()) / "state.json").read_text())


def check_whole(folder, iterations):
    """Assert that the run is complete, and that its last checkpoint counts the games in its segments."""
    found = ids(folder)
    assert len(found) == len(set(found)) == state(folder)["num_games"]
    assert state(folder)["iteration"] == iterations
    assert json.loads((folder / "status.json").read_text())["job"] == "finished"
