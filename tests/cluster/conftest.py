"""Real hosts and a real Slurm for tests: made once a session, skipped with the reason where they cannot be."""

import sys
from pathlib import Path

import pytest
from launched import Launch
from machine import FOR_HOSTS, FOR_SLURM, Machine, why_not
from queue_of_jobs import Queue

ROOT = Path(__file__).resolve().parents[2]


def new_machine(programs):
    """Give a machine, or skip the test where there cannot be one."""
    if reason := why_not(programs):
        pytest.skip(reason)
    machine = Machine()
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def machine():
    """Three hosts, node1 to node3; see `machine.Machine`."""
    yield from new_machine(FOR_HOSTS)


def new_slurm_machine():
    for machine in new_machine(FOR_HOSTS | FOR_SLURM):
        machine.start_slurm()
        yield machine


@pytest.fixture(scope="session")
def slurm_machine():
    """Three hosts with a Slurm over them."""
    yield from new_slurm_machine()


@pytest.fixture
def queue(slurm_machine, checkout):
    """The Slurm's queue of jobs, which are submitted from `checkout`; see `queue_of_jobs.Queue`."""
    return Queue(slurm_machine, checkout)


@pytest.fixture
def own_queue(checkout):
    """The queue of a Slurm that no other test uses, so that its hosts may be lost."""
    for machine in new_slurm_machine():
        yield Queue(machine, checkout)


@pytest.fixture
def checkout(tmp_path):
    """A folder like a checkout after `make setup`: jobs begin here, and what they write stays here."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("az_mpi", "configs", "slurm", "hostfiles", "run_dist.py"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture
def launch(machine, checkout):
    """Return start(*words, host="node1", program=...) -> Launch; what still runs at the end is killed."""
    started = []

    def start(*words, host="node1", **program):
        started.append(Launch(machine, checkout, host, words, **program))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill("KILL")
            one.process.wait()
