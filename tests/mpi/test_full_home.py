"""A home without room: a run needs it only for caches."""

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from jobs import SMALL

pytestmark = pytest.mark.mpi


PACKAGES = ("core", "games", "network", "search", "train")  # that have kernels


@pytest.fixture
def full_home(tmp_path, monkeypatch):
    """A home without room. The folder of compiled kernels is in it, and lacks only one kernel: compiling takes long."""
    home, kernels = tmp_path / "home", tmp_path / "home" / "kernels"
    home.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", home]).returncode:
        pytest.skip("only root can mount a file system without room, and not in every container")
    kernels.mkdir()
    for folder in Path(os.environ["NUMBA_CACHE_DIR"]).glob("*_*/"):
        if folder.name.partition("_")[0] in PACKAGES:
            shutil.copytree(folder, kernels / folder.name, ignore=shutil.ignore_patterns("tree.reset-*"))
    with suppress(OSError), open(home / "ballast", "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(kernels))
    yield home
    subprocess.run(["umount", home], check=True)


def test_a_run_with_a_full_home_completes_and_names_folder_and_cure_once(full_home, run_dist, mpirun, tmp_path):
    done = run_dist(2, tmp_path / "run", *SMALL, "--set", "iterations=1")
    assert "complete: iteration 1 of 1" in done.stdout
    said = done.stdout + done.stderr
    assert said.count(f"{full_home}/kernels: No space left on device") == 1 and "NUMBA_CACHE_DIR" in said
    assert "Traceback" not in said and "on every rank, at each start" in said
    assert not [path for path in full_home.rglob("compiled-*") if path.suffix != ".claim"]  # no start relies on it
    mpirun(1, "-m", "az_mpi", "report", tmp_path / "run", "--svg")
    assert (tmp_path / "run" / "learning_curve.svg").exists()


def test_the_doctor_names_the_full_folder_and_the_cure(full_home, mpirun, tmp_path):
    (tmp_path / "file").touch()  # in it no run can be: then the doctor does not try one, which would take long
    done = mpirun(1, "-m", "az_mpi", "doctor", "--json", "--logdir", tmp_path / "file" / "runs", status=1)
    [check] = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "kernels"]
    assert check["level"] == "warning"
    assert f"{full_home}/kernels" in check["text"] and "No space left on device" in check["text"]
    assert "set NUMBA_CACHE_DIR" in check["cure"]
