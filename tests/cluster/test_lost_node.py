"""A batch job that loses a node under a real Slurm: mpirun ends with status 0, the job comes back all the same."""

import json
from pathlib import Path

import h5py
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def ids(folder):
    found = []
    for path in sorted((folder / "games").glob("*.h5")):
        with h5py.File(path) as file:
            found += file["games/id"][:].tolist()
    return found


def write_config(path, games_num):
    """Write the smoke configuration with another quota, which may change on resume, and without what takes time."""
    config = json.loads((ROOT / "configs/smoke.json").read_text()) | {"iterations": 1, "exchange": {"every_s": 0.5}}
    config["selfplay"]["games_num"], config["train"]["replay_ratio"] = games_num, 0.1
    config["evaluate"] |= {"opponents": [], "solver_positions": 0}
    path.write_text(json.dumps(config))


def test_a_job_that_loses_a_node_comes_back_and_finishes(queue, checkout):
    write_config(checkout / "config.json", 200000)
    job = queue.submit("--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=4", "--gres=none", "--mem=1G", "--time=30",
                       "slurm/train_multinode.sh", "--config_file", "config.json", "--logdir", "run")
    queue.wait_for_file(checkout / "run/games/000000-001.h5", job)
    before = set(ids(checkout / "run"))
    write_config(checkout / "config.json", 40)
    queue.machine.lose_daemon("node3")
    [facts], said = queue.wait(job), queue.output(job)
    assert facts["JobState"] == "COMPLETED" and facts["Restarts"] == "1", said
    assert "lost communication with a remote daemon" in said and "start 1 on node[1-3]: ended with status 75" in said
    assert "complete: iteration 1 of 1" in said and "start 2 on node[1-3]: ended with status 0" in said
    found = ids(checkout / "run")
    assert len(found) == len(set(found)) and before and before <= set(found)
