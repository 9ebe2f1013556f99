"""A rank has ended before it joined the MPI job: real processes that stand for mpirun."""

import os
import signal
import subprocess
import sys
import time

import pytest

from az_mpi.liveness import watchdog

pytestmark = pytest.mark.process
JOIN_S = 0.5


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Return start(name, code, local rank of the rank that has ended) -> a launcher of that name."""
    monkeypatch.setattr(watchdog, "JOIN_S", JOIN_S)
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", "1")
    processes = []

    def start(name, code="import time; print(flush=True); time.sleep(1000)", local_rank=0):
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", str(local_rank))
        program = tmp_path / name
        program.symlink_to(os.path.realpath(sys.executable))
        processes.append(
            subprocess.Popen(
                [program, "-I", "-S", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        processes[-1].stdout.readline()
        return processes[-1]

    yield start
    for launcher in processes:
        launcher.kill()
        launcher.communicate()


@pytest.mark.parametrize("name, local_rank", [("prterun", 0), ("prted", 1)])
def test_the_launcher_is_ended_after_a_while_by_one_watchdog_after_the_other(launched, name, local_rank):
    launcher, begun = launched(name, local_rank=local_rank), time.monotonic()
    watchdog.end_job_of(launcher.pid)
    assert launcher.wait(10) == -signal.SIGTERM and time.monotonic() - begun > JOIN_S + local_rank
    assert launcher.stderr.readline().endswith(f": {watchdog.ENDED_EARLY}: the job ends\n")


def test_a_launcher_that_ends_by_itself_gets_no_signal(launched):
    launcher = launched("prterun", "import time; print(flush=True); time.sleep(0.1)")
    watchdog.end_job_of(launcher.pid)
    assert launcher.wait(10) == 0 and not launcher.stderr.read()


def test_a_process_that_is_no_launcher_gets_no_signal(launched):
    """Such as a script between mpirun and the rank."""
    launcher = launched("wrapper")
    watchdog.end_job_of(launcher.pid)
    assert launcher.poll() is None


def test_without_ulfm_no_launcher_gets_a_signal_since_mpirun_ends_the_job(launched, monkeypatch):
    launcher = launched("prterun")
    monkeypatch.delenv("OMPI_MCA_mpi_ft_enable")
    watchdog.end_job_of(launcher.pid)
    assert launcher.poll() is None
