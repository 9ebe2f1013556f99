"""Which mpirun launch uses, and the command line that starts a job with it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from az_mpi.core.problems import Refusal
from az_mpi.launch.host_probe import LAUNCH
from az_mpi.launch.hosts import Host
from az_mpi.mpi.named_hosts import RESTARTS

# Names in Open MPI's runtime, versions 4 and 5.
WORDS = {
    4: {"parameter": "--mca", "interface": "oob_tcp_if_include", "shell": "rsh"},
    5: {"parameter": "--prtemca", "interface": "prte_if_include", "shell": "ssh"},
}


class Mpirun(NamedTuple):
    """An mpirun of Open MPI: its path, the first line of `mpirun --version`, and its prefix, under which other hosts
    find the same (None: mpirun knows it)."""

    path: str
    version: str
    prefix: str | None

    @property
    def words(self) -> dict[str, str]:
        return WORDS[int(re.search(r"\b[45]\b", self.version).group())]


def find() -> Mpirun:
    """Return the Mpirun of this Python's environment, else that of PATH. Raises Refusal."""
    beside = Path(sys.executable).parent / "mpirun"
    path = str(beside) if beside.is_file() else shutil.which("mpirun")
    if path is None:
        raise Refusal(
            f"there is no mpirun beside {sys.executable} or on PATH\n"
            "  make the environment with `make setup` and use its python: .venv/bin/python -m az_mpi launch"
        )
    path = os.path.abspath(path)
    try:
        said = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refusal(f"{path} --version: {error}\n  this MPI is incomplete: `make setup` installs it again") from error
    version = (said.stdout.splitlines() or said.stderr.splitlines() or [""])[0].strip()
    if not re.search(r"Open MPI\W+[45]\.", version):
        raise Refusal(
            f"{path} is not of Open MPI 4 or 5 ({version or 'no version is printed'})\n"
            "  start the job by hand: for MPICH mpiexec -hosts node1:2,node2:2 -n 4 python run_dist.py ..."
        )
    with open(path, "rb") as file:
        is_script = file.read(2) == b"#!"
    return Mpirun(path, version, None if is_script else str(Path(path).resolve().parent.parent))


# With these a host that fails silently (power, cable) is noticed after some 9 s; without them after 8 minutes.
KEEPALIVE = {"oob_tcp_keepalive_time": "3", "oob_tcp_keepalive_intvl": "2", "oob_tcp_keepalive_probes": "3"}


def line(
    mpirun: Mpirun,
    hosts: Sequence[Host],
    np: int,
    program: list[str],
    threads: int | None = None,
    interface: str | None = None,
    networks: tuple[str | None, str | None] = (None, None),
    agent: str | None = None,
    survive: bool = False,
    launch: str | None = None,
    restarts: int = 0,
) -> list[str]:
    """Return the command line, a list of words, that starts `program` (a list too) as np ranks on the Hosts.

    threads: of a rank, for libraries that read it from the environment; None leaves it as it is.
    interface: the one network for everything, by name or CIDR. Without it networks: (for the runtime, for messages),
    CIDRs separated by commas, None for MPI's own choice.
    agent: what mpirun calls in place of ssh. survive: the other ranks go on when one dies. launch: the id in the ranks'
    environment, see `host_probe.LAUNCH`. restarts: how often that launch has started a job again.

    Raises Refusal if this mpirun cannot do that.
    """
    words, runtime, messages = mpirun.words, interface or networks[0], interface or networks[1]
    command = [mpirun.path]
    if os.geteuid() == 0:
        command += ["--allow-run-as-root"]
    if mpirun.prefix and any(host.name != "localhost" for host in hosts):
        command += ["--prefix", mpirun.prefix]
    if survive:
        if words is WORDS[4]:
            raise Refusal(
                f"--survive needs Open MPI 5, and {mpirun.path} is {mpirun.version}\n"
                "  leave it out: then the job ends with a rank, and goes on when it is started again"
            )
        command += ["--with-ft", "ulfm"]
    if agent:
        # Also within a scheduler's job. Each daemon is started from here and stays a child of the agent's shell.
        plm = {"plm": words["shell"], f"plm_{words['shell']}_agent": agent, f"plm_{words['shell']}_no_tree_spawn": "1"}
        for name, value in plm.items():
            command += [words["parameter"], name, value]
        command += ["--leave-session-attached"]
    if any(host.name != "localhost" for host in hosts):
        for name, value in KEEPALIVE.items():
            command += [words["parameter"], name, value]
    if runtime:
        command += [words["parameter"], words["interface"], runtime]
    if messages:
        command += ["--mca", "btl_tcp_if_include", messages]
    # az_mpi shares a host's cores out among its ranks itself, and a rank has several threads.
    command += ["--bind-to", "none", *_environment(threads, interface, launch, restarts)]
    return [*command, "-np", str(np), "-H", ",".join(map(str, hosts)), *program]


def _environment(threads, interface, launch, restarts):
    """Return the words that set variables of every rank's environment. The arguments are those of `line`."""
    settings = {"OMP_NUM_THREADS": threads} if threads else {}
    if interface and "/" not in interface:
        settings |= {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface}
    values = [name if name in os.environ else f"{name}={value}" for name, value in settings.items()]
    values += [f"{name}={value}" for name, value in ((LAUNCH, launch), (RESTARTS, restarts)) if value]
    values += [name for name in ("PYTHONPATH",) if name in os.environ]  # where users' own modules are
    return [word for value in values for word in ("-x", value)]
