"""python -m az_mpi hosts RUN: show the hosts of a run that launch supervises; add and remove hosts while it runs."""

import secrets
import sys
import time
from collections import Counter
from typing import Any

from az_mpi.core.arguments import Parser
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, escape
from az_mpi.launch.hosts import parse
from az_mpi.launch.request_files import RequestFiles
from az_mpi.telemetry import status_command

PROG = "python -m az_mpi hosts"
ABOUT = "Show the hosts of a run that launch supervises; add and remove hosts while it runs."
WAIT_S, POLL_S = 30, 0.2  # for launch's answer; it checks a host before it adds it
EPILOG = """\
examples:
  python -m az_mpi hosts runs/a
  python -m az_mpi hosts runs/a --add node4:2 --remove node2
For a change the run stores the finished games, stops and starts again on the new hosts, which takes some seconds; the
unfinished games are lost. A host that is added is checked first. Changes hold until launch ends; to keep them, change
its hostfile, which it reads again and again. Lost hosts that come back are used again without a request.

exit codes:
  0    shown, or the change is being made
  2    usage, no launch supervises the run, or it refused: nothing changed
"""


def main(arguments: list[str]) -> int:
    """Show or change the hosts of the run that `arguments` name and return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG, run=True)
    parser.add_argument(
        "--add",
        metavar="HOST:SLOTS",
        action="append",
        default=[],
        help='use these hosts too, "node4:2,node5:2"; one that is used already gets these slots',
    )
    parser.add_argument("--remove", metavar="HOST", action="append", default=[], help="continue without these hosts")
    parser.add_argument("--restart", action="store_true", help="start the job again, on all hosts that answer")
    parser.add_argument(
        "--no_wait",
        action="store_true",
        help="send the request and do not wait for the answer; hosts RUN shows it later",
    )
    given = parser.parse_args(arguments)
    add = [str(host) for words in given.add for host in parse(words, "--add")]
    remove = [host.name for words in given.remove for host in parse(words, "--remove")]
    requests = RequestFiles(given.run)
    state = requests.look()
    if not (add or remove or given.restart):
        if given.no_wait:
            raise Refusal(f"{PROG}: error: --no_wait goes with --add, --remove or --restart")
        print("\n".join(lines(status_command.read(given.run, PROG), state)))
        return 0
    if state is None:
        status_command.read(given.run, PROG)  # raises Refusal for a folder that holds no run
        raise Refusal(
            f"{PROG}: error: no launch supervises {escape(str(given.run))}\n"
            "  under mpirun or Slurm: stop the run (USR2 to mpirun; scancel -b -s TERM) and give the same\n"
            "  command on other hosts; under python -m az_mpi launch hosts can be changed while it runs"
        )
    return ask(requests, state, {"add": add, "remove": remove, "restart": given.restart}, given.no_wait)


def lines(values: dict[str, Any], state: dict[str, Any] | None) -> list[str]:
    """Return the lines that show the hosts of a run. values: its status.json. state: its launch.json, or None."""
    if state is None:
        ranks = Counter(row["host"] for row in values["ranks"])
        rows = [f"  {name}: {counted(num, 'rank')}" for name, num in ranks.items()]
        return [f"job: {values['job']}; no launch supervises it", *rows]
    # While the job is started again, status.json is that of the job before.
    job = (
        f"{values['job']}, {len(values['ranks'])} of {state['ranks']} ranks"
        if state.get("up", True)
        else (f"being started again, on {counted(state['ranks'], 'rank')}")
    )
    restarts = counted(state["num_restarts"], "restart")
    head = f"job: {job}; launch: process {state['pid']} on {escape(state['host'])}, {restarts}"
    rows = [f"  {escape(row['host'])}: {row['state']}" for row in state["hosts"]]
    # A request under --no_wait has no other place for its result.
    if answer := state.get("answer"):
        rows.append(f"last answered request{', refused' if answer['status'] else ''}: {answer['text']}")
    return [head, *rows]


def ask(requests: RequestFiles, state: dict[str, Any], change: dict[str, Any], no_wait: bool) -> int:
    """Send launch a request, wait for its answer, print it and return its status. Raises Refusal."""
    request = {"id": secrets.token_hex(8), "launch": state["id"], **change}
    try:
        requests.ask(request)
    except FileExistsError:
        raise Refusal(
            f"{PROG}: error: {requests.request}: another request is waiting\n"
            "  try again in a moment; if its launch is dead, remove that file"
        ) from None
    except OSError as error:
        raise Refusal(f"{PROG}: error: {requests.request}: {error.strerror}") from error
    if no_wait:
        print("the request is stored; python -m az_mpi hosts RUN shows its result")
        return 0
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        answer = (requests.look() or {}).get("answer") or {}
        if answer.get("id") == request["id"]:
            print(answer["text"], file=sys.stderr if answer["status"] else sys.stdout)
            return answer["status"]
        time.sleep(POLL_S)
    has_read = not requests.withdraw(request["id"])
    problem = "has read the request and has not answered" if has_read else "does not answer"
    raise Refusal(
        f"{PROG}: error: within {WAIT_S} s the launch of this run, process {state['pid']} on "
        f"{escape(state['host'])}, {problem}\n  it may be gone, or be starting the job again; then try "
        "again in a minute"
    )
