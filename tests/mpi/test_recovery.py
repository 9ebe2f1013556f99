"""Ranks that are killed: the others continue, with every game that was finished by one of them or stored."""

import json
import os
import re
import time
from pathlib import Path

import psutil
import pytest
from jobs import PROGRAMS, ids
from marks import OPENSPIEL, needs_openspiel, quick, slow

pytestmark = pytest.mark.mpi

BASE = [
    "--config_file",
    "configs/smoke.json",
    "--summary_frequency",
    "1",
    "--set",
    "report.tensorboard=false",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "exchange.every_s=0.5",
]
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

    def start(ranks, *options):
        return start_mpirun(
            ranks, "run_dist.py", *BASE, "--logdir", tmp_path / "run", *options, options=["--with-ft", "ulfm"]
        )

    return start


def wait_for(condition, process):
    deadline = time.monotonic() + 150
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def said(folder, text):
    """Return a condition: root, whoever it was, has logged `text`."""
    log = folder / "logs" / "run.log"
    return lambda: log.exists() and re.search(text, log.read_text())


def ranks_of(process, program="run_dist.py"):
    """Return {rank at the start: process} of those that live."""
    children = psutil.Process(process.pid).children(recursive=True)
    alive = [
        child
        for child in children
        if child.status() != psutil.STATUS_ZOMBIE and any(word.endswith(program) for word in child.cmdline())
    ]
    return {int(child.environ()["OMPI_COMM_WORLD_RANK"]): child for child in alive}


def state(folder):
    return json.loads((max((folder / "checkpoints").iterdir()) / "state.json").read_text())


def check_whole(folder, iterations):
    """Assert that the run is complete, and that its last checkpoint counts just what lies in its segments."""
    found = ids(folder)
    assert len(found) == len(set(found)) == state(folder)["num_games"]
    assert state(folder)["iteration"] == iterations
    assert json.loads((folder / "status.json").read_text())["job"] == "finished"


@pytest.mark.parametrize(
    "phase, victim, backend",
    [
        quick("play", 0, "horovod"),
        slow("play", 2, "horovod"),
        slow("train", 0, "horovod"),
        slow("train", 2, "horovod"),
        ("train", 0, "ddp"),
        slow("train", 2, "ddp"),
        slow("evaluate", 0, "horovod"),
        slow("evaluate", 2, "horovod"),
    ],
)
def test_a_killed_rank_does_not_end_the_run(start, tmp_path, phase, victim, backend):
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


@pytest.mark.parametrize("game", ["go(size=4)", pytest.param(OPENSPIEL, marks=needs_openspiel)])
def test_a_run_of_any_game_continues_after_a_loss(start, tmp_path, game):
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
def test_a_deterministic_quota_is_dealt_again_after_a_loss(start, tmp_path, engine, num_games):
    """Every game of it once, whoever was to play it, although simulations were under way: with a GPU in two groups."""
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


@pytest.mark.slow
def test_the_last_of_four_finishes_the_run(start, tmp_path):
    """All others are killed in turn, root first."""
    folder = tmp_path / "run"
    process = start(4, "--num_games", 3000, "--set", "iterations=2", "--max_steps", 60)
    wait_for(said(folder, "iteration 1 of 2"), process)
    for victim in range(3):
        ranks_of(process)[victim].kill()
        wait_for(said(folder, f"loss of 1 of {4 - victim} ranks"), process)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    check_whole(folder, state(folder)["iteration"])


@pytest.mark.slow  # tests/faults has one that is shorter
def test_a_run_continues_after_two_ranks_are_killed_at_once(start, tmp_path):
    folder = tmp_path / "run"
    process = start(4, *PHASES["train"])
    wait_for(said(folder, "step 30:"), process)
    for victim in (0, 3):
        ranks_of(process)[victim].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    check_whole(folder, 2)


ONE_TRAINER = ["--set", "train.ranks=1", "--set", "iterations=2"]


def weights(folder):
    return (max((folder / "checkpoints").iterdir()) / "model.safetensors").read_bytes()


def test_the_only_trainer_is_killed_and_no_more_than_one_step_is_lost(start, start_mpirun, tmp_path):
    """Three times in turn, in a training and in play; each time its partner has its state. The last rank trains on
    alone, and what comes of it are the weights of a run that nothing has befallen, to the bit. An average of them
    plays: both have to survive."""
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


def test_without_copies_the_only_trainer_leaves_its_newest_checkpoint(start, tmp_path):
    folder = tmp_path / "run"
    process = start(3, *ONE_TRAINER, "--set", "train.replay_ratio=240.0", "--set", "fault.copy_every=0")
    wait_for(said(folder, "iteration 2 of 2"), process)
    ranks_of(process)[0].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert re.search(r"continuing after .*: iteration 1 of 2", output)
    assert state(folder)["iteration"] == 2 and len(ids(folder)) == len(set(ids(folder)))


