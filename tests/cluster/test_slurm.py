"""The batch scripts of slurm/ under a real Slurm: accepted as they are, run, stopped, queued again."""

import json
import re
import time
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
from marks import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
TEMPLATES = sorted(path.name for path in (ROOT / "slurm").glob("*.sh") if "#SBATCH" in path.read_text())
# The templates ask for whole nodes; the machine that tests them has a few cores. Every node has the same ones: with one
# core a task, all nodes would use the first.
SMALL = ["--cpus-per-task=4", "--mem=1G", "--time=30"]
SMOKE = ["--config_file", "configs/smoke.json"]
SHORT = [
    "--set",
    "iterations=1",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.tensorboard=false",
    "--set",
    "train.replay_ratio=0.5",
]


def replace_run_dist(checkout, program):
    """Have the jobs of a checkout run a program of tests/cluster/programs in run_dist.py's place."""
    (checkout / "run_dist.py").unlink()
    (checkout / "run_dist.py").symlink_to(PROGRAMS / program)


def ids(folder):
    """Return the ids of all games in a run's segments, sorted."""
    return np.sort(rows(folder, "games/id")).tolist()


def rows(folder, name):
    """Return a dataset of a run's segments, one after the other."""
    found = [np.zeros(0, np.uint64)]
    for path in sorted((folder / "games").glob("*.h5")):
        with h5py.File(path) as file:
            found.append(file[name][:])
    return np.concatenate(found)


def test_all_templates_are_tested():
    assert TEMPLATES == [
        "array_seeds.sh",
        "eval.sh",
        "scaling.sh",
        "selfplay_cpu_train_gpu.sh",
        "train.sh",
        "train_multinode.sh",
    ]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_accepted_as_it_is(queue, name):
    done = queue.sbatch("--test-only", f"slurm/{name}", *SMOKE)
    assert done.returncode == 0 and "to start at" in done.stderr
    refused = queue.sbatch("--test-only", "--mem=900G", f"slurm/{name}", *SMOKE)
    assert refused.returncode == 1 and "not available" in refused.stderr


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_asks_for_resources_and_names_nothing_of_a_site(name):
    text = (ROOT / "slurm" / name).read_text()
    options = re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", text, re.MULTILINE)
    assert not {"account", "partition", "qos", "mail-user"} & {option for option, _ in options}
    assert {"time", "cpus-per-task", "gres", "mem", "requeue"} <= {option for option, _ in options}
    assert {"ntasks", "ntasks-per-node"} & {option for option, _ in options}
    assert re.fullmatch(r"B:USR1@\d+", dict(options)["signal"])
    assert dict(options)["open-mode"] == "append" and dict(options)["output"] == "%x-%j.out"


def table(said):
    """Return (rank, host, roles) of each row of the start-up table."""
    rows = [re.split(r"  +", line.strip()) for line in said.splitlines() if re.match(r"  \d+ +node", line)]
    return [(row[0], row[1], row[-1]) for row in rows]


def test_train_multinode_places_two_ranks_on_each_of_two_nodes(queue, checkout):
    _, said = queue.finish(
        *SMALL, "--nodes=2", "--ntasks-per-node=2", "slurm/train_multinode.sh", *SMOKE, *SHORT, "--logdir", "run"
    )
    assert [row[:2] for row in table(said)] == [("0", "node1"), ("1", "node1"), ("2", "node2"), ("3", "node2")]
    assert "complete: iteration 1 of 1" in said


def test_srun_without_mpi_is_refused_with_the_cure(queue, checkout):
    """The tests' Slurm has no PMIx: each task finds itself alone."""
    python = f"srun --ntasks=2 .venv/bin/python run_dist.py {' '.join(SMOKE)} --logdir run"
    _, said = queue.finish(*SMALL, "--ntasks=2", f"--wrap={python}", status=2)
    assert "srun started 2 tasks, MPI sees one rank" in said and "srun --mpi=pmix" in said
    assert not (checkout / "run").exists()


