"""Fixtures of the unit tests."""

import logging
import signal

import pytest


@pytest.fixture(scope="session")
def world():
    """A world of one rank: MPI can be started once in a process, and without mpirun."""
    from az_mpi.mpi.world import World

    return World.start()


@pytest.fixture
def hang_ups():
    """Children get SIGHUP, also where the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True)
def plain_logger():
    """Every test finds the program's logger as the program does: without handlers of tests before it."""
    logger = logging.getLogger("az_mpi")
    logger.handlers[:], logger.propagate = [], True
    yield
    logger.handlers[:] = []
