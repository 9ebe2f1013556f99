"""python -m az_mpi hosts RUN: the hosts of a run that launch looks after; hosts are added and removed while it runs."""

import argparse
import secrets
import sys
import time
from collections import Counter
from pathlib import Path

from az_mpi.core.problems import Refusal, escape
from az_mpi.launch.hosts import parse
from az_mpi.launch.request_files import RequestFiles
from az_mpi.report import status_command

PROG = "python -m az_mpi hosts"
WAIT_S, POLL_S = 30, 0.2  # for the launch's answer; it looks at a host before that is added
EPILOG = """\
examples:
  python -m az_mpi hosts runs/a
  python -m az_mpi hosts runs/a --add node4:2 --remove node2
For a change the run stores what is finished, stops and starts again on the new hosts, which takes some seconds; the
games under way are lost. A host that is added is looked at first. Changes hold until the launch ends; for longer,
change its hostfile, which it reads again and again. Hosts that come back are taken in without a word.

exit codes:
  0    shown, or the change is being made
  2    usage, no launch looks after the run, or it refused: nothing changed
"""


def main(arguments):
    """Show or change the hosts of the run that `arguments` name and return the exit status. Raises Refusal."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__.partition(": ")[2].capitalize(), epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's folder (--logdir of run_dist.py)")
    parser.add_argument("--add", metavar="HOST:SLOTS", action="append", default=[], help="take these hosts in too, "
                        '"node4:2,node5:2"; one that is there gets these slots')
    parser.add_argument("--remove", metavar="HOST", action="append", default=[], help="go on without these hosts")
    parser.add_argument("--restart", action="store_true", help="start the job again, on all hosts that answer")
    parser.add_argument("--no_wait", action="store_true", help="leave the request there without waiting for its answer")
    given = parser.parse_args(arguments)
    add = [str(host) for words in given.add for host in parse(words, "--add")]
    remove = [host.name for words in given.remove for host in parse(words, "--remove")]
    desk = RequestFiles(given.run)
    state = desk.look()
    if not (add or remove or given.restart):
        if given.no_wait:
            raise Refusal(f"{PROG}: error: --no_wait goes with --add, --remove or --restart")
        print("\n".join(lines(status_command.read(given.run), state)))
        return 0
    if state is None:
        status_command.read(given.run)  # refuses what is no run
        raise Refusal(f"{PROG}: error: no launch looks after {escape(str(given.run))}\n"
                      "  a run under mpirun or Slurm: stop it (USR2 to mpirun; scancel -b -s TERM) and start the same\n"
                      "  command on other hosts; python -m az_mpi launch starts a run that can be asked")
    return ask(desk, state, {"add": add, "remove": remove, "restart": given.restart}, given.no_wait)


def lines(values, state):
    """Return the lines that tell the hosts of a run, from its status.json and launch.json (None: there is none)."""
    if state is None:
        ranks = Counter(row["host"] for row in values["ranks"])
        rows = [f"  {name}: {num} rank{'s' * (num != 1)}" for name, num in ranks.items()]
        return [f"job: {values['job']}; no launch looks after it", *rows]
    # What status.json tells while the job is started again is of the job before.
    job = f"{values['job']}, {len(values['ranks'])} of {state['ranks']} ranks" if state.get("up", True) else (
        f"being started again, on {state['ranks']} ranks")
    restarts = f"{state['restarts_num']} restart{'s' * (state['restarts_num'] != 1)}"
    head = f"job: {job}; launch: process {state['pid']} on {escape(state['host'])}, {restarts}"
    return [head, *(f"  {escape(row['host'])}: {row['state']}" for row in state["hosts"])]


def ask(desk, state, change, no_wait):
    """Leave a request for the launch, wait for its answer, print it and return its status. Raises Refusal."""
    request = {"id": secrets.token_hex(8), "launch": state["id"], **change}
    try:
        desk.ask(request)
    except FileExistsError:
        raise Refusal(f"{PROG}: error: {desk.request}: another request is waiting\n"
                      "  try again in a moment; if its launch is dead, remove that file") from None
    except OSError as error:
        raise Refusal(f"{PROG}: error: {desk.request}: {error.strerror}") from error
    if no_wait:
        print("asked; python -m az_mpi hosts RUN shows what comes of it")
        return 0
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        answer = (desk.look() or {}).get("answer") or {}
        if answer.get("id") == request["id"]:
            print(answer["text"], file=sys.stderr if answer["status"] else sys.stdout)
            return answer["status"]
        time.sleep(POLL_S)
    took = "has taken the request and not answered" if not desk.withdraw(request["id"]) else "does not answer"
    raise Refusal(f"{PROG}: error: within {WAIT_S} s the launch of this run, process {state['pid']} on "
                  f"{escape(state['host'])}, {took}\n  is it there? Does it start the job again just now? Then try "
                  "again")
