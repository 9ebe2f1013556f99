"""MPI jobs that tests start: their command lines, and the games that they leave."""

import os
import subprocess
import sys
from pathlib import Path

import h5py

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
LAUNCHER = Path(sys.executable).parent / "mpirun"
# MPICH's hydra takes as many ranks as it is asked for, and knows no slots behind a host's name.
HYDRA = "HYDRA" in subprocess.run([LAUNCHER, "--version"], capture_output=True, text=True, check=True).stdout
BACKENDS = ["ddp"] if HYDRA else ["horovod", "ddp"]  # Horovod is built against .venv's MPI


def command(ranks, arguments, options=()):
    """Return (words, environment) that start Python on that many ranks of this machine. options: of mpirun."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PYTHONPATH=str(ROOT))
    # More ranks than cores are meant here, on any machine.
    hosts = ["-hosts", "localhost"] if HYDRA else ["-H", f"localhost:{ranks}"]
    words = [LAUNCHER, *options, "-np", ranks, *hosts, "--bind-to", "none", sys.executable, *arguments]
    return [str(word) for word in words], environment


def ids(folder, segments="*.h5"):
    """Return the ids of the games in a run's segments, in the order in which they are stored."""
    found = []
    for path in sorted((folder / "games").glob(segments)):
        with h5py.File(path) as file:
            found += file["games/id"][:].tolist()
            assert len(file["positions/game"]) == file["games/length"][:].sum()
    return found
