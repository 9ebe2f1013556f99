"""Several jobs on one folder: one runs, the others leave with status 2 and say who it is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import command

pytestmark = pytest.mark.mpi

ROOT = Path(__file__).resolve().parents[2]
QUICK = [
    "run_dist.py",
    "--config_file",
    "configs/smoke.json",
    "--set",
    "report.tensorboard=false",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
]
LONG = ["--num_games", "100000", "--set", "exchange.every_s=0.2"]


def begin(ranks, *arguments):
    words, environment = command(ranks, [*QUICK, *arguments])
    words = words if ranks > 1 else [sys.executable, *map(str, QUICK + list(arguments))]
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_of_jobs_that_start_at_once_one_runs(tmp_path):
    run = tmp_path / "run"
    jobs = [begin(1, *LONG, "--logdir", run) for _ in range(4)]
    try:
        losers = []
        while len(losers) < 3:
            losers = [job for job in jobs if job.poll() is not None]
        [winner] = [job for job in jobs if job not in losers]
        for job in losers:
            text = job.communicate()[1]
            assert job.returncode == 2 and f"another job runs here: process {winner.pid} on" in text
            assert "Traceback" not in text
        assert winner.poll() is None and len(list((run / "starts").iterdir())) == 1
        winner.send_signal(signal.SIGTERM)
        assert "stopped after iteration" in winner.communicate(timeout=120)[0] and winner.returncode == 75
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    assert not (run / "lock").exists()


def test_tasks_that_srun_started_without_mpi_are_refused(tmp_path):
    """Each would be a job of its own, and all but one would find the folder taken."""
    environment = os.environ | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}
    done = subprocess.run(
        [sys.executable, *QUICK, "--logdir", tmp_path / "run"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2 and "srun --mpi=pmix" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_second_job_is_refused_and_changes_nothing(tmp_path, mpirun):
    run = tmp_path / "run"
    first = begin(2, *LONG, "--logdir", run)
    try:
        while not list(run.glob("games/000000-000.h5")):
            assert first.poll() is None
        before = sorted(path.name for folder in ("starts", "logs", "lock") for path in (run / folder).iterdir())
        done = mpirun(2, *QUICK, "--logdir", run, status=2)
        assert done.stderr.count("another job runs here") == 1 and "Traceback" not in done.stderr
        after = sorted(path.name for folder in ("starts", "logs", "lock") for path in (run / folder).iterdir())
        assert after == before
        [path] = (run / "lock").iterdir()
        assert len(json.loads(path.read_text())["ranks"]) == 2
    finally:
        first.kill()
        first.communicate()


def test_a_job_whose_folder_is_renamed_ends_with_70_and_makes_no_new_run(tmp_path):
    run, renamed = tmp_path / "run", tmp_path / "renamed"
    job = begin(2, *LONG, "--logdir", run)
    while not list(run.glob("games/000000-000.h5")):
        assert job.poll() is None
    run.rename(renamed)
    out, errors = job.communicate(timeout=120)
    # 70, as a launch that sees 75 would start the same command, and with it a new run.
    assert job.returncode == 70 and not run.exists()
    assert "folder was renamed or removed" in out and "another job" not in out + errors
    assert "Traceback" not in out + errors
    again = begin(1, "--num_games", "100", "--logdir", renamed)
    assert "complete" in again.communicate(timeout=240)[0] and again.returncode == 0


def test_a_new_job_starts_at_once_after_a_killed_one(tmp_path):
    run = tmp_path / "run"
    first = begin(1, *LONG, "--logdir", run)
    while not list(run.glob("games/000000-000.h5")):
        assert first.poll() is None
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert (run / "lock").exists()
    second = begin(1, "--logdir", run)
    assert "complete" in second.communicate(timeout=240)[0] and second.returncode == 0
    assert not (run / "lock").exists()
