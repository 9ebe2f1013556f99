"""The documents' commands for several hosts and for Slurm, run as they stand on hosts of the tests' own.

Configurations are tiny ones, /shared and /tmp are folders of the test, 10.0.0.K are the hosts' addresses.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from documents import COMING_FROM, NAMES, TINY, commands, make_checkout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

TRAIN, PLAY = "play, train", "play, also while others train"
# By the last part of --logdir in docs/coming-from.md: what ranks 0 and 1 on node1, 2 and 3 on node2 do, and keys.
EXPECTED = {
    "native": ([TRAIN, TRAIN, PLAY, PLAY], {"train.ranks": "root_host", "selfplay.games_num": 100}),
    "horovod": ([TRAIN] * 4, {"train.ranks": "all", "selfplay.games_num": 100, "train.backend": "auto"}),
    "ddp": ([TRAIN] * 4, {"train.backend": "ddp", "train.batch_size": 1024, "train.mixed_precision": False}),
    "workers": ([TRAIN] * 4, {"selfplay.games_num": 64}),
    "workflow": ([TRAIN] * 4, {"train.batch_size": 512}),
    "seq": ([TRAIN] * 4, {"train.max_steps": 2000, "report.summary_frequency": 50, "train.batch_size": 256}),
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
        done = machine.run("bash", "-c", script, host=host, cwd=checkout, timeout=1400, HOME=tmp_path / "home",
                           USER="someone")
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
def test_the_pages_about_hosts_and_all_that_name_some(run, meet):
    """Each command has a run of its own: one that finds its run complete would tell nothing."""
    names = [name for name in NAMES if name != COMING_FROM]
    alone, meetings = [], []
    for k, text in enumerate(text for name in names for text in of_hosts(name)):
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
def test_coming_from_other_trainers(run, meet, checkout, tmp_path):
    (checkout / "cluster.yaml").write_text("# as JSON is YAML\n" + TINY)
    seen, before = set(), ""
    for text in of_hosts(COMING_FROM):
        if "--node_index 1" in text:
            assert text == before.replace("--node_index 0", "--node_index 1")  # it has been run with that one
            continue
        done, before = (meet if "--node_index 0" in text else run)(text), text
        logdir = re.search(r"/shared/runs/(\w+)", text)
        if not logdir:
            continue
        if "--watch" in text:
            assert re.search(r"^workers: .* finished$", done.stdout, re.MULTILINE) and "Workers active" in done.stdout
            continue
        roles, keys = EXPECTED[logdir[1]]
        rows = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines() if re.match(r"  \d +node", line)]
        assert [(row[1], row[-1]) for row in rows] == list(zip(["node1", "node1", "node2", "node2"], roles))
        folder = tmp_path / "shared/runs" / logdir[1]
        config = json.loads((folder / "config.json").read_text())["config"]
        assert keys == {key: config[key.split(".")[0]][key.split(".")[1]] for key in keys}
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        [record] = [record for record in records if record["kind"] == "iteration"]
        assert record["steps_num"] > 0 and len(record["games_by_rank"]) == 4
        seen.add(logdir[1])
    assert seen == set(EXPECTED)


def test_the_line_for_gpus_is_refused_without_them(run, tmp_path):
    [text] = [command.text for command in commands(COMING_FROM) if "--gpus" in command.text]
    done = run(text, status=2)
    assert done.stderr.count("torch sees 0 GPUs, --gpus asks for 4") == 2
    assert not list((tmp_path / "shared").iterdir())


@pytest.mark.slow
def test_slurm(slurm_machine, queue, checkout, tmp_path):
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
