"""Collectives, sharing and waiting on real ranks."""

import os
import subprocess
import sys

import pytest
from jobs import ROOT
from marks import slow

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    "ranks, programs",
    [
        (1, ["shared_memory_checks", "deal_checks", "world_checks 2048"]),
        (2, ["world_checks 2048", "threads_checks"]),
        (3, ["shared_memory_checks", "deal_checks", "world_checks 7"]),  # bytes a round: less than one row
        (4, ["world_checks 2048"]),
        slow(2, ["shared_memory_checks", "deal_checks"]),
    ],
)
def test_collectives_dealing_shared_memory_and_waiting_are_as_defined(program, monkeypatch, ranks, programs):
    """shared_memory_checks comes first, since it measures by how much the peak of memory grows."""
    monkeypatch.setenv("PMI_SIZE", "1")  # of a Slurm step around mpirun, such as that of an interactive shell
    program(ranks, "several", *programs)


def test_mpi_starts_where_home_is_not_set(tmp_path):
    """Open MPI then ends its job in MPI_Init (14), and mpirun does not even say its version."""
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    words = ["--config_file", "configs/smoke.json", "--logdir", tmp_path, "--set", "train.root_host=203.0.113.7"]
    alone = subprocess.run(
        [sys.executable, "run_dist.py", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert alone.returncode == 2 and "is none of the hosts of this job" in alone.stderr  # so MPI has started
    words = [sys.executable, "-m", "az_mpi", "launch", "--np", "1", "--dry_run", "--", *words]
    dry = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert dry.returncode == 0 and " -np 1 " in dry.stdout
