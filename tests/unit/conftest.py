"""Fixtures of the unit tests."""

import pytest


@pytest.fixture(scope="session")
def world():
    """A world of one rank: MPI can be started once in a process, and without mpirun."""
    from az_mpi.world import World

    return World.start()
