"""tools/setup.sh, up to where it would take packages from elsewhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
OLD_PYTHON = """#!/bin/sh
case "$*" in *platform*) echo 3.9.1 ;; *realpath*) echo "$0" ;; esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A folder with what setup.sh reads."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "tools", folder / "tools")
    shutil.copy(ROOT / "requirements.txt", folder)
    return folder


def set_up(checkout, **variables):
    """Run it without packages; return what it says."""
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nonexistent", "PYTHON": sys.executable}
    done = subprocess.run([checkout / "tools/setup.sh"], env=environment | variables, capture_output=True, text=True)
    assert done.returncode
    return done.stdout + done.stderr


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_file_system_without_locks_will_do(checkout, tmp_path):
    """util-linux's flock ends with 65 there."""
    program(tmp_path / "bin/flock", "#!/bin/sh\nexit 65\n")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    said = set_up(checkout, PATH=path, PYTHON=program(tmp_path / "bin/old", OLD_PYTHON))
    assert "Python 3.10 to 3.14 is needed" in said and "another set-up" not in said


def test_what_was_asked_for_is_known_after_an_interruption(checkout, tmp_path):
    for tool in ("mpicc", "mpicxx", "mpirun"):
        program(tmp_path / "mpi/bin" / tool, "#!/bin/sh\n")
    for variables in ({"MPI_HOME": str(tmp_path / "mpi")}, {}):
        assert f"with the MPI in {tmp_path / 'mpi'}" in set_up(checkout, **variables)
