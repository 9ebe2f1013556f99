"""The hosts of a job, from a string, a file or Slurm. Names that ssh or a shell could misread are refused."""

import ipaddress
import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core import files
from az_mpi.core.arguments import whole
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, escape

NAME_MAX, LABEL_MAX = 253, 63  # of DNS
LABEL = f"[A-Za-z0-9_]([A-Za-z0-9_-]{{0,{LABEL_MAX - 2}}}[A-Za-z0-9_])?"
SLOTS_MAX, HOSTS_MAX = 1024, 4096
HOSTFILE_BYTES_MAX = 2**20
PROBLEMS_SHOWN = 10
FORM = (
    'hosts are written HOST:SLOTS, such as --hosts "10.0.0.1:2,node2:2", with names or IPv4 addresses (Open MPI '
    "takes no IPv6 ones here)"
)
FILE_FORM = "a line of a hostfile is a host and its slots, in one of the forms `node1 slots=2` and `node1:2`"


class Host(NamedTuple):
    """A host by its name or IPv4 address, and how many ranks it may run; None if that is not specified."""

    name: str
    slots: int | None = None

    def __str__(self) -> str:
        return self.name if self.slots is None else f"{self.name}:{self.slots}"


class _Bad(Exception):
    """An entry cannot be used; str() says why and how to fix it."""


def parse(text: str, source: str = "--hosts") -> list[Host]:
    """Return the Hosts of a list such as "10.0.0.1:2,node2:2". Raises Refusal, which lists every problem."""
    return _read([("", entry, entry) for entry in text.split(",")], source, _entry, FORM)


def read(path: str | Path) -> list[Host]:
    """Return the Hosts of a hostfile, in Open MPI's or MPICH's form. Raises Refusal, which lists every problem."""
    lines = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        content = line.partition("#")[0].strip(" \t\r")
        if content:
            lines.append((f"line {number}: ", content, content))
    source = f"--hostfile {escape(str(path))}"
    if not lines:
        raise Refusal(f"{source}: names no host\n  {FILE_FORM}")
    return _read(lines, source, _line, FILE_FORM)


def from_slurm(environment: Mapping[str, str]) -> list[Host]:
    """Return the Hosts of the Slurm job of an `environment`, [] outside of a job. Raises Refusal."""
    nodes = environment.get("SLURM_JOB_NODELIST", "")
    if not nodes:
        return []
    names = [name for word in re.split(r",(?![^\[]*\])", nodes) for name in _expand(word)]
    slots = []
    for tasks, _, times in re.findall(r"(\d+)(\(x(\d+)\))?", environment.get("SLURM_TASKS_PER_NODE", "")):
        slots += [int(tasks)] * int(times or 1)
    slots = slots if len(slots) == len(names) else [None] * len(names)
    entries = [("", name, (name, count)) for name, count in zip(names, slots)]
    return _read(entries, "SLURM_JOB_NODELIST", lambda entry: Host(_name(entry[0]), entry[1]), "is this a Slurm job?")


def refuse_outside_job(added: Sequence[Host], environment: Mapping[str, str]) -> None:
    """Raise Refusal for a Host that does not belong to the Slurm job of an `environment`. Outside of a Slurm job every
    Host is accepted."""
    job = [host.name for host in from_slurm(environment)]
    if job and (outside := [host for host in added if host.name not in job]):
        raise Refusal(f"--add {outside[0]}: this Slurm job does not have it; its hosts: {', '.join(job)}")


def add_options(parser: Any, np: bool = True) -> None:
    """Give a parser, or a group of one, the options --hosts, --hostfile, --no_check and, if `np`, --np, for `listed`
    and `words`."""
    parser.add_argument(
        "--hosts",
        metavar="LIST",
        help='hosts and how many ranks each takes, "10.0.0.1:2,node2:2" '
        "(default: the nodes of the Slurm job, else this machine)",
    )
    parser.add_argument(
        "--hostfile", metavar="FILE", help="a file with a line for each host: node1 slots=2, or node1:2"
    )
    if np:
        parser.add_argument("--np", type=whole(SLOTS_MAX * HOSTS_MAX), metavar="N", help="ranks (default: all slots)")
    parser.add_argument(
        "--no_check",
        action="store_true",
        help="do not check the hosts, as in a Slurm job whose nodes allow no ssh (mpirun needs none there); "
        "lost hosts are then not left out",
    )


def listed(options: Namespace) -> list[Host]:
    """Return the Hosts that the options name, from the hostfile as it is now; by default those of the Slurm job, [] for
    this machine alone. Raises Refusal."""
    if options.hosts is not None:
        return parse(options.hosts)
    return from_slurm(os.environ) if options.hostfile is None else read(options.hostfile)


def words(options: Namespace) -> list[str]:
    """Return the options that were given, as words of a command line."""
    given = {name: getattr(options, name) for name in ("np", "hosts", "hostfile")}
    valued = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    return [*valued, "--no_check"] if options.no_check else valued


