"""python -m az_mpi launch on hosts: by ssh, without ssh, stopped and resumed, and what it refuses."""

import json
import re
import time
from pathlib import Path

import pytest
from launched import LONG, SHORT, SMOKE, ids, status_hosts
from machine import FOR_HOSTS, Machine, why_not
from marks import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def test_hostfiles_of_both_forms_start_the_same_job(launch, checkout):
    """launch runs on a host that is not in the file."""
    said = launch("--hostfile", "hostfiles/mpich_two_machines", "--np", 3, *SHORT, host="node3").ends(0)
    assert re.findall(r"^  \d  +(node\d)  .*play, train$", said, re.MULTILINE) == ["node1", "node1", "node2"]
    assert status_hosts(checkout) == ("finished", ["node1", "node1", "node2"])
    # The line that it prints starts the same job again.
    line = next(line for line in said.splitlines() if "/mpirun " in line)
    assert " -np 3 -H node1:2,node2:2 " in line and "btl_tcp_if_include 10.77.0.0/24" in line
    lines = [
        launch("--dry_run", "--hostfile", f"hostfiles/{form}_two_machines", *SHORT).ends(0)
        for form in ("mpich", "openmpi")
    ]
    assert lines[0] == lines[1] and " -np 4 -H node1:2,node2:2 " in lines[0]


def test_two_nodes_without_ssh_stop_together_and_resume(launch, checkout):
    """A stop of one node stops both. Started again, they resume the run."""
    meet = [("--rendezvous", "meet", "--num_nodes", 2, "--node_index", k) for k in (0, 1)]
    nodes = [launch(*meet[k], "--np", 2, *LONG, host=f"node{k + 1}") for k in (0, 1)]
    nodes[0].wait_for_games()
    assert sorted(status_hosts(checkout)[1]) == ["node1", "node2"]
    nodes[1].kill("TERM")
    assert "SIGTERM: stopping cleanly" in nodes[1].ends(75) and "stopped after iteration 0 of 2" in nodes[0].ends(75)
    before = ids(checkout)
    nodes = [launch(*meet[k], "--np", 2, *SHORT, host=f"node{k + 1}") for k in (0, 1)]
    assert "complete: iteration 2 of 2" in nodes[0].ends(0) and "joined node 0 on node1" in nodes[1].ends(0)
    assert before and before < ids(checkout) and not list((checkout / "meet").iterdir())


@pytest.mark.slow
def test_suggest_measures_on_the_hosts_of_the_run(machine, checkout):
    hosts = "node1:1,node2:1"
    words = ["tictactoe", "--hours", "0.005", "--hosts", hosts, "--json"]
    done = machine.run("python", "-m", "az_mpi", "suggest", *words, host="node1", cwd=checkout)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["figures"]["hosts"] == ["node1", "node2"] and all(told["figures"]["moves_per_s"])
    assert f" launch --hosts {hosts} -- --config_file suggested.json " in told["next"]
    assert json.loads((checkout / "suggested.json").read_text()) == told["config"]


@pytest.mark.slow
def test_a_job_that_loses_a_host_ends_resumable_whatever_mpiruns_status(launch, checkout):
    """mpirun itself ends with status 0 here, now and then with 255."""
    job = launch("--max_restarts", 0, "--hosts", "node1:1,node2:1", *LONG)
    job.wait_for_games()
    job.machine.lose_daemon("node2")
    assert "the job was lost (mpirun ended with status" in job.ends(75)
    before = ids(checkout)
    launch("--hosts", "node1:1", *SHORT).ends(0)
    assert before and before < ids(checkout)


@pytest.mark.parametrize("line, seconds", [slow("", 0.5), ("/mpirun ", 0), slow("/mpirun ", 1.5)])
def test_a_stop_right_after_the_start_ends_launch_in_order(launch, checkout, line, seconds):
    """The stop comes before mpirun runs (143), while it starts its daemons, or while ranks load."""
    job = launch("--hosts", "node1:1,node2:1", *LONG)
    job.wait_for(lambda: line in job.text())
    time.sleep(seconds)
    job.kill("TERM")
    status = job.process.wait(200)
    assert status == (75 if "/mpirun " in job.text() else 143), f"{status}\n{job.text()}"


