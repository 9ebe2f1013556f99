"""MPI jobs that tests start: their command lines, and the games that they leave."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
LAUNCHER = Path(sys.executable).parent / "mpirun"
# MPICH's hydra starts any number of ranks on a host and knows no slots behind a host's name.
HYDRA = "HYDRA" in subprocess.run([LAUNCHER, "--version"], capture_output=True, text=True, check=True).stdout
SMOKE = "configs/smoke.json"
# A run with a small network and all its parts takes seconds.
SMALL = [
    "--set",
    "selfplay.deterministic=true",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.summary_frequency=1000",
    "--set",
    "report.tensorboard=false",
]
BACKENDS = ["ddp"] if HYDRA else ["horovod", "ddp"]  # Horovod is built against .venv's MPI


def command(ranks, arguments, options=(), python=(sys.executable,)):
    """Return (words, environment) that start Python on that many ranks of this machine.

    options: of mpirun. python: the words that start Python."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PYTHONPATH=str(ROOT))
    # The tests start more ranks than there are cores.
    hosts = ["-hosts", "localhost"] if HYDRA else ["-H", f"localhost:{ranks}"]
    words = [LAUNCHER, *options, "-np", ranks, *hosts, "--bind-to", "none", *python, *arguments]
    return [str(word) for word in words], environment


def ids(folder, segments="*.h5"):
    """Return the ids of the games in a run's segments, in the order in which they are stored."""
    found = []
    for path in sorted((folder / "games").glob(segments)):
        with h5py.File(path) as file:
            found += file["games/id"][:].tolist()
            assert len(file["positions/game"]) == file["games/length"][:].sum()
    return found


def columns(folder, place="games"):
    """Return every dataset of the segments in a folder of a run, joined, by name."""
    parts = {}
    for path in sorted((folder / place).glob("*.h5")):
        with h5py.File(path) as file:
            for group in file.values():
                for column in group.values():
                    parts.setdefault(column.name.lstrip("/"), []).append(column[:])
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def records(folder, kind):
    """Return the records of one kind in a run's metrics.jsonl."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def newest(folder):
    """Return the newest checkpoint of a run."""
    return sorted(p for p in (folder / "checkpoints").iterdir() if p.name.isdigit())[-1]
