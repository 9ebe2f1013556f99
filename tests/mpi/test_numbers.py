"""One of several trainers has losses that are not finite, or too little memory: what all trainers do."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import BACKENDS
from marks import slow
from safetensors import safe_open
from safetensors.numpy import load_file

pytestmark = pytest.mark.mpi

PROGRAM = Path(__file__).parent / "programs" / "bad_numbers.py"
OPTIONS = [
    "--config_file",
    "configs/smoke.json",
    "--set",
    "selfplay.deterministic=true",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.tensorboard=false",
]


@pytest.fixture
def run_with_nan(mpirun, tmp_path):
    """Return run(ranks, rank, first, last, *options): train into tmp_path/run with a NaN on `rank` in these steps."""

    def run(ranks, rank, first, last, *options, status=0):
        return mpirun(
            ranks, PROGRAM, rank, first, last, *OPTIONS, "--logdir", tmp_path / "run", *options, status=status
        )

    return run


def checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def content(folder, name):
    """Return (model, optimizer, state) of a checkpoint."""
    place = folder / "checkpoints" / name
    state = json.loads((place / "state.json").read_text())
    return load_file(place / "model.safetensors"), load_file(place / "optimizer.safetensors"), state


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def records(folder, kind):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


@pytest.mark.parametrize("backend, ranks", list(zip(BACKENDS, (2, 3))))
def test_all_ranks_take_smaller_parts_where_one_lacks_memory(program, backend, ranks):
    program(ranks, "memory_checks", backend)


def test_a_rank_alone_takes_smaller_parts_where_it_lacks_memory(program):
    program(1, "memory_checks", "ddp", "backward")


@pytest.mark.parametrize("backend", [*map(slow, BACKENDS[:-1]), "ddp"])
def test_a_step_that_is_not_finite_on_one_rank_is_skipped_by_all(mpirun, run_with_nan, backend, tmp_path):
    options = ["--set", "iterations=1", "--set", f"train.backend={backend}"]
    done = run_with_nan(2, 1, 6, 7, *options)
    mpirun(2, "run_dist.py", *OPTIONS, "--logdir", tmp_path / "clean", *options)
    for step, in_a_row in ((6, 1), (7, 2)):
        assert f"step {step} is skipped: the loss on trainer [1] is not finite ({in_a_row} in a row)" in done.stdout
        for rank in (0, 1):
            file = tmp_path / "run" / "bad_batches" / f"{step:08d}" / f"rank-{rank:03d}.safetensors"
            part = load_file(file)
            assert part["planes"].shape == (16, 2, 3, 3) and part["policy"].shape == (16, 9)
            assert part["weight"].shape == (16,) and np.isnan(part["value"]).tolist() == [rank == 1] + [False] * 15
            with safe_open(file, "np") as opened:
                assert opened.metadata()["step"] == str(step)
                assert (opened.metadata()["value_loss"] == "nan") == (rank == 1)
    assert len(list((tmp_path / "run" / "bad_batches").iterdir())) == 2
    # Skipped steps count as steps, but change nothing: neither weights nor the optimiser's own count.
    model, optimizer, state = content(tmp_path / "run", "000001")
    _, _, clean = content(tmp_path / "clean", "000001")
    assert state == clean and state["step"] > 8
    assert all(np.isfinite(tensor).all() for tensor in [*model.values(), *optimizer.values()])
    assert optimizer["stem.weight.step"] == state["step"] - 2
    [record] = records(tmp_path / "run", "iteration")
    assert record["num_bad_steps"] == 2 and record["num_rollbacks"] == 0
    assert [r["step"] for r in records(tmp_path / "run", "train")] == [*range(1, 6), *range(8, state["step"] + 1)]


@pytest.mark.parametrize("backend", [BACKENDS[0], *map(slow, BACKENDS[1:])])
def test_after_bad_steps_in_a_row_all_go_back_to_the_last_good_checkpoint(run_with_nan, backend, tmp_path):
    """The run ends with the last bad step, so that its last checkpoint holds the state to which it returned."""
    options = ["--set", f"train.backend={backend}", "--set", "train.bad_steps_max=2"]
    first = run_with_nan(2, 1, 0, 0, *options, "--set", "iterations=1")
    steps = content(tmp_path / "run", "000001")[2]["step"]
    # The first step after the checkpoint is good; this start begins to draw at the step after it.
    done = run_with_nan(2, 1, 2, 3, *options, "--set", "iterations=2", "--max_steps", steps + 3)
    assert "is skipped" not in first.stdout and done.stdout.count("is skipped") == 2
    assert (
        "2 steps in a row were not finite: back to the weights of checkpoint 000001; from now on the learning rate "
        "is 0.5 of what is configured (1 of 3)"
    ) in done.stdout
    good, last = content(tmp_path / "run", "000001"), content(tmp_path / "run", "000002")
    assert same(good[0], last[0]) and same(good[1], last[1])
    assert last[2]["step"] == steps + 3 and last[2]["rollbacks"] == 1 and last[2]["bad_steps"] == 0
    # The halved learning rate is part of the run from then on.
    rates = [record["learning_rate"] for record in records(tmp_path / "run", "train")]
    more = run_with_nan(2, 1, 0, 0, *options, "--set", "iterations=3", "--max_steps", steps + 4)
    halved = records(tmp_path / "run", "train")[-1]
    assert "resumed after iteration 2" in more.stdout and halved["step"] == steps + 4
    warmup = (steps + 4) / 50
    assert steps + 4 < 50 and halved["learning_rate"] == pytest.approx(0.5 * 0.002 * warmup * 0.1)
    assert rates[0] == pytest.approx(0.002 / 50)


def test_a_run_whose_losses_stay_not_finite_ends_with_70_and_can_be_resumed(mpirun, run_with_nan, tmp_path):
    run_with_nan(3, 1, 0, 0, "--set", "iterations=1", "--set", "train.ranks=2")
    before = content(tmp_path / "run", "000001")
    done = run_with_nan(3, 1, 3, 10**6, "--set", "train.ranks=2", status=70)
    assert done.stdout.count("back to the weights of checkpoint 000001") == 1
    # After the first return to it the checkpoint led to no good step, and it is the only one: it is kept.
    assert "the run's beginning" not in done.stdout
    assert (
        done.stdout.count("training cannot continue: 3 steps in a row were not finite, and there is nothing from") == 1
    )
    assert "Traceback" not in done.stdout + done.stderr and "--learning_rate" in done.stdout
    assert checkpoints(tmp_path / "run") == ["000001"]
    assert done.stdout.count("is skipped") == 6
    mpirun(2, "run_dist.py", *OPTIONS, "--logdir", tmp_path / "run")
    after = content(tmp_path / "run", "000002")
    assert after[2]["step"] > before[2]["step"] and after[2]["num_games"] == 32


def test_weights_that_are_not_finite_are_never_stored(mpirun, tmp_path):
    """The learning rate is so large that the only step of the run ruins the weights."""
    options = [*OPTIONS, "--set", "train.warmup_steps=0", "--learning_rate", 1e300, "--logdir", tmp_path / "run"]
    done = mpirun(2, "run_dist.py", *options, "--max_steps", 1)
    assert "not finite: back to the weights of the run's beginning" in done.stdout
    model, optimizer, state = content(tmp_path / "run", "000001")
    assert state["step"] == 1 and state["rollbacks"] == 1 and optimizer == {}
    assert all(np.isfinite(tensor).all() for tensor in model.values()) and not model["heads.policy.out.weight"].any()
    # The run resumes and fails in the same way until it reports that training cannot continue.
    failed = mpirun(2, "run_dist.py", *options, status=70)
    assert failed.stdout.count("training cannot continue") == 1 and "Traceback" not in failed.stdout + failed.stderr
    assert checkpoints(tmp_path / "run") == ["000001"]


def test_max_hours_stops_a_run_like_a_signal(mpirun, tmp_path):
    hours = 0.002
    begun = time.monotonic()
    done = mpirun(
        2,
        "run_dist.py",
        *OPTIONS,
        "--set",
        "train.replay_ratio=1000000.0",
        "--set",
        "iterations=1",
        "--set",
        "train.hours=1.0",
        "--logdir",
        tmp_path / "run",
        "--max_hours",
        hours,
        status=75,
    )
    assert time.monotonic() - begun > 0.99 * 3600 * hours
    assert "stopped after iteration 0 of 1" in done.stdout and "max_hours is nearly over; start the same" in done.stdout
    [name] = checkpoints(tmp_path / "run")
    assert content(tmp_path / "run", name)[2]["hours"] > 0.9 * hours  # of train.hours: those of all starts count
    # The next start has hours of its own, and may have others.
    more = mpirun(
        2,
        "run_dist.py",
        *OPTIONS,
        "--set",
        "train.replay_ratio=1000000.0",
        "--set",
        "iterations=1",
        "--logdir",
        tmp_path / "run",
        "--max_steps",
        content(tmp_path / "run", name)[2]["step"] + 1,
    )
    assert "complete: iteration 1 of 1" in more.stdout
    assert content(tmp_path / "run", "000001")[2]["num_games"] == 16
