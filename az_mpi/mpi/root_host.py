"""The host of root, whose ranks come first: `train.root_host`, else the first host of mpirun's list. Open MPI itself
begins with the host on which mpirun runs, wherever that is in the list.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from az_mpi.core.host_names import is_here
from az_mpi.core.processes import PARENT, stat
from az_mpi.mpi import named_hosts

if TYPE_CHECKING:
    from az_mpi.mpi.world import World

STARTERS = ("mpirun", "mpiexec", "prterun", "orterun")
LISTS = ("-H", "-host", "--host")
FILES = ("-hostfile", "--hostfile", "-machinefile", "--machinefile")


def order(world: "World", wanted: str) -> "World":
    """Return a world of the same ranks, those of root's host first, the others in order. Collective.

    wanted: `train.root_host`. Raises Refusal if that is none of the hosts; but a job that launch or Slurm has started
    again may have lost that host, and continues without it.
    """
    name = wanted or world.share(_first_if_elsewhere() if world.is_root else None)
    if not name:
        return world
    there = named_hosts.ranks_of(world, name)
    if any(there):
        return world.reorder(there[world.rank])
    if wanted:
        named_hosts.missing(
            world,
            "train.root_host",
            name,
            f"--set train.root_host={world.host}, or leave it empty: then the first host listed is root",
        )
    if world.is_root:
        listed = "" if wanted else f": {name}, the first host listed, is none of the hosts of this job"
        print(
            f"note: {world.host} is root{listed}; --set train.root_host=HOST chooses another host of the job",
            file=sys.stderr,
            flush=True,
        )
    return world


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
