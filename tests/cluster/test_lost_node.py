"""Batch jobs under a real Slurm that lose a node, or have less time than the run takes, are queued again and finish."""

import json
import time
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


def write_config(path, num_games):
    """Write the smoke configuration with another quota, which may change on resume, and without what takes time."""
    config = json.loads((ROOT / "configs/smoke.json").read_text()) | {"iterations": 1, "exchange": {"every_s": 0.5}}
    config["selfplay"]["num_games"], config["train"]["replay_ratio"] = num_games, 0.1
    config["evaluate"] |= {"opponents": [], "solver_positions": 0}
    path.write_text(json.dumps(config))


def test_a_job_that_loses_a_node_is_queued_again_and_finishes(queue, checkout):
    write_config(checkout / "config.json", 200000)
    job = queue.submit(
        "--nodes=3",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--gres=none",
        "--mem=1G",
        "--time=30",
        "slurm/train_multinode.sh",
        "--config_file",
        "config.json",
        "--logdir",
        "run",
    )
    queue.wait_for_file(checkout / "run/games/000000-001.h5", job)
    before = set(ids(checkout / "run"))
    write_config(checkout / "config.json", 40)
    queue.machine.lose_daemon("node3")
    [facts], said = queue.wait(job), queue.output(job)
    assert facts["JobState"] == "COMPLETED" and facts["Restarts"] == "1", said
    assert "but the run is not finished: a node was lost" in said
    assert "start 1 on node[1-3]: ended with status 75" in said
    assert "complete: iteration 1 of 1" in said and "start 2 on node[1-3]: ended with status 0" in said
    found = ids(checkout / "run")
    assert len(found) == len(set(found)) and before and before <= set(found)


def test_a_job_that_loses_the_node_of_mpirun_continues_on_other_nodes(own_queue, checkout):
    """No process of the job is left. Slurm queues the job again when it knows that the node is lost."""
    queue, machine = own_queue, own_queue.machine
    write_config(checkout / "config.json", 200000)
    job = queue.submit(
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--gres=none",
        "--mem=1G",
        "--time=30",
        "slurm/train_multinode.sh",
        "--config_file",
        "config.json",
        "--logdir",
        "run",
    )
    queue.wait_for_file(checkout / "run/games/000000-001.h5", job)
    machine.lose("node1")
    before = set(ids(checkout / "run"))
    write_config(checkout / "config.json", 40)
    begun = time.monotonic()
    machine.run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=lost")
    [facts], said = queue.wait(job), queue.output(job)
    print(f"complete on the others {time.monotonic() - begun:.1f} s after")
    assert facts["JobState"] == "COMPLETED" and facts["Restarts"] == "1" and facts["NodeList"] == "node[2-3]", said
    assert "complete: iteration 1 of 1" in said and "start 2 on node[2-3]: ended with status 0" in said
    found = ids(checkout / "run")
    assert len(found) == len(set(found)) and before and before <= set(found)


@pytest.mark.slow
@pytest.mark.timeout(5000)
def test_a_chain_of_short_jobs_does_what_an_unbroken_run_does(queue, checkout):
    """Two minutes each, of which Slurm leaves one to one and a half; in play, in training, in whatever comes."""
    options = [
        "--config_file",
        "configs/smoke.json",
        "--set",
        "selfplay.deterministic=true",
        "--set",
        "iterations=10",
        "--num_games",
        20_000,
        "--set",
        "search.simulations=64",
        "--set",
        "train.replay_ratio=4.0",
        "--set",
        "report.tensorboard=false",
    ]
    job = queue.submit(
        "--ntasks=2",
        "--cpus-per-task=2",
        "--gres=none",
        "--mem=1G",
        "--time=2",
        "--signal=B:USR1@30",
        "slurm/train.sh",
        *options,
        "--logdir",
        "run",
    )
    [facts], said = queue.wait(job, seconds=3000), queue.output(job)
    print(f"{facts['Restarts']} restarts")
    assert facts["JobState"] == "COMPLETED" and int(facts["Restarts"]) >= 1, said
    assert said.count("ended with status 75") == int(facts["Restarts"]), said
    words = ["mpirun", "-np", 2, "-H", "node1:2", "--bind-to", "none", "python", "run_dist.py", *options]
    done = queue.machine.run(*words, "--logdir", "unbroken", host="node1", cwd=checkout, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    chain, unbroken = ids(checkout / "run"), ids(checkout / "unbroken")
    assert sorted(chain) == sorted(unbroken) and len(set(chain)) == len(chain) == 10 * 20_000
    assert steps(checkout / "run") == steps(checkout / "unbroken")


def steps(folder):
    return json.loads((folder / "checkpoints/000010/state.json").read_text())["step"]
