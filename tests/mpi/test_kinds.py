"""Games of one player, with dice and of three players in whole jobs: training with evaluation, and what is refused."""

import json

import pytest
from jobs import ROOT

pytestmark = pytest.mark.mpi

KINDS = f"{ROOT}/tests/unit/kinds.py"
SMALL = {
    "iterations": 2,
    "selfplay.num_games": 8,
    "selfplay.parallel_games": 4,
    "search.simulations": 6,
    "network.blocks": 1,
    "network.channels": 8,
    "train.batch_size": 16,
    "evaluate.every": 1,
    "evaluate.num_games": 6,
    "evaluate.rollout_simulations": 8,
}


@pytest.fixture
def train(mpirun, tmp_path):
    """Return train(ranks, name, *options, status=0): train a small network for a game of kinds.py in the folder run."""

    def run(ranks, name, *options, status=0):
        sets = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
        words = ["run_dist.py", "--config_file", "configs/smoke.json", "--logdir", tmp_path / "run"]
        return mpirun(ranks, *words, *sets, "--set", f"game={KINDS}:{name}", *options, status=status)

    return run


def read(tmp_path):
    """Return (the evaluations of a run, the text of its report and its metrics)."""
    files = sorted((tmp_path / "run/evaluations").glob("*.json"))
    texts = [(tmp_path / "run" / name).read_text() for name in ("report.html", "metrics.jsonl")]
    return [json.loads(file.read_text()) for file in files], *texts


def test_a_run_of_one_player_reports_scores(train, tmp_path, mpirun):
    """Five binary digits: the best score is 31, which greedy play has. The same seeds in both evaluations."""
    done = train(2, "Digits", "--set", "evaluate.opening_plies=0")
    (first, second), page, metrics = read(tmp_path)
    assert first["score_name"] == "units" and first["num_games"] == 6 and first["score_best"] <= 31
    assert list(first["matches"]) == ["random", "greedy"] and list(second["matches"]) == ["best", "random", "greedy"]
    assert second["matches"]["greedy"]["scores"] == [31.0] * 6
    assert first["matches"]["random"]["scores"] == second["matches"]["random"]["scores"]
    assert second["matches"]["best"]["scores"] == first["scores"]
    assert second["promoted"] == (second["matches"]["best"]["difference"] >= 0)
    assert "on the same seeds" in done.stdout and "Score (units)" in page
    assert "Elo" not in done.stdout + page and "elo" not in metrics and "first_player_score" not in metrics
    again = json.loads(mpirun(1, "run_dist.py", "--mode", "eval", "--logdir", tmp_path / "run").stdout)
    assert again["scores"] == second["scores"]  # of one rank, those of two


def test_a_run_with_dice_reports_pairs(train, tmp_path):
    train(2, "Pig")
    (_, second), page, _ = read(tmp_path)
    assert list(second["matches"]) == ["best", "random", "rollout"]
    for match in second["matches"].values():
        assert len(match["sets"]) == 3 and match["num_games"] == 6 and -1 <= match["mean_result"] <= 1
        assert match["score"] == pytest.approx(sum(match["sets"]) / 3)
    assert "Mean result" in page


def test_a_run_of_three_players_reports_shares_of_the_points(train, tmp_path):
    done = train(2, "Trio")
    (_, second), page, metrics = read(tmp_path)
    for match in second["matches"].values():
        assert match["num_players"] == 3 and len(match["score_by_seat"]) == 3 and len(match["sets"]) == 2
    assert second["promoted"] == (second["matches"]["best"]["score"] >= 1 / 3)
    assert "share of the points" in done.stdout and "Share of the points" in page
    assert "Elo" not in done.stdout + page and "elo" not in metrics


@pytest.mark.parametrize(
    "name,option,why",
    [
        ("Digits", "evaluate.opponents=[\"uci(command='stockfish')\"]", "digits is a game of one player"),
        ("Trio", "selfplay.ranked_reward=0.75", "only the results of a game of one player are ranked"),
        ("Rain", "evaluate.opening_plies=7", "chance alone makes them differ"),
    ],
)
def test_what_a_kind_of_game_does_not_have_is_refused_before_anything_is_written(train, tmp_path, name, option, why):
    done = train(2, name, "--set", option, status=2)
    assert done.stderr.count(why) == 1 and "Traceback" not in done.stderr and not (tmp_path / "run").exists()
