"""The nodes of a rendezvous as node 0 sees them while it supervises a job: real nodes, in a folder of this machine."""

import json
import os
import signal
import threading
import time
from contextlib import contextmanager

import pytest

from az_mpi.core.problems import Refusal
from az_mpi.launch.hosts import Host
from az_mpi.launch.rendezvous import joiner, nodes
from az_mpi.launch.rendezvous.meeting import Meeting
from az_mpi.launch.rendezvous.nodes import Node, Other
from az_mpi.launch.rendezvous.private_folder import PrivateFolder

SAID = {"num_nodes": 2, "gpus": None, "np": 3, "cwd": "/w", "program": ["run_dist.py"], "no_check": False}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return start(index, host, **other things that it says), a block in which that node is there."""
    monkeypatch.setattr(nodes, "BEAT_S", 0.05)
    monkeypatch.setattr(nodes, "GONE_S", 0)
    folder = PrivateFolder(tmp_path / "meet")

    @contextmanager
    def run(index, host, **other):
        with Node(folder, index, {**SAID, "host": host, **other}) as node:
            yield node

    return run


def meet(node):
    others = [Other(node.folder, index) for index in range(1, node.content["num_nodes"])]
    for other in others:
        wait_until(lambda other=other: other.look() and other.lives)
    return Meeting(node, others)


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def is_there(meeting, host):
    meeting.poll(set())
    return bool(meeting.present([host]))


def test_a_node_that_is_lost_is_missed_and_may_come_back_under_another_name(start):
    with start(0, "host0") as root:
        with start(1, "host1"):
            meeting = meet(root)
            assert meeting.poll({"host0", "host1"}) == ([], False)
            assert meeting.present(["host1", "host5"]) == {"host1"}
            root.folder.write(f"command-{meeting.known[1]['id']}-0", {"command": "true", "input": ""})
        wait_until(lambda: meeting.poll({"host0", "host1"}) == ([], True))
        assert meeting.poll({"host0"}) == ([], False) and meeting.present(["host0", "host1"]) == {"host0"}
        assert [one["host"] for one in root.content["members"]] == ["host0"] and root.folder.names() == ["node-0"]
        assert meeting.hosts() == [Host("host0", 2), Host("host1", 2)], "it may come again"
        with start(1, "host9"):
            wait_until(lambda: is_there(meeting, "host9"))
            assert meeting.hosts() == [Host("host0", 2), Host("host9", 2)]
            assert [one["host"] for one in root.content["members"]] == ["host0", "host9"]


def test_a_file_that_is_away_for_a_moment_is_no_loss(start, monkeypatch):
    """As where a file system fails while it is rewritten."""
    monkeypatch.setattr(nodes, "GONE_S", 5)
    with start(0, "host0") as root, start(1, "host1"):
        meeting = meet(root)
        read = root.folder.read
        monkeypatch.setattr(root.folder, "read", lambda name: None)
        assert meeting.poll({"host1"}) == ([], False)
        monkeypatch.setattr(root.folder, "read", read)
        assert meeting.poll({"host1"}) == ([], False) and meeting.present(["host1"])


def test_a_failing_disk_does_not_end_the_watch(start, monkeypatch):
    with start(0, "host0") as root:
        with start(1, "host1"):
            meeting = meet(root)
        with monkeypatch.context() as patch:
            patch.setattr(root.folder, "write", fail)
            wait_until(lambda: meeting.poll({"host1"}) == ([], True))
            assert len(root.folder.read("node-0")["members"]) == 2
        wait_until(lambda: len(root.folder.read("node-0")["members"]) == 1)


def fail(*_, **named):
    raise OSError(5, "Input/output error")


class Seen:
    """Another node whose file the test writes, looked at by a clock of the test's."""

    def __init__(self, path):
        self.folder, self.now, self.beat = PrivateFolder(path), 0.0, 0
        self.other = Other(self.folder, 1, lambda: self.now)

    def look(self, seconds, beats=False):
        """Look each second for so many seconds; return whether the node is lost."""
        for _ in range(seconds):
            self.now += 1
            if beats:
                self.beat += 1
                PrivateFolder.write(self.folder, "node-1", {"id": "a", "beat": self.beat})
            self.other.look()
        return self.other.is_lost("a")


@pytest.fixture
def seen(tmp_path):
    seen = Seen(tmp_path / "meet")
    assert not seen.look(3, beats=True) and seen.other.lives
    return seen


def test_a_node_whose_file_stands_still_is_lost(seen):
    assert not seen.look(nodes.DEAD_S) and seen.look(1)
    assert not seen.look(1, beats=True)


@pytest.mark.parametrize("what", ["names", "read"])
def test_a_folder_that_cannot_be_read_makes_nobody_silent(seen, monkeypatch, what):
    """But one that is never read again is given up, and nobody is back who cannot be seen."""
    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(seen.folder, what, fail)
            assert not seen.look(nodes.BLIND_S - 1)
        assert not seen.look(5)
    assert seen.look(nodes.DEAD_S)
    assert not seen.look(1, beats=True)
    monkeypatch.setattr(seen.folder, what, fail)
    assert seen.look(nodes.BLIND_S + 1) and seen.other.failed


