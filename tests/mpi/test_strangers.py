"""A job on a machine with other users: they send to its ports, look at its files, and see its command lines."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time

import psutil
import pytest
from jobs import PROGRAMS, SMALL, SMOKE, ids

pytestmark = pytest.mark.mpi
NOBODY = 65534
SECRET = re.compile(r"\b[0-9a-f]{32}\b")  # secrets.token_hex(16)


def ports(job):
    """Return [address, port] of the UDP ports of a job's ranks, as stranger.py reads them."""
    found = []
    for process in psutil.Process(job.pid).children(recursive=True):
        try:
            rows = process.net_connections("udp4") if "run_dist.py" in process.cmdline()[:2] else []
        except psutil.Error:
            continue
        found += [["127.0.0.1" if row.laddr.ip == "0.0.0.0" else row.laddr.ip, row.laddr.port] for row in rows]
    return found


@pytest.fixture
def stranger():
    """stranger.py, which runs as another user where this one is root."""
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable  # that another user may run
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": "/"}
    program = (PROGRAMS / "stranger.py").read_text()
    with subprocess.Popen([python, "-c", program], **pipes, **other) as process:
        yield process
        process.kill()


def test_a_flood_of_garbage_at_its_heartbeats_does_not_stop_a_job_nor_change_its_games(
    start_mpirun, run_dist, stranger, tmp_path
):
    run_dist(2, tmp_path / "alone", *SMALL)
    job = start_mpirun(2, "run_dist.py", "--config_file", SMOKE, "--logdir", tmp_path / "run", *SMALL)
    while job.poll() is None:
        stranger.stdin.write(json.dumps(ports(job)) + "\n")
        stranger.stdin.flush()
        time.sleep(0.2)
    reached, _ = stranger.communicate("", timeout=60)
    said = job.stdout.read()
    assert job.returncode == 0 and "complete: iteration 2 of 2" in said, said
    assert ids(tmp_path / "run") == ids(tmp_path / "alone")
    assert int(reached) >= 2, "root's port and one of another rank"


@pytest.mark.parametrize(("umask", "may"), [(0o000, 0o750), (0o022, 0o750), (0o077, 0o700)])
def test_files_of_a_run_are_as_open_as_the_umask_says_and_never_open_to_others(start_mpirun, tmp_path, umask, may):
    """So are those of the commands that write more of them."""
    run = tmp_path / "run"
    before = os.umask(umask)
    try:
        words = ["run_dist.py", "--config_file", SMOKE, "--logdir", run, "--set", "iterations=1"]
        job = start_mpirun(2, *words, fork=True)
        said, _ = job.communicate(timeout=240)
        assert job.returncode == 0, said
        for words in (["report", run], ["export", run, run / "network.onnx", "--to", "onnx"]):
            subprocess.run([sys.executable, "-m", "az_mpi", *words], check=True, capture_output=True)
    finally:
        os.umask(before)
    modes = {path: path.lstat().st_mode for path in (run, *run.rglob("*"))}
    assert {path.suffix for path in modes} >= {".h5", ".json", ".jsonl", ".safetensors", ".html", ".log", ".onnx"}
    for path, mode in modes.items():
        wanted = may if stat.S_ISDIR(mode) else may & 0o666
        assert stat.S_IMODE(mode) == wanted, (path, oct(mode))


def test_no_secret_is_on_a_command_line(start_mpirun, tmp_path):
    """The job has a secret in its lock, and one for its heartbeats; both look alike."""
    job = start_mpirun(2, "run_dist.py", "--config_file", SMOKE, "--logdir", tmp_path / "run")
    seen, secrets = set(), set()
    while job.poll() is None:
        for path in (tmp_path / "run" / "lock").glob("*.json"):
            try:
                secrets.add(json.loads(path.read_text())["token"])
            except (OSError, ValueError):
                pass
        seen |= {" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])}
        time.sleep(0.02)
    assert job.returncode == 0, job.stdout.read()
    assert secrets and all(SECRET.fullmatch(secret) for secret in secrets)
    ours = [line for line in seen if str(tmp_path) in line]
    assert ours and [line for line in seen if any(secret in line for secret in secrets)] == []
    assert [line for line in ours if SECRET.search(line)] == []