def choose(
    hosts: Sequence[Host], nodes: int | None = None, gpus: int | None = None, np: int | None = None
) -> tuple[list[Host], int]:
    """Return (the Hosts of the job with their slots, the number of ranks). Raises Refusal.

    hosts: [] for this machine alone. nodes: use the first so many of them. gpus: slots of each. np: ranks, by default
    all slots.
    """
    if not hosts:
        if (nodes or 1) > 1:
            raise Refusal(f"--nodes {nodes}: the hosts are not known\n  give --hosts or --hostfile, or use a Slurm job")
        hosts = [Host("localhost", gpus or np or 1)]
    if (nodes or 1) > len(hosts):
        raise Refusal(f"--nodes {nodes}: only {counted(len(hosts), 'host')} given: {_shown(hosts)}")
    hosts = hosts[: nodes or len(hosts)]
    if other := [host for host in hosts if gpus and host.slots not in (None, gpus)]:
        raise Refusal(
            f"--gpus {gpus} asks for {counted(gpus, 'rank')} on each host, the list says {_shown(other)}\n"
            "  leave out --gpus, or the slots of the hosts"
        )
    hosts = [host._replace(slots=host.slots or gpus or 1) for host in hosts]
    total = sum(host.slots for host in hosts)
    if (np or 1) > total:
        raise Refusal(
            f"--np {np}: the hosts have {counted(total, 'slot')}: {_shown(hosts)}\n"
            f"  ask for at most {total}, or give the hosts more slots, such as {hosts[0].name}:{np}"
        )
    return hosts, np or total


def _read(entries, source, make, form):
    """Return make(item) for each (place, text of the user, item). Raises Refusal, which lists every problem."""
    hosts, problems = [], []
    seen = {}  # by name in small letters
    for place, written, item in entries:
        try:
            host = make(item)
            name = host.name.lower()
            if name in seen:
                raise _Bad(f"the host is listed twice (before as '{seen[name]}'): give it once, with all its slots")
            seen[name] = host
            hosts.append(host)
        except _Bad as error:
            shown = escape(written)
            problems.append(f"  {place}'{shown if len(shown) <= 70 else shown[:67] + '...'}': {error}")
    if len(entries) > HOSTS_MAX:
        problems = [f"  {len(entries)} hosts: at most {HOSTS_MAX} can be started at once"]
    if problems:
        num_more = len(problems) - PROBLEMS_SHOWN
        more = [f"  ... and {num_more} more"] if num_more > 0 else []
        head = f"{source}: {counted(len(problems), 'problem')}; no host was contacted"
        raise Refusal("\n".join([head, *problems[:PROBLEMS_SHOWN], *more, f"  {form}"]))
    return hosts


def _entry(text):
    """Return the Host of HOST or HOST:SLOTS."""
    name, colon, slots = text.partition(":")
    return Host(_name(name), _slots(slots) if colon else None)


def _line(text):
    """Return the Host of a hostfile's line."""
    first, *others = re.split("[ \t]+", text)
    host = _entry(first)
    most = None
    for word in others:
        key, equals, value = word.partition("=")
        if not equals or key not in ("slots", "max_slots", "max-slots"):
            raise _Bad(f"'{escape(word)}' is not understood")
        if key != "slots":
            most = _slots(value)
        elif host.slots is not None:
            raise _Bad("the slots are given twice")
        else:
            host = host._replace(slots=_slots(value))
    if most is not None and (host.slots or 1) > most:
        raise _Bad(f"slots is {host.slots or 1}, max_slots {most}")
    return host


def _slots(text):
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= SLOTS_MAX:
        raise _Bad(f"'{escape(text)}' is no number of slots: a whole number from 1 to {SLOTS_MAX} is needed")
    return int(text)


def _name(name):
    """Return a host's name or IPv4 address as it is, or raise _Bad."""
    if len(name) > NAME_MAX or not re.fullmatch(rf"{LABEL}(\.{LABEL})*", name):
        raise _Bad(
            "is no host's name: letters, digits, '-' and '_', in parts between dots; a user is named in ~/.ssh/config"
        )
    if re.fullmatch("[0-9]+|0[xX][0-9A-Fa-f]*", name.rpartition(".")[2]):  # resolvers take it for an address
        try:
            address = ipaddress.IPv4Address(name)
        except ValueError:
            raise _Bad("is no IPv4 address: four numbers from 0 to 255 with dots between") from None
        if address.is_multicast or address.is_unspecified or address.is_reserved:
            raise _Bad("is not the address of one host")
    return name


def _text(path):
    """Return the text of a hostfile. Raises Refusal."""
    name = f"--hostfile {escape(str(path))}"
    try:
        data = files.read(os.path.realpath(path), HOSTFILE_BYTES_MAX)  # the path may be a link
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise Refusal(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}\n  {FILE_FORM}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refusal(f"{name}: not text: byte {error.start + 1} is 0x{data[error.start]:02x}\n  {FILE_FORM}") from None


def _expand(word):
    """Yield the names that a word of Slurm such as a[1-2,05]b stands for."""
    head, bracket, rest = word.partition("[")
    if not bracket:
        yield head
        return
    inside, closed, tail = rest.partition("]")
    for part in inside.split(","):
        first, _, last = part.partition("-")
        last = last or first
        whole = re.fullmatch("[0-9]{1,9}", first) and re.fullmatch("[0-9]{1,9}", last)
        if not whole or not closed or int(last) - int(first) > HOSTS_MAX:
            raise Refusal(f"SLURM_JOB_NODELIST: '{escape(word)}' is not understood\n  give --hosts or --hostfile")
        for k in range(int(first), int(last) + 1):
            for end in _expand(tail):
                yield f"{head}{k:0{len(first)}}{end}"


def _shown(hosts):
    return ",".join(map(str, hosts[:8])) + (",..." if len(hosts) > 8 else "")
