"""A watchdog before its rank has joined the MPI job: real processes that stand for mpirun and its ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from az_mpi.liveness.watchdog import ENDED_EARLY, JOIN_S, LOOK_EVERY_S, StartUp

pytestmark = pytest.mark.process

# Starts one process that is no rank, as mpirun starts ssh, and two ranks; prints their numbers and waits for their end.
LAUNCHER = """
import os, subprocess
for rank in (None, 0, 1):
    environment = {} if rank is None else {"OMPI_COMM_WORLD_RANK": str(rank)}
    print(subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], **environment}).pid, flush=True)
while True:
    os.wait()
"""


class Watched(StartUp):
    """A StartUp by a clock of the test's: `pass_s` looks each LOOK_EVERY_S and returns whether to look again."""

    def __init__(self, launcher):
        self.now = 0.0
        super().__init__(launcher, lambda: self.now)

    def pass_s(self, seconds):
        for _ in range(round(seconds / LOOK_EVERY_S)):
            self.now += LOOK_EVERY_S
            if not self.look():
                return False
        return True


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Return start(name) -> (a launcher of that name, its two ranks' process numbers, the StartUp of the first one)."""
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", "1")
    processes = []

    def start(name, local_rank=0):
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", str(local_rank))
        program = tmp_path / name
        program.symlink_to(os.path.realpath(sys.executable))
        launcher = subprocess.Popen([program, "-I", "-S", "-c", LAUNCHER], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
        processes.append(launcher)
        _, *ranks = (int(launcher.stdout.readline()) for _ in range(3))
        wait_until(lambda: all(Path(f"/proc/{rank}/comm").read_text() == "sleep\n" for rank in ranks))
        return launcher, ranks, Watched(launcher.pid)

    yield start
    for launcher in processes:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.communicate()


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def end(rank):
    os.kill(rank, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{rank}").exists())


def test_nothing_happens_while_all_are_there(launched):
    launcher, _, start_up = launched("prted")
    assert start_up.pass_s(10 * JOIN_S) and start_up.pass_s(10 * JOIN_S) and launcher.poll() is None


def test_a_missing_rank_ends_the_launcher_once_after_a_while(launched):
    launcher, ranks, start_up = launched("prterun")
    assert start_up.pass_s(10 * JOIN_S)
    end(ranks[1])
    assert start_up.pass_s(0.9 * JOIN_S) and launcher.poll() is None
    assert not start_up.pass_s(0.2 * JOIN_S)
    assert launcher.wait(10) == -signal.SIGTERM
    assert launcher.stderr.readline().endswith(f": {ENDED_EARLY}: the job ends\n")
    assert not start_up.pass_s(10 * JOIN_S)


def test_of_a_host_s_watchdogs_one_after_the_other_would_act(launched):
    launcher, ranks, start_up = launched("prted", local_rank=1)
    assert start_up.pass_s(10 * JOIN_S)
    end(ranks[0])
    assert start_up.pass_s(1.9 * JOIN_S) and launcher.poll() is None
    assert not start_up.pass_s(0.2 * JOIN_S) and launcher.wait(10) == -signal.SIGTERM


def test_what_is_no_launcher_is_left_alone(launched):
    """A script between mpirun and the rank has one child, and knows nothing of the others."""
    launcher, ranks, start_up = launched("wrapper")
    end(ranks[1])
    assert not start_up.pass_s(10 * JOIN_S) and launcher.poll() is None


def test_without_ulfm_mpirun_sees_to_it(launched, monkeypatch):
    monkeypatch.delenv("OMPI_MCA_mpi_ft_enable")
    launcher, ranks, start_up = launched("prterun")
    end(ranks[1])
    assert not start_up.pass_s(10 * JOIN_S) and launcher.poll() is None


def test_ranks_that_are_started_slowly_are_not_missed(launched, monkeypatch):
    """However long it takes, as long as there are more of them now and then."""
    launcher, _, start_up = launched("prted")
    start_up.expected_num = 4
    for ranks_num in (1, 2, 3):
        monkeypatch.setattr(start_up, "ranks_num", lambda ranks_num=ranks_num: ranks_num)
        assert start_up.pass_s(0.9 * JOIN_S)
    assert not start_up.pass_s(0.2 * JOIN_S) and launcher.wait(10) == -signal.SIGTERM


def test_a_rank_that_may_not_be_looked_into_is_there(launched, monkeypatch):
    """Such as one of a Python with capabilities."""
    launcher, ranks, start_up = launched("prted")

    def refuse(path, *arguments, function=open, **options):
        if str(path) == f"/proc/{ranks[1]}/environ":
            raise PermissionError(13, "Permission denied")
        return function(path, *arguments, **options)

    monkeypatch.setattr("builtins.open", refuse)
    assert start_up.pass_s(10 * JOIN_S) and start_up.pass_s(10 * JOIN_S) and launcher.poll() is None
