"""A job without ssh: nodes that meet in a shared folder. Each node is a process. A stand-in for mpirun calls the agent,
as mpirun calls ssh, and prints the signals that it gets. tests/cluster has the real mpirun, on hosts of their own."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from az_mpi.core.problems import NotNow, Refusal
from az_mpi.launch.rendezvous import agent
from az_mpi.launch.rendezvous.private_folder import PrivateFolder

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

# A node whose waits are short, with a hostname of its own.
NODE = """
import socket, sys
from az_mpi import __main__
from az_mpi.launch.rendezvous import joiner, meeting, nodes, node0 as rendezvous; from az_mpi.launch import mpirun
for module in (joiner, meeting, nodes, rendezvous):
    for name, value in {"BEAT_S": 0.1, "STALE_S": 4, "DEAD_S": 8, "POLL_S": 0.05}.items():
        if hasattr(module, name):
            setattr(module, name, value)
index, host, fake, *options = sys.argv[1:]
socket.gethostname = lambda: host
mpirun.find = lambda: mpirun.Mpirun(fake, "mpirun (Open MPI) 5.0.11", None)
sys.exit(__main__.main(["launch", "--no_check", "--node_index", index, *options]))
"""
MPIRUN = """#!{python}
import json, os, pathlib, shlex, signal, subprocess, sys, time
print("hosts", sys.argv[sys.argv.index("-H") + 1], "ranks", sys.argv[sys.argv.index("-np") + 1], flush=True)
agent = shlex.split(sys.argv[sys.argv.index("plm_ssh_agent") + 1])
if {remote!r}:
    words = [*agent, "host1", *{remote!r}]
    done = subprocess.run(words, input="given", capture_output=True, text=True)
    print("remote", done.returncode, repr(done.stdout), repr(done.stderr), flush=True)
def told(number, _):
    print(signal.Signals(number).name, flush=True)
    if number != signal.SIGUSR1: os._exit(75 if number == signal.SIGUSR2 else 143)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM): signal.signal(number, told)
print("up", flush=True)
time.sleep({sleep})
if "--mode" not in sys.argv:  # a training, which has come to its end
    run = pathlib.Path(sys.argv[sys.argv.index("--logdir") + 1])
    launch = next(word.partition("=")[2] for word in sys.argv if word.startswith("AZ_MPI_LAUNCH="))
    run.mkdir(exist_ok=True)
    (run / "status.json").write_text(json.dumps(dict(launch=launch, job="finished", ranks=[])))
sys.exit({status})
"""


class Node:
    """A node's process, and the file of its output."""

    def __init__(self, command, output):
        self.output = output
        with open(output, "w") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def text(self):
        return self.output.read_text()

    def says(self, pattern, ended_too=False):
        while not re.search(pattern, self.text()):
            assert ended_too or self.process.poll() is None, self.text()
            time.sleep(0.05)

    def ends(self, status):
        assert self.process.wait(120) == status, self.text()


@pytest.fixture
def start(tmp_path):
    """Return start(index, *options, host=None, **what mpirun does) -> Node. The folder is tmp_path/meet."""
    nodes = []

    def run(index, *options, host=None, num_nodes=2, after=(), remote=(), sleep=0, status=0):
        fake = tmp_path / f"mpirun{len(nodes)}"
        fake.write_text(MPIRUN.format(python=sys.executable, remote=list(remote), sleep=sleep, status=status))
        fake.chmod(0o755)
        command = [
            sys.executable,
            "-c",
            NODE,
            str(index),
            host or f"host{index}",
            str(fake),
            "--rendezvous",
            str(tmp_path / "meet"),
            "--num_nodes",
            str(num_nodes),
            *options,
            "--",
            "--config_file",
            "configs/smoke.json",
            "--logdir",
            str(tmp_path / "run"),
            *after,
        ]
        nodes.append(Node(command, tmp_path / f"output{len(nodes)}"))
        return nodes[-1]

    yield run
    for node in nodes:
        node.process.kill()
        node.process.wait()


def left(tmp_path):
    return sorted(path.name for path in (tmp_path / "meet").iterdir())


@pytest.mark.parametrize("first", [0, 1])
def test_a_job_of_two_nodes_runs_whichever_of_them_comes_first(start, tmp_path, first):
    """A command with words for the shell runs on the other node and gets its input; both end with the job's status."""
    remote = ["X='a  b';", "cat;", "echo", '"$X"', "$PWD;", "echo", "oops", ">&2;", "exit", "7"]
    nodes = {first: start(first, "--np", "3", remote=remote, status=75)}
    nodes[first].says("waiting for")
    nodes[1 - first] = start(1 - first, "--np", "3", remote=remote, status=75)
    for node in nodes.values():
        node.ends(75)
    assert "hosts host0:2,host1:2 ranks 3" in nodes[0].text()
    assert f"remote 7 'givena  b {ROOT}\\n' 'oops\\n'" in nodes[0].text()
    assert "node 1: joined node 0 on host0" in nodes[1].text() and left(tmp_path) == []


