"""The nodes of a rendezvous as node 0 has them: who is there, what they were told, and what runs there for it."""

import math
import shlex
import signal
import sys

from az_mpi.launch import agent
from az_mpi.launch.hosts import Host, parse
from az_mpi.launch.nodes import DEAD_S, say
from az_mpi.problems import Refusal, escape

SAME = {"num_nodes": "--num_nodes", "np": "--np", "cwd": "the current folder", "program": "the options of run_dist.py"}


class Meeting:
    """Takes the place of `reach.BySsh`. node: node 0, a Node; others: the other nodes, all of which have come.

    A node that is lost may come again, as another process with the same index. Raises Refusal where the nodes do not
    agree, or cannot be called.
    """

    def __init__(self, node, others):
        self.node, self.others = node, others
        self.known = [node.content, *(other.content for other in others)]  # what each node said last when it came
        self.lost, self.strangers, self.heard = set(), set(), {}  # indices; ids; {id: how many of its signals}
        self.publish()
        refuse(self.known)
        if any(char in sys.executable for char in " :"):
            raise Refusal(f"mpirun cannot call {sys.executable}: its path has a space or a ':'\n  move the checkout")
        self.words = [sys.executable, "-m", agent.__name__]
        self.agent = " ".join(self.words)

    def publish(self):
        """Tell the nodes who takes part, and remove what was for others."""
        members = [one for one in self.known if one["index"] not in self.lost]
        self.node.tell(members=[{"id": one["id"], "host": one["host"]} for one in members])
        ids, folder = {one["id"] for one in members}, self.node.folder
        for name in folder.names():
            kind, _, key = name.partition("-")
            if kind in ("command", "result") and key.partition("-")[0] not in ids:
                folder.remove(name)

    def hosts(self):
        """Return the Hosts of all nodes, also of those that are lost."""
        first = self.known[0]
        each = math.ceil((first["np"] or 0) / len(self.known)) or 1
        return [Host(one["host"], one["gpus"] or each) for one in self.known]

    def shell(self, timeout_s):
        """Return a shell that runs words on a host, as `check.ssh` does."""
        return lambda host, line: [*self.words, host, shlex.join(line)]

    def present(self, names):
        return {one["host"] for one in self.known if one["index"] not in self.lost}.intersection(names)

    def attend(self, names):
        """See who has come and gone. Return the signals that the mpirun of a job on the hosts `names` is to get: what
        nodes were told, and its end when one of them is lost. Raises Refusal when another process is node 0."""
        self.node.check()
        signals, lost = [], set(self.lost)
        for other in self.others:
            content, known = other.look(), self.known[other.index]
            lives = content is not None and other.lives and other.silent_s() <= DEAD_S
            if other.index in self.lost:
                if lives and self.welcome(content):
                    self.lost.remove(other.index)
            elif not lives or content["id"] != known["id"]:
                say(f"node {other.index} on {escape(known['host'])} is lost")
                self.lost.add(other.index)
                signals += [signal.SIGTERM] * (known["host"] in names)
            else:
                told, heard = content.get("signals", []), self.heard.get(content["id"], 0)
                self.heard[content["id"]] = len(told)
                signals += [signal.Signals(number) for number in told[heard:]]
        if self.lost != lost:
            self.publish()
        return signals

    def welcome(self, content):
        """Take in a node that has come again; return whether it fits."""
        if content["id"] in self.strangers:
            return False
        everyone = [content if one["index"] == content["index"] else one for one in self.known]
        try:
            refuse(everyone)
        except Refusal as error:
            self.strangers.add(content["id"])
            say(str(error))
            return False
        say(f"node {content['index']} on {escape(content['host'])} is back")
        self.known = everyone
        return True


def refuse(everyone):
    """Raise Refusal where nodes, by what they said, do not fit together."""
    first, problems = everyone[0], []
    for one in everyone[1:]:
        for key, option in SAME.items():
            if one[key] != first[key]:
                there, here = (value if isinstance(value, str) else shlex.join(map(str, value))
                               if isinstance(value, list) else str(value) for value in (one[key], first[key]))
                problems.append(f"  node {one['index']} ({one['host']}): {option} is\n      {escape(there)}\n"
                                f"    on node 0\n      {escape(here)}")
    names = [one["host"] for one in everyone]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"  nodes {[k for k, other in enumerate(names) if other == name]} both call themselves "
                        f"{escape(name)}: each needs a hostname of its own")
    if problems:
        raise Refusal("\n".join(["the nodes do not agree; nothing was started", *problems,
                                 "  start the same command on every node, with another --node_index"]))
    parse(",".join(names), "the names that the nodes call themselves")
