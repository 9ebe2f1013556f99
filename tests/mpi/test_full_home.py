"""A home without room: a run needs it only for caches."""

import json
import os
import subprocess

import pytest
from jobs import SMALL

pytestmark = pytest.mark.mpi


@pytest.fixture
def full_home(tmp_path, monkeypatch):
    """A home on a file system of 64 KiB, with the folder of compiled kernels in it."""
    home = tmp_path / "home"
    home.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", home]).returncode:
        pytest.skip("only root can mount a file system without room, and not in every container")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "kernels"))
    yield home
    subprocess.run(["umount", home], check=True)


def test_a_run_with_a_full_home_is_complete_and_names_the_folder_and_the_cure_once(full_home, run_dist, tmp_path):
    done = run_dist(2, tmp_path / "run", *SMALL, "--set", "iterations=1")
    assert "complete: iteration 1 of 1" in done.stdout
    said = done.stdout + done.stderr
    assert said.count(f"{full_home}/kernels: No space left on device") == 1 and "NUMBA_CACHE_DIR" in said
    assert "Traceback" not in said and "on every rank, at each start" in said
    assert not [path for path in full_home.rglob("compiled-*") if path.suffix != ".claim"]  # no start relies on it


def test_the_doctor_names_the_full_folder_and_the_cure(full_home, mpirun, tmp_path):
    (tmp_path / "file").touch()  # in it no run can be: then the doctor does not try one, which would take long
    done = mpirun(1, "-m", "az_mpi", "doctor", "--json", "--logdir", tmp_path / "file" / "runs", status=1)
    [check] = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "kernels"]
    assert check["level"] == "warning"
    assert f"{full_home}/kernels" in check["text"] and "No space left on device" in check["text"]
    assert "set NUMBA_CACHE_DIR" in check["cure"]