# What is wrong with a host, from its own sshd's point of view: a script that makes it so, given a folder to work in,
# the checkout and the run's parent folder.
OTHER_COPY = 'cp -r "$2/az_mpi" "$1/$0" && {change} && mount --bind "$1/$0" "$2/az_mpi"'
WRONG = {
    "node2": OTHER_COPY.format(change='echo "# changed" >>"$1/$0/loop.py"'),
    "node3": OTHER_COPY.format(change="""echo '__version__ = "9.9.9"' >"$1/$0/__init__.py\""""),
    "node4": 'mount -t tmpfs none "$3"',
    "node5": None,  # no sshd
    "node6": None,  # no network
}
SAYS = {
    "node2": "other sources in {root}: az_mpi/loop.py",
    "node3": "az_mpi is 9.9.9 in {root}, here",
    "node4": "the run's folder: there is no folder",
    "node5": "Connection refused",
    "node6": "No route to host",
}


@pytest.fixture(scope="module")
def odd_machine(tmp_path_factory):
    """node1, which is right, and others of which each is wrong in its own way; its `shared` is for runs."""
    if reason := why_not(FOR_HOSTS):
        pytest.skip(reason)
    odd, folder = Machine(num_hosts=6), tmp_path_factory.mktemp("odd")
    odd.shared = folder / "shared"
    (odd.shared / "runs").mkdir(parents=True)
    for host in WRONG:
        odd.lose(host)
    for host, script in WRONG.items():
        if script:
            again = f'hostname "$0" && {script} && exec /usr/sbin/sshd -D'
            done = odd.run(
                "sh",
                "-c",
                'nsenter --net="/run/netns/$0" unshare --uts --mount sh -c "$4" "$0" "$1" "$2" '
                '"$3" >/dev/null 2>&1 & echo $! >"/run/hosts/$0"; until ssh "$0" true; do sleep 0.1; done',
                host,
                folder,
                ROOT,
                odd.shared,
                again,
            )
            assert done.returncode == 0, done.stderr
    assert odd.run("ip", "-n", "node6", "link", "set", "eth0", "down").returncode == 0
    yield odd
    odd.close()


@pytest.fixture
def refused(odd_machine, checkout):
    """Return refused(*words) -> what launch says on node1, having written nothing and started nothing."""

    def run(*words):
        before = sorted(checkout.rglob("*")), list(odd_machine.shared.rglob("*"))
        done = odd_machine.run("python", "-m", "az_mpi", "launch", *words, host="node1", cwd=checkout)
        assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr, done.stdout + done.stderr
        assert (sorted(checkout.rglob("*")), list(odd_machine.shared.rglob("*"))) == before
        return done.stderr

    return run


def test_hosts_that_cannot_take_part_are_named_in_one_block(refused, odd_machine):
    hosts = ",".join(["node1:1", *(f"{host}:1" for host in WRONG)])
    said = refused("--hosts", hosts, *SMOKE, "--logdir", odd_machine.shared / "runs/new")
    assert said.count("5 hosts cannot take part; nothing was started") == 1 and "  node1:" not in said
    for host, words in SAYS.items():
        [part] = re.findall(rf"^  {host}:\n((?:    .*\n)+)", said, re.MULTILINE)
        assert words.format(root=ROOT) in part and len(part.splitlines()) == 2  # the problem and its cure


@pytest.mark.parametrize(
    "hosts",
    [
        "-oProxyCommand=touch${IFS}pwned:1",  # tests/unit/test_launch.py has more
        "$(touch pwned):1",
    ],
)
def test_a_host_that_could_be_read_otherwise_is_refused(refused, hosts):
    said = refused(f"--hosts={hosts}", *SMOKE)
    assert "no host was contacted" in said
