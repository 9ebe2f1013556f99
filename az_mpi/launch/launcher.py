"""python -m az_mpi launch: from a list of hosts to a running job."""

import argparse
import ipaddress
import re
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from az_mpi.config import command_line
from az_mpi.config import load as configuration
from az_mpi.config.command_line import Arguments
from az_mpi.core import room
from az_mpi.core.arguments import Parser, whole
from az_mpi.core.exit_codes import RESUMABLE
from az_mpi.core.printing import outlive_output
from az_mpi.core.problems import Refusal, escape, nearest, need_current_folder
from az_mpi.launch import check, hosts, mpi_job, mpirun, packed
from az_mpi.launch.host_pool import HostPool
from az_mpi.launch.rendezvous import node0
from az_mpi.launch.supervisor import ANSWER_S, RESTARTS_MAX, Supervisor
from az_mpi.launch.transport import Ssh
from az_mpi.storage.run_folder import config_of

PROG = "python -m az_mpi launch"
DESCRIPTION = """\
Start run_dist.py with mpirun on one host or on many, after a check of each of them. The words after -- are options of
run_dist.py. The mpirun line is printed, so that it can be used without this program."""
EPILOG = """\
examples:
  python -m az_mpi launch --np 2 -- --config_file configs/smoke.json
  python -m az_mpi launch --hosts "10.0.0.1:2,10.0.0.2:2" -- --config_file configs/connect4.json --logdir /shared/runs/a
  python -m az_mpi launch --hostfile hosts.txt --gpus 4 --nodes 2 -- --config_file configs/connect4.json
without ssh, once on each node, K = 0, 1, ..., with a folder that all of them share (mode 0700):
  python -m az_mpi launch --rendezvous /shared/meet --num_nodes 2 --node_index K --np 4 -- --config_file ...

INT and TERM stop a run cleanly (exit code 75: start the same command again to continue), the second one ends it at
once; USR1 makes it write a checkpoint.

A training that loses a host, a rank or mpirun is started again on the hosts that answer, and continues from what is
stored. Hosts that come back, and new lines in the hostfile, are used too; see also python -m az_mpi hosts --help. A
program that fails by itself while all hosts answer is not started again. A node of a rendezvous that was lost comes
back when the same command is started there. If node 0 is lost, all of them end (exit code 75).

Settings of MPI are given as variables: OMPI_MCA_NAME=VALUE (docs/hosts.md).

The exit code is mpirun's, or 2 if nothing was started, or 75 if it stopped or gave up: docs/trouble.md.
"""
NODES_MAX = hosts.HOSTS_MAX
TIMEOUT_MAX_S = 86400


def _parser():
    parser = Parser(PROG, DESCRIPTION, EPILOG, usage=f"{PROG} [options] -- OPTIONS OF run_dist.py")
    where = parser.add_argument_group("where")
    hosts.add_options(where)
    where.add_argument("--nodes", metavar="N", type=whole(NODES_MAX), help="use the first N of the hosts")
    where.add_argument("--gpus", metavar="N", type=whole(hosts.SLOTS_MAX), help="ranks on each host, one for each GPU")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--interface",
        metavar="NAME|CIDR",
        type=_interface,
        help="the network to use, eth0 or 10.0.0.0/24; default: those that all hosts share",
    )
    how.add_argument(
        "--timeout",
        metavar="S",
        type=whole(TIMEOUT_MAX_S),
        help=f"seconds for a host to answer before the first job (default {check.ANSWER_S}), or for all nodes to come "
        f"to the rendezvous (default {node0.COME_S}); a restart waits {ANSWER_S} s for hosts, and longer only if none "
        "has answered",
    )
    how.add_argument(
        "--survive",
        action="store_true",
        help="continue with the other ranks when one dies (mpirun "
        "--with-ft ulfm; MPI then talks over TCP and shared memory only)",
    )
    how.add_argument(
        "--max_restarts",
        metavar="N",
        type=whole(10**6, 0),
        default=RESTARTS_MAX,
        help=f"give up after so many restarts in a row without progress (default {RESTARTS_MAX}; 0: never restart)",
    )
    how.add_argument(
        "--packed",
        metavar="FILE",
        type=Path,
        help="start from FILE, which each host unpacks once into /tmp; written first where it is missing or out of "
        "date (python -m az_mpi pack --help)",
    )
    how.add_argument("--dry_run", action="store_true", help="only print the mpirun line; no host is contacted")
    meet = parser.add_argument_group("without ssh")
    meet.add_argument("--rendezvous", metavar="DIR", help="a folder that all nodes share; only you may have access")
    meet.add_argument("--num_nodes", metavar="N", type=whole(NODES_MAX), help="how many nodes there are")
    meet.add_argument(
        "--node_index", metavar="K", type=whole(NODES_MAX, 0), help="which of them this is; 0 runs mpirun"
    )
    return parser


def _interface(text):
    """Return the name of a network interface, or a network in CIDR form."""
    if "/" in text:
        try:
            return str(ipaddress.IPv4Network(text, strict=False))
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{escape(text)}' is no network, such as 10.0.0.0/24") from None
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}", text):  # stricter than Linux: no shell misreads it
        raise argparse.ArgumentTypeError(
            f"'{escape(text)}' is no interface's name, such as eth0 or ib0, and no network, such as 10.0.0.0/24"
        )
    return text