def test_each_seed_of_an_array_has_its_run(queue, checkout):
    queue.finish(*SMALL, "--array=3-4", "slurm/array_seeds.sh", *SMOKE, *SHORT, "--logdir", "runs/many")
    runs = sorted((checkout / "runs/many").iterdir())
    assert [run.name for run in runs] == ["seed-3", "seed-4"]
    assert [json.loads((run / "config.json").read_text())["config"]["seed"] for run in runs] == [3, 4]
    assert not np.array_equal(*(rows(run, "positions/action") for run in runs))  # their games' ids may be the same


def test_each_rank_gets_the_cores_and_gpus_that_its_script_asks_for(queue, checkout, tmp_path):
    """On the second node too a rank may use all cores that its tasks have there, not only one task's."""
    replace_run_dist(checkout, "say_cores.py")
    queue.finish(
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=2",
        "--gres=gpu:2",
        "--mem=1G",
        "--time=5",
        "slurm/train_multinode.sh",
        tmp_path,
        SRUN_CPUS_PER_TASK=1,
    )
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["host"] for rank in ranks] == ["node1", "node2"]
    for rank in ranks:
        assert rank["cores"] == 2 and rank["OMP_NUM_THREADS"] == "2" and rank["CUDA_VISIBLE_DEVICES"] == "0,1"


def mixed(ranks, others):
    """Return sbatch's options for a small selfplay_cpu_train_gpu.sh: ranks with a GPU on one node, others on two."""
    return [
        *SMALL,
        f"--ntasks={ranks}",
        "--gres=gpu:2",
        ":",
        *SMALL,
        "--nodes=2",
        f"--ntasks={others}",
        "slurm/selfplay_cpu_train_gpu.sh",
    ]


def test_cpu_and_gpu_nodes_are_one_mpi_job(queue, checkout, tmp_path):
    replace_run_dist(checkout, "say_cores.py")
    queue.finish(*mixed(2, 3), tmp_path)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(5)]
    assert [rank["size"] for rank in ranks] == [5] * 5
    assert [rank["host"] for rank in ranks] == ["node1", "node1", "node2", "node2", "node3"]
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in ranks] == ["0,1", "0,1", None, None, None]
    assert [rank["options"] for rank in ranks] == [["--set", "train.ranks=gpu"]] * 5
    assert {rank["OMP_NUM_THREADS"] for rank in ranks} == {"4"}


def test_ranks_of_cpu_nodes_play_and_do_not_train(queue, checkout):
    """There is no GPU here: the first rank stands for those with one."""
    _, said = queue.finish(
        *mixed(1, 2),
        *SMOKE,
        *SHORT,
        "--logdir",
        "run",
        "--set",
        "train.ranks=1",
        "--set",
        "selfplay.deterministic=true",
    )
    assert table(said) == [("0", "node1", "play, train"), ("1", "node2", "play"), ("2", "node3", "play")]
    [record] = [
        json.loads(line)
        for line in (checkout / "run/metrics.jsonl").read_text().splitlines()
        if '"kind": "iteration"' in line
    ]
    assert min(record["games_by_rank"]) > 0 and "complete: iteration 1 of 1" in said


@pytest.mark.parametrize("status", [2, slow(70), slow(1)])
def test_a_job_that_ends_with_an_error_is_not_queued_again(queue, checkout, status):
    replace_run_dist(checkout, "leave.py")
    facts, said = queue.finish(*SMALL, "slurm/train.sh", status, status=status)
    assert facts["JobState"] == "FAILED" and facts["Restarts"] == "0" and f"ended with status {status}" in said


def test_a_wrong_option_is_reported_and_ends_the_job(queue, checkout):
    facts, said = queue.finish(*SMALL, "slurm/train.sh", *SMOKE, "--batchsize", "3", status=2)
    assert "did you mean --batch_size?" in said and facts["Restarts"] == "0"


def test_a_resumable_job_is_queued_again_up_to_a_limit(queue, checkout):
    replace_run_dist(checkout, "leave.py")
    facts, said = queue.finish(*SMALL, "slurm/train.sh", 75, status=75, REQUEUES_MAX=1)
    assert facts["Restarts"] == "1" and "start 2 on node1: ended with status 75" in said
    assert "not queued again after 1 times" in said


