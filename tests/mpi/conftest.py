"""Starting real MPI jobs from tests."""

import subprocess

import pytest
from jobs import PROGRAMS, ROOT, SMOKE, command


@pytest.fixture
def without_gpus(monkeypatch):
    """Hide the GPUs of this machine from the ranks of a test."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="session")
def mpirun():
    """Return run(ranks, *arguments, status=0): start Python on that many ranks and return the finished process."""

    def run(ranks, *arguments, status=0, timeout=240):
        words, environment = command(ranks, arguments)
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
def start_mpirun():
    """Return start(ranks, *arguments): the running mpirun, errors in its `stdout`; it is killed at the end.

    options: of mpirun. prefix: a command that starts it."""
    started = []

    def start(ranks, *arguments, options=(), prefix=()):
        words, environment = command(ranks, arguments, options)
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
        process.kill()
        process.wait()


@pytest.fixture
def program(mpirun):
    """Return run(ranks, name, *arguments): run a program of tests/mpi/programs, whose asserts are the test."""

    def run(ranks, name, *arguments):
        num = len(arguments) if name == "several" else 1
        done = mpirun(ranks, PROGRAMS / f"{name}.py", *arguments)
        # Each rank says so at its end: a program that ended early has not tested anything.
        assert done.stdout.count("all checks passed") == num * ranks, done.stdout + done.stderr
        return done

    return run
