"""Runs whose ranks are killed: the other ranks continue, and no game that they had finished or stored is lost."""

import os
import re
import time
from pathlib import Path

import pytest
from jobs import PROGRAMS, ids
from kills import BASE, check_whole, ranks_of, said, state, wait_for
from marks import OPENSPIEL, needs_openspiel, quick, slow

pytestmark = pytest.mark.mpi

# So long that the kill comes in this phase, and no longer.
PHASES = {
    "play": ["--num_games", 4000, "--set", "iterations=1", "--max_steps", 20],
    "train": ["--set", "train.replay_ratio=40.0", "--set", "iterations=2"],
    "evaluate": ["--set", 'evaluate.opponents=["random"]', "--set", "evaluate.num_games=3000", "--set", "iterations=1"],
}


@pytest.fixture
def start(start_mpirun, tmp_path):
    """Return start(ranks, *options): run_dist.py into tmp_path / "run", unless they name another folder, under an
    mpirun that outlives its ranks."""

    def start(ranks, *options, fork=True):
        words = ["run_dist.py", *BASE, "--logdir", tmp_path / "run", *options]
        return start_mpirun(ranks, *words, options=["--with-ft", "ulfm"], fork=fork)

    return start


@pytest.mark.parametrize(
    "phase, victim, backend",
    [
        quick("play", 0, "horovod"),
        slow("train", 0, "ddp"),  # tests/faults has others in training and in evaluation
        slow("evaluate", 2, "horovod"),
    ],
)
def test_a_run_completes_after_the_loss_of_a_rank(start, tmp_path, phase, victim, backend):
    folder = tmp_path / "run"
    process = start(3, *PHASES[phase], "--set", f"train.backend={backend}")
    begun = {"play": "self-play: 1[0-9]{3} of", "train": "step 30:", "evaluate": "iteration 1 of 1"}[phase]
    wait_for(said(folder, begun), process)
    if phase == "evaluate":
        wait_for((folder / "checkpoints" / "000001").exists, process)
    wait_for(lambda: list((folder / "games").glob("*.h5")), process)  # the writer has a thread of its own
    before = ids(folder)
    ranks_of(process)[victim].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert "continuing after the loss of 1 of 3 ranks" in output and "Traceback" not in output
    assert set(before) <= set(ids(folder)) and before
    check_whole(folder, 2 if phase == "train" else 1)


@pytest.mark.slow  # tests/faults has losses in tic-tac-toe, and the program does not ask which game it is
@pytest.mark.parametrize("game", ["go(size=4)", pytest.param(OPENSPIEL, marks=needs_openspiel)])
def test_runs_of_other_games_complete_after_the_loss_of_a_rank(start, tmp_path, game):
    process = start(3, *PHASES["play"], "--num_games", 600, "--set", f"game={game}")
    wait_for(said(tmp_path / "run", "self-play: [0-9]{3} of"), process)
    ranks_of(process)[2].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert "continuing after the loss of 1 of 3 ranks" in output
    check_whole(tmp_path / "run", 1)


@pytest.mark.parametrize(
    "engine, num_games",
    [slow("auto", 3000), (f"{PROGRAMS}/pretend_gpu.py:PretendGpu", 1000)],
    ids=["processors", "gpus"],
)
def test_survivors_play_each_game_of_a_deterministic_quota_once(start, tmp_path, engine, num_games):
    """Simulations are under way when the rank is killed, with a GPU in two groups."""
    folder = tmp_path / "run"
    options = ["--set", "selfplay.deterministic=true", "--num_games", num_games, "--set", f"network.engine={engine}"]
    process = start(3, *options, "--set", "iterations=1", "--max_steps", 20)
    wait_for(said(folder, "self-play: [0-9]{3} of"), process)
    ranks_of(process)[2].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert "continuing after the loss of 1 of 3 ranks" in output
    assert sorted(ids(folder)) == list(range(num_games))
    check_whole(folder, 1)


