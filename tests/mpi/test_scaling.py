"""az_mpi scaling: real jobs on one and two ranks, a report, and the same command once more."""

import csv
import json
import os
import subprocess
import sys

import pytest
from jobs import HYDRA, ROOT

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(HYDRA, reason="launch starts jobs with Open MPI")]
SMALL = ("search.simulations=8", "selfplay.num_games=40", "network.precision=fp32", "report.tensorboard=false")


def scaling(folder, *options):
    sets = [word for setting in SMALL for word in ("--set", setting)]
    words = ["--config_file", "configs/smoke.json", *sets, "--ranks", "1,2", "--kinds", "strong", "--repeats", "1"]
    return subprocess.run(
        [sys.executable, "-m", "az_mpi", "scaling", *words, "--minutes", "0.05", "--logdir", str(folder), *options],
        cwd=ROOT,
        env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"),
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_two_sizes_are_measured_and_not_again(tmp_path):
    folder = tmp_path / "out"
    done = scaling(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((folder / "jobs").iterdir()) == []  # the runs are removed
    cases = json.loads((folder / "scaling.json").read_text())["cases"]
    assert list(cases) == ["strong-1-1", "strong-2-1"]
    assert [len(one["ranks"]) for one in cases.values()] == [1, 2]
    for one in cases.values():
        assert all(40 <= row["num_games"] <= 42 for row in one["iterations"])
        assert all(len(rank["cores"]) == 1 for rank in one["ranks"])
    with open(folder / "scaling.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["ranks"] for row in rows] == ["1", "2"]
    for row in rows:
        terms = ("play", "tail", "exchange", "training", "sums", "broadcast", "write", "rest")
        assert sum(float(row[f"{term}_s"]) for term in terms) == pytest.approx(float(row["iteration_s"]), rel=1e-3)
        assert float(row["opened_at_start"]) > 500 and float(row["largest_rank_bytes"]) > 1e8
    before = (folder / "scaling.json").read_bytes()
    again = scaling(folder)
    assert again.returncode == 0 and "all sizes are complete" in again.stderr
    assert (folder / "scaling.json").read_bytes() == before


def test_a_job_that_cannot_start_is_one_block_and_the_command_can_be_given_again(tmp_path):
    """Two ranks cannot share a batch of one sample."""
    done = scaling(tmp_path / "out", "--set", "train.batch_size=1")
    assert done.returncode == 2 and "cannot be split over 2 ranks" in done.stderr and "Traceback" not in done.stderr
    assert json.loads((tmp_path / "out/scaling.json").read_text())["cases"] == {}
