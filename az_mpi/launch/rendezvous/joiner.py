"""What each node of a rendezvous except node 0 does: it runs the commands that node 0 writes for it, until node 0 ends
the job."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

from az_mpi.core import files
from az_mpi.core.exit_codes import RESUMABLE
from az_mpi.core.problems import Refusal, escape
from az_mpi.launch import mpi_job
from az_mpi.launch.rendezvous.nodes import POLL_S, SAY_EVERY_S, Node, Other

OUTPUT_BYTES_MAX = 2**16


def serve(node: Node, waiting_s: float) -> int:
    """Run what node 0 asks for until the job ends; return the job's status.

    Raises Refusal if node 0 does not come within waiting_s.
    """
    root = Other(node.folder, 0)
    commands: dict[str, Command | None] = {}  # by the key of the command; None once node 0 got the result
    caught: list[int] = []  # signals that node 0 is to get
    start, say_at = time.monotonic(), 0
    joined = None  # the id of the process that is node 0, once it counts this node in
    failed = None  # why the newest try to do what node 0 asks for has failed
    try:
        while True:
            node.check()
            content = root.look()
            mine = content is not None and any(one["id"] == node.id for one in content.get("members", []))
            if mine and joined is None:
                joined = content["id"]
                mpi_job.say(f"node {node.index}: joined node 0 on {escape(content['host'])}")
                listen(caught)
            if joined is None:
                say_at = _wait_for_root(node, time.monotonic() - start, waiting_s, say_at)
            elif root.is_lost(joined):
                mpi_job.say(f"node {node.index}: node 0 is lost: ending")
                return RESUMABLE  # start the same command again, on every node or on this one
            elif content is None:
                pass  # the file is being rewritten
            elif not mine:
                mpi_job.say(f"node {node.index}: node 0 counts this node as lost and continues without it: ending")
                return RESUMABLE  # start the same command again, on every node or on this one
            elif end := content.get("end"):
                if end["text"]:
                    print(f"node 0: {end['text']}", file=sys.stderr)
                return end["status"]
            else:
                failed = _try_work(node, commands, failed)
                pass_on(node, caught)
            time.sleep(POLL_S)
    finally:
        for command in filter(None, commands.values()):
            command.end()


def _wait_for_root(node, waited_s, waiting_s, say_at):
    """Print that this node waits for node 0 if `say_at` is over; return when to print it again. Raises Refusal after
    `waiting_s`. All times are in seconds since the start."""
    if waited_s > waiting_s:
        raise Refusal(
            f"after {waiting_s} s no node 0 has found all of its nodes\n"
            "  start the same command with --node_index 0, or allow more time with --timeout"
        )
    if waited_s < say_at:
        return say_at
    mpi_job.say(f"node {node.index}: waiting for node 0 ({waiting_s - waited_s:.0f} s left)")
    return say_at + SAY_EVERY_S


def _try_work(node, commands, failed):
    """Do what node 0 asks for. Return why it failed, perhaps for a moment, or None. failed: what the try before has
    returned; the same reason is printed once."""
    try:
        work(node, commands)
    except OSError as error:  # of the folder or of this host
        if failed != str(error):
            mpi_job.say(f"node {node.index}: a command of node 0 cannot be done now: {error}")
        return str(error)
    return None


def listen(caught: list[int]) -> None:
    """From now on, note in `caught` the signals of the user or of a scheduler. Node 0 is to get them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        is_under_nohup = number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
        if not is_under_nohup:
            signal.signal(number, lambda number, _: caught.append(number))


def pass_on(node: Node, caught: list[int]) -> None:
    """Pass noted signals on to node 0, for mpirun: the first one stops the run cleanly, the second ends this node."""
    while caught:
        number = caught.pop(0)
        sent = node.content.get("signals", [])
        if number != signal.SIGUSR1:
            mpi_job.say_stop(number, sent.count(signal.SIGUSR2))
            if signal.SIGUSR2 in sent:
                raise SystemExit(128 + number)
            number = signal.SIGUSR2
        node.tell(signals=[*sent, int(number)])


def work(node: Node, commands: dict[str, "Command | None"]) -> None:
    """Start new commands for this node, and send back the results of those that have ended."""
    for name in node.folder.names():
        key = name.removeprefix("command-")
        if name.startswith(f"command-{node.id}-") and key not in commands:
            if asked := node.folder.read(name):
                commands[key] = Command(asked["command"], asked["input"])
    for key, command in commands.items():
        if command and command.process.poll() is not None:
            node.folder.write(f"result-{key}", command.result())
            node.folder.remove(f"command-{key}")
            command.close()
            commands[key] = None  # its file may still be seen, and is not run again


class Command:
    """A shell command of node 0, in a session of its own."""

    def __init__(self, command: str, text: str):
        self.output = files.in_memory()
        self.errors = files.in_memory()
        with files.in_memory() as source:
            source.write(text.encode())
            source.seek(0)
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=source, stdout=self.output, stderr=self.errors, start_new_session=True
            )

    def result(self) -> dict[str, Any]:
        """Return the exit status and the end of the output of a command that has ended, for node 0."""
        status = self.process.returncode
        return {
            "status": status if status >= 0 else 128 - status,
            "output": _tail(self.output),
            "errors": _tail(self.errors),
        }

    def close(self) -> None:
        """Give up the memory of the output."""
        self.output.close()
        self.errors.close()

    def end(self) -> None:
        """End the command, with the processes that it started, unless it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    pass


def _tail(file):
    file.seek(max(0, file.seek(0, os.SEEK_END) - OUTPUT_BYTES_MAX))
    return file.read().decode(errors="replace")
