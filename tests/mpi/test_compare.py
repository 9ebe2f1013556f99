"""az_mpi compare: real trainings one after the other, measurements and matches, and the same command once more."""

import json
import os
import subprocess
import sys

import pytest
from jobs import HYDRA, ROOT, records
from marks import slow

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(HYDRA, reason="launch starts jobs with Open MPI")]
SETTINGS = [
    word
    for setting in (
        "network.blocks=1",
        "network.channels=8",
        "selfplay.num_games=20",
        "iterations=3",
        "search.simulations=8",
        "train.batch_size=32",
        "evaluate.solver_positions=40",
        "network.precision=fp32",
        "report.tensorboard=false",
    )
    for word in ("--set", setting)
]
FEW = "configs/tictactoe.json selfplay.num_games=10"


def compare(folder, *options, configurations=("configs/tictactoe.json", FEW)):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    words = [
        sys.executable,
        "-m",
        "az_mpi",
        "compare",
        *configurations,
        *SETTINGS,
        "--minutes",
        "2",
        "--points",
        "1",
        "--games",
        "8",
        "--simulations",
        "8",
        "--np",
        "1",
        "--logdir",
        str(folder),
        *options,
    ]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("extended", [False, slow(True)])
def test_a_comparison_is_made_shown_and_extended(tmp_path, extended):
    folder = tmp_path / "comparison"
    done = compare(folder)
    plain, few = folder / "tictactoe-seed1", folder / "tictactoe_selfplay.num_games=10-seed1"
    assert [sum(row["num_games_asked"] for row in records(run, "iteration")) for run in (plain, few)] == [60, 30]
    state = json.loads((folder / "compare.json").read_text())
    assert [state["runs"][run.name]["points"][0]["iteration"] for run in (plain, few)] == [3, 3]
    assert state["runs"][plain.name]["points"][0]["matches"].keys() == {"random", "rollout"}
    assert state["matches"].keys() == {few.name} and state["matches"][few.name]["num_games"] == 8
    assert "tictactoe selfplay.num_games=10" in done.stdout and "Elo" in done.stdout
    page = (folder / "compare.html").read_text()
    assert "tictactoe selfplay.num_games=10" in page and "http" not in page.replace("http://www.w3.org", "")
    if not extended:
        return
    # A further seed, on two ranks: what is there is kept.
    before = {run: (run / "metrics.jsonl").read_bytes() for run in (plain, few)}
    compare(folder, "--seeds", "2", "--np", "2")
    assert all((run / "metrics.jsonl").read_bytes() == content for run, content in before.items())
    state = json.loads((folder / "compare.json").read_text())
    assert len(state["runs"]) == 4 and len(state["matches"]) == 2
    assert (
        records(folder / "tictactoe-seed2", "iteration")[0]["policy_loss"]
        != records(plain, "iteration")[0]["policy_loss"]
    )
