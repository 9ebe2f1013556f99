"""The nodes of a rendezvous as node 0 sees them: which are up, what node 0 tells them, how they run commands."""

import math
import shlex
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from az_mpi.core.problems import Refusal, escape
from az_mpi.launch import mpi_job
from az_mpi.launch.check import Shell
from az_mpi.launch.hosts import Host, parse
from az_mpi.launch.rendezvous import agent
from az_mpi.launch.rendezvous.nodes import DEAD_S, Node, Other

SAME = {"num_nodes": "--num_nodes", "np": "--np", "cwd": "the current folder", "program": "the options of run_dist.py"}


class Meeting:
    """A transport in place of `transport.Ssh`, which documents the methods.

    node: node 0, a Node. others: the other nodes, all of which have come. A lost node may come back as another process
    with the same index. Raises Refusal if the nodes do not agree, or if mpirun cannot call the agent.
    """

    knows = True

    def __init__(self, node: Node, others: Sequence[Other]):
        self.node = node
        self.others = others
        self.known = [node.content, *(other.content for other in others)]  # the description of each node when it came
        self.lost: set[int] = set()  # indices of nodes
        self.refused: set[str] = set()  # ids of processes that do not fit the others
        self.heard: dict[str, int] = {}  # by id: how many signals of that process were passed on
        self.published: list[str] = []  # the ids that take part, as the nodes were told
        self.publish()
        refuse(self.known)
        if any(char in sys.executable for char in " :"):
            raise Refusal(f"mpirun cannot call {sys.executable}: its path has a space or a ':'\n  move the checkout")
        self.words = [sys.executable, "-m", agent.__name__]
        self.agent = " ".join(self.words)

    def here(self) -> list[dict[str, Any]]:
        """Return the descriptions of the nodes that are not lost."""
        return [one for one in self.known if one["index"] not in self.lost]

    def publish(self) -> None:
        """Tell the nodes which of them take part, if that has changed, and remove messages of others."""
        ids = [one["id"] for one in self.here()]
        folder = self.node.folder
        if ids == self.published:
            return
        self.node.tell(members=[{"id": one["id"], "host": one["host"]} for one in self.here()])
        self.published = ids
        self.refused.clear()  # they may fit now
        with suppress(OSError):  # files that are left do no harm
            for name in folder.names():
                kind, _, key = name.partition("-")
                if kind in ("command", "result") and key.partition("-")[0] not in ids:
                    folder.remove(name)

    def hosts(self) -> list[Host]:
        """Return the Hosts of all nodes, lost ones too unless another node has taken their host."""
        each = math.ceil((self.known[0]["np"] or 0) / len(self.known)) or 1
        names = {one["host"] for one in self.here()}
        kept = [one for one in self.known if one["index"] not in self.lost or one["host"] not in names]
        return [Host(one["host"], one["gpus"] or each) for one in kept]

    def shell(self, timeout_s: float) -> Shell:
        """Return a function that makes the command which runs words on a host, as `check.ssh` does."""
        return lambda host, line: [*self.words, host, shlex.join(line)]

    def present(self, names: Iterable[str]) -> set[str]:
        return {one["host"] for one in self.here()}.intersection(names)

    def poll(self, names: set[str]) -> tuple[list[signal.Signals], bool]:
        """Find out which nodes have come and gone. Return (signals from nodes, for mpirun; whether one of the hosts
        `names` is lost). Raises Refusal if another process has become node 0."""
        self.node.check()
        signals = []
        for other in self.others:
            content, known = other.look(), self.known[other.index]
            if other.index in self.lost:
                is_back = content and other.lives and not other.failed and other.silent_s() <= DEAD_S
                if is_back and self.welcome(content):
                    self.lost.remove(other.index)
            elif other.is_lost(known["id"]):
                mpi_job.say(f"node {other.index} on {escape(known['host'])} is lost")
                self.lost.add(other.index)
            elif content:
                sent = content.get("signals", [])
                num_heard = self.heard.get(content["id"], 0)
                self.heard[content["id"]] = len(sent)
                signals += [signal.Signals(number) for number in sent[num_heard:]]
        self.publish()
        return signals, any(self.known[index]["host"] in names for index in self.lost)

    def welcome(self, content: dict[str, Any]) -> bool:
        """Let a node that has come back take part again, if it fits the others; return whether it does."""
        if content["id"] in self.refused:
            return False
        try:
            refuse([*self.here(), content])
        except Refusal as error:
            self.refused.add(content["id"])
            mpi_job.say(str(error))
            return False
        mpi_job.say(f"node {content['index']} on {escape(content['host'])} is back")
        self.known[content["index"]] = content
        return True


def refuse(everyone: Sequence[dict[str, Any]]) -> None:
    """Raise Refusal if the descriptions of nodes do not fit together."""
    first = everyone[0]
    problems = []
    for one in everyone[1:]:
        for key, option in SAME.items():
            if one[key] != first[key]:
                problems.append(
                    f"  node {one['index']} ({one['host']}): {option} is\n      {_in_words(one[key])}\n"
                    f"    on node 0\n      {_in_words(first[key])}"
                )
    names = [one["host"] for one in everyone]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(
            f"  nodes {[one['index'] for one in everyone if one['host'] == name]} both call themselves "
            f"{escape(name)}: each needs a hostname of its own"
        )
    if problems:
        raise Refusal(
            "\n".join(
                [
                    "the nodes do not agree; nothing was started",
                    *problems,
                    "  start the same command on every node, with another --node_index",
                ]
            )
        )
    parse(",".join(names), "the names that the nodes call themselves")


def _in_words(value):
    """Return a part of a node's description as text: a command line for a list of words."""
    return escape(shlex.join(map(str, value)) if isinstance(value, list) else str(value))
