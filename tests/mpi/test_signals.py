"""Signals to running jobs: finished games are stored, all ranks leave together with status 75, the run can resume."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from jobs import ids
from marks import slow

pytestmark = pytest.mark.mpi

# These runs end in seconds but for one phase, which would take minutes.
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
    "iterations=1",
]
LONG = {
    "play": ["--num_games", "100000", "--set", "exchange.every_s=0.2"],
    "share": ["--num_games", "100000", "--set", "selfplay.deterministic=true"],
    "train": ["--set", "train.replay_ratio=100000.0"],
    "meanwhile": ["--set", "train.replay_ratio=100000.0", "--set", "train.ranks=1"],
    "evaluate": ["--set", 'evaluate.opponents=["random"]', "--set", "evaluate.num_games=20000"],
}
SHORT = ["--num_games", "16", "--set", "evaluate.num_games=4"]


def run_of(folder, phase):
    return ["run_dist.py", *BASE, *LONG[phase], "--logdir", folder]


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.stdout.read()
        time.sleep(0.05)


def under_way(folder, phase):
    """Return a condition: the run is in the middle of `phase`."""
    log = folder / "logs" / "rank-000.log"
    marks = {"play": "games/000000-001.h5", "evaluate": "checkpoints/000001"}
    if phase in marks:
        return (folder / marks[phase]).exists
    said = {"share": "iteration 1 of 1", "train": "step 5:", "meanwhile": "step 5:"}[phase]

    def games_finished():
        rows = json.loads((folder / "status.json").read_text())["ranks"]
        return sum(row["num_games"] for row in rows)

    def begun():
        if not log.exists() or said not in log.read_text():
            return False
        return phase != "meanwhile" or games_finished() > len(ids(folder, "000000-*.h5"))

    return begun


def state(folder):
    newest = sorted(path for path in (folder / "checkpoints").iterdir() if path.name[0] != ".")[-1]
    return json.loads((newest / "state.json").read_text())


def ranks_of(process):
    return [child for child in psutil.Process(process.pid).children(recursive=True) if "run_dist.py" in child.cmdline()]


@pytest.mark.parametrize("phase", [phase if phase == "meanwhile" else slow(phase) for phase in LONG])
def test_usr2_to_mpirun_stores_what_is_finished_and_leaves_with_75(start_mpirun, mpirun, tmp_path, phase):
    folder = tmp_path / "run"
    process = start_mpirun(3, *run_of(folder, phase), fork=phase != "share")
    wait_for(under_way(folder, phase), process)
    if phase == "share":  # no file shows that games are finished: let the ranks work for a while
        wait_for(lambda: all(rank.cpu_times().user > 12 for rank in ranks_of(process)), process)
    process.send_signal(signal.SIGUSR2)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 75, output
    assert "stopped after iteration" in output and "Traceback" not in output
    before = ids(folder)
    assert len(before) == len(set(before)) > 0
    stored = state(folder)
    assert stored["phase"] == {"train": "train", "meanwhile": "train"}.get(phase, "play")
    if stored["phase"] == "train":
        assert stored["step"] >= 5 and stored["samples_due"] > 1e5
    # The run resumes where it was, here with less left to do and on another number of ranks.
    keep = [word for word in LONG[phase] if "deterministic" in word or "replay_ratio" in word]
    ended = mpirun(
        2,
        "run_dist.py",
        *BASE,
        *[word for one in keep for word in ("--set", one)],
        *SHORT,
        "--max_steps",
        stored["step"] + 1,
        "--logdir",
        folder,
    )
    assert "resumed after iteration" in ended.stdout
    after = ids(folder)
    assert after[: len(before)] == before and len(after) == len(set(after))
    # Games played while others trained belong to the next iteration, which did not begin.
    assert state(folder)["iteration"] == 1 and state(folder)["num_games"] == len(ids(folder, "000000-*.h5"))
    assert (len(ids(folder, "000001-*.h5")) > 0) == (phase == "meanwhile")


def test_term_to_one_rank_stops_all(start_mpirun, tmp_path):
    process = start_mpirun(3, *run_of(tmp_path / "run", "train"), fork=True)
    wait_for(under_way(tmp_path / "run", "train"), process)
    ranks_of(process)[-1].send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 75, output
    assert state(tmp_path / "run")["phase"] == "train"


def test_a_run_stopped_in_training_ends_as_an_unbroken_one_does(start_mpirun, mpirun, tmp_path):
    """The results of one rank are equal bit for bit. USR1 on the way only saves."""
    options = [*BASE, *LONG["share"][2:], "--set", "train.replay_ratio=100.0", "--set", "iterations=2", "--logdir"]
    mpirun(1, "run_dist.py", *options, tmp_path / "whole")
    folder = tmp_path / "run"
    process = start_mpirun(1, "run_dist.py", *options, folder, fork=True)
    log = folder / "logs" / "rank-000.log"
    wait_for(lambda: log.exists() and "step 5:" in log.read_text(), process)
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: any((folder / "checkpoints").glob("00000[01]-*")), process)
    process.send_signal(signal.SIGUSR2)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 75, output
    assert state(folder)["phase"] == "train" and 5 < state(folder)["step"] < state(tmp_path / "whole")["step"]
    mpirun(1, "run_dist.py", *options, folder)
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        parts = [(place / "checkpoints" / "000002" / name).read_bytes() for place in (folder, tmp_path / "whole")]
        assert parts[0] == parts[1], name
    assert ids(folder) == ids(tmp_path / "whole")


def test_the_hours_of_a_start_that_is_stopped_in_play_count(start_mpirun, mpirun, tmp_path):
    """The stop comes in the second iteration, when the first one has its checkpoint."""
    folder = tmp_path / "run"
    options = [*BASE, "--set", "train.hours=1.0", "--logdir", folder]
    mpirun(1, "run_dist.py", *options, *SHORT)
    hours = state(folder)["hours"]
    process = start_mpirun(1, "run_dist.py", *options, *LONG["play"], "--set", "iterations=2", fork=True)
    wait_for((folder / "games" / "000001-000.h5").exists, process)
    begun = time.monotonic()
    wait_for(lambda: time.monotonic() > begun + 8, process)
    process.send_signal(signal.SIGUSR2)
    assert process.wait(60) == 75 and state(folder)["hours"] == hours
    begun = time.monotonic()
    mpirun(1, "run_dist.py", *options, *SHORT, "--set", "iterations=2")
    assert state(folder)["iteration"] == 2
    assert 3600 * (state(folder)["hours"] - hours) > time.monotonic() - begun + 4


def test_usr1_in_play_stores_the_games_and_the_run_continues(start_mpirun, tmp_path):
    options = ["--num_games", "100000", "--set", "exchange.every_s=1000.0"]
    folder = tmp_path / "run"
    process = start_mpirun(2, "run_dist.py", *BASE, *options, "--logdir", folder, fork=True)
    log = folder / "logs" / "rank-000.log"
    wait_for(lambda: log.exists() and "iteration 1 of 1" in log.read_text(), process)
    time.sleep(3)
    counts = []

    def save(segment):
        end = time.monotonic() + 10
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: segment.exists() or time.monotonic() > end, process)

    for number in range(2):
        segment = folder / "games" / f"000000-{number:03d}.h5"
        while not segment.exists():  # where no game has ended since the one before, none is written
            save(segment)
        counts.append(len(ids(folder)))
        time.sleep(0.5)
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=60)
    assert process.returncode == 75
    assert 0 < counts[0] < counts[1] < len(ids(folder)) == len(np.unique(ids(folder)))


def load(process, ranks, library):
    """Wait until each rank has loaded a library."""

    def loaded():
        maps = []
        for rank in ranks_of(process):
            try:
                maps.append(Path(f"/proc/{rank.pid}/maps").read_text())
            except OSError:
                pass  # the rank has ended, then mpirun ends, which wait_for sees
        return len(maps) == ranks and all(library in text for text in maps)

    wait_for(loaded, process)


@pytest.mark.parametrize("library", [slow("pydantic_core"), "libmpi", slow("libtorch")])
def test_a_stop_signal_during_the_start_stops_the_run_in_order(start_mpirun, tmp_path, library):
    folder = tmp_path / "run"
    process = start_mpirun(2, *run_of(folder, "play"))
    load(process, 2, library)
    process.send_signal(signal.SIGUSR2)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 75, output
    assert "stopped after iteration 0 of 1" in output and state(folder)["phase"] == "play"


@pytest.mark.parametrize("seconds", [slow(0.02), 0.1, slow(0.3)])
def test_a_stop_signal_right_after_the_start_leaves_nothing_or_a_resumable_run(start_mpirun, tmp_path, seconds):
    """Before mpirun or Python handle signals they die of it, and no run has begun."""
    process = start_mpirun(2, *run_of(tmp_path / "run", "play"))
    time.sleep(seconds)
    process.send_signal(signal.SIGUSR2)
    output = process.communicate(timeout=120)[0]
    assert process.returncode in (75, 128 + signal.SIGUSR2, -signal.SIGUSR2), output
    assert (tmp_path / "run").exists() == (process.returncode == 75)


def test_a_signal_ends_other_modes_as_any_program(start_mpirun, tmp_path):
    process = start_mpirun(1, "run_dist.py", *BASE, "--mode", "eval", "--logdir", tmp_path / "run")
    load(process, 1, "libmpi")
    process.send_signal(signal.SIGUSR2)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + signal.SIGUSR2, output
