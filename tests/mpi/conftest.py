"""Starting real MPI jobs from tests."""

import subprocess
from contextlib import suppress

import psutil
import pytest
from jobs import HYDRA, PROGRAMS, ROOT, SMOKE, command
from template import Template


@pytest.fixture
def without_gpus(monkeypatch):
    """Hide the GPUs of this machine from the ranks of a test."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="session")
def forked():
    """Return forked(environment): the words that start a rank from a template (see template.py), or None.

    A library may read a variable of the environment when it is loaded. So only ranks with the environment of the
    template come from it. Variables of a job, which mpirun or Slurm sets, may differ."""

    def of_libraries(environment):
        return {k: v for k, v in environment.items() if k != "PYTEST_CURRENT_TEST" and not k.startswith("PMI_")}

    known = Template(of_libraries(command(1, [])[1]))

    def forked(environment):
        return None if HYDRA or of_libraries(environment) != known.environment else known.words()

    yield forked
    known.close()


@pytest.fixture(scope="session")
def mpirun(forked):
    """Return run(ranks, *arguments, status=0): start Python on that many ranks and return the finished process.

    fresh: each rank is a Python of its own, which is not forked from the template."""

    def run(ranks, *arguments, status=0, timeout=240, fresh=False):
        words, environment = command(ranks, arguments)
        if not fresh and (python := forked(environment)):
            words, _ = command(ranks, arguments, python=python)
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done

    return run


@pytest.fixture(scope="session")
def run_dist(mpirun):
    """Return run(ranks, logdir, *options, status=0): train on configs/smoke.json."""

    def run(ranks, logdir, *options, status=0):
        return mpirun(ranks, "run_dist.py", "--config_file", SMOKE, "--logdir", logdir, *options, status=status)

    return run


@pytest.fixture
def start_mpirun(forked):
    """Return start(ranks, *arguments): the running mpirun, errors in its `stdout`; it is killed at the end.

    options: of mpirun. prefix: a command that starts it. fork: ranks are forked from the template. Not where a test
    looks at the process of a rank, or stops it: it would find the stand-in."""
    started = []

    def start(ranks, *arguments, options=(), prefix=(), fork=False):
        words, environment = command(ranks, arguments, options)
        if fork and (python := forked(environment)):
            words, _ = command(ranks, arguments, options, python)
        started.append(
            subprocess.Popen(
                [*prefix, *words],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(process.pid).children(recursive=True):
                one.kill()  # since ranks of the template do not see mpirun die
        process.kill()
        process.wait()


@pytest.fixture
def program(mpirun):
    """Return run(ranks, name, *arguments): run a program of tests/mpi/programs, whose asserts are the test."""

    def run(ranks, name, *arguments):
        num = len(arguments) if name == "several" else 1
        done = mpirun(ranks, PROGRAMS / f"{name}.py", *arguments)
        # Each rank prints that at its end: a program that ended early has not tested anything.
        assert done.stdout.count("all checks passed") == num * ranks, done.stdout + done.stderr
        return done

    return run