def test_a_job_whose_mpirun_misses_a_daemon_is_queued_again(queue, checkout):
    replace_run_dist(checkout, "miss_a_daemon.py")
    facts, said = queue.finish(*SMALL, "slurm/train.sh", *SMOKE, "--logdir", "run")
    assert facts["Restarts"] == "1" and "status 255, but the run is not finished: a node was lost" in said
    assert "start 1 on node1: ended with status 75" in said and "start 2 on node1: ended with status 0" in said
    replace_run_dist(checkout, "leave.py")  # the run's status is an old one: now it does not even begin
    facts, said = queue.finish(*SMALL, "slurm/train.sh", *SMOKE, "--logdir", "run", "--set", "seed=255", status=255)
    assert facts["Restarts"] == "0"


def test_a_script_submitted_from_another_folder_says_what_is_wrong(queue, checkout):
    facts, said = queue.finish(
        *SMALL, f"--chdir={checkout.parent}", f"--output={checkout}/%x-%j.out", "slurm/train.sh", *SMOKE, status=2
    )
    assert "slurm/common.sh" in said
    (checkout / ".venv").unlink()
    facts, said = queue.finish(*SMALL, "slurm/train.sh", *SMOKE, status=2)
    assert "make setup" in said


@pytest.mark.parametrize(
    "options, ranks", [slow([*SMALL, "slurm/train.sh"], 2), (mixed(1, 2), 3)], ids=["one node", "mixed"]
)
def test_a_signalled_job_stops_and_is_queued_again(queue, checkout, options, ranks):
    replace_run_dist(checkout, "until_told.py")
    job = queue.submit(*options, 2, "starts")
    for rank in range(ranks):
        queue.wait_for_file(checkout / "starts" / f"start-1-rank-{rank}", job)
    queue.machine.run("scancel", "--batch", "--signal=USR1", job)
    parts, said = queue.wait(job), queue.output(job)
    assert {(part["JobState"], part["Restarts"]) for part in parts} == {("COMPLETED", "1")}, said
    assert "start 1 on node1: ended with status 75" in said and "start 2 on node1: ended with status 0" in said
    assert len(list((checkout / "starts").iterdir())) == 2 * ranks


@pytest.fixture
def partition(queue):
    """Return change(setting), which changes a setting of Slurm's partition; GraceTime is 0 again afterwards."""
    yield lambda setting: queue.machine.run("scontrol", "update", "PartitionName=all", setting)
    queue.machine.run("scontrol", "update", "PartitionName=all", "GraceTime=0")


# USR1 comes last, since its setting stays.
@pytest.mark.parametrize("grace, nodes", [slow(None, 1), ("TERM", 2), slow("USR1", 2)])
def test_a_preempted_job_is_queued_again_and_stores_every_game_once(queue, partition, checkout, grace, nodes):
    """grace: the signal that Slurm sends a minute before it kills the job. USR1 reaches the script; TERM only reaches
    what srun has started, MPI's daemons."""
    if grace == "USR1":
        queue.machine.run(
            "sh",
            "-c",
            "echo SlurmctldParameters=preempt_send_user_signal >>/etc/slurm/slurm.conf; scontrol reconfigure",
        )
    partition(f"GraceTime={60 if grace else 0}")
    num_games = 600
    job = queue.submit(
        *SMALL,
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        "slurm/train_multinode.sh",
        *SMOKE,
        *SHORT,
        "--logdir",
        "run",
        "--set",
        "iterations=3",
        "--num_games",
        num_games,
        "--set",
        "selfplay.deterministic=true",
        "--set",
        "train.replay_ratio=0.1",
    )
    queue.wait_for_file(checkout / "run/games/000000-000.h5", job)
    queue.finish("--partition=urgent", "--nodes=3", "--exclusive", "--output=%x-%j.out", "--wrap=sleep 1")
    [facts], said = queue.wait(job), queue.output(job)
    assert facts["JobState"] == "COMPLETED" and facts["Restarts"] == "1", said
    assert "complete: iteration 3 of 3" in said
    assert ("USR1: stopping" in said) == (grace == "USR1")
    assert "start 1 on node[1-2]: ended with status 75" in said or not grace
    found = ids(checkout / "run")
    assert len(set(found)) == len(found)
    assert Counter(number >> 40 for number in found) == {iteration: num_games for iteration in range(3)}


