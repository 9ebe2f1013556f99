"""Several writers: a rank for each group of ranks writes their games, and the run is the one that one writer makes."""

import signal
import subprocess
import sys
import time

import h5py
import pytest
from jobs import SMALL, columns, ids, newest

pytestmark = pytest.mark.mpi
SEVERAL = ["--set", "storage.ranks_per_writer=2"]


def segments(run):
    return sorted(path.name for path in (run / "games").glob("*.h5"))


def verified(run):
    done = subprocess.run([sys.executable, "-m", "az_mpi", "verify", str(run)], capture_output=True, text=True)
    return done.returncode == 0 and "nothing is wrong" in done.stdout and "note:" not in done.stdout


def test_two_writers_store_the_games_of_one_in_the_same_order_and_the_network_learns_the_same(run_dist, tmp_path):
    one, two, resumed = (tmp_path / name for name in ("one", "two", "resumed"))
    run_dist(5, one, *SMALL, "--set", "iterations=3")
    run_dist(5, two, *SMALL, "--set", "iterations=3", *SEVERAL)
    assert segments(one) == [f"00000{k}-000.h5" for k in range(3)]
    assert segments(two) == [f"00000{k}-00{w}.h5" for k in range(3) for w in range(2)]
    played_by = []  # five ranks are groups of two and of three
    for name in segments(two)[:2]:
        with h5py.File(two / "games" / name) as file:
            played_by.append(set(file["games/rank"][:].tolist()))
    assert played_by[0] <= {0, 1} and played_by[1] <= {2, 3, 4}
    assert ids(one) == ids(two) and verified(one) and verified(two)
    # It is stopped after an iteration and continues with another number of ranks and of writers.
    run_dist(5, resumed, *SMALL, "--set", "iterations=1", *SEVERAL)
    run_dist(4, resumed, *SMALL, "--set", "iterations=3")
    assert ids(resumed) == ids(one) and verified(resumed)
    weights = [(newest(run) / "model.safetensors").read_bytes() for run in (one, two)]
    assert weights[0] == weights[1]


def test_a_job_of_fewer_than_twice_as_many_ranks_has_one_writer(run_dist, tmp_path):
    run_dist(3, tmp_path / "run", *SMALL, "--set", "iterations=1", *SEVERAL)
    assert segments(tmp_path / "run") == ["000000-000.h5"]
    assert set(columns(tmp_path / "run")["games/rank"]) == {0, 1, 2}


def test_a_stop_stores_what_every_writer_was_given_and_links_to_it(start_mpirun, tmp_path):
    run = tmp_path / "run"
    options = ["--config_file", "configs/smoke.json", "--logdir", run, *SMALL, *SEVERAL]
    options += ["--set", "selfplay.deterministic=false", "--set", "exchange.every_s=0.1", "--set", "iterations=1000"]
    job = start_mpirun(4, "run_dist.py", *options, "--set", "checkpoint.every=1000", fork=True)
    while not len(segments(run)) >= 6:
        assert job.poll() is None, job.stdout.read()
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR2)
    said, _ = job.communicate(timeout=120)
    assert job.returncode == 75 and "stopped after" in said, said
    assert verified(run)
    ids_there = ids(run)
    assert len(ids_there) == len(set(ids_there))
    with h5py.File(run / "games.h5") as links:
        assert sorted(f"{name}.h5" for name in links) == segments(run)
