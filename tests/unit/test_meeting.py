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

DESCRIPTION = {"num_nodes": 2, "gpus": None, "np": 3, "cwd": "/w", "program": ["run_dist.py"], "no_check": False}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return start(index, host, **other parts of its description), a block in which that node is up."""
    monkeypatch.setattr(nodes, "BEAT_S", 0.05)
    monkeypatch.setattr(nodes, "GONE_S", 0)
    folder = PrivateFolder(tmp_path / "meet")

    @contextmanager
    def run(index, host, **other):
        with Node(folder, index, {**DESCRIPTION, "host": host, **other}) as node:
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


def is_up(meeting, host):
    meeting.poll(set())
    return bool(meeting.present([host]))


def test_a_lost_node_is_not_present_and_may_come_back_under_another_name(start):
    with start(0, "host0") as root:
        with start(1, "host1"):
            meeting = meet(root)
            assert meeting.poll({"host0", "host1"}) == ([], False)
            assert meeting.present(["host1", "host5"]) == {"host1"}
            root.folder.write(f"command-{meeting.known[1]['id']}-0", {"command": "true", "input": ""})
        wait_until(lambda: meeting.poll({"host0", "host1"}) == ([], True))
        assert meeting.poll({"host0"}) == ([], False) and meeting.present(["host0", "host1"]) == {"host0"}
        assert [one["host"] for one in root.content["members"]] == ["host0"] and root.folder.names() == ["node-0"]
        assert meeting.hosts() == [Host("host0", 2), Host("host1", 2)], "a lost host may come back"
        with start(1, "host9"):
            wait_until(lambda: is_up(meeting, "host9"))
            assert meeting.hosts() == [Host("host0", 2), Host("host9", 2)]
            assert [one["host"] for one in root.content["members"]] == ["host0", "host9"]


def test_a_node_whose_file_is_missing_for_a_moment_is_not_lost(start, monkeypatch):
    """A file system may fail while the file is being rewritten."""
    monkeypatch.setattr(nodes, "GONE_S", 5)
    with start(0, "host0") as root, start(1, "host1"):
        meeting = meet(root)
        read = root.folder.read
        monkeypatch.setattr(root.folder, "read", lambda name: None)
        assert meeting.poll({"host1"}) == ([], False)
        monkeypatch.setattr(root.folder, "read", read)
        assert meeting.poll({"host1"}) == ([], False) and meeting.present(["host1"])


def test_a_loss_is_noticed_while_the_disk_fails_and_published_afterwards(start, monkeypatch):
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
    """Another node: the test writes its file, and moves the clock by which it is watched."""

    def __init__(self, path):
        self.folder, self.now, self.beat = PrivateFolder(path), 0.0, 0
        self.other = Other(self.folder, 1, lambda: self.now)

    def look(self, seconds, beats=False):
        """Read the node's file each second for so many seconds; return whether the node is lost. beats: whether the
        node rewrites it."""
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


def test_a_node_whose_file_does_not_change_is_lost(seen):
    assert not seen.look(nodes.DEAD_S) and seen.look(1)
    assert not seen.look(1, beats=True)


@pytest.mark.parametrize("what", ["names", "read"])
def test_time_in_which_the_folder_cannot_be_read_is_not_silence(seen, monkeypatch, what):
    """But after BLIND_S the node is lost, and it is not back as long as its file cannot be read."""
    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(seen.folder, what, fail)
            assert not seen.look(nodes.BLIND_S - 1)
        assert not seen.look(5)
    assert seen.look(nodes.DEAD_S)
    assert not seen.look(1, beats=True)
    monkeypatch.setattr(seen.folder, what, fail)
    assert seen.look(nodes.BLIND_S + 1) and seen.other.failed


def test_time_in_which_the_folder_hangs_is_not_silence(seen, monkeypatch):
    """All nodes hang with it and continue at about the same time; the first must not take the others for lost."""
    names = seen.folder.names

    def hang():
        seen.now += 100
        return names()

    with monkeypatch.context() as patch:
        patch.setattr(seen.folder, "names", hang)
        assert not seen.look(nodes.DEAD_S // nodes.SLOW_S - 1)
    assert seen.look(nodes.DEAD_S)


def test_time_in_which_the_disk_is_full_is_not_silence(seen, monkeypatch):
    """No node can write a beat then, and the run waits for space, too."""
    with monkeypatch.context() as patch:
        patch.setattr("os.rename", fail)
        with pytest.raises(OSError):
            seen.folder.write("node-0", {})
        assert not seen.look(10 * nodes.DEAD_S)
    seen.folder.write("node-0", {})
    assert seen.look(nodes.DEAD_S + 1)


def test_a_node_runs_a_command_once_it_can_use_the_folder_again(start, monkeypatch, capfd):
    """First it can read the command and cannot write the result, then it cannot even list the folder."""
    monkeypatch.setattr(joiner, "listen", lambda caught: None)  # which only a main thread can do
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


def test_a_command_that_has_ended_holds_no_files_and_is_not_run_again(start, tmp_path):
    with start(1, "host1") as node:
        key, commands = f"{node.id}-1", {}
        waits = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo done"
        node.folder.write(f"command-{key}", {"command": waits, "input": ""})
        joiner.work(node, commands)
        command = commands[key]
        (tmp_path / "go").touch()
        wait_until(lambda: joiner.work(node, commands) or commands == {key: None})
        assert node.folder.read(f"result-{key}")["output"] == "done\n"
        assert command.output.closed and command.errors.closed
        node.folder.write(f"command-{key}", {"command": "echo again", "input": ""})  # as a leftover
        joiner.work(node, commands)
        assert commands == {key: None}


def test_a_node_that_does_not_fit_is_reported_once_and_left_out(start, capfd):
    with start(0, "host0") as root:
        with start(1, "host1"):
            meeting = meet(root)
        wait_until(lambda: not is_up(meeting, "host1"))
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
        wait_until(lambda: not is_up(meeting, "host1") and not is_up(meeting, "host2"))
        with start(1, "host2", num_nodes=3):
            wait_until(lambda: is_up(meeting, "host2"))
            assert [host.name for host in meeting.hosts()] == ["host0", "host2"]
            with start(2, "host1", num_nodes=3):
                wait_until(lambda: is_up(meeting, "host1"))
                assert [host.name for host in meeting.hosts()] == ["host0", "host2", "host1"]


def test_each_signal_of_a_node_is_passed_on_once_even_if_it_has_come_back(start):
    told = [int(signal.SIGUSR1), int(signal.SIGUSR2)]
    with start(0, "host0") as root:
        with start(1, "host1") as node:
            meeting = meet(root)
            node.tell(signals=told[:1])
            assert meeting.poll(set())[0] == [signal.SIGUSR1] and meeting.poll(set())[0] == []
            node.tell(signals=told)
            assert meeting.poll(set())[0] == [signal.SIGUSR2]
        wait_until(lambda: not is_up(meeting, "host1"))
        with start(1, "host1", signals=told[:1]):
            wait_until(lambda: meeting.poll(set())[0] == [signal.SIGUSR1])


def test_nodes_that_do_not_agree_are_published_as_members_and_refused(start):
    with start(0, "host0") as root, start(1, "host1", cwd="/elsewhere"):
        with pytest.raises(Refusal, match="node 1 \\(host1\\): the current folder is"):
            meet(root)
        assert [one["host"] for one in root.content["members"]] == ["host0", "host1"]