def test_each_node_has_as_many_ranks_as_its_own_gpus(start):
    nodes = [start(0, "--gpus", "2"), start(1, "--gpus", "4")]
    nodes[0].says("hosts host0:2,host1:4 ranks 6", ended_too=True)


def test_a_job_of_one_node_waits_for_no_other(start, tmp_path):
    start(0, num_nodes=1).ends(0)
    assert left(tmp_path) == []


def test_a_second_node_with_the_same_index_is_refused(start, tmp_path):
    first = start(1)
    first.says("waiting for node 0")
    second = start(1, host="host7")
    second.ends(2)
    assert "--node_index 1: another process is this node, on host1" in second.text()
    root = start(0)
    root.ends(0)
    first.ends(0)


def test_of_two_nodes_that_come_at_once_with_one_index_one_stays(start):
    nodes = [start(1, host=f"host{k}") for k in (1, 2)]
    while all(node.process.poll() is None for node in nodes):
        time.sleep(0.05)
    (ended,) = [node for node in nodes if node.process.poll() is not None]
    (stays,) = [node for node in nodes if node is not ended]
    assert ended.process.returncode == 2 and "another process is this node" in ended.text()
    root = start(0)
    root.ends(0)
    stays.ends(0)


def test_files_of_a_killed_launch_do_no_harm_to_the_next_one(start, tmp_path):
    """Both nodes are killed while the job runs; then they start again in the same folder."""
    nodes = [start(0, sleep=100, remote=["true"]), start(1)]
    nodes[0].says("up")
    for node in nodes:
        node.process.kill()
        node.process.wait()
    folder = PrivateFolder(tmp_path / "meet")
    old = folder.read("node-1")["id"]
    folder.write(f"command-{old}-00", {"command": f"touch {tmp_path}/pwned", "input": ""})
    assert {"node-0", "node-1"} <= set(left(tmp_path))
    again = [start(0, remote=["echo", "hello"]), start(1)]
    for node in again:
        node.ends(0)
        assert "was here before" in node.text()
    assert "remote 0 'hello\\n'" in again[0].text() and left(tmp_path) == [] and not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("told", [0, 1])
def test_signals_to_any_node_reach_mpirun_once(start, told):
    nodes = [start(0, sleep=100), start(1)]
    nodes[0].says("up")
    nodes[1].says("joined node 0")  # before that it has no job that a signal could stop
    nodes[told].process.send_signal(signal.SIGUSR1)
    nodes[0].says("SIGUSR1")
    nodes[told].process.send_signal(signal.SIGTERM)
    for node in nodes:
        node.ends(75)
    assert nodes[0].text().count("SIGUSR1") == 1 and "SIGTERM: stopping cleanly" in nodes[told].text()
    assert "SIGUSR2" in nodes[0].text()


def test_a_training_continues_without_a_node_that_dies(start):
    nodes = [start(0, "--np", "2", sleep=100), start(1, "--np", "2")]
    nodes[0].says("hosts host0:1,host1:1 ranks 2\nup")
    nodes[1].process.kill()
    nodes[0].says("hosts host0:1 ranks 1\nup")
    assert "node 1 on host1 is lost" in nodes[0].text() and nodes[0].text().count("SIGTERM") == 1
    nodes[0].process.send_signal(signal.SIGTERM)
    nodes[0].ends(75)


def test_a_job_that_does_not_train_ends_when_a_node_dies(start):
    nodes = [start(index, after=["--mode", "eval"], sleep=100) for index in (0, 1)]
    nodes[0].says("up")
    nodes[1].process.kill()
    nodes[0].ends(143)
    assert "node 1 on host1 is lost" in nodes[0].text() and nodes[0].text().count("SIGTERM") == 1


