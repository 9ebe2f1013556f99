"""The supervision by launch: hosts that are lost and return, a killed mpirun, and requests of its user."""

import json
import re
import time
from pathlib import Path

import pytest
from launched import LONG, SHORT, ids, status_hosts
from marks import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
PROGRAMS = Path(__file__).parent / "programs"


def running_on(checkout, *hosts, after=0):
    """Return whether a start later than `after` runs on exactly these hosts."""
    try:
        values = json.loads((checkout / "run/status.json").read_text())
    except FileNotFoundError:
        return False
    return values["start"] > after and status_hosts(checkout) == ("running", list(hosts))


def start(checkout):
    return json.loads((checkout / "run/status.json").read_text())["start"]


def test_a_job_restarts_without_a_host_that_lost_power_and_with_it_once_it_returns(launch, machine, checkout):
    job = launch("--hosts", "node1:1,node2:1,node3:1", *LONG, program=[PROGRAMS / "keen_launch.py"])
    job.wait_for_games()
    before, begun = ids(checkout), time.monotonic()
    machine.cut("node3")
    machine.lose("node3")
    try:
        job.wait_for(lambda: running_on(checkout, "node1", "node2"))
        print(f"running again after {time.monotonic() - begun:.1f} s")
    finally:
        machine.bring_back("node3")
    begun = time.monotonic()
    job.wait_for(lambda: running_on(checkout, "node1", "node2", "node3"))
    print(f"with the returned host after {time.monotonic() - begun:.1f} s")
    job.wait_for_games()
    job.kill("TERM")
    said = job.ends(75)
    assert "launch: left out: node3: " in said and "launch: restarting on node1:1,node2:1,node3:1" in said
    assert before and before < ids(checkout) and not (checkout / "run/launch.json").exists()


@pytest.mark.slow  # tests/unit/test_launch_rendezvous.py has a node that dies, and the test above a power cut
def test_a_job_without_ssh_restarts_without_a_node_that_lost_power_and_with_it_once_it_returns(
    launch, machine, checkout
):
    def start(index):
        return launch("--rendezvous", "meet", "--num_nodes", 3, "--node_index", index, *LONG, host=f"node{index + 1}")

    nodes = [start(index) for index in range(3)]
    nodes[0].wait_for_games()
    before, begun = ids(checkout), time.monotonic()
    machine.cut("node3")
    machine.lose("node3")
    try:
        nodes[0].wait_for(lambda: running_on(checkout, "node1", "node2"))
        print(f"running again after {time.monotonic() - begun:.1f} s")
    finally:
        machine.bring_back("node3")
    nodes[2], begun = start(2), time.monotonic()
    nodes[0].wait_for(lambda: running_on(checkout, "node1", "node2", "node3"))
    print(f"with the returned node after {time.monotonic() - begun:.1f} s")
    nodes[0].wait_for_games()
    nodes[2].kill("TERM")
    assert "launch: restarting on node1:1,node2:1,node3:1" in [node.ends(75) for node in nodes][0]
    assert before and before < ids(checkout) and not list((checkout / "meet").iterdir())


@pytest.mark.slow  # test_full_disk.py has one as well, and tests/unit/test_supervisor.py
def test_a_job_whose_mpirun_is_killed_restarts(launch, machine, checkout):
    job = launch("--hosts", "node1:1,node2:1", *LONG)
    job.wait_for_games()
    before, first = ids(checkout), start(checkout)
    script = """pid=$(cat "$0"); kill -9 $(cat "/proc/$pid/task/$pid/children")"""
    assert machine.run("sh", "-c", script, job.pid, host="node1").returncode == 0
    begun = time.monotonic()
    job.wait_for(lambda: running_on(checkout, "node1", "node2", after=first))
    print(f"running again after {time.monotonic() - begun:.1f} s")
    job.wait_for_games()
    job.kill("TERM")
    assert "the job was lost (mpirun ended with status 137)" in job.ends(75)
    assert before and before < ids(checkout)


