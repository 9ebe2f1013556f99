"""A job without ssh: the nodes meet in a shared folder, and node 0 has the others run its commands."""

import os
import shlex
import signal
import socket
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from az_mpi.config.command_line import Arguments
from az_mpi.core.exit_codes import INTERNAL, RESUMABLE
from az_mpi.core.problems import Refusal
from az_mpi.launch import check, mpi_job, mpirun
from az_mpi.launch.host_pool import HostPool
from az_mpi.launch.rendezvous import agent, joiner
from az_mpi.launch.rendezvous.meeting import Meeting
from az_mpi.launch.rendezvous.nodes import COME_S, DEAD_S, POLL_S, SAY_EVERY_S, STALE_S, Node, Other
from az_mpi.launch.rendezvous.private_folder import PrivateFolder
from az_mpi.launch.supervisor import Supervisor


def run(options: Namespace, program: list[str], given: Arguments, hours: float | None) -> int:
    """Be the node options.node_index of a job and return its exit status.

    hours: of a training, 0 for no limit; None for a job that does not train. Raises Refusal.
    """
    folder = PrivateFolder(options.rendezvous)
    content = {
        "host": socket.gethostname(),
        "num_nodes": options.num_nodes,
        "gpus": options.gpus,
        "np": options.np,
        "cwd": os.getcwd(),
        "program": program,
        "no_check": options.no_check,
    }
    timeout_s = options.timeout or COME_S
    with Node(folder, options.node_index, content) as node:
        if options.node_index:
            return joiner.serve(node, timeout_s)
        os.environ[agent.FOLDER] = os.path.abspath(options.rendezvous)  # for what mpirun calls in place of ssh
        return lead(node, options, program, given.logdir, hours, timeout_s)


def lead(
    node: Node, options: Namespace, program: list[str], logdir: Path, hours: float | None, timeout_s: float
) -> int:
    """Be node 0: wait for the others, then run mpirun until the job is over; a training is supervised."""
    others = [Other(node.folder, index) for index in range(1, options.num_nodes)]
    status, text = INTERNAL, "node 0 ended before the job did"  # for the other nodes, unless it is known better below
    try:
        wait_for(node, others, timeout_s)
        meeting = Meeting(node, others)
        host_pool = HostPool(meeting.hosts, np=options.np)
        names = {host.name for host in host_pool.wanted()}
        chosen, np = host_pool.choose(names)
        found = mpirun.find()
        answers = None
        if not options.no_check:
            answers = check.check(
                chosen, found, logdir, meeting.shell(timeout_s), options.timeout or check.ANSWER_S, bool(options.gpus)
            )
        if hours is None:
            job = mpirun.JobSpec(
                program,
                chosen,
                np,
                networks=mpirun.Networks.of_option(options.interface),
                agent=meeting.agent,
                survive=options.survive,
            )
            command = mpirun.line(found, check.fitted(job, answers) if answers else job)
            print(shlex.join(command), flush=True)
            status = mpi_job.run(command, lambda: signals(meeting, names))
        else:
            with mpi_job.interruptible(RESUMABLE):
                status = Supervisor(options, program, logdir, found, host_pool, chosen, hours, meeting).run(answers)
        text = ""
        return status
    except Refusal as error:
        status, text = error.status, str(error)
        raise
    except SystemExit as error:
        status, text = int(error.code), "node 0 was told to stop"
        raise
    finally:
        _tell_end(node, others, status, text)


def _tell_end(node, others, status, text):
    """Report to all nodes that have come how the job ended, even if it never began, and wait until they have left."""
    seen = [other.content for other in others if other.lives]
    node.tell(
        members=[{"id": one["id"], "host": one["host"]} for one in [node.content, *seen]],
        end={"status": status, "text": text},
    )
    ids = {one["id"] for one in seen}  # a node that comes only now is not waited for
    while any(
        other.look() and other.content["id"] in ids and other.silent_s() < STALE_S and other.blind_s() < DEAD_S
        for other in others
    ):
        time.sleep(POLL_S)


def signals(meeting: Meeting, names: set[str]) -> list[signal.Signals]:
    """Return signals for mpirun while a job that is not supervised runs on the hosts `names`."""
    found, lost = meeting.poll(names)
    if lost:
        names.clear()  # so that TERM is sent once: at a second one mpirun ends at once
        found.append(signal.SIGTERM)
    return found


def wait_for(node: Node, others: Sequence[Other], timeout_s: float) -> None:
    """Wait until all other nodes have come. Raises Refusal after timeout_s."""
    start = time.monotonic()
    say_at = 0
    while missing := [other for other in others if not (other.look() and other.lives)]:
        node.check()
        waited_s = time.monotonic() - start
        here = f"{len(others) + 1 - len(missing)} of {len(others) + 1} nodes are here"
        indices = ", ".join(str(other.index) for other in missing[:8]) + (", ..." if len(missing) > 8 else "")
        if waited_s > timeout_s:
            raise Refusal(
                f"after {timeout_s} s {here}; missing: {indices}\n"
                "  start the same command there, with its --node_index, or allow more time with --timeout"
            )
        if waited_s >= say_at:
            mpi_job.say(f"{here}; waiting for {indices} ({timeout_s - waited_s:.0f} s left)")
            say_at += SAY_EVERY_S
        time.sleep(POLL_S)
    node.check()
