"""What the shipped configurations reach. Minutes each: `make test-long`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def last_evaluation(config, tmp_path, ranks=2):
    launcher = Path(sys.executable).parent / "mpirun"
    command = [launcher, "--allow-run-as-root", "-np", ranks, "-H", f"localhost:{ranks}", sys.executable, "run_dist.py"]
    command += ["--config_file", f"configs/{config}.json", "--logdir", tmp_path / "run"]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True)
    return json.loads(max((tmp_path / "run" / "evaluations").glob("*.json")).read_text())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_tictactoe_is_played_perfectly_from_every_position(tmp_path):
    solver = last_evaluation("tictactoe", tmp_path)["solver"]
    assert solver["num_positions"] == 4520
    assert solver["overall"] == 1.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_connect4_quick_beats_rollout_search(tmp_path):
    result = last_evaluation("connect4_quick", tmp_path)
    assert result["simulations"] == 100
    match = result["matches"]["rollout"]
    assert match["num_games"] == 100 and match["win_rate"] >= 0.8
