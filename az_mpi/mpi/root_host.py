"""Which host is root: its ranks come first. It is the one that `train.root_host` names, else the first one of the list
that mpirun was given. Open MPI itself begins with the host on which mpirun runs, wherever that stands in the list.
"""

import os
import re
import socket
import sys
from pathlib import Path

from az_mpi.core.problems import Refusal

RESTARTS = "AZ_MPI_RESTARTS"  # in the environment of ranks: how often launch has started the job again
STARTERS = ("mpirun", "mpiexec", "prterun", "orterun")
LISTS = ("-H", "-host", "--host")
FILES = ("-hostfile", "--hostfile", "-machinefile", "--machinefile")


def order(world, wanted):
    """Return a world of the same ranks, those of root's host first and the rest in order. Collective.

    wanted: `train.root_host`. Raises Refusal where that is none of the hosts; but a job that launch or Slurm starts
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


def is_here(name):
    """Return whether a host's name means this machine: whether its address is one that can be listened on here."""
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
    """Return the first host that was listed, None where it is this one or not known. Of the rank that MPI puts first:
    where mpirun does not run on its host, Open MPI keeps the order of the list."""
    pid, words = _mpirun()
    name = first_listed(words, f"/proc/{pid}/cwd")
    return None if name is None or is_here(name) else name


def _mpirun():
    """Return (process id, words of its command line) of the mpirun above this process; (0, []) without one."""
    pid = os.getppid()
    while pid > 0:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name in STARTERS:
                return pid, words
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return 0, []


def first_listed(words, folder):
    """Return the first host of the list in an mpirun's command line, None where there is none.

    words: of the command line. folder: where mpirun was started, for a hostfile's path.
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
    """Return the host of an entry such as user@node1:2; None for what is no host's name, such as +n0."""
    name = entry.rpartition("@")[2].partition(":")[0]
    return name if re.fullmatch(r"[A-Za-z0-9._-]+", name) else None
