"""Runs whose disk, checkpoints, segments or ranks fail, and runs that are refused."""

import json
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from jobs import PROGRAMS, ROOT, SMALL, SMOKE, columns, newest, records
from marks import slow

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("runs in trouble")]  # one worker makes `whole_runs`


@pytest.fixture(scope="module")
def whole_runs(run_dist, tmp_path_factory):
    """Return copy(iterations, folder): a copy of a whole run of SMALL, which one rank has made once."""
    made = {}

    def copy(iterations, folder):
        if iterations not in made:
            made[iterations] = tmp_path_factory.mktemp("whole") / "run"
            run_dist(1, made[iterations], *SMALL, "--set", f"iterations={iterations}")
        return shutil.copytree(made[iterations], folder)

    return copy


def test_a_damaged_checkpoint_falls_back_to_the_one_before(run_dist, whole_runs, tmp_path):
    options = [*SMALL, "--set", "iterations=2"]
    whole_runs(2, tmp_path / "whole")
    whole_runs(2, tmp_path / "run")
    model = newest(tmp_path / "run") / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    done = run_dist(2, tmp_path / "run", *options)
    assert "000002 is damaged (the SHA-256 of model.safetensors does not match)" in done.stdout
    assert (tmp_path / "run" / "checkpoints" / "000002.damaged").is_dir()
    assert newest(tmp_path / "run").name == "000002"
    assert np.array_equal(columns(tmp_path / "run")["games/id"], columns(tmp_path / "whole")["games/id"])


def test_a_changed_configuration_is_refused_unless_the_key_may_change(run_dist, whole_runs, tmp_path):
    whole_runs(1, tmp_path / "run")
    before = sorted((tmp_path / "run").rglob("*"))
    refused = run_dist(2, tmp_path / "run", *SMALL, "--set", "network.channels=16", "--set", "seed=9", status=2)
    assert refused.stderr.count("network.channels: 8 in the run, 16 now") == 1
    assert "seed: 1 in the run, 9 now" in refused.stderr and "Traceback" not in refused.stderr
    assert sorted((tmp_path / "run").rglob("*")) == before
    fresh = run_dist(1, tmp_path / "run", *SMALL, "--fresh", status=2)
    assert "already holds a run" in fresh.stderr
    run_dist(1, tmp_path / "run", *SMALL, "--set", "iterations=2", "--learning_rate", "0.01")
    assert newest(tmp_path / "run").name == "000002"


def test_a_wrong_configuration_is_reported_once_and_nothing_is_written(run_dist, tmp_path):
    done = run_dist(4, tmp_path / "run", "--set", "search.simulation=3", "--batch_size", "0", status=2)
    assert done.stderr.count("did you mean search.simulations?") == 1
    assert done.stderr.count("train.batch_size = 0") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    done = run_dist(4, tmp_path / "run", "--batchsize", "3", status=2)
    assert done.stderr.count("did you mean --batch_size?") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "fault, said, status",
    [
        slow("exception", "ZeroDivisionError: a fault in the test", 70),
        ("placed", "ZeroDivisionError: a fault in the test", 70),
        ("weights", "WeightsDiffer: after step", 70),
        ("storage", "OSError: [Errno 5] Input/output error", 75),  # the same command resumes once the fault is over
    ],
)
def test_a_failing_rank_ends_the_whole_job(mpirun, tmp_path, fault, said, status):
    program = PROGRAMS / "failing_rank.py"
    begun = time.time()
    done = mpirun(3, program, fault, "--config_file", SMOKE, "--logdir", tmp_path / "run", *SMALL, status=status)
    # All ranks see that weights differ, and the first to speak ends the others.
    who = {"weights": "[012]", "placed": "0"}.get(fault, "2")
    speaker = re.search(rf"rank ({who}) of 3 on ", done.stderr)
    assert speaker and said in done.stderr
    assert time.time() - float((tmp_path / "failed_at").read_text()) < 10
    assert begun < float((tmp_path / "failed_at").read_text())
    assert said in (tmp_path / "run" / "logs" / f"rank-00{speaker[1]}.log").read_text()
    if fault == "weights":
        assert "the weights of rank [2] differ" in done.stderr


def test_a_slow_disk_delays_checkpoints_and_no_exchange(mpirun, tmp_path):
    """Each fsync of a segment takes 1 s: two for the segment, two for the links. The run continues meanwhile."""
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
    assert state["num_positions"] == len(columns(tmp_path / "run")["positions/game"])


@pytest.mark.parametrize("redirections, num_said", [(">/dev/full", 1), ("<&- >&- 2>&-", 0)])
def test_a_run_whose_output_cannot_be_written_completes(tmp_path, redirections, num_said):
    command = [
        "sh",
        "-c",
        f'exec "$@" {redirections}',
        "sh",
        sys.executable,
        "run_dist.py",
        "--config_file",
        SMOKE,
        "--logdir",
        tmp_path / "run",
        *SMALL,
    ]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=240)
    assert done.returncode == 0 and done.stderr.count("standard output cannot be written") == num_said
    assert "Traceback" not in done.stderr and "Logging error" not in done.stderr
    assert newest(tmp_path / "run").name == "000002" and len(records(tmp_path / "run", "iteration")) == 2
    assert "complete: iteration 2 of 2" in (tmp_path / "run/logs/run.log").read_text()


