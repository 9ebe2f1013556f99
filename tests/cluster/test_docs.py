"""The documents' commands for several hosts and for Slurm, run as they are written on the hosts of the tests.

Configurations are tiny ones, /shared and /tmp are folders of the test, 10.0.0.K are the hosts' addresses.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from documents import NAMES, commands, make_checkout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

TRAIN, PLAY = "play, train", "play, also while others train"
LAUNCH = 'python -m az_mpi launch --hosts "10.0.0.1:2,10.0.0.2:2"'
MPIRUN = "mpirun -np 4 -H node1:2,node2:2 python run_dist.py"
# Options that say who trains: what ranks 0 and 1 on node1, 2 and 3 on node2 do, and keys of the configuration.
WHO_TRAINS = {
    f"{LAUNCH} -- --num_games 100 --train_distributed_native": (
        [TRAIN, TRAIN, PLAY, PLAY],
        {"train.ranks": "root_host", "selfplay.num_games": 100},
    ),
    f"{LAUNCH} -- --num_games 100 --train_distributed": (
        [TRAIN] * 4,
        {"train.ranks": "all", "selfplay.num_games": 100, "train.backend": "auto"},
    ),
    f"{LAUNCH} --nodes 2 -- --batch_size 1024 --mixed_precision false --set train.backend=ddp": (
        [TRAIN] * 4,
        {"train.backend": "ddp", "train.batch_size": 1024, "train.mixed_precision": False},
    ),
    f"{MPIRUN} --summary_frequency=50 --max_steps=2000 --batch_size=256": (
        [TRAIN] * 4,
        {"train.max_steps": 2000, "report.summary_frequency": 50, "train.batch_size": 256},
    ),
}


@pytest.fixture
def checkout(tmp_path):
    for folder in ("shared", "home/.ssh", "scratch"):
        (tmp_path / folder).mkdir(parents=True)
    return make_checkout(tmp_path / "checkout")


@pytest.fixture
def run(machine, checkout, tmp_path):
    """Return run(text, host="node1", status=0): run a document's commands in `checkout` and return the process."""

    def run(text, host="node1", status=0):
        script = f"set -euxo pipefail\n{localize(text, tmp_path)}"
        done = machine.run(
            "bash", "-c", script, host=host, cwd=checkout, timeout=1400, HOME=tmp_path / "home", USER="someone"
        )
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        return done

    return run


@pytest.fixture
def meet(run):
    """Return meet(text): run a command for node 0 of a rendezvous on node1, and the same for node 1 on node2."""

    def meet(text):
        other = text.replace("--node_index 0", "--node_index 1")
        assert other != text
        with ThreadPoolExecutor() as pool:
            second = pool.submit(run, other, host="node2")
            first = run(text)
            second.result()
        return first

    return meet


def localize(text, folder):
    """Return a document's commands with the tests' addresses and folders, those of `folder`."""
    text = text.replace("10.0.0.", "10.77.0.").replace("/tmp/", "/scratch/")
    return re.sub(r"(?<![\w.])/(shared|scratch)/", rf"{folder}/\1/", text)


def of_hosts(name):
    return [command.text for command in commands(name) if command.place == "hosts"]


def complete(text):
    """Return how often a run was completed, by what was said."""
    return text.count("complete: iteration 1 of 1")


@pytest.mark.slow
def test_every_command_for_hosts_succeeds(run, meet):
    """Each command has a run of its own: one that finds its run complete would show nothing."""
    alone, meetings = [], []
    for k, text in enumerate(text for name in NAMES for text in of_hosts(name)):
        text = re.sub(r"/shared/runs/(connect4|met)\b", f"/shared/runs/{k}", text)
        (meetings if "--rendezvous" in text else alone).append(text)
    assert len(alone) > 8 and len(meetings) == 2
    done = run("\n".join(alone))
    assert complete(done.stdout) == sum("run_dist.py" in text or " launch " in text for text in alone)
    # The line that shows who is where; mpirun may join those of two ranks.
    assert set(re.findall(r"(\d node\d) \S*?/python", done.stdout)) == {"0 node1", "1 node1", "2 node2", "3 node2"}
    first, second = meetings
    assert re.sub(r"runs/\d+", "", second) == re.sub(r"runs/\d+", "", first).replace("--node_index 0", "--node_index 1")
    assert complete(meet(first).stdout) == 1


@pytest.mark.slow
@pytest.mark.parametrize("text", WHO_TRAINS, ids=["root_host", "all", "ddp", "mpirun"])
def test_options_choose_the_trainers_on_two_hosts(run, tmp_path, text):
    done = run(f"{text} --config_file configs/connect4.json --logdir /shared/runs/asked")
    roles, keys = WHO_TRAINS[text]
    rows = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines() if re.match(r"  \d +node", line)]
    assert [(row[1], row[-1]) for row in rows] == list(zip(["node1", "node1", "node2", "node2"], roles))
    folder = tmp_path / "shared/runs/asked"
    config = json.loads((folder / "config.json").read_text())["config"]
    assert keys == {key: config[key.split(".")[0]][key.split(".")[1]] for key in keys}
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    [record] = [record for record in records if record["kind"] == "iteration"]
    assert record["num_steps"] > 0 and len(record["games_by_rank"]) == 4
    watched = run("python -m az_mpi status /shared/runs/asked --watch").stdout
    assert re.search(r"^asked: .* finished$", watched, re.MULTILINE) and "Workers active" in watched


def test_a_command_for_gpus_is_refused_without_gpus(run, tmp_path):
    [text] = [command.text for command in commands("docs/gpus.md") if "--gpus" in command.text]
    done = run(text, status=2)
    assert done.stderr.count("torch sees 0 GPUs of 4 (--gpus)") == 2
    assert not list((tmp_path / "shared").iterdir())


@pytest.mark.slow
def test_every_command_for_slurm_succeeds(slurm_machine, queue, checkout, tmp_path):
    """The templates ask for whole nodes of a cluster; options of sbatch make them fit this one."""
    small = 'sbatch() { command sbatch --cpus-per-task=4 --mem=1G --time=30 "$@"; }'
    wait = 'until [ -z "$(squeue --noheader)" ]; do sleep 1; done'
    lines, block = [], None
    for command in [command for name in NAMES for command in commands(name)]:
        if command.place == "slurm":
            lines += [wait] * (command[:2] != block) + [command.text]
            block = command[:2]
    text = localize("\n".join([small, "export REQUEUES_MAX=0", *lines, wait]), tmp_path)
    text = text.replace("--partition=gpu", "--partition=all")
    done = slurm_machine.run("bash", "-c", f"set -euxo pipefail\n{text}", cwd=checkout, timeout=1400)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [path.read_text() for path in checkout.glob("az_*.out")]
    assert len(said) == 8 and all("start 1 on node" in text for text in said)
    assert [text.count("ended with status 0") for text in said] == [1] * 8, "\n".join(said)
