"""Whole runs of run_dist.py on real ranks: the files that they leave, how they resume, how they fail."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from jobs import ROOT, SMALL, SMOKE, columns, ids, newest, records
from marks import OPENSPIEL, needs_int8, needs_openspiel, quick, slow

from az_mpi.player import trained_network

pytestmark = pytest.mark.mpi


def assert_same_result(one, other):
    """Assert that two runs ended with the same weights, optimiser and games, bit for bit."""
    assert newest(one).name == newest(other).name
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        assert (newest(one) / name).read_bytes() == (newest(other) / name).read_bytes(), name
    ours, theirs = columns(one), columns(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert np.array_equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("ranks", [slow(1), quick(2), slow(3), slow(8)])
def test_a_run_completes_and_then_has_nothing_to_do(run_dist, tmp_path, ranks):
    first = run_dist(ranks, tmp_path / "run")
    assert f"\n  {ranks - 1}     " in first.stdout  # the table has a row for the last rank
    [result] = [json.loads(p.read_text()) for p in (tmp_path / "run" / "evaluations").glob("*.json")]
    assert result["iteration"] == 2 and result["matches"]["rollout"]["num_games"] == 4
    assert result["solver"]["num_positions"] == 4520
    assert "Win rate" in (tmp_path / "run" / "report.html").read_text()
    before = {p: p.read_bytes() for p in (tmp_path / "run").glob("checkpoints/*/*")}
    again = run_dist(ranks, tmp_path / "run")
    assert "is complete" in again.stdout and "Nothing to do" in again.stdout
    assert {p: p.read_bytes() for p in (tmp_path / "run").glob("checkpoints/*/*")} == before
    assert len(records(tmp_path / "run", "iteration")) == 2


def test_a_deterministic_quota_is_split_exactly(run_dist, tmp_path):
    done = run_dist(3, tmp_path / "run", *SMALL, "--num_games", 100, "--set", "iterations=1", "--set", "train.ranks=2")
    assert done.stdout.count("play, train") == 2  # fewer may train than play
    rows = columns(tmp_path / "run")
    assert np.bincount(rows["games/rank"]).tolist() == [34, 33, 33]
    assert len(np.unique(rows["games/id"])) == 100
    [record] = records(tmp_path / "run", "iteration")
    lengths = [int(rows["games/length"][rows["games/rank"] == rank].sum()) for rank in range(3)]
    assert record["games_by_rank"] == [34, 33, 33] and record["positions_by_rank"] == lengths
    assert len(rows["positions/game"]) == sum(lengths)


DIGITS, RANKED = f"{ROOT}/tests/unit/kinds.py:Digits", ["selfplay.ranked_reward=0.75", "selfplay.ranked_games=12"]
FORCED = ["search.forced_playouts=2", "search.root_policy_temperature=1.2", "selfplay.surprise_share=0.5"]
ELSEWHERE = ["selfplay.start_share=0.7", "selfplay.random_plies=2", "replay.window_min=30", "replay.window_growth=0.1"]


@pytest.mark.parametrize(
    "numbers, search",
    [
        (
            (1, 2, 4),
            [
                "search.algorithm=gumbel",
                "search.full_share=0.5",
                "search.fast_simulations=3",
                "selfplay.resign_threshold=0.5",
            ],
        ),
        ((1, 4), [*FORCED, *ELSEWHERE]),
        ((1, 2), [f"game={DIGITS}", *RANKED]),
        slow((1, 2, 4), ["search.algorithm=puct"]),
        slow((1, 2, 4), FORCED),
        slow((1, 2, 4), ELSEWHERE),
    ],
    ids=["gumbel", "all of puct", "ranked", "puct", "forced", "elsewhere"],
)
def test_any_number_of_ranks_plays_the_same_games(run_dist, tmp_path, numbers, search):
    options = [*SMALL, "--set", "network.engine=uniform", "--num_games", 21]
    options += [word for setting in search for word in ("--set", setting)]
    for ranks in numbers:
        # Rounds of 1 KiB on four ranks: how messages are cut must not show either.
        chunks = ["--set", "exchange.chunk_bytes=1024"] if ranks == 4 else []
        done = run_dist(ranks, tmp_path / str(ranks), *options, *chunks)
        assert done.stdout.count("uniform (as configured)") == ranks  # a row of the start-up table each
    alone = columns(tmp_path / "1")
    assert len(alone["games/id"]) == 42
    begins = alone["positions/ply"][np.append(0, np.cumsum(alone["games/length"])[:-1])]
    assert (begins > 2).any() == ("selfplay.start_share=0.7" in search)  # more than the random moves
    reached = [record.get("ranked_threshold") for record in records(tmp_path / "1", "iteration")]
    assert [threshold is None for threshold in reached] == [True, search[1:] != RANKED]
    for ranks in numbers[1:]:
        found = records(tmp_path / str(ranks), "iteration")
        assert [record.get("ranked_threshold") for record in found] == reached
        rows = columns(tmp_path / str(ranks))
        assert rows["games/rank"].max() == ranks - 1
        for name in alone.keys() - {"games/rank"}:
            assert np.array_equal(rows[name], alone[name]), f"{name} on {ranks} ranks"


@needs_int8
def test_int8_plays_the_same_games_on_any_number_of_ranks(run_dist, tmp_path):
    options = [*SMALL, "--set", "network.precision=int8", "--set", "iterations=3"]
    done = run_dist(2, tmp_path / "run", *options)
    assert done.stdout.count("openvino cpu int8 (as configured)") == 2  # a row of the start-up table each
    for record in records(tmp_path / "run", "iteration"):
        assert 0 <= record["int8_kl"] < 5e-3 and 0 <= record["int8_value_error"] < 0.02
    assert records(tmp_path / "run", "iteration")[-1]["int8_value_error"] > 0
    for ranks in (1, 3):
        shutil.copytree(tmp_path / "run", tmp_path / str(ranks))
        run_dist(ranks, tmp_path / str(ranks), *options, "--mode", "selfplay", "--num_games", 21)
    alone, rows = columns(tmp_path / "1", "selfplay"), columns(tmp_path / "3", "selfplay")
    assert len(alone["games/id"]) == 21
    for name in alone.keys() - {"games/rank"}:
        assert np.array_equal(rows[name], alone[name]), name


HEADS = '["policy", "value", "moves_left", "opponent_reply", "short_term_value", "ownership", "score"]'


@pytest.mark.parametrize(
    "game, simulations, more",
    [
        quick("tictactoe", 32, ["network.precision=auto"]),
        pytest.param("tictactoe", 32, ["network.precision=int8"], marks=[pytest.mark.quick, needs_int8]),
        slow("go(size=4)", 4, ["selfplay.start_share=0.5", f"network.heads={HEADS}"]),
        slow("2048(max_plies=40)", 4, []),
        (DIGITS, 4, RANKED),
        pytest.param(OPENSPIEL, 8, ["selfplay.random_plies=2"], marks=[needs_openspiel, pytest.mark.slow]),
    ],
)
def test_a_killed_run_resumes_to_the_same_bits(run_dist, tmp_path, game, simulations, more):
    """The window is filled again from the stored games, with their heads' targets or ranks, with the positions on which
    int8's ranges are measured and with those at which games begin. No stored game is played twice."""
    settings = [f"game={game}", "iterations=6", f"search.simulations={simulations}", *more]
    options = [*SMALL, "--num_games", max(simulations, 8), *(word for one in settings for word in ("--set", one))]
    run_dist(1, tmp_path / "whole", *options)
    broken = tmp_path / "broken"
    command = [sys.executable, "run_dist.py", "--config_file", SMOKE, "--logdir", str(broken), *map(str, options)]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any(broken.glob("checkpoints/00000[3-5]")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert int(newest(broken).name) < 6
    stored, num_stored = {path: path.read_bytes() for path in broken.glob("games/*.h5")}, len(ids(broken))
    num_told = len(records(broken, "iteration"))
    resumed = run_dist(1, broken, *options)
    assert "resumed after iteration" in resumed.stdout
    assert_same_result(tmp_path / "whole", broken)
    assert {path: path.read_bytes() for path in stored} == stored
    again = records(broken, "iteration")[num_told:]
    found = ids(broken)
    assert len(set(found)) == len(found) == num_stored + sum(record["num_games"] for record in again)
    reached = [record.get("ranked_threshold") for record in records(tmp_path / "whole", "iteration")]
    assert [record.get("ranked_threshold") for record in again] == reached[-len(again) :]
    is_ranked = more == RANKED
    assert (None in reached[1:]) != is_ranked and ("ranked by score" in resumed.stdout) == is_ranked
    shown = {"status.txt": "Ranked by        units", "report.html": "ranked threshold"}
    assert [text in (broken / name).read_text() for name, text in shown.items()] == [is_ranked] * 2


def test_games_of_a_lost_iteration_are_used_and_not_played_again(run_dist, tmp_path):
    options = [*SMALL, "--set", "iterations=3"]
    run_dist(1, tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(newest(tmp_path / "broken"))  # killed after the segment was written, before the checkpoint
    run_dist(1, tmp_path / "broken", *options)
    assert_same_result(tmp_path / "whole", tmp_path / "broken")
    assert records(tmp_path / "broken", "iteration")[-1]["num_games"] == 0


def test_a_run_resumes_with_another_number_of_ranks(run_dist, tmp_path):
    options = [*SMALL, "--num_games", 20]
    for iterations, ranks in ((1, 2), (2, 3), (3, 1)):
        run_dist(ranks, tmp_path / "run", *options, "--set", f"iterations={iterations}")
    rows = columns(tmp_path / "run")
    assert len(np.unique(rows["games/id"])) == 60
    state = json.loads((newest(tmp_path / "run") / "state.json").read_text())
    assert state["iteration"] == 3 and state["num_games"] == 60
    assert state["num_positions"] == len(rows["positions/game"])
    assert sorted(p.name for p in (tmp_path / "run" / "starts").iterdir()) == ["001.json", "002.json", "003.json"]


@pytest.mark.parametrize("deterministic", [slow(True), False])
def test_waiting_for_a_slow_rank_is_in_the_record(mpirun, tmp_path, deterministic):
    """Two of three ranks wait for the third: for most of the time where each has its share of the games, for one step
    where they share all games."""
    program, step_s = Path(__file__).parent / "programs" / "slow_rank.py", 0.15 if deterministic else 0.3
    mpirun(
        3,
        program,
        step_s,
        "--config_file",
        SMOKE,
        "--logdir",
        tmp_path / "run",
        *SMALL,
        "--num_games",
        24,
        "--set",
        f"selfplay.deterministic={str(deterministic).lower()}",
        "--set",
        "iterations=2",
        "--set",
        "search.simulations=2",
        "--set",
        "selfplay.parallel_games=4",
        "--set",
        "train.replay_ratio=0.5",
    )
    _, record = records(tmp_path / "run", "iteration")  # kernels are compiled in the first
    for phase in ("play", "exchange", "train", "broadcast", "save"):
        assert 0 <= record[f"{phase}_idle_s"] <= record[f"{phase}_idle_max_s"] <= record[f"{phase}_s"] + 0.05
    fast_s, slow_s = max(record["playing_s_by_rank"][:2]), record["playing_s_by_rank"][2]
    assert 0 < fast_s <= record["play_s"] + 0.05 and slow_s > 0.9 * record["play_s"]
    if deterministic:
        assert record["games_by_rank"] == [8, 8, 8] and fast_s < 0.4 * slow_s
        # 5 plies of 2 simulations are the least that 8 games by fours take.
        assert record["play_idle_max_s"] > 0.6 * record["play_s"] > 0.6 * 10 * step_s
        assert record["play_idle_s"] == pytest.approx(2 / 3 * record["play_idle_max_s"], rel=0.2)
    else:
        assert record["games_by_rank"][2] < min(record["games_by_rank"][:2])
        assert 24 <= record["num_games"] == sum(record["games_by_rank"])
        assert record["play_idle_max_s"] < 1.5 * step_s
    assert record["exchange_idle_max_s"] < 0.3  # nobody's play is counted here
    rows = columns(tmp_path / "run")
    assert len(np.unique(rows["games/id"])) == len(rows["games/id"]) and rows["games/iteration"].max() == 1


def test_a_best_network_keeps_the_threshold_of_games_that_are_removed_later(run_dist, tmp_path):
    options = [*RANKED, f"game={DIGITS}", "iterations=3", "evaluate.every=1", "evaluate.num_games=2"]
    settings = [word for option in options for word in ("--set", option)]
    run_dist(1, tmp_path / "run", *SMALL, *settings)
    networks = sorted((tmp_path / "run/best").glob("*.safetensors"))[
        1:
    ]  # the first one was trained without a threshold
    before = [trained_network.read(path).threshold for path in networks]
    assert networks and not np.isnan(before).any() and set(before) <= set(columns(tmp_path / "run")["games/outcome"])
    for path in (tmp_path / "run/games").glob("*-*.h5"):
        path.unlink()
    assert [trained_network.read(path).threshold for path in networks] == before
    run_dist(1, tmp_path / "run", *SMALL, *settings, "--set", "iterations=4")  # plays matches with them


def test_the_record_of_an_iteration_has_its_share_of_overhead(run_dist, tmp_path):
    run_dist(2, tmp_path / "run", *SMALL)
    first, second = records(tmp_path / "run", "iteration")
    assert "report_s" not in first and 0 < second["report_s"] < 10
    for record in (first, second):
        phases = {name: record[f"{name}_s"] for name in ("play", "exchange", "train", "broadcast", "save")}
        total = sum(phases.values()) + record.get("report_s", 0)
        expected = (total - phases["play"] - phases["train"]) / total
        assert record["overhead_share"] == pytest.approx(expected) and 0 < expected < 1
        assert 5e7 < record["peak_resident_bytes"] < 4e9


def test_other_modes_print_one_json_object(run_dist, mpirun, tmp_path):
    run_dist(2, tmp_path / "run", *SMALL)
    before = sorted((tmp_path / "run" / "checkpoints").rglob("*"))
    options = ["--set", 'evaluate.opponents=["random"]', "--set", "evaluate.num_games=6"]
    done = mpirun(2, "run_dist.py", "--mode", "eval", "--logdir", tmp_path / "run", *options)
    result = json.loads(done.stdout)
    assert result["iteration"] == 2 and result["matches"]["random"]["num_games"] == 6
    before_umask = os.umask(0)
    done = mpirun(2, "run_dist.py", "--mode", "selfplay", "--logdir", tmp_path / "run", "--num_games", 30)
    os.umask(before_umask)
    result = json.loads(done.stdout)
    assert os.stat(result["segment"]).st_mode & 0o027 == 0
    assert os.path.basename(result["segment"]) == "000002-000.h5"
    with h5py.File(result["segment"]) as file:
        assert result["num_games"] == 30 == len(file["games/id"])
        assert result["num_positions"] == len(file["positions/game"])
        ids = set(file["games/id"])
    os.rename(result["segment"], tmp_path / "elsewhere.h5")
    done = mpirun(2, "run_dist.py", "--mode", "selfplay", "--logdir", tmp_path / "run", "--num_games", 30)
    again = json.loads(done.stdout)
    assert os.path.basename(again["segment"]) == "000002-001.h5"  # by the call: two may play at the same time
    with h5py.File(again["segment"]) as file:
        ids |= set(file["games/id"])
    ids |= set(columns(tmp_path / "run")["games/id"])
    assert len(ids) == 30 + 30 + len(columns(tmp_path / "run")["games/id"])  # other games each time
    assert sorted((tmp_path / "run" / "checkpoints").rglob("*")) == before
    missing = mpirun(2, "run_dist.py", "--mode", "eval", "--logdir", tmp_path / "none", status=2)
    assert missing.stderr.count("holds no run") == 1
    missing = mpirun(
        2,
        "run_dist.py",
        "--mode",
        "selfplay",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        tmp_path / "none",
        status=2,
    )
    assert missing.stderr.count("holds no run") == 1 and "train one first: python run_dist.py" in missing.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_max_steps_ends_a_run(run_dist, tmp_path):
    run_dist(2, tmp_path / "run", *SMALL, "--max_steps", 10)
    state = json.loads((newest(tmp_path / "run") / "state.json").read_text())
    assert state["step"] == 10 and state["iteration"] == 1


def test_a_run_ends_when_the_hours_of_all_its_starts_are_over(run_dist, tmp_path):
    folder, endless = tmp_path / "run", [*SMALL, "--set", "report.summary_frequency=1", "--set", "iterations=100000"]
    run_dist(2, folder, *endless, "--set", "train.hours=0.0011")
    first = json.loads((newest(folder) / "state.json").read_text())
    assert first["hours"] >= 0.0011  # however slow the machine: it ends with the iteration that reaches them
    hours = first["hours"] + 0.0009
    done = run_dist(2, folder, *endless, "--set", f"train.hours={hours}")
    second = json.loads((newest(folder) / "state.json").read_text())
    assert "complete: iteration" in done.stdout
    assert second["hours"] >= hours and second["iteration"] > first["iteration"]
    # Half of the hours or more were over, so the cosine is at 0.1 + 0.45 (1 + cos 90°) or lower.
    peak = json.loads((folder / "config.json").read_text())["config"]["train"]["learning_rate"]
    assert records(folder, "train")[-1]["learning_rate"] <= 0.56 * peak


def test_a_resumed_run_draws_the_play_outs_of_an_unbroken_one(run_dist, tmp_path):
    """A resumed run whose searches draw random play-outs plays what an unbroken one does."""
    options = [*SMALL, "--set", "network.engine=rollout", "--set", "iterations=3"]
    run_dist(1, tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(newest(tmp_path / "broken"))
    (tmp_path / "broken" / "games" / "000002-000.h5").unlink()
    (tmp_path / "broken" / "games.h5").unlink()
    run_dist(1, tmp_path / "broken", *options)
    assert_same_result(tmp_path / "whole", tmp_path / "broken")
    with h5py.File(tmp_path / "broken" / "games.h5") as file:
        assert sorted(file) == ["000000-000", "000001-000", "000002-000"]


def test_summaries_do_not_depend_on_where_iterations_end(run_dist, tmp_path):
    run_dist(2, tmp_path / "run", *SMALL, "--summary_frequency", 20, "--set", "iterations=4")
    steps = json.loads((newest(tmp_path / "run") / "state.json").read_text())["step"]
    assert [record["step"] for record in records(tmp_path / "run", "train")] == list(range(20, steps + 1, 20))
    assert steps > 40


@pytest.mark.parametrize("ranks", [slow(1), slow(2), 4])
def test_each_rank_has_its_share_of_the_cores(program, ranks):
    program(ranks, "cores_checks")