@pytest.mark.usefixtures("without_gpus")
def test_survivors_that_cannot_train_store_the_steps_of_the_lost_trainer(start_mpirun, tmp_path):
    """The only rank with a GPU is killed: the others leave with a checkpoint of what it had done but for one step."""
    folder = tmp_path / "run"
    options = [*BASE, *PHASES["train"], "--set", "train.replay_ratio=80.0", "--logdir", folder]
    words = [PROGRAMS / "no_gpu_left.py", *options, "--set", "train.ranks=gpu"]
    process = start_mpirun(3, *words, options=["--with-ft", "ulfm"])
    wait_for(said(folder, "step 30:"), process)
    ranks_of(process, "no_gpu_left.py")[0].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 75 and "Traceback" not in output, output
    assert 'the ranks that are left cannot continue: train.ranks: "gpu", but no rank sees a GPU' in output
    taken = max(int(number) for number in re.findall(r" step (\d+): ", output))
    left = state(folder)
    assert taken - 1 <= left["step"] <= taken and taken >= 30 and left["phase"] == "train"
    end = left["step"] + 20
    again = start_mpirun(2, "run_dist.py", *options, "--train_distributed", "--max_steps", end)
    output = again.communicate(timeout=240)[0]
    assert again.returncode == 0 and re.search(rf"resumed after .* {left['step']} steps", output), output
    assert state(folder)["step"] == end and len(ids(folder)) == len(set(ids(folder)))


def test_survivors_that_cannot_continue_store_their_games(start, tmp_path):
    """The only trainer dies, of which there is no copy, and no checkpoint is whole: the run does not start again."""
    folder = tmp_path / "run"
    process = start(
        3,
        "--num_games",
        12_000,
        "--set",
        "iterations=2",
        "--max_steps",
        9000,
        "--set",
        "train.ranks=1",
        "--set",
        "train.replay_ratio=0.1",
        "--set",
        "fault.copy_every=0",
    )
    wait_for(said(folder, "iteration 2 of 2"), process)
    wait_for(lambda: list((folder / "games").glob("000001*.h5")), process)
    for path in (folder / "checkpoints").glob("0*/model.safetensors"):
        path.write_bytes(b"torn")
    before = ids(folder)
    ranks_of(process)[0].kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 75 and "Traceback" not in output, output
    assert re.search("the ranks that are left cannot continue: .*no checkpoint of this run is whole", output)
    assert set(before) < set(ids(folder))


def test_ranks_killed_in_any_kind_of_collective_are_reported_to_the_others(start_mpirun):
    process = start_mpirun(9, PROGRAMS / "loss_in_collectives.py", options=["--with-ft", "ulfm"])
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and output.count("all checks passed") == 2, output


def test_a_copy_that_breaks_off_leaves_the_one_before(start_mpirun):
    process = start_mpirun(3, PROGRAMS / "loss_in_copy.py", options=["--with-ft", "ulfm"])
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and "all checks passed" in output, output


def test_ranks_killed_while_horovod_starts_are_reported_to_the_others(start_mpirun):
    process = start_mpirun(6, PROGRAMS / "loss_at_session_start.py", options=["--with-ft", "ulfm"])
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0 and "all checks passed" in output, output


def test_ranks_killed_while_a_process_group_is_made_are_reported_to_the_others(start_mpirun):
    process = start_mpirun(6, PROGRAMS / "loss_at_ddp_start.py", options=["--with-ft", "ulfm"])
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and "all checks passed" in output, output


@pytest.mark.slow
def test_ranks_killed_while_all_make_communicators_are_reported_to_the_others(start_mpirun):
    """MPI tells the survivors in the middle of it. This is a test of the MPI that `make setup` installs."""
    process = start_mpirun(8, PROGRAMS / "loss_while_duplicating.py", options=["--with-ft", "ulfm"])
    output = process.communicate(timeout=120)[0]
    assert "all checks passed" in output and "Segmentation fault" not in output, output


def test_a_rank_killed_in_the_start_up_leaves_nothing_behind_that_hangs(start, tmp_path):
    """After MPI_Init: one that dies within it holds up the others there, in Open MPI's own code."""
    process = start(3, *PHASES["play"])

    def loading():
        maps = [Path(f"/proc/{rank.pid}/maps").read_text() for rank in ranks_of(process).values()]
        return len(maps) == 3 and all("libtorch_cpu" in text for text in maps)

    wait_for(loading, process)
    ranks_of(process)[1].kill()
    process.communicate(timeout=240)
    assert process.returncode in (0, 75, 137)
