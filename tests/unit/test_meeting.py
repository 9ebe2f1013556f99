"""The nodes of a rendezvous as node 0 sees them while it looks after a job: real nodes, in a folder of this machine."""

import signal
import time
from contextlib import contextmanager

import pytest

from az_mpi.launch import nodes
from az_mpi.launch.hosts import Host
from az_mpi.launch.meeting import Meeting
from az_mpi.launch.nodes import Node, Other
from az_mpi.launch.private_folder import PrivateFolder
from az_mpi.problems import Refusal

SAID = {"num_nodes": 2, "gpus": None, "np": 3, "cwd": "/w", "program": ["run_dist.py"], "no_check": False}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return start(index, host, **other things that it says), a block in which that node is there."""
    monkeypatch.setattr(nodes, "BEAT_S", 0.05)
    folder = PrivateFolder(tmp_path / "meet")

    @contextmanager
    def run(index, host, **other):
        with Node(folder, index, {**SAID, "host": host, **other}) as node:
            yield node

    return run


def meet(node):
    other = Other(node.folder, 1)
    wait_until(lambda: other.look() and other.lives)
    return Meeting(node, [other])


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_node_that_is_lost_ends_a_job_on_it_and_may_come_back_under_another_name(start):
    with start(0, "host0") as root:
        with start(1, "host1"):
            meeting = meet(root)
            assert meeting.attend({"host0", "host1"}) == [] and meeting.present(["host1", "host5"]) == {"host1"}
            root.folder.write(f"command-{meeting.known[1]['id']}-0", {"command": "true", "input": ""})
        assert meeting.attend({"host0", "host1"}) == [signal.SIGTERM]
        assert meeting.attend({"host0"}) == [] and meeting.present(["host0", "host1"]) == {"host0"}
        assert [one["host"] for one in root.content["members"]] == ["host0"] and root.folder.names() == ["node-0"]
        with start(1, "host9"):
            wait_until(lambda: meeting.attend({"host0"}) == [] and meeting.present(["host9"]))
            assert meeting.hosts() == [Host("host0", 2), Host("host9", 2)]
            assert [one["host"] for one in root.content["members"]] == ["host0", "host9"]
        assert meeting.attend({"host0"}) == [], "the job was not on it yet"


def test_a_node_that_does_not_fit_is_told_of_once_and_left_out(start, capfd):
    with start(0, "host0") as root:
        with start(1, "host1"):
            meeting = meet(root)
        for _ in range(2):
            meeting.attend(set())
        for wrong in ({"np": 5, "host": "host1"}, {"host": "host0"}):
            with start(1, **wrong):
                wait_until(lambda: meeting.attend(set()) == [] and meeting.others[0].lives)
                assert meeting.present(["host0", "host1"]) == {"host0"}
    said = capfd.readouterr().err
    assert said.count("node 1 (host1): --np is") == 1 and said.count("both call themselves host0") == 1


def test_each_signal_of_a_node_is_passed_on_once_also_of_one_that_came_back(start):
    told = [int(signal.SIGUSR1), int(signal.SIGUSR2)]
    with start(0, "host0") as root:
        with start(1, "host1") as node:
            meeting = meet(root)
            node.tell(signals=told[:1])
            assert meeting.attend(set()) == [signal.SIGUSR1] and meeting.attend(set()) == []
            node.tell(signals=told)
            assert meeting.attend(set()) == [signal.SIGUSR2]
        meeting.attend(set())
        with start(1, "host1", signals=told[:1]):
            wait_until(lambda: meeting.attend(set()) == [signal.SIGUSR1])


def test_nodes_that_do_not_agree_hear_of_each_other_and_are_refused(start):
    with start(0, "host0") as root, start(1, "host1", cwd="/elsewhere"):
        with pytest.raises(Refusal, match="node 1 \\(host1\\): the current folder is"):
            meet(root)
        assert [one["host"] for one in root.content["members"]] == ["host0", "host1"]
