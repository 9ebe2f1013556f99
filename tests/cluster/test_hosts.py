"""mpirun over three hosts, by ssh and TCP."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from marks import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SHORT = [
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.tensorboard=false",
    "--set",
    "selfplay.deterministic=true",
    "--num_games",
    40,
    "--set",
    "train.replay_ratio=0.5",
]


@pytest.fixture
def mpirun(machine, checkout):
    """Return run(*arguments, status=0, **how): run node1's mpirun in `checkout` and return the finished process."""

    def run(*arguments, status=0, **how):
        done = machine.run("mpirun", "--prefix", sys.prefix, *arguments, host="node1", cwd=checkout, **how)
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


def table(done):
    """Return the rows of the start-up table, one a rank, that a run has printed."""
    return [re.split(r"  +", line.strip()) for line in done.stdout.splitlines() if re.match(r"  \d+ +node", line)]


# train.ranks, and which of ranks 0 and 1 on node1, 2 on node2, 3 on node3 train.
MODES = {"all": [0, 1, 2, 3], "root_host": [0, 1], "3": [0, 1, 2]}


@pytest.mark.parametrize("mode", ["all", slow("root_host"), slow("3")])
def test_three_hosts_train(mpirun, checkout, mode):
    done = mpirun(
        "-np",
        4,
        "-H",
        "node1:2,node2:1,node3:1",
        "python",
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        "run",
        "--set",
        f"train.ranks={mode}",
        *SHORT,
    )
    rows = table(done)
    assert [row[1] for row in rows] == ["node1", "node1", "node2", "node3"]
    assert [rank for rank, row in enumerate(rows) if row[-1] == "play, train"] == MODES[mode]
    assert {row[-1] for row in rows} <= {"play, train", "play"}
    records = [json.loads(line) for line in (checkout / "run/metrics.jsonl").read_text().splitlines()]
    games = [record["games_by_rank"] for record in records if record["kind"] == "iteration"]
    assert games == [[10, 10, 10, 10]] * 2
    assert "complete: iteration 2 of 2" in done.stdout


# These hosts have the same cores, and a rank that is alone on its host takes all of them: many threads would wait for
# one another, and a step take thirty times as long.
ONE_CORE = ["sh", "-c", 'exec taskset -c $((OMPI_COMM_WORLD_RANK % $(nproc))) "$@"', "sh"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["all", "root_host", "1"])
def test_each_mode_learns_to_play_perfectly(mpirun, checkout, mode):
    mpirun(
        "--bind-to",
        "none",
        "-np",
        3,
        "-H",
        "node1:1,node2:1,node3:1",
        *ONE_CORE,
        "python",
        "run_dist.py",
        "--config_file",
        "configs/tictactoe.json",
        "--logdir",
        "run",
        "--set",
        f"train.ranks={mode}",
        timeout=1700,
    )
    last = json.loads(max((checkout / "run/evaluations").glob("*.json")).read_text())
    assert last["solver"]["num_positions"] == 4520 and last["solver"]["overall"] == 1.0


@pytest.mark.parametrize(
    "name, ranks",
    [
        ("one_machine", {"node1": 2}),
        ("two_machines", {"node1": 2, "node2": 2}),
        slow("mixed_gpus", {"node1": 4, "node2": 2, "node3": 16}),
    ],
)
def test_a_hostfile_starts_what_it_says(mpirun, name, ranks):
    # Not `hostname`: after programs without MPI that end at once, mpirun 5.0.11 sometimes never ends.
    program = "from mpi4py import MPI; print(MPI.Get_processor_name())"
    done = mpirun("--hostfile", f"hostfiles/openmpi_{name}", "python", "-c", program)
    # Not by lines: mpirun 5.0.9 may join those of two ranks (docs/trouble.md).
    assert Counter(re.findall(r"node\d", done.stdout)) == ranks


def test_each_hostfile_has_both_forms_and_its_command():
    for path in (ROOT / "hostfiles").glob("openmpi_*"):
        assert f"#   mpirun --hostfile hostfiles/{path.name} python run_dist.py --config_file" in path.read_text()
        other = path.with_name(path.name.replace("openmpi", "mpich"))
        hosts = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        expected = [line.replace(" slots=", ":") for line in hosts]
        assert [line for line in other.read_text().splitlines() if not line.startswith("#")] == expected
        ranks = sum(int(line.rpartition(":")[2]) for line in expected)
        assert f"#   mpiexec -f hostfiles/{other.name} -n {ranks} python run_dist.py --config" in other.read_text()


HOSTFILE = "node2 slots=1\nnode1 slots=2\n"


@pytest.mark.parametrize(
    "options, order",
    [
        (["-H", "node2:1,node1:2"], ["node2", "node1", "node1"]),
        slow(["--hostfile", "hosts.txt"], ["node2", "node1", "node1"]),
        slow(["--with-ft", "ulfm", "-H", "10.77.0.2:1,10.77.0.1:2"], ["node2", "node1", "node1"]),
        slow(["-H", "node3:1,node1:1,node2:1"], ["node3", "node1", "node2"]),
    ],
)
def test_the_first_host_listed_is_root(mpirun, checkout, options, order):
    """Typed on node1, which Open MPI puts first."""
    (checkout / "hosts.txt").write_text(HOSTFILE)
    done = mpirun(
        "-np",
        3,
        *options,
        "python",
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        "run",
        "--train_distributed_native",
        *SHORT,
    )
    rows = table(done)
    assert [row[1] for row in rows] == order
    assert [rank for rank, row in enumerate(rows) if row[-1] == "play, train"] == [0]
    # Every rank knows itself by that number.
    logs = [(checkout / f"run/logs/rank-{rank:03d}.log").exists() for rank in range(3)]
    assert all(logs) and "complete: iteration 2 of 2" in done.stdout


def test_root_host_chooses_and_is_one_of_the_hosts(mpirun, checkout):
    words = [
        "-np",
        2,
        "-H",
        "node1:1,node2:1",
        "python",
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        "run",
        *SHORT,
        "--set",
    ]
    done = mpirun(*words, "train.root_host=node3", status=2)
    assert done.stderr.count('"node3" is none of the hosts of this job: node1, node2') == 1
    assert not (checkout / "run").exists()
    assert [row[1] for row in table(mpirun(*words, "train.root_host=node2"))] == ["node2", "node1"]


def test_torch_connects_in_silence_where_addresses_have_no_names(machine):
    """torch looks up the name of each address that it connects to, and warned once for each rank."""
    program = ROOT / "tests/cluster/programs/connect_store.py"
    done = machine.run(sys.executable, program, PYTHONPATH=ROOT)
    assert (done.stdout, done.stderr, done.returncode) == ("value\n", "", 0)
    loud = machine.run(sys.executable, program, PYTHONPATH=ROOT, TORCH_CPP_LOG_LEVEL="WARNING")
    assert "hostname of the client socket cannot be retrieved" in loud.stderr, "the test sees what torch says"
