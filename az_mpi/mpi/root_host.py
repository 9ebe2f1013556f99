"""The host of root, whose ranks come first: `train.root_host`, else the first host of mpirun's list. Open MPI itself
begins with the host on which mpirun runs, wherever that is in the list.
"""

import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from az_mpi.core.problems import Refusal
from az_mpi.core.processes import PARENT, stat

if TYPE_CHECKING:
    from az_mpi.mpi.world import World

RESTARTS = "AZ_MPI_RESTARTS"  # in the environment of ranks: how often launch has started the job again
STARTERS = ("mpirun", "mpiexec", "prterun", "orterun")
LISTS = ("-H", "-host", "--host")
FILES = ("-hostfile", "--hostfile", "-machinefile", "--machinefile")


def order(world: "World", wanted: str) -> "World":
    """Return a world of the same ranks, those of root's host first, the others in order. Collective.

    wanted: `train.root_host`. Raises Refusal if that is none of the hosts; but a job that launch or Slurm has started
    again may have lost that host, and goes on without it.
    """
    name = wanted or world.share(_first_if_elsewhere() if world.is_root else None)
    if not name:
        return world
    there = world.collect(is_here(name))
    if any(there):
        return world.reorder(there[world.rank])
    hosts = ", ".join(dict.fromkeys(world.hosts))
    if wanted and not any(os.environ.get(variable, "0") != "0" for variable in (RESTARTS, "SLURM_RESTART_COUNT")):
        raise Refusal(f'train.root_host: "{name}" is none of the hosts of this job: {hosts}\n'
                      f"  --set train.root_host={world.host}, or leave it empty: then the first host listed is root")
    if world.is_root:
        what = "train.root_host" if wanted else "the first host listed"
        print(f"note: {world.host} is root: {name}, {what}, is none of the hosts of this job ({hosts}); "
              "--set train.root_host=HOST chooses one of them", file=sys.stderr, flush=True)
    return world


def is_here(name: str) -> bool:
    """Return whether a host's name means this machine: whether a socket can be bound to its address here."""
    if name.lower() in ("localhost", socket.gethostname().lower(), socket.gethostname().partition(".")[0].lower()):
        return True
    try:
        address = socket.gethostbyname(name)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
            listener.bind((address, 0))
        return True
    except (OSError, UnicodeError):
        return False


def _first_if_elsewhere():
    """Return the first host of mpirun's list, None if it is this one or not known. To be called on MPI's rank 0: if
    mpirun does not run on that rank's host, Open MPI has kept the order of the list."""
    pid, words = _mpirun()
    name = first_listed(words, f"/proc/{pid}/cwd")
    return None if name is None or is_here(name) else name


def _mpirun():
    """Return (process id, command line as words) of the mpirun that is an ancestor of this process; (0, []) without."""
    pid = os.getppid()
    while pid > 0:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name in STARTERS:
                return pid, words
            pid = int(stat(pid)[1][PARENT])
        except (OSError, ValueError, IndexError):
            break
    return 0, []


def first_listed(words: Sequence[str], folder: str | Path) -> str | None:
    """Return the first host of the list in mpirun's command line, None without one.

    words: of the command line. folder: mpirun's current folder, for the path of a hostfile.
    """
    for word, following in zip(words, [*words[1:], ""]):
        option, equals, value = word.partition("=")
        value = value if equals else following
        if option in LISTS:
            return _name(value.partition(",")[0])
        if option in FILES:
            try:
                lines = Path(folder, value).read_text(errors="replace").splitlines()
            except (OSError, ValueError):
                return None
            return next((_name(host[0]) for line in lines if (host := line.partition("#")[0].split())), None)
    return None


def _name(entry):
    """Return the host of an entry such as user@node1:2; None if it is not a host's name, such as +n0."""
    name = entry.rpartition("@")[2].partition(":")[0]
    return name if re.fullmatch(r"[A-Za-z0-9._-]+", name) else None
