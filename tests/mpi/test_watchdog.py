"""Ranks that hang in a real job are killed, and the others continue. Shorter pauses cost no rank."""

import re
import signal
import time

import pytest
from jobs import PROGRAMS
from kills import BASE, check_whole, ranks_of, said, wait_for
from marks import slow

from az_mpi.liveness import watchdog

pytestmark = pytest.mark.mpi

HANG_S = 5.0
PLAY = ["--num_games", 2000, "--set", "iterations=1", "--max_steps", 20]
TRAIN = ["--set", "train.replay_ratio=40.0", "--set", "iterations=2"]


@pytest.fixture
def start(start_mpirun, tmp_path):
    def start(*options, mpirun=("--with-ft", "ulfm"), hang_s=HANG_S):
        return start_mpirun(
            3,
            "run_dist.py",
            *BASE,
            "--set",
            f"fault.hang_s={hang_s}",
            *options,
            "--logdir",
            tmp_path / "run",
            options=list(mpirun),
        )

    return start


def start_hanging(start_mpirun, folder, where, *mpirun):
    options = [*BASE, *(TRAIN if where == "step" else TRAIN[2:]), "--set", f"fault.hang_s={HANG_S}", "--logdir", folder]
    return start_mpirun(3, PROGRAMS / "hanging_rank.py", where, *options, options=list(mpirun), fork=True)


# Where steps are slow, as on a crowded machine, a rank may be found asleep before ten of its steps are over.
@pytest.mark.parametrize(
    "where, why",
    [
        ("step", r"(no sign of life for \d+ s in a step|asleep for \d+ s)"),
        ("broadcast", r"asleep for \d+ s, though the run's folder answers"),
    ],
)
def test_a_rank_that_hangs_is_killed_and_the_ranks_that_wait_for_it_continue(start_mpirun, tmp_path, where, why):
    process = start_hanging(start_mpirun, tmp_path / "run", where, "--with-ft", "ulfm")
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert output.count("(fault.hang_s)") == 1 and re.search(rf"rank 2 .*{why}", output)
    assert "continuing after the loss of 1 of 3 ranks" in output
    check_whole(tmp_path / "run", 2)


def test_without_ulfm_a_rank_that_hangs_outside_of_steps_ends_the_job_resumable(start_mpirun, tmp_path):
    process = start_hanging(start_mpirun, tmp_path / "run", "broadcast")
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 75 and "asleep for" in output, output


def test_a_pause_shorter_than_hang_s_costs_no_rank(start, tmp_path):
    process = start(*PLAY, hang_s=10.0)
    wait_for(said(tmp_path / "run", "self-play: [0-9]{3} of"), process)
    for rank in (1, 0):
        victim = ranks_of(process)[rank]
        victim.send_signal(signal.SIGSTOP)
        time.sleep(6)
        victim.send_signal(signal.SIGCONT)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0 and "killed" not in output and "continuing after" not in output
    check_whole(tmp_path / "run", 1)


def test_without_ulfm_a_stopped_rank_ends_the_job_and_the_run_can_be_resumed(start, tmp_path):
    process = start(*PLAY, mpirun=())
    wait_for(said(tmp_path / "run", "self-play: [0-9]{3} of"), process)
    ranks_of(process)[1].send_signal(signal.SIGSTOP)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 128 + signal.SIGKILL and "rank 1 on " in output
    process = start(*PLAY, mpirun=())
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    check_whole(tmp_path / "run", 1)


@pytest.mark.parametrize(
    "victim, mpirun", [slow(1, ("--with-ft", "ulfm")), slow(0, ("--with-ft", "ulfm")), slow(1, ()), (0, ())]
)
def test_a_silent_rank_that_cannot_be_killed_ends_the_job_resumable(start, tmp_path, victim, mpirun):
    """The rank's watchdog is stopped too, as on a host that fails silently: no process there can kill the rank."""
    process = start(*PLAY, mpirun=mpirun)
    wait_for(said(tmp_path / "run", "self-play: [0-9]{3} of"), process)
    lost = ranks_of(process)[victim]
    watchdogs = lost.children()
    for one in (*watchdogs, lost):  # the watchdog comes first
        one.send_signal(signal.SIGSTOP)
    output = process.communicate(timeout=240)[0]
    for one in watchdogs:  # its parent has ended
        one.kill()
    assert process.returncode == 75 and f"has heard nothing from rank {victim} on " in output
    process = start(*PLAY, mpirun=mpirun)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    check_whole(tmp_path / "run", 1)


def test_a_rank_killed_before_all_have_joined_ends_the_job(start_mpirun, tmp_path):
    """MPI reports lost ranks only later: under ULFM mpirun would let the others wait in MPI_Init."""
    process = start_mpirun(
        3, PROGRAMS / "early_death.py", *BASE, "--logdir", tmp_path / "run", options=["--with-ft", "ulfm"]
    )
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 1 and output.count(f"{watchdog.ENDED_EARLY}: the job ends") == 1
    assert not (tmp_path / "run").exists()