def parse(arguments: list[str]) -> tuple[Namespace, list[str]]:
    """Return (the launcher's options, the words after --). Raises Refusal; SystemExit(0) after --help."""
    parser = _parser()
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options, extras = parser.parse_known_args(arguments[:cut])
    if extras:
        word = extras[0].partition("=")[0]
        names = [name for action in parser._actions for name in action.option_strings]
        if near := nearest(word.lstrip("-"), [name.lstrip("-") for name in names]):
            parser.error(f"there is no option {escape(word)}; did you mean --{near[0]}?")
        parser.error(f"there is no option {escape(word)}; what is for run_dist.py stands after --")
    if options.hosts is not None and options.hostfile is not None:
        parser.error("--hosts and --hostfile: give one of them")
    meeting = {"--num_nodes": options.num_nodes, "--node_index": options.node_index}
    if options.rendezvous is None:
        if given := [name for name, value in meeting.items() if value is not None]:
            parser.error(f"{given[0]} goes with --rendezvous DIR")
        return options, arguments[cut + 1 :]
    if missing := [name for name, value in meeting.items() if value is None]:
        parser.error(f"--rendezvous needs {' and '.join(missing)}")
    if options.node_index >= options.num_nodes:
        parser.error(
            f"--node_index {options.node_index}: with --num_nodes {options.num_nodes} it goes from 0 to "
            f"{options.num_nodes - 1}"
        )
    for name in ("hosts", "hostfile", "nodes", "dry_run"):
        if getattr(options, name):
            parser.error(f"--{name} does not go with --rendezvous: the nodes are those that come to it")
    return options, arguments[cut + 1 :]


def read_program(words: list[str]) -> tuple[list[str], Arguments]:
    """Return (the words that start run_dist.py, its Arguments). Raises Refusal, also for a bad configuration."""
    given = command_line.parse(words)
    if given.config_file:
        configuration.load(given.config_file, given.overrides, given.sources)
    program = Path(__file__).resolve().parents[2] / "run_dist.py"
    if not program.is_file():
        raise Refusal(f"there is no {program}: run this from a checkout of az_mpi")
    return [sys.executable, str(program), *words], given


def packed_program(options: Namespace, words: list[str]) -> list[str]:
    """Return the words that start run_dist.py from the pack of the options. The pack is written first unless it is
    current, by node 0 of a rendezvous. Raises Refusal."""
    if not (options.dry_run or options.node_index or packed.is_current(options.packed)):
        packed.write(options.packed)
    return [str(options.packed.absolute()), *words]


def find_hosts(options: Namespace) -> list[hosts.Host]:
    """Return the Hosts of the options, from the hostfile as it is now; [] for this machine alone. Raises Refusal."""
    found = hosts.listed(options)
    of_slurm = options.hosts is None and options.hostfile is None
    return [host._replace(slots=None) for host in found] if of_slurm and options.gpus else found


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    options, words = parse(arguments)
    need_current_folder()
    try:
        program, given = read_program(words)
    except command_line.PrintAndExit as text:
        print(text, end="")
        return 0
    if not options.dry_run:
        outlive_output()
    if options.packed is not None:
        program = packed_program(options, words)
    if options.rendezvous is not None:
        with mpi_job.interruptible():
            return node0.run(options, program, given, config_of(given).max_hours if given.trains else None)
    chosen, np = hosts.choose(find_hosts(options), options.nodes, options.gpus, options.np)
    found = mpirun.find()
    if not options.dry_run and given.trains:
        return supervise(options, program, given, found, chosen)
    job = mpirun.JobSpec(
        program, chosen, np, networks=mpirun.Networks.of_option(options.interface), survive=options.survive
    )
    if not (options.no_check or options.dry_run):
        job = check.fitted(job, check_hosts(options, given, found, chosen))
    command = mpirun.line(found, job)
    print(shlex.join(command), flush=True)
    return 0 if options.dry_run else mpi_job.run(command)


def supervise(
    options: Namespace, program: list[str], given: Arguments, found: mpirun.Mpirun, chosen: list[hosts.Host]
) -> int:
    """Run a training and supervise it; return the exit status."""
    if options.survive:
        found.need_ulfm()
    max_hours = config_of(given).max_hours
    host_pool = HostPool(lambda: find_hosts(options) or chosen, options.nodes, options.gpus, options.np)
    answers = None if options.no_check else check_hosts(options, given, found, chosen)
    with mpi_job.interruptible(RESUMABLE):
        return Supervisor(options, program, given.logdir, found, host_pool, chosen, max_hours, Ssh()).run(answers)


def check_hosts(options: Namespace, given: Arguments, found: mpirun.Mpirun, chosen: list[hosts.Host]) -> check.Answers:
    """Return the answers of the chosen hosts, see `check.check`; print which of them have little shared memory. Raises
    Refusal."""
    timeout_s = options.timeout or check.ANSWER_S
    with mpi_job.interruptible():
        answers = check.check(chosen, found, given.logdir, check.ssh(timeout_s), timeout_s, bool(options.gpus))
    for host in chosen:
        if lack := room.lack_of_shared_memory(answers[host.name]["facts"].shared_bytes, host.slots):
            mpi_job.say(f"{host.name}: {lack[0]}\n  more room: {lack[1]}")
    return answers