def test_a_folder_that_hangs_makes_nobody_silent(seen, monkeypatch):
    """All nodes hang in it and come back at about the same time; the first of them must not miss the others."""
    names = seen.folder.names

    def hang():
        seen.now += 100
        return names()

    with monkeypatch.context() as patch:
        patch.setattr(seen.folder, "names", hang)
        assert not seen.look(nodes.DEAD_S // nodes.SLOW_S - 1)
    assert seen.look(nodes.DEAD_S)


def test_a_full_disk_makes_nobody_silent(seen, monkeypatch):
    """Nobody can write a beat; the run waits for room too."""
    with monkeypatch.context() as patch:
        patch.setattr("os.rename", fail)
        with pytest.raises(OSError):
            seen.folder.write("node-0", {})
        assert not seen.look(10 * nodes.DEAD_S)
    seen.folder.write("node-0", {})
    assert seen.look(nodes.DEAD_S + 1)


def test_a_node_does_what_it_is_asked_for_once_the_folder_can_be_read(start, monkeypatch, capfd):
    """Also a command that it was told of, and whose result it could not write."""
    monkeypatch.setattr(joiner, "listen", lambda caught: None)  # for a main thread
    with start(0, "host0") as root, start(1, "host1") as node:
        served = []
        thread = threading.Thread(target=lambda: served.append(joiner.serve(node, 10)))
        thread.start()
        meeting = meet(root)
        key = f"{meeting.known[1]['id']}-1"
        with monkeypatch.context() as patch:
            patch.setattr(node.folder, "write", fail)
            # Not by the folder's own write, which fails: by hand.
            path = os.path.join(f"/proc/self/fd/{root.folder.descriptor}", f"command-{key}")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(json.dumps({"command": "echo done", "input": ""}))
            wait_until(lambda: "cannot be done now" in capfd.readouterr().err)
            patch.setattr(node.folder, "names", fail)
            time.sleep(0.5)
        wait_until(lambda: root.folder.read(f"result-{key}"))
        assert root.folder.read(f"result-{key}")["output"] == "done\n"
        root.tell(end={"status": 3, "text": ""})
        thread.join(10)
        assert served == [3]


def test_a_node_that_does_not_fit_is_reported_once_and_left_out(start, capfd):
    with start(0, "host0") as root:
        with start(1, "host1"):
            meeting = meet(root)
        wait_until(lambda: not is_there(meeting, "host1"))
        for wrong in ({"np": 5, "host": "host1"}, {"host": "host0"}):
            with start(1, **wrong):
                for _ in range(2):
                    wait_until(lambda: meeting.poll(set()) and meeting.others[0].lives)
                assert meeting.present(["host0", "host1"]) == {"host0"} and len(root.content["members"]) == 1
    said = capfd.readouterr().err
    assert said.count("node 1 (host1): --np is") == 1 and said.count("both call themselves host0") == 1


def test_two_lost_nodes_may_return_in_each_others_place(start):
    with start(0, "host0", num_nodes=3) as root:
        with start(1, "host1", num_nodes=3), start(2, "host2", num_nodes=3):
            meeting = meet(root)
        wait_until(lambda: not is_there(meeting, "host1") and not is_there(meeting, "host2"))
        with start(1, "host2", num_nodes=3):
            wait_until(lambda: is_there(meeting, "host2"))
            assert [host.name for host in meeting.hosts()] == ["host0", "host2"]
            with start(2, "host1", num_nodes=3):
                wait_until(lambda: is_there(meeting, "host1"))
                assert [host.name for host in meeting.hosts()] == ["host0", "host2", "host1"]


def test_each_signal_of_a_node_is_passed_on_once_also_of_one_that_came_back(start):
    told = [int(signal.SIGUSR1), int(signal.SIGUSR2)]
    with start(0, "host0") as root:
        with start(1, "host1") as node:
            meeting = meet(root)
            node.tell(signals=told[:1])
            assert meeting.poll(set())[0] == [signal.SIGUSR1] and meeting.poll(set())[0] == []
            node.tell(signals=told)
            assert meeting.poll(set())[0] == [signal.SIGUSR2]
        wait_until(lambda: not is_there(meeting, "host1"))
        with start(1, "host1", signals=told[:1]):
            wait_until(lambda: meeting.poll(set())[0] == [signal.SIGUSR1])


def test_nodes_that_do_not_agree_hear_of_each_other_and_are_refused(start):
    with start(0, "host0") as root, start(1, "host1", cwd="/elsewhere"):
        with pytest.raises(Refusal, match="node 1 \\(host1\\): the current folder is"):
            meet(root)
        assert [one["host"] for one in root.content["members"]] == ["host0", "host1"]
