"""A run of an earlier version (commit 0823929; tests/data/run_of_0823929, two iterations of configs/smoke.json on two
ranks) is used as if this version had made it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import ROOT

pytestmark = pytest.mark.mpi


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copytree(ROOT / "tests" / "data" / "run_of_0823929", tmp_path / "old"))


def az_mpi(*arguments):
    command = [sys.executable, "-m", "az_mpi", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def iterations(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "iteration"]


def test_a_run_of_an_earlier_version_is_verified_and_reported(old):
    assert "32 games" in az_mpi("verify", old)
    az_mpi("report", old)
    assert "tictactoe" in (old / "report.html").read_text()
    assert "tictactoe" in az_mpi("status", old)


def test_the_network_of_a_run_of_an_earlier_version_is_evaluated(old, mpirun):
    result = json.loads(mpirun(2, "run_dist.py", "--mode", "eval", "--logdir", old).stdout.splitlines()[-1])
    assert result["iteration"] == 2 and result["matches"]["random"]["num_games"] == 4
    assert result["solver"]["overall"] > result["solver"]["random_overall"]


def test_a_run_of_an_earlier_version_resumes_where_it_ended(old, mpirun):
    before = iterations(old)
    mpirun(
        2,
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        old,
        "--set",
        "iterations=3",
        "--set",
        "selfplay.deterministic=true",
        "--set",
        "report.tensorboard=false",
    )
    told = iterations(old)
    assert told[:2] == before and len(told) == 3 and told[2]["num_games"] == 16
    assert told[2]["mean_length"] > 4 and {"policy_loss", "value_loss"} <= told[2].keys()
    state = json.loads((old / "checkpoints" / "000003" / "state.json").read_text())
    assert (
        state["num_games"] == 48
        and state["step"]
        > json.loads((ROOT / "tests/data/run_of_0823929/checkpoints/000002/state.json").read_text())["step"]
    )
    assert "48 games" in az_mpi("verify", old)
