"""tools/setup.sh, up to where it would download packages."""

import os
import shutil
import subprocess
import sys
import tempfile
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


def set_up(checkout, prefix=(), **variables):
    """Run it without packages, by the command `prefix`; return what it says."""
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nonexistent", "PYTHON": sys.executable}
    command = [*prefix, checkout / "tools/setup.sh"]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True)
    assert done.returncode
    return done.stdout + done.stderr


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_setup_works_on_a_file_system_without_locks(checkout, tmp_path):
    """util-linux's flock ends with 65 there."""
    program(tmp_path / "bin/flock", "#!/bin/sh\nexit 65\n")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    said = set_up(checkout, PATH=path, PYTHON=program(tmp_path / "bin/old", OLD_PYTHON))
    assert "Python 3.10 to 3.14 is needed" in said and "another set-up" not in said


def test_setup_continues_with_its_options_after_an_interruption(checkout, tmp_path):
    for tool in ("mpicc", "mpicxx", "mpirun"):
        program(tmp_path / "mpi/bin" / tool, "#!/bin/sh\n")
    for variables in ({"MPI_HOME": str(tmp_path / "mpi")}, {}):
        assert f"with the MPI in {tmp_path / 'mpi'}" in set_up(checkout, **variables)


ANOTHER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
as_another = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be another")


@pytest.fixture
def lent(checkout, tmp_path):
    """Return made(python): a checkout of root's with a .venv of this Python, which another user can see."""
    shared = Path(tempfile.gettempdir())
    for folder in [checkout, *checkout.parents]:
        if folder.is_relative_to(shared) and folder != shared:
            folder.chmod(0o755)

    def made(python):
        (checkout / ".venv/bin").mkdir(parents=True)
        (checkout / ".venv/setup.txt").write_text(f"folder={checkout}\npython={python}\nmpi_home=\n")
        (checkout / ".venv/foundation.txt").write_text(f"folder={checkout}\npython={python}\nmpi_home=\n")
        (checkout / ".venv/bin/python").symlink_to(python)
        return sorted(checkout.rglob("*"))

    return made


@as_another
@pytest.mark.parametrize(
    "fault, says",
    [("closed", "closed to this user"), ("mode", "not executable for this user"), ("venv", "has no access to it")],
)
def test_a_venv_that_another_user_cannot_run_is_refused_and_stays(checkout, lent, tmp_path, fault, says):
    python = Path(program(tmp_path / "home/python3", OLD_PYTHON))
    before = lent(python)
    {"closed": python.parent, "mode": python, "venv": checkout / ".venv"}[fault].chmod(0o700)
    said = set_up(checkout, ANOTHER, PYTHON="")
    assert says in said and "root" in said.partition("; nothing was changed: ")[0] or "nobody cannot run" in said
    assert "nothing was changed: copy or clone this checkout" in said and sorted(checkout.rglob("*")) == before


@as_another
def test_a_venv_of_another_user_that_is_not_ready_is_refused_and_stays(checkout, lent):
    """This holds whether or not that user can write there, and where another Python is asked for."""
    before = lent(shutil.which("python3", path="/usr/bin:/bin"))
    for mode in (0o755, 0o777):
        (checkout / ".venv").chmod(mode)
        said = set_up(checkout, ANOTHER, PYTHON="/bin/true" if mode == 0o777 else "")
        assert "belongs to root, so nobody may not change it; nothing was changed" in said, said
    assert sorted(checkout.rglob("*")) == before


def test_a_venv_whose_python_is_gone_is_made_again(checkout, lent):
    lent("/nonexistent/python3")
    assert "making .venv" in set_up(checkout, PYTHON="") and not (checkout / ".venv/foundation.txt").exists()
