"""Starting a job without ssh: the nodes meet in a folder they share, and node 0 has the others run its commands."""

import math
import os
import shlex
import signal
import socket
import sys
import time

from az_mpi.launch import agent, check, job, joiner, mpirun
from az_mpi.launch.hosts import Host, choose, parse
from az_mpi.launch.nodes import COME_S, DEAD_S, POLL_S, SAY_EVERY_S, STALE_S, Node, Other, say
from az_mpi.launch.private_folder import PrivateFolder
from az_mpi.problems import Refusal, escape

INTERNAL = 70


def run(options, program, given):
    """Be the node options.node_index of a job and return its exit status. Raises Refusal."""
    folder = PrivateFolder(options.rendezvous)
    content = {"host": socket.gethostname(), "num_nodes": options.num_nodes, "gpus": options.gpus, "np": options.np,
               "cwd": os.getcwd(), "program": program, "no_check": options.no_check}
    timeout_s = options.timeout or COME_S
    with Node(folder, options.node_index, content) as node:
        if options.node_index:
            return joiner.serve(node, timeout_s)
        os.environ[agent.FOLDER] = os.path.abspath(options.rendezvous)  # for whatever takes the place of ssh
        return lead(node, options, program, given.logdir, timeout_s)


def lead(node, options, program, logdir, timeout_s):
    """Be node 0: wait for the others, look at them, run mpirun."""
    others = [Other(node.folder, index) for index in range(1, options.num_nodes)]
    status, text = INTERNAL, "node 0 ended before the job did"
    try:
        wait_for(node, others, timeout_s)
        everyone = [node.content, *(other.content for other in others)]
        node.tell(members=[{"id": one["id"], "host": one["host"]} for one in everyone])
        clear(node.folder, [one["id"] for one in everyone])
        chosen, np = agree(everyone)
        words = agent_words()
        found, settings = mpirun.find(), {}
        if not options.no_check:
            answers = check.check(chosen, found, logdir, lambda host, line: [*words, host, shlex.join(line)],
                                  options.timeout or check.ANSWER_S, bool(options.gpus))
            settings = check.settings(answers, chosen)
        command = mpirun.line(found, chosen, np, program, interface=options.interface, agent=" ".join(words),
                              survive=options.survive, **settings)
        print(shlex.join(command), flush=True)
        status, text = job.run(command, lambda: events(node, others)), ""
        return status
    except Refusal as error:
        status, text = 2, str(error)
        raise
    except SystemExit as error:
        status, text = error.code, "node 0 was told to stop before the job began"
        raise
    finally:
        # Whoever has come hears the end, also of a job that never began.
        seen = [other.content for other in others if other.lives]
        node.tell(members=[{"id": one["id"], "host": one["host"]} for one in [node.content, *seen]],
                  end={"status": status, "text": text})
        while any(other.look() and other.lives and other.silent_s() < STALE_S for other in others):
            time.sleep(POLL_S)


def agent_words():
    """Return the command that takes the place of ssh. Raises Refusal where mpirun could not call it."""
    words = [sys.executable, "-m", agent.__name__]
    if any(char in sys.executable for char in " :"):
        raise Refusal(f"mpirun cannot call {sys.executable}: its path has a space or a ':'\n  move the checkout")
    return words


def clear(folder, ids):
    """Remove the commands of launches that died, and their answers."""
    for name in folder.names():
        kind, _, key = name.partition("-")
        if kind in ("command", "result") and key.partition("-")[0] not in ids:
            folder.remove(name)


def wait_for(node, others, timeout_s):
    """Wait until every other node lives. Raises Refusal after timeout_s."""
    start, say_at = time.monotonic(), 0
    while missing := [other for other in others if not (other.look() and other.lives)]:
        node.check()
        waited_s = time.monotonic() - start
        here = f"{len(others) + 1 - len(missing)} of {len(others) + 1} nodes are here"
        indices = ", ".join(str(other.index) for other in missing[:8]) + ", ..." * (len(missing) > 8)
        if waited_s > timeout_s:
            raise Refusal(f"after {timeout_s} s {here}; missing: {indices}\n"
                          "  start the same command there, with its --node_index, or allow more time with --timeout")
        if waited_s >= say_at:
            say(f"{here}; waiting for {indices} ({timeout_s - waited_s:.0f} s left)")
            say_at += SAY_EVERY_S
        time.sleep(POLL_S)
    node.check()


def agree(everyone):
    """Return (the Hosts, the number of ranks) of the job from what the nodes said. Raises Refusal."""
    first, problems, hosts = everyone[0], [], []
    for one in everyone[1:]:
        for key, option in (("num_nodes", "--num_nodes"), ("np", "--np"), ("cwd", "the current folder"),
                            ("program", "the options of run_dist.py")):
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
    each = math.ceil((first["np"] or 0) / len(everyone)) or 1
    hosts = [Host(one["host"], one["gpus"] or each) for one in everyone]
    return choose(hosts, np=first["np"])


def events(node, others):
    """Return the signals that mpirun is to get: what other nodes were told, and its end when one of them is lost."""
    node.check()
    signals = []
    for other in others:
        content, id_ = other.look(), other.content and other.content["id"]
        known = node.content["members"]
        if not any(member["id"] == id_ for member in known) or content is None or other.silent_s() > DEAD_S:
            if not node.content.get("lost"):
                say(f"node {other.index} is lost: ending the job")
                node.tell(lost=other.index)
                signals.append(signal.SIGTERM)
            continue
        told = content.get("signals", [])
        heard = node.content.get("heard", {}).get(str(other.index), 0)
        if len(told) > heard:
            node.tell(heard={**node.content.get("heard", {}), str(other.index): len(told)})
            signals += [signal.Signals(number) for number in told[heard:]]
    return signals
