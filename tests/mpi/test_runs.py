"""Whole runs of run_dist.py on real ranks: what they leave behind, how they resume, how they fail."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from jobs import PROGRAMS
from marks import needs_int8, quick, slow

pytestmark = pytest.mark.mpi

SMOKE = "configs/smoke.json"
# One small network, every part of a run, in seconds.
SMALL = ["--set", "selfplay.deterministic=true", "--set", "evaluate.opponents=[]",
         "--set", "evaluate.solver_positions=0", "--set", "report.summary_frequency=1000",
         "--set", "report.tensorboard=false"]


@pytest.fixture
def run_dist(mpirun):
    """Return run(ranks, logdir, *options, status=0): train on configs/smoke.json."""

    def run(ranks, logdir, *options, status=0):
        return mpirun(ranks, "run_dist.py", "--config_file", SMOKE, "--logdir", logdir, *options, status=status)

    return run


def columns(folder, place="games"):
    """Return every dataset of the segments in a folder of a run, joined, by name."""
    parts = {}
    for path in sorted((folder / place).glob("*.h5")):
        with h5py.File(path) as file:
            for group in file.values():
                for column in group.values():
                    parts.setdefault(column.name.lstrip("/"), []).append(column[:])
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def records(folder, kind):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def newest(folder):
    return sorted(p for p in (folder / "checkpoints").iterdir() if p.name.isdigit())[-1]


def assert_same_result(one, other):
    """Assert that two runs ended with the same weights, optimiser and games, bit for bit."""
    assert newest(one).name == newest(other).name
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        assert (newest(one) / name).read_bytes() == (newest(other) / name).read_bytes(), name
    ours, theirs = columns(one), columns(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert np.array_equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("ranks", [1, quick(2), 3, slow(8)])
def test_a_run_completes_and_then_has_nothing_to_do(run_dist, tmp_path, ranks):
    first = run_dist(ranks, tmp_path / "run")
    assert f"\n  {ranks - 1}     " in first.stdout  # the table has a row for the last rank
    [result] = [json.loads(p.read_text()) for p in (tmp_path / "run" / "evaluations").glob("*.json")]
    assert result["iteration"] == 2 and result["matches"]["rollout"]["games_num"] == 4
    assert result["solver"]["positions_num"] == 4520
    assert "Win rate" in (tmp_path / "run" / "report.html").read_text()
    before = {p: p.read_bytes() for p in (tmp_path / "run").glob("checkpoints/*/*")}
    again = run_dist(ranks, tmp_path / "run")
    assert "is complete" in again.stdout and "Nothing to do" in again.stdout
    assert {p: p.read_bytes() for p in (tmp_path / "run").glob("checkpoints/*/*")} == before
    assert len(records(tmp_path / "run", "iteration")) == 2


def test_a_deterministic_quota_is_split_exactly(run_dist, tmp_path):
    run_dist(3, tmp_path / "run", *SMALL, "--games_num", 100, "--set", "iterations=1")
    rows = columns(tmp_path / "run")
    assert np.bincount(rows["games/rank"]).tolist() == [34, 33, 33]
    assert len(np.unique(rows["games/id"])) == 100
    [record] = records(tmp_path / "run", "iteration")
    lengths = [int(rows["games/length"][rows["games/rank"] == rank].sum()) for rank in range(3)]
    assert record["games_by_rank"] == [34, 33, 33] and record["positions_by_rank"] == lengths
    assert len(rows["positions/game"]) == sum(lengths)


def test_the_same_games_come_out_of_any_number_of_ranks(run_dist, tmp_path):
    options = [*SMALL, "--set", "network.engine=uniform", "--games_num", 21]
    for ranks in (1, 2, 4):
        # Rounds of 1 KiB on four ranks: how messages are cut must not show either.
        chunks = ["--set", "exchange.chunk_bytes=1024"] if ranks == 4 else []
        done = run_dist(ranks, tmp_path / str(ranks), *options, *chunks)
        assert done.stdout.count("uniform (as configured)") == ranks  # a row of the start-up table each
    alone = columns(tmp_path / "1")
    assert len(alone["games/id"]) == 42
    for ranks in ("2", "4"):
        rows = columns(tmp_path / ranks)
        assert rows["games/rank"].max() == int(ranks) - 1
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
    for ranks in (1, 2, 3):
        shutil.copytree(tmp_path / "run", tmp_path / str(ranks))
        run_dist(ranks, tmp_path / str(ranks), *options, "--mode", "selfplay", "--games_num", 21)
    alone = columns(tmp_path / "1", "selfplay")
    assert len(alone["games/id"]) == 21
    for ranks in ("2", "3"):
        rows = columns(tmp_path / ranks, "selfplay")
        for name in alone.keys() - {"games/rank"}:
            assert np.array_equal(rows[name], alone[name]), f"{name} on {ranks} ranks"


def test_a_quota_counts_all_ranks_and_ids_stay_unique(run_dist, tmp_path):
    run_dist(2, tmp_path / "run", *SMALL, "--set", "selfplay.deterministic=false", "--games_num", 40)
    rows = columns(tmp_path / "run")
    for record in records(tmp_path / "run", "iteration"):
        assert record["games_num"] >= 40 and sum(record["games_by_rank"]) == record["games_num"]
    assert len(np.unique(rows["games/id"])) == len(rows["games/id"]) == rows["games/length"].size
    assert rows["games/iteration"].max() == 1


@pytest.mark.quick
@pytest.mark.parametrize("precision", ["auto", pytest.param("int8", marks=needs_int8)])
def test_a_killed_run_resumes_to_the_same_bits(run_dist, tmp_path, precision):
    """In int8 the positions on which ranges are measured come from the window, which is filled again."""
    options = [*SMALL, "--set", "iterations=6", "--games_num", 64, "--set", "search.simulations=32",
               "--set", f"network.precision={precision}"]  # fmt: skip
    run_dist(1, tmp_path / "whole", *options)
    broken = tmp_path / "broken"
    command = [sys.executable, "run_dist.py", "--config_file", SMOKE, "--logdir", str(broken), *map(str, options)]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (broken / "checkpoints" / "000003").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert int(newest(broken).name) < 6
    resumed = run_dist(1, broken, *options)
    assert "resumed after iteration" in resumed.stdout
    assert_same_result(tmp_path / "whole", broken)


def test_games_of_a_lost_iteration_are_used_not_played_again(run_dist, tmp_path):
    options = [*SMALL, "--set", "iterations=3"]
    run_dist(1, tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(newest(tmp_path / "broken"))  # killed after the segment was written, before the checkpoint
    run_dist(1, tmp_path / "broken", *options)
    assert_same_result(tmp_path / "whole", tmp_path / "broken")
    assert records(tmp_path / "broken", "iteration")[-1]["games_num"] == 0


def test_a_run_goes_on_with_another_number_of_ranks(run_dist, tmp_path):
    options = [*SMALL, "--games_num", 20]
    for iterations, ranks in ((1, 2), (2, 3), (3, 1)):
        run_dist(ranks, tmp_path / "run", *options, "--set", f"iterations={iterations}")
    rows = columns(tmp_path / "run")
    assert len(np.unique(rows["games/id"])) == 60
    state = json.loads((newest(tmp_path / "run") / "state.json").read_text())
    assert state["iteration"] == 3 and state["games_num"] == 60
    assert state["positions_num"] == len(rows["positions/game"])
    assert sorted(p.name for p in (tmp_path / "run" / "attempts").iterdir()) == ["001.json", "002.json", "003.json"]


def test_fewer_ranks_may_train_than_play(run_dist, tmp_path):
    done = run_dist(3, tmp_path / "run", *SMALL, "--set", "train.ranks=2")
    assert done.stdout.count("play, train") == 2
    assert records(tmp_path / "run", "iteration")[-1]["games_by_rank"] == [6, 5, 5]


def test_a_damaged_checkpoint_falls_back_to_the_one_before(run_dist, tmp_path):
    options = [*SMALL, "--set", "iterations=2"]
    run_dist(1, tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    model = newest(tmp_path / "run") / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    done = run_dist(2, tmp_path / "run", *options)
    assert "000002 is damaged (the SHA-256 of model.safetensors does not match)" in done.stdout
    assert (tmp_path / "run" / "checkpoints" / "000002.damaged").is_dir()
    assert newest(tmp_path / "run").name == "000002"
    assert np.array_equal(columns(tmp_path / "run")["games/id"], columns(tmp_path / "whole")["games/id"])


def test_a_changed_configuration_is_refused_unless_the_key_may_change(run_dist, tmp_path):
    run_dist(1, tmp_path / "run", *SMALL, "--set", "iterations=1")
    before = sorted((tmp_path / "run").rglob("*"))
    refused = run_dist(2, tmp_path / "run", *SMALL, "--set", "network.channels=16", "--set", "seed=9", status=2)
    assert refused.stderr.count("network.channels: 8 in the run, 16 now") == 1
    assert "seed: 1 in the run, 9 now" in refused.stderr and "Traceback" not in refused.stderr
    assert sorted((tmp_path / "run").rglob("*")) == before
    fresh = run_dist(1, tmp_path / "run", *SMALL, "--fresh", status=2)
    assert "already holds a run" in fresh.stderr
    run_dist(1, tmp_path / "run", *SMALL, "--set", "iterations=2", "--learning_rate", "0.01")
    assert newest(tmp_path / "run").name == "000002"


def test_a_wrong_configuration_is_told_once_and_nothing_is_written(run_dist, tmp_path):
    done = run_dist(4, tmp_path / "run", "--set", "search.simulation=3", "--batch_size", "0", status=2)
    assert done.stderr.count("did you mean search.simulations?") == 1
    assert done.stderr.count("train.batch_size = 0") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    done = run_dist(4, tmp_path / "run", "--batchsize", "3", status=2)
    assert done.stderr.count("did you mean --batch_size?") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("fault, said, status", [
    ("exception", "ZeroDivisionError: a fault in the test", 70),
    ("weights", "WeightsDiffer: after step", 70),
    ("storage", "OSError: [Errno 5] Input/output error", 75),  # the same command goes on once it is over
])
def test_a_failing_rank_ends_the_whole_job(mpirun, tmp_path, fault, said, status):
    program = PROGRAMS / "failing_rank.py"
    begun = time.time()
    done = mpirun(3, program, fault, "--config_file", SMOKE, "--logdir", tmp_path / "run", *SMALL, status=status)
    # All ranks see that weights differ, and the first to speak ends the others.
    who = "[012]" if fault == "weights" else "2"
    speaker = re.search(rf"rank ({who}) of 3 on ", done.stderr)
    assert speaker and said in done.stderr
    assert time.time() - float((tmp_path / "failed_at").read_text()) < 10
    assert begun < float((tmp_path / "failed_at").read_text())
    assert said in (tmp_path / "run" / "logs" / f"rank-00{speaker[1]}.log").read_text()
    if fault == "weights":
        assert "the weights of rank [2] differ" in done.stderr


@pytest.mark.parametrize("deterministic", [True, False])
def test_waiting_for_a_slow_rank_is_in_the_record(mpirun, tmp_path, deterministic):
    """Two of three ranks wait for the third: all the time where each has its share, one step where they share all."""
    program, step_s = Path(__file__).parent / "programs" / "slow_rank.py", 0.1
    mpirun(3, program, step_s, "--config_file", SMOKE, "--logdir", tmp_path / "run", *SMALL, "--games_num", 24,
           "--set", f"selfplay.deterministic={str(deterministic).lower()}", "--set", "iterations=3",
           "--set", "search.simulations=2", "--set", "selfplay.parallel_games=4", "--set", "train.replay_ratio=0.5")
    for record in records(tmp_path / "run", "iteration")[1:]:  # kernels are compiled in the first
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
            assert record["play_idle_max_s"] < step_s + 0.05
        assert record["exchange_idle_max_s"] < 0.3  # nobody's play is counted here


def test_a_slow_disk_holds_up_checkpoints_only(mpirun, tmp_path):
    """Each fsync of a segment takes 1 s: two for the segment, two for the links; meanwhile the run goes on."""
    options = [*SMALL, "--set", "iterations=2", "--set", "checkpoint.every=2"]
    mpirun(2, PROGRAMS / "slow_disk.py", "slow", "--config_file", SMOKE, "--logdir", tmp_path / "run", *options)
    first, last = records(tmp_path / "run", "iteration")
    assert first["exchange_s"] < 1 and "save_s" not in first
    assert last["exchange_s"] < 1 < last["save_s"]
    segments = sorted((tmp_path / "run" / "games").iterdir())
    assert [path.name for path in segments] == ["000000-000.h5", "000001-000.h5"]
    # Segments get their names before a checkpoint counts their positions.
    assert max(path.stat().st_ctime_ns for path in segments) < (newest(tmp_path / "run") / "sha256").stat().st_mtime_ns
    state = json.loads((newest(tmp_path / "run") / "state.json").read_text())
    assert state["positions_num"] == len(columns(tmp_path / "run")["positions/game"])


def test_a_full_disk_pauses_the_run_and_then_stops_it(mpirun, run_dist, tmp_path):
    """No checkpoint counts what is not there, and every rank leaves with 75."""
    program = PROGRAMS / "slow_disk.py"
    run_dist(2, tmp_path / "run", *SMALL, "--set", "iterations=1")
    done = mpirun(2, program, "full", "--config_file", SMOKE, "--logdir", tmp_path / "run", *SMALL, "--set",
                  "storage.give_up_s=2", status=75)
    assert done.stdout.count("paused: ") == 1 and "No space left on device" in done.stdout
    assert "stopped after iteration" in done.stdout and "16 games among it" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert newest(tmp_path / "run").name == "000001"
    assert [path.name for path in (tmp_path / "run" / "games").iterdir()] == ["000000-000.h5"]
    run_dist(2, tmp_path / "run", *SMALL)
    assert newest(tmp_path / "run").name == "000002"


def test_a_failing_root_still_stores_the_games_it_has(mpirun, run_dist, tmp_path):
    program = PROGRAMS / "slow_disk.py"
    options = ["--config_file", SMOKE, "--logdir", tmp_path / "run", *SMALL]
    done = mpirun(2, program, "fault", *options, status=70)
    assert "ZeroDivisionError" in done.stderr and "segments were not written" not in done.stdout
    assert [path.name for path in (tmp_path / "run" / "games").iterdir()] == ["000000-000.h5"]
    run_dist(2, tmp_path / "run", *SMALL)
    assert records(tmp_path / "run", "iteration")[0]["games_num"] == 0  # none of them is played again


def test_an_iteration_says_what_share_of_it_is_overhead(run_dist, tmp_path):
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
    options = ["--set", 'evaluate.opponents=["random"]', "--set", "evaluate.games_num=6"]
    done = mpirun(2, "run_dist.py", "--mode", "eval", "--logdir", tmp_path / "run", *options)
    result = json.loads(done.stdout)
    assert result["iteration"] == 2 and result["matches"]["random"]["games_num"] == 6
    before_umask = os.umask(0)
    done = mpirun(2, "run_dist.py", "--mode", "selfplay", "--logdir", tmp_path / "run", "--games_num", 30)
    os.umask(before_umask)
    result = json.loads(done.stdout)
    assert os.stat(result["segment"]).st_mode & 0o027 == 0
    with h5py.File(result["segment"]) as file:
        assert result["games_num"] == 30 == len(file["games/id"])
        assert result["positions_num"] == len(file["positions/game"])
    assert sorted((tmp_path / "run" / "checkpoints").rglob("*")) == before
    missing = mpirun(2, "run_dist.py", "--mode", "eval", "--logdir", tmp_path / "none", status=2)
    assert missing.stderr.count("holds no run") == 1


def test_max_steps_ends_a_run(run_dist, tmp_path):
    run_dist(2, tmp_path / "run", *SMALL, "--max_steps", 10)
    state = json.loads((newest(tmp_path / "run") / "state.json").read_text())
    assert state["step"] == 10 and state["iteration"] == 1


def test_a_rank_that_cannot_write_its_last_words_still_ends_the_job(mpirun, run_dist, tmp_path):
    run_dist(3, tmp_path / "run", *SMALL, "--set", "iterations=1")
    log = tmp_path / "run" / "logs" / "rank-002.log"
    log.unlink()
    log.symlink_to("/dev/full")
    too_long = tmp_path / ("x" * 300)
    refused = run_dist(2, too_long, *SMALL, status=2)
    assert refused.stderr.count("File name too long") == 1
    done = mpirun(3, PROGRAMS / "failing_rank.py", "exception", "--config_file", SMOKE, "--logdir", tmp_path / "run",
                  *SMALL, "--set", "iterations=2", status=70)
    assert "rank 2 of 3 on" in done.stderr and "ZeroDivisionError" in done.stderr


def test_damaged_segments_are_set_aside_and_training_goes_on(run_dist, tmp_path):
    run_dist(2, tmp_path / "run", *SMALL, "--set", "iterations=2")
    games = tmp_path / "run" / "games"
    (games / "000000-000.h5").write_bytes(b"no segment")
    content = bytearray((games / "000001-000.h5").read_bytes())
    content[len(content) // 2] ^= 1
    (games / "000001-000.h5").write_bytes(content)
    done = run_dist(2, tmp_path / "run", *SMALL, "--set", "iterations=3")
    assert done.stdout.count("damaged: ") == 2 and "000001-000.h5: its SHA-256 does not match" in done.stdout
    assert newest(tmp_path / "run").name == "000003"
    names = ["000000-000.h5.damaged", "000001-000.h5.damaged", "000002-000.h5"]
    assert sorted(path.name for path in games.iterdir()) == names


def test_a_run_without_a_whole_checkpoint_is_not_begun_anew_by_itself(run_dist, tmp_path):
    run_dist(1, tmp_path / "run", *SMALL)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        (path / "state.json").write_text("{}")
    before = sorted(path for path in (tmp_path / "run").rglob("*"))
    refused = run_dist(2, tmp_path / "run", *SMALL, status=2)
    assert refused.stderr.count("--without_checkpoint") == 1 and "state.json does not match" in refused.stderr
    assert sorted(path for path in (tmp_path / "run").rglob("*")) == before
    run_dist(2, tmp_path / "run", *SMALL, "--without_checkpoint")
    assert newest(tmp_path / "run").name == "000002"
    assert [record["games_num"] for record in records(tmp_path / "run", "iteration")][2:] == [0, 0]


def test_checkpoints_that_are_gone_or_of_another_network_do_not_begin_a_run_anew(run_dist, tmp_path):
    run_dist(1, tmp_path / "run", *SMALL)
    run_dist(1, tmp_path / "other", *SMALL, "--set", "network.channels=16", "--set", "iterations=1")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    for copied, said in ((False, "no checkpoint of this run is whole"), (True, "another network's")):
        if copied:
            shutil.copytree(tmp_path / "other" / "checkpoints", tmp_path / "run" / "checkpoints")
        before = sorted((tmp_path / "run").rglob("*"))
        refused = run_dist(2, tmp_path / "run", *SMALL, "--set", "iterations=3", status=2)
        assert refused.stderr.count(said) == 1 and refused.stderr.count("--without_checkpoint") == 1
        assert "Traceback" not in refused.stderr and sorted((tmp_path / "run").rglob("*")) == before
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    run_dist(2, tmp_path / "run", *SMALL, "--without_checkpoint")
    assert [record["games_num"] for record in records(tmp_path / "run", "iteration")][2:] == [0, 0]


def test_only_a_whole_checkpoint_is_evaluated(run_dist, mpirun, tmp_path):
    run_dist(1, tmp_path / "run", *SMALL, "--set", "iterations=1")
    (newest(tmp_path / "run") / "model.safetensors").write_bytes(b"")
    for mode in ("eval", "selfplay"):
        done = mpirun(2, "run_dist.py", "--mode", mode, "--logdir", tmp_path / "run", status=2)
        assert done.stderr.count("holds no whole checkpoint") == 1 and done.stdout == ""
    assert newest(tmp_path / "run").name == "000001"  # looking does not set aside
    other = ["--mode", "eval", "--logdir", tmp_path / "run", "--set", "network.channels=16"]
    assert "network.channels: 8 in the run, 16 now" in mpirun(1, "run_dist.py", *other, status=2).stderr


def test_play_outs_are_drawn_anew_each_iteration(run_dist, tmp_path):
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


@pytest.mark.parametrize("ranks", [1, slow(2), 4])
def test_each_rank_has_its_share_of_the_cores(program, ranks):
    program(ranks, "cores_checks")