@pytest.mark.slow  # tests/unit/test_supervisor.py has the same requests
def test_a_job_restarts_on_the_hosts_that_are_added_and_removed(launch, machine, checkout):
    def ask(*words, status=0):
        done = machine.run("python", "-m", "az_mpi", "hosts", "run", *words, host="node3", cwd=checkout)
        assert done.returncode == status and "Traceback" not in done.stderr, done.stdout + done.stderr
        return done.stdout + done.stderr

    (checkout / "hosts").write_text("node1 slots=1\nnode2 slots=1\n")
    job = launch("--hostfile", "hosts", *LONG)
    job.wait_for_games()
    job.wait_for((checkout / "run/launch.json").exists)
    job.wait_for(lambda: running_on(checkout, "node1", "node2"))
    assert re.search(r"job: running, 2 of 2 ranks.* on node1, 0 restarts\n  node1:1: in the job\n", ask())
    assert "restarting on node1:1: 1 rank" in ask("--remove", "node2")
    job.wait_for(lambda: running_on(checkout, "node1"))
    first = start(checkout)
    assert "did not answer" in (said := ask("--add", "node2:1,10.77.0.77:1", status=2)) or "No route" in said
    assert "--remove node9: not among the hosts of this run: node1" in ask("--remove", "node9", status=2)
    assert start(checkout) == first
    assert "restarting on node1:1,node3:2: 3 ranks" in ask("--add", "node3:2")
    job.wait_for(lambda: running_on(checkout, "node1", "node3", "node3"))
    job.wait_for_games()
    job.kill("TERM")
    said = job.ends(75)
    assert "launch: SIGTERM: stopping cleanly" in said and "stopped after iteration 0 of 2" in said
    before = ids(checkout)
    assert "no launch supervises it" in ask() and "no launch supervises run" in ask("--restart", status=2)
    said = launch("--hosts", "node1:1", *SHORT).ends(0)  # on fewer hosts
    assert "resumed after iteration 0 of 2" in said and status_hosts(checkout) == ("finished", ["node1"])
    assert before and before < ids(checkout)


@pytest.mark.parametrize("come_back", [False, slow(True)])
def test_survivors_on_other_hosts_continue_and_later_all_ranks_restart(launch, machine, checkout, come_back):
    """A rank on another host than root's is killed, then root, and the last one continues. launch starts all again half
    a minute after the first start (nightly). On a busy machine that may be before root is killed, so the short test
    delays it."""

    def kill_rank(rank, host):
        script = """for pid in $(ip netns pids "$0"); do
            tr '\\0' '\\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && kill -9 "$pid"
        done 2>/dev/null; true"""
        machine.run("sh", "-c", script, host, rank)

    patient = {} if come_back else {"program": [PROGRAMS / "patient_launch.py"]}
    job = launch("--survive", "--hosts", "node1:1,node2:1,node3:1", *LONG, **patient)
    job.wait_for_games()
    before = ids(checkout)
    kill_rank(1, "node2")
    job.wait_for(lambda: running_on(checkout, "node1", "node3"))
    kill_rank(0, "node1")
    job.wait_for(lambda: running_on(checkout, "node3"))
    narrow = start(checkout)
    if come_back:
        job.wait_for(lambda: running_on(checkout, "node1", "node2", "node3", after=narrow))
    job.kill("TERM")
    said = job.ends(75)
    assert said.count("continuing after the loss of 1 of") == 2
    assert "ranks are lost: restarting with all" in said or not come_back
    assert "the job was lost" not in said and before and before < ids(checkout)


def test_a_job_whose_rank_is_killed_before_it_joins_restarts(launch, machine, checkout):
    """The rank is on another host than mpirun, and is killed as soon as its watchdog runs. MPI reports no loss then:
    without the watchdog the others would wait in MPI_Init."""
    script = """words() { tr '\\0' '\\n' <"/proc/$pid/$1"; }
        until pid=$(for pid in $(ip netns pids "$0"); do
            words environ | grep -qx OMPI_COMM_WORLD_LOCAL_RANK=1 && words cmdline | grep -q 'watchdog.main()' &&
            words cmdline | tail -n 2 | head -n 1
        done 2>/dev/null; :) && [ -n "$pid" ]; do :; done; kill -9 $pid"""
    job = launch("--survive", "--hosts", "node1:1,node2:2", *LONG)
    assert machine.run("sh", "-c", script, "node2").returncode == 0
    begun = time.monotonic()
    job.wait_for(lambda: running_on(checkout, "node1", "node2", "node2"))
    print(f"running after {time.monotonic() - begun:.1f} s")
    job.kill("TERM")
    said = job.ends(75)
    assert "the job was lost" in said and "continuing after the loss" not in said