def test_a_job_told_to_end_is_not_queued_again_and_later_jobs_train_and_evaluate(queue, checkout):
    """Its games are durable at once."""
    words = [*SMALL, "slurm/train.sh", *SMOKE, *SHORT, "--logdir", "run", "--num_games"]
    job = queue.submit(*words, 200000, "--set", "exchange.every_s=0.5")
    queue.wait_for_file(checkout / "run/games/000000-001.h5", job)
    before, begun = set(ids(checkout / "run")), time.monotonic()
    queue.machine.run("scancel", "--batch", "--signal=TERM", job)
    [facts], said = queue.wait(job), queue.output(job)
    print(f"over after {time.monotonic() - begun:.1f} s")
    assert facts["ExitCode"] == "75:0" and facts["Restarts"] == "0", said
    assert "TERM: stopping" in said and "stopped after" in said
    stopped = set(ids(checkout / "run"))
    _, said = queue.finish(*words, 40)
    assert table(said) == [("0", "node1", "play, train"), ("1", "node1", "play, train")]
    assert "complete: iteration 1 of 1" in said and "start 1 on node1: ended with status 0" in said
    found = ids(checkout / "run")
    assert before <= stopped <= set(found) and len(set(found)) == len(found)
    _, said = queue.finish(
        *SMALL,
        "--ntasks=2",
        "slurm/eval.sh",
        "--logdir",
        "run",
        "--set",
        'evaluate.opponents=["random"]',
        "--set",
        "evaluate.num_games=6",
    )
    [result] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert result["iteration"] == 1 and result["matches"]["random"]["num_games"] == 6


@pytest.mark.slow
def test_a_job_near_its_time_limit_is_queued_again(queue, checkout):
    """Slurm itself sends USR1, 20 to 50 s before the limit; a job that did not stop would be ended as TIMEOUT."""
    replace_run_dist(checkout, "until_told.py")
    facts, said = queue.finish(*SMALL, "--time=1", "--signal=B:USR1@20", "slurm/train.sh", 2, "starts")
    assert facts["Restarts"] == "1" and said.count("USR1: stopping") == 1


def test_a_stopped_task_of_an_array_is_queued_again_alone(queue, checkout):
    """Also the one whose number is that of the array, which would mean all tasks."""
    replace_run_dist(checkout, "until_told.py")
    (checkout / "tasks.sh").write_text("#!/bin/bash\nsource slurm/common.sh\nrun_dist 2 task-$SLURM_ARRAY_TASK_ID\n")
    job = queue.submit(*SMALL, "--array=1-2", "--requeue", "--output=%x-%j.out", "tasks.sh")
    for task in (1, 2):
        queue.wait_for_file(checkout / f"task-{task}/start-1-rank-0", job)
    [task] = [part["ArrayTaskId"] for part in queue.facts(job) if part["JobId"] == part["ArrayJobId"]]
    other = 3 - int(task)
    queue.machine.run("scancel", "--batch", "--signal=USR1", f"{job}_{task}")
    queue.wait_for_file(checkout / f"task-{task}/start-2-rank-0", job)
    facts = {part["ArrayTaskId"]: part for part in queue.facts(job)}
    assert facts[task]["Restarts"] == "1"
    assert (facts[str(other)]["Restarts"], facts[str(other)]["JobState"]) == ("0", "RUNNING")
    queue.machine.run("scancel", "--batch", "--signal=USR1", f"{job}_{other}")
    assert [part["Restarts"] for part in queue.wait(job, "COMPLETED")] == ["1", "1"]


def test_a_cancelled_job_is_not_queued_again(queue, checkout):
    replace_run_dist(checkout, "until_told.py")
    job = queue.submit(*SMALL, "slurm/train.sh", 2, "starts")
    queue.wait_for_file(checkout / "starts/start-1-rank-1", job)
    queue.machine.run("scancel", job)
    [facts] = queue.wait(job)
    assert facts["JobState"] == "CANCELLED" and facts["Restarts"] == "0"
