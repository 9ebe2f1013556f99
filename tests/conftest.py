"""What every test may rely on."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

import az_mpi  # noqa: F401  it names the folder of Numba's cache


def pytest_collection_modifyitems(items):
    """Unit tests are quick, unless they say that they start processes or take long.

    Tests of one file run one after another, since they share fixtures; so do all tests on hosts."""
    for item in items:
        if item.path.parent.name == "unit" and not any(map(item.get_closest_marker, ("process", "long"))):
            item.add_marker("quick")
        on_hosts = item.path.parent.name == "cluster"
        item.add_marker(pytest.mark.xdist_group("cluster" if on_hosts else item.path.stem))


@pytest.fixture(autouse=True)
def nothing_of_killed_launchers():
    """Remove the folders of mpiruns and their daemons that were killed, which is what many tests do to them.

    One that by chance gets the process id of such a one finds its folder, and does not start ("The PMIx server's
    listener thread failed to start", status 213; PMIx 5.0)."""
    for name in ("ompi", "prted"):
        for folder in Path(tempfile.gettempdir()).glob(f"{name}.[0-9]*"):
            try:
                os.kill(int(folder.suffix[1:]), 0)
            except ProcessLookupError:
                shutil.rmtree(folder, ignore_errors=True)
            except (PermissionError, ValueError):
                pass  # a living one of somebody else, another name


@pytest.fixture(autouse=True)
def the_umask_stays():
    """Take back what commands that a test calls in this process do to it (`files.keep_private`)."""
    before = os.umask(0)
    os.umask(before)
    yield
    os.umask(before)
