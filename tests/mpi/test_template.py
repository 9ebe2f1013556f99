"""Ranks that are forked from a template: they are given what `python WORDS` is given, and end as it does."""

import os
import signal
import subprocess
import sys
import time

import pytest
from jobs import HYDRA, ROOT, command

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(HYDRA, reason="ranks of Open MPI only are forked")]
ENVIRONMENT = command(1, [])[1]


@pytest.fixture
def start(forked):
    """Return start(*words, umask=-1, **environment): the running stand-in of `python WORDS`. -1: the tests' umask."""
    started = []

    def start(*words, umask=-1, **environment):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        words = [*map(str, forked(ENVIRONMENT)), *map(str, words)]
        pipes |= {"cwd": ROOT, "env": ENVIRONMENT | environment, "text": True, "umask": umask}
        started.append(subprocess.Popen(words, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("form", ["file", "code"])
def test_a_rank_has_the_words_folder_environment_umask_and_streams_of_its_stand_in(start, tmp_path, form):
    code = (
        "import os, sys\n"
        "print(input(), os.getcwd(), os.environ['MINE'], os.umask(0), __name__, *sys.argv[1:], file=sys.stderr)"
    )
    (tmp_path / "own.py").write_text(code)
    words = {"file": [tmp_path / "own.py"], "code": ["-c", code]}[form]
    process = start(*words, "a b", "--c", MINE="value", umask=0o31)
    assert process.communicate("line\n", timeout=60) == ("", f"line {ROOT} value {0o31} __main__ a b --c\n")


def test_a_rank_may_run_a_module(start):
    assert "February 2026" in start("-m", "calendar", 2026, 2).communicate(timeout=60)[0]


def test_a_rank_begins_with_torch_loaded_and_without_mpi(start):
    code = "import sys; print([name in sys.modules for name in ('torch', 'mpi4py.MPI', 'horovod')], sys.path)"
    said = start("-c", code).communicate(timeout=60)[0]
    assert said.startswith("[True, False, False] ") and str(ROOT) in said and str(ROOT / "tests") not in said


@pytest.mark.parametrize(
    "code, status",
    [
        ("pass", 0),
        ("import sys; sys.exit(75)", 75),
        ("import os; os._exit(3)", 3),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_a_stand_in_ends_as_its_rank_does(start, code, status):
    process = start("-c", code)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == status and ("ZeroDivisionError" in errors) == (status == 1)


WAITING = """
import os, signal, time
signal.signal(signal.SIGUSR2, lambda number, frame: os._exit(12))
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_signals_reach_the_rank(start):
    process = start("-c", WAITING)
    assert int(process.stdout.readline()) != process.pid
    process.send_signal(signal.SIGUSR2)
    assert process.wait(20) == 12


def test_a_rank_whose_stand_in_is_killed_is_killed(start):
    process = start("-c", WAITING)
    rank = int(process.stdout.readline())
    process.kill()
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{rank}"):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_ranks_with_another_environment_are_not_forked(forked):
    assert forked(ENVIRONMENT)[0] == sys.executable
    assert forked(ENVIRONMENT | {"OMP_NUM_THREADS": "1"}) is None