def test_a_full_disk_pauses_the_run_and_then_stops_it(mpirun, run_dist, whole_runs, tmp_path):
    """No checkpoint counts what is not there, and every rank leaves with 75."""
    program = PROGRAMS / "slow_disk.py"
    whole_runs(1, tmp_path / "run")
    done = mpirun(
        2,
        program,
        "full",
        "--config_file",
        SMOKE,
        "--logdir",
        tmp_path / "run",
        *SMALL,
        "--set",
        "storage.give_up_s=2",
        status=75,
    )
    assert done.stdout.count("paused: ") == 1 and "No space left on device" in done.stdout
    assert "stopped after iteration" in done.stdout and "16 games among it" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert newest(tmp_path / "run").name == "000001"
    assert [path.name for path in (tmp_path / "run" / "games").iterdir()] == ["000000-000.h5"]
    run_dist(1, tmp_path / "run", *SMALL)
    assert newest(tmp_path / "run").name == "000002"


def test_a_failing_root_still_stores_the_games_it_has(mpirun, run_dist, tmp_path):
    program = PROGRAMS / "slow_disk.py"
    options = ["--config_file", SMOKE, "--logdir", tmp_path / "run", *SMALL]
    done = mpirun(2, program, "fault", *options, status=70)
    assert "ZeroDivisionError" in done.stderr and "segments were not written" not in done.stdout
    assert [path.name for path in (tmp_path / "run" / "games").iterdir()] == ["000000-000.h5"]
    run_dist(1, tmp_path / "run", *SMALL)
    [record, *_] = records(tmp_path / "run", "iteration")
    assert record["num_games"] == record["num_positions"] == 0  # none of them is played again


def test_a_failing_rank_whose_log_cannot_be_written_ends_the_job(mpirun, run_dist, whole_runs, tmp_path):
    whole_runs(1, tmp_path / "run")
    log = tmp_path / "run" / "logs" / "rank-002.log"
    log.symlink_to("/dev/full")
    too_long = tmp_path / ("x" * 300)
    refused = run_dist(2, too_long, *SMALL, status=2)
    assert refused.stderr.count("File name too long") == 1
    done = mpirun(
        3,
        PROGRAMS / "failing_rank.py",
        "exception",
        "--config_file",
        SMOKE,
        "--logdir",
        tmp_path / "run",
        *SMALL,
        "--set",
        "iterations=2",
        status=70,
    )
    assert "rank 2 of 3 on" in done.stderr and "ZeroDivisionError" in done.stderr


def test_damaged_segments_are_set_aside_and_training_continues(run_dist, whole_runs, tmp_path):
    whole_runs(2, tmp_path / "run")
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


def test_a_run_without_a_whole_checkpoint_is_refused_until_its_user_allows_a_beginning(run_dist, whole_runs, tmp_path):
    whole_runs(2, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        (path / "state.json").write_text("{}")
    before = sorted(path for path in (tmp_path / "run").rglob("*"))
    refused = run_dist(2, tmp_path / "run", *SMALL, status=2)
    assert refused.stderr.count("--without_checkpoint") == 1 and "state.json does not match" in refused.stderr
    assert sorted(path for path in (tmp_path / "run").rglob("*")) == before
    run_dist(2, tmp_path / "run", *SMALL, "--without_checkpoint")
    assert newest(tmp_path / "run").name == "000002"
    assert [record["num_games"] for record in records(tmp_path / "run", "iteration")][2:] == [0, 0]


def test_a_run_whose_checkpoints_are_gone_or_of_another_network_is_refused(run_dist, whole_runs, tmp_path):
    whole_runs(2, tmp_path / "run")
    run_dist(1, tmp_path / "other", *SMALL, "--set", "network.channels=16", "--set", "iterations=1")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    for copied, said in ((False, "no checkpoint of this run is whole"), (True, "another network's")):
        if copied:
            shutil.copytree(tmp_path / "other" / "checkpoints", tmp_path / "run" / "checkpoints")
        before = sorted((tmp_path / "run").rglob("*"))
        refused = run_dist(1, tmp_path / "run", *SMALL, "--set", "iterations=3", status=2)
        assert refused.stderr.count(said) == 1 and refused.stderr.count("--without_checkpoint") == 1
        assert "Traceback" not in refused.stderr and sorted((tmp_path / "run").rglob("*")) == before
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    run_dist(1, tmp_path / "run", *SMALL, "--without_checkpoint")
    assert [record["num_games"] for record in records(tmp_path / "run", "iteration")][2:] == [0, 0]


def test_only_a_whole_checkpoint_is_evaluated(mpirun, whole_runs, tmp_path):
    whole_runs(1, tmp_path / "run")
    (newest(tmp_path / "run") / "model.safetensors").write_bytes(b"")
    for ranks, mode in ((2, "eval"), (1, "selfplay")):
        done = mpirun(ranks, "run_dist.py", "--mode", mode, "--logdir", tmp_path / "run", status=2)
        assert done.stderr.count("holds no whole checkpoint") == 1 and done.stdout == ""
    assert newest(tmp_path / "run").name == "000001"  # looking does not set aside
    other = ["--mode", "eval", "--logdir", tmp_path / "run", "--set", "network.channels=16"]
    assert "network.channels: 8 in the run, 16 now" in mpirun(1, "run_dist.py", *other, status=2).stderr
