"""Hosts with little room beside the run's folder: a full folder for temporary files, a small /dev/shm."""

import os
import shutil
import subprocess
import sys

import pytest
from jobs import HYDRA, PROGRAMS, ROOT, SMOKE, command

pytestmark = pytest.mark.mpi


def can_mount():
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return done.returncode == 0


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not can_mount(), reason="mounts need root"
)


def with_tmpfs(folder, size, words, environment=None, full=False):
    """Return the finished process of a command that finds a file system of this size in `folder`."""
    script = f"mount -t tmpfs -o size={size} none {folder}"
    script += f"; cat /dev/zero >{folder}/full 2>/dev/null" * full + '; exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


@needs_mounts
@pytest.mark.skipif(HYDRA, reason="what fits is a matter of Open MPI")
@pytest.mark.parametrize("size, says", [("24m", "they share what there is"), ("1m", "they talk over TCP")])
def test_ranks_that_do_not_fit_into_dev_shm_send_without_it_and_log_that_once(size, says):
    """As in a container: without the right to copy from each other's memory. 24 MiB end 4 ranks by SIGBUS otherwise."""
    words, environment = command(4, [PROGRAMS / "heavy_messages.py"], ["--mca", "smsc", "^cma"])
    done = with_tmpfs("/dev/shm", size, words, environment)
    assert done.returncode == 0 and done.stdout.count("all checks passed") == 4, done.stdout + done.stderr
    assert done.stderr.count("/dev/shm has") == 1 and says in done.stderr and "--shm-size" in done.stderr
    assert "not enough space" not in done.stderr


@needs_mounts
def test_one_rank_runs_where_dev_shm_is_full():
    program = "from az_mpi.mpi.world import World; assert World.start().size == 1; print('started', flush=True)"
    done = with_tmpfs("/dev/shm", "16k", [sys.executable, "-c", program])
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


@needs_mounts
def test_launch_and_doctor_report_a_full_tmp_before_mpirun_fails(tmp_path):
    """A folder of its own stands for /tmp, which may hold this checkout."""
    little = tmp_path / "tmp"
    little.mkdir()
    environment = dict(os.environ, TMPDIR=str(little))
    launch = ["-m", "az_mpi", "launch", "--np", 2, "--", "--config_file", SMOKE, "--logdir", tmp_path / "run"]
    done = with_tmpfs(little, "64k", [sys.executable, *launch], environment, full=True)
    assert done.returncode == 2 and done.stdout == "" and f"{little}, where mpirun keeps its files" in done.stderr
    assert "No space left on device (0 KiB free)" in done.stderr and "export TMPDIR=DIR" in done.stderr
    doctor = [sys.executable, "-m", "az_mpi", "doctor", "--logdir", tmp_path / "runs"]
    done = with_tmpfs(little, "64k", doctor, environment, full=True)
    said = " ".join(done.stdout.split())
    assert done.returncode == 1 and "problem" in said and f"{little}, where mpirun keeps its files" in said