ONE_TRAINER = ["--set", "train.ranks=1", "--set", "iterations=2"]


def weights(folder):
    return (max((folder / "checkpoints").iterdir()) / "model.safetensors").read_bytes()


def test_three_losses_of_the_only_trainer_cost_one_step_each_at_most(start, start_mpirun, tmp_path):
    """The trainer is killed three times, in training and in play, and each time its partner has its state. The last
    rank trains alone and ends with the weights of an undisturbed run to the bit. An average of the weights plays, so
    that both have to survive."""
    folder = tmp_path / "run"
    options = [
        *ONE_TRAINER,
        "--set",
        "selfplay.deterministic=true",
        "--set",
        "checkpoint.every=5",
        "--num_games",
        100,
        "--set",
        "train.replay_ratio=15.0",
        "--set",
        "search.simulations=100",
        "--set",
        "selfplay.start_share=0.3",
        "--set",
        "train.ema_decay=0.9",
    ]
    process = start(4, *options)
    for victim, moment in enumerate(["step 30:", "iteration 2 of 2", "step 400:"]):
        wait_for(said(folder, moment), process)
        ranks_of(process)[victim].kill()
        wait_for(said(folder, f"loss of 1 of {4 - victim} ranks"), process)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    taken, phases = 0, []
    for line in output.splitlines():
        if found := re.search(r" step (\d+): ", line):
            taken, phase = int(found[1]), "train"
        elif "iteration 2 of 2" in line:
            phase = "play"
        elif found := re.search(r"continuing after .* ([\d,]+) steps", line):
            phases.append(phase)
            # The line of the last step may be lost with the rank that was about to write it.
            assert abs(int(found[1].replace(",", "")) - taken) <= 1, line
    assert phases == ["train", "play", "train"] and taken > 400
    check_whole(folder, 2)
    # One rank, with as many threads as each of the four.
    cores = sorted(os.sched_getaffinity(0))
    mine = ",".join(map(str, cores[: max(1, len(cores) // 4)]))
    unbroken = start_mpirun(
        1,
        "run_dist.py",
        *BASE,
        *options,
        "--summary_frequency",
        1000,
        "--logdir",
        tmp_path / "unbroken",
        prefix=["taskset", "-c", mine],
    )
    output = unbroken.communicate(timeout=240)[0]  # all of it, more than a pipe holds
    assert unbroken.returncode == 0, output
    assert weights(tmp_path / "unbroken") == weights(folder)


def test_without_copies_a_lost_trainers_run_continues_from_the_newest_checkpoint(start, tmp_path):
    folder = tmp_path / "run"
    process = start(3, *ONE_TRAINER, "--set", "train.replay_ratio=240.0", "--set", "fault.copy_every=0")
    wait_for(said(folder, "iteration 2 of 2"), process)
    ranks_of(process)[0].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert re.search(r"continuing after .*: iteration 1 of 2", output)
    assert state(folder)["iteration"] == 2 and len(ids(folder)) == len(set(ids(folder)))


@pytest.mark.usefixtures("without_gpus")
def test_survivors_that_cannot_train_save_the_lost_trainers_steps(start_mpirun, tmp_path):
    """The only rank with a GPU is killed. The others leave with a checkpoint that lacks one of its steps at most."""
    folder = tmp_path / "run"
    options = [*BASE, *PHASES["train"], "--set", "train.replay_ratio=80.0", "--logdir", folder]
    words = [PROGRAMS / "no_gpu_left.py", *options, "--set", "train.ranks=gpu"]
    process = start_mpirun(3, *words, options=["--with-ft", "ulfm"], fork=True)
    wait_for(said(folder, "step 30:"), process)
    ranks_of(process, "no_gpu_left.py")[0].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 75 and "Traceback" not in output, output
    assert 'the ranks that are left cannot continue: train.ranks: "gpu", but no rank sees a GPU' in output
    taken = max(int(number) for number in re.findall(r" step (\d+): ", output))
    left = state(folder)
    assert taken - 1 <= left["step"] <= taken and taken >= 30 and left["phase"] == "train"
    end = left["step"] + 20
    again = start_mpirun(2, "run_dist.py", *options, "--train_distributed", "--max_steps", end, fork=True)
    output = again.communicate(timeout=240)[0]
    assert again.returncode == 0 and re.search(rf"resumed after .* {left['step']} steps", output), output
    assert state(folder)["step"] == end and len(ids(folder)) == len(set(ids(folder)))


def test_survivors_without_any_checkpoint_store_their_games_and_end_resumable(start, tmp_path):
    """The only trainer dies, no rank has a copy of its state, and no checkpoint is whole."""
    folder = tmp_path / "run"
    process = start(
        3,
        "--num_games",
        90_000,  # so many that the second iteration still plays when the kill comes
        "--set",
        "iterations=2",
        "--max_steps",
        9000,
        "--set",
        "train.ranks=1",
        "--set",
        "train.replay_ratio=0.015",
        "--set",
        "fault.copy_every=0",
        "--set",
        "exchange.every_s=3",
    )
    wait_for(said(folder, "iteration 2 of 2"), process)
    wait_for(lambda: list((folder / "games").glob("000001*.h5")), process)
    time.sleep(0.5)  # this exchange ends, and the ranks play games that the next one would take
    for path in (folder / "checkpoints").glob("0*/model.safetensors"):
        path.write_bytes(b"torn")
    before = ids(folder)
    ranks_of(process)[0].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 75 and "Traceback" not in output, output
    assert re.search("the ranks that are left cannot continue: .*no checkpoint of this run is whole", output)
    assert set(before) < set(ids(folder))


def test_survivors_of_any_collective_notice_the_loss(start_mpirun):
    process = start_mpirun(9, PROGRAMS / "loss_in_collectives.py", options=["--with-ft", "ulfm"])
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and output.count("all checks passed") == 2, output


def test_a_copy_that_breaks_off_leaves_the_copy_before_it(start_mpirun):
    process = start_mpirun(3, PROGRAMS / "loss_in_copy.py", options=["--with-ft", "ulfm"], fork=True)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and "all checks passed" in output, output


def test_survivors_start_horovod_after_a_loss_in_its_start(start_mpirun):
    process = start_mpirun(6, PROGRAMS / "loss_at_session_start.py", options=["--with-ft", "ulfm"], fork=True)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0 and "all checks passed" in output, output


def test_survivors_make_a_process_group_after_a_loss_in_its_start(start_mpirun):
    process = start_mpirun(6, PROGRAMS / "loss_at_ddp_start.py", options=["--with-ft", "ulfm"], fork=True)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and "all checks passed" in output, output


@pytest.mark.slow
def test_survivors_make_communicators_after_a_loss_while_all_make_them(start_mpirun):
    """MPI reports the loss in the middle of the call. This is a test of the MPI that `make setup` installs."""
    process = start_mpirun(8, PROGRAMS / "loss_while_duplicating.py", options=["--with-ft", "ulfm"])
    output = process.communicate(timeout=120)[0]
    assert "all checks passed" in output and "Segmentation fault" not in output, output


def test_a_job_ends_or_continues_after_a_loss_in_its_start_up(start, tmp_path):
    """The rank dies after MPI_Init. One that dies within it makes the others wait there, in Open MPI's own code."""
    process = start(3, *PHASES["play"], fork=False)

    def loading():
        maps = [Path(f"/proc/{rank.pid}/maps").read_text() for rank in ranks_of(process).values()]
        return len(maps) == 3 and all("libtorch_cpu" in text for text in maps)

    wait_for(loading, process)
    ranks_of(process)[1].kill()
    process.communicate(timeout=240)
    assert process.returncode in (0, 75, 137)
