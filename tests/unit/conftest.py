"""Fixtures of the unit tests."""

import logging
import os
import signal
import time

import pytest


@pytest.fixture(scope="session")
def world():
    """A world of one rank: MPI can be started once in a process, and without mpirun. What it sets in the environment
    for MPI goes, so that it does not reach the jobs that other tests start."""
    from az_mpi.mpi.world import World

    before = dict(os.environ)
    made = World.start()
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    return made


class Clock:
    """A clock that only evaluations move on, so that no test depends on how busy the machine is. now: seconds."""

    now = 100.0

    def batches(self, seconds, *due):
        """Return an `on_batch` that takes so many seconds. due: (seconds from now, what is called then), in order."""
        begun, left = self.now, list(due)

        def on_batch():
            self.now += seconds
            while left and self.now >= begun + left[0][0]:
                left.pop(0)[1]()

        return on_batch


@pytest.fixture
def clock(monkeypatch):
    """A `Clock` in place of time.monotonic."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


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