def test_a_node_and_its_commands_end_when_node_0_dies(start, tmp_path):
    pid = tmp_path / "pid"
    nodes = [start(0, remote=["echo", "$$", ">", str(pid) + ";", "exec", "sleep", "100"]), start(1)]
    while not (pid.exists() and pid.read_text().strip()):
        time.sleep(0.05)
    nodes[0].process.kill()
    nodes[1].ends(75)
    assert "node 0 is lost" in nodes[1].text() and not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_nodes_with_different_options_are_refused_on_every_node(start, tmp_path):
    nodes = [start(0), start(1, "--np", "2", after=["--batch_size", "8"])]
    for node in nodes:
        node.ends(2)
        assert "the nodes do not agree; nothing was started" in node.text()
        assert "node 1 (host1): --np is" in node.text() and "--batch_size 8" in node.text()
    assert left(tmp_path) == [] and "up" not in nodes[0].text()


@pytest.mark.parametrize("host, says", [("host0", "both call themselves host0"), ("-oX", "is no host's name")])
def test_hostnames_that_are_equal_or_malformed_are_refused_on_every_node(start, host, says):
    nodes = [start(0), start(1, host=host)]
    for node in nodes:
        node.ends(2)
        assert re.search(says, node.text())


@pytest.mark.parametrize("index, says", [(0, "1 of 2 nodes are here; missing: 1"), (1, "no node 0 has found all")])
def test_a_node_that_waits_longer_than_the_timeout_is_refused(start, tmp_path, index, says):
    node = start(index, "--timeout", "1")
    node.ends(2)
    assert says in node.text() and "--timeout" in node.text() and left(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("index", [0, 1])
def test_a_signal_ends_a_node_that_waits(hang_ups, start, tmp_path, number, index):
    node = start(index)
    node.says("waiting for")
    node.process.send_signal(number)
    node.ends(128 + number)
    assert left(tmp_path) == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o1700, 0o500])
def test_a_folder_that_others_may_enter_is_refused(tmp_path, mode):
    (tmp_path / "meet").mkdir()
    (tmp_path / "meet").chmod(mode)
    with pytest.raises(Refusal, match=f"mode {mode:04o}"):
        PrivateFolder(tmp_path / "meet")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path):
    (tmp_path / "meet").mkdir(mode=0o700)
    os.chown(tmp_path / "meet", 12345, -1)
    with pytest.raises(Refusal, match="belongs to user 12345"):
        PrivateFolder(tmp_path / "meet")


@pytest.mark.parametrize("name", ["link", "link/", "link/."])
def test_a_link_is_refused(tmp_path, name):
    (tmp_path / "meet").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("meet")
    with pytest.raises(Refusal, match="a link"):
        PrivateFolder(f"{tmp_path}/{name}")


def test_a_folder_that_cannot_be_reached_now_is_tried_again(tmp_path, monkeypatch):
    """By the agent, which mpirun calls in place of ssh. A node raises NotNow instead, so it ends with 75."""
    opened, real = [], os.open

    def fail(path, *how, **named):
        if str(path).endswith("meet"):
            opened.append(path)
            if len(opened) < 5:
                raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, *how, **named)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(NotNow, match="Stale file handle"):
        PrivateFolder(tmp_path / "meet")
    monkeypatch.setenv(agent.FOLDER, str(tmp_path / "meet"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert agent.main(["host1", "true"]) == 255 and len(opened) == 5  # there is no node


def test_threads_that_list_the_folder_at_the_same_time_see_every_message(tmp_path):
    """A node lists it from two threads: one beats, the other one looks for commands."""
    folder, counts = PrivateFolder(tmp_path / "meet"), []
    for k in range(500):
        folder.write(f"command-{k}", {})

    def look():
        counts.extend(len(folder.names()) for _ in range(100))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [500] * 400


def test_links_foreign_files_and_malformed_messages_are_not_read(tmp_path):
    folder = PrivateFolder(tmp_path / "meet")
    folder.write("a", {"x": [1, "\u00e9"]})
    folder.write("a", {"x": 2})
    assert folder.read("a") == {"x": 2} and folder.names() == ["a"]
    assert (tmp_path / "meet/a").stat().st_mode & 0o777 == 0o600
    outside = tmp_path / "outside"
    outside.write_text(json.dumps({"command": "id"}))
    (tmp_path / "meet/link").symlink_to(outside)
    os.link(outside, tmp_path / "meet/hard")
    os.mkfifo(tmp_path / "meet/pipe")
    (tmp_path / "meet/folder").mkdir()
    (tmp_path / "meet/list").write_text("[1]")
    (tmp_path / "meet/half").write_text('{"command": ')
    (tmp_path / "meet/deep").write_text("[" * 100_000)
    for name in ("link", "hard", "pipe", "folder", "list", "half", "deep", "none"):
        assert folder.read(name) is None, name
    if os.geteuid() == 0:
        os.chown(tmp_path / "meet/a", 12345, -1)
        assert folder.read("a") is None
