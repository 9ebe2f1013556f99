"""Which mpirun launch uses, and the command line that starts a job with it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        """Return the names in this version's runtime."""
        return WORDS[int(re.search(r"\b[45]\b", self.version).group())]

    def parameters(self, values: Mapping[str, str]) -> list[str]:
        """Return the words that set parameters of the runtime, {name: value}."""
        return [word for name, value in values.items() for word in (self.words["parameter"], name, value)]

    def need_ulfm(self) -> None:
        """Raise Refusal if ranks of this mpirun cannot continue when one of them dies."""
        if self.words is WORDS[4]:
            raise Refusal(
                f"--survive needs Open MPI 5, and {self.path} is {self.version}\n"
                "  leave it out: then the job ends with a rank, and continues when it is started again"
            )


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
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refusal(f"{path} --version: {error}\n  this MPI is incomplete: `make setup` installs it again") from error
    version = (done.stdout.splitlines() or done.stderr.splitlines() or [""])[0].strip()
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


@dataclass(frozen=True)
class Networks:
    """The networks of a job, each in CIDR form or by the name of an interface. An empty field leaves the choice to MPI,
    or to the library."""

    runtime: tuple[str, ...] = ()  # for mpirun and its daemons
    messages: tuple[str, ...] = ()  # for messages between ranks through MPI
    libraries: tuple[str, ...] = ()  # for NCCL and Gloo, which take names of interfaces only

    @classmethod
    def of_option(cls, interface: str | None) -> "Networks":
        """Return the networks that the option --interface asks for: the one that it names, for everything. None stands
        for an option that is not given; then MPI and the libraries choose."""
        if interface is None:
            return cls()
        return cls((interface,), (interface,), () if "/" in interface else (interface,))


@dataclass(frozen=True)
class JobSpec:
    """A job that mpirun starts."""

    program: Sequence[str]  # the words that start one rank
    hosts: Sequence[Host]  # where the ranks run, with their slots
    num_ranks: int
    networks: Networks = Networks()
    threads: int | None = None  # OMP_NUM_THREADS of a rank; None: the ranks' environment decides
    agent: str | None = None  # the command by which mpirun reaches a host; None: by ssh, or by the scheduler's own way
    survive: bool = False  # whether the other ranks continue when one dies
    launch: str | None = None  # the launch that supervises the job, see `host_probe.LAUNCH`; None: it is not supervised
    num_restarts: int = 0  # how often that launch has started a job again

    @property
    def is_remote(self) -> bool:
        """Return whether a rank may run on another host."""
        return any(host.name != "localhost" for host in self.hosts)


def line(mpirun: Mpirun, job: JobSpec) -> list[str]:
    """Return the command line, a list of words, that starts a job. Raises Refusal if this mpirun cannot do what the job
    asks for."""
    words = [mpirun.path]
    if os.geteuid() == 0:
        words += ["--allow-run-as-root"]
    if mpirun.prefix and job.is_remote:
        words += ["--prefix", mpirun.prefix]
    if job.survive:
        mpirun.need_ulfm()
        words += ["--with-ft", "ulfm"]
    if job.agent:
        # Also within a scheduler's job. Each daemon is started from here and stays a child of the agent's shell.
        shell = mpirun.words["shell"]
        words += mpirun.parameters({"plm": shell, f"plm_{shell}_agent": job.agent, f"plm_{shell}_no_tree_spawn": "1"})
        words += ["--leave-session-attached"]
    if job.is_remote:
        words += mpirun.parameters(KEEPALIVE)
    if job.networks.runtime:
        words += mpirun.parameters({mpirun.words["interface"]: ",".join(job.networks.runtime)})
    if job.networks.messages:
        words += ["--mca", "btl_tcp_if_include", ",".join(job.networks.messages)]
    # az_mpi shares a host's cores out among its ranks itself, and a rank has several threads.
    words += ["--bind-to", "none"]
    words += [word for value in _environment(job) for word in ("-x", value)]
    words += ["-np", str(job.num_ranks), "-H", ",".join(map(str, job.hosts))]
    return [*words, *job.program]


def _environment(job: JobSpec) -> list[str]:
    """Return what every rank's environment gets: NAME=VALUE, or NAME for a variable that has the value it has here."""
    defaults = {}  # what the user has set counts more
    if job.threads:
        defaults["OMP_NUM_THREADS"] = str(job.threads)
    if job.networks.libraries:
        defaults["NCCL_SOCKET_IFNAME"] = defaults["GLOO_SOCKET_IFNAME"] = ",".join(job.networks.libraries)
    found = [name if name in os.environ else f"{name}={value}" for name, value in defaults.items()]
    if job.launch:
        found.append(f"{LAUNCH}={job.launch}")
    if job.num_restarts:
        found.append(f"{RESTARTS}={job.num_restarts}")
    if "PYTHONPATH" in os.environ:  # where users' own modules are
        found.append("PYTHONPATH")
    return found
