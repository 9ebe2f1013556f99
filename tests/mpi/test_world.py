"""Collectives, sharing and waiting on real ranks."""

import os
import subprocess
import sys

import pytest
from jobs import ROOT
from marks import slow

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives_do_what_their_definitions_say(program, ranks):
    program(ranks, "world_checks", 2048)


def test_messages_of_many_rounds_arrive_whole(program):
    program(3, "world_checks", 7)  # bytes a round: less than one row


def test_waiting_ranks_leave_their_cores_to_others(program):
    program(2, "threads_checks")


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_of_a_host_share_memory(program, ranks):
    program(ranks, "shared_memory_checks")


@pytest.mark.parametrize("ranks", [1, slow(2), 3])
def test_positions_are_dealt_by_their_index(program, ranks):
    program(ranks, "deal_checks")


def test_where_home_is_not_set(tmp_path):
    """Open MPI then ends its job in MPI_Init (14), and mpirun does not even say its version."""
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    words = ["--config_file", "configs/smoke.json", "--logdir", tmp_path, "--set", "train.root_host=203.0.113.7"]
    alone = subprocess.run([sys.executable, "run_dist.py", *words], cwd=ROOT, env=environment, capture_output=True,
                           text=True)
    assert alone.returncode == 2 and "is none of the hosts of this job" in alone.stderr  # so MPI has started
    words = [sys.executable, "-m", "az_mpi", "launch", "--np", "1", "--dry_run", "--", *words]
    dry = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert dry.returncode == 0 and " -np 1 " in dry.stdout
