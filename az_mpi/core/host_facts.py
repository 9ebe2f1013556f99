"""The facts of a host. launch also sends the text of this file to the Python of hosts which may lack az_mpi: it needs
only the standard library, and what a host lacks is None or empty, never an error."""

import hashlib
import importlib.metadata
import ipaddress
import os
import platform
import re
import socket
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

# The hosts of a run must have the same versions of these. A host may lack Horovod, unless train.backend asks for it.
SAME_PACKAGES = ("torch", "mpi4py", "horovod", "numpy", "numba", "h5py")
PACKAGES = (*SAME_PACKAGES, "openvino", "safetensors")


@dataclass(frozen=True)
class HostFacts:
    """A host as one of its processes sees it."""

    host: str  # as it calls itself
    uid: int  # the user's number
    machine: str  # the kind of processor, such as x86_64
    processor: str  # its name
    kernel: str
    libc: str
    python: str
    packages: dict[str, str | None]  # {name: version, None if it is missing}
    az_mpi: str | None  # version
    sources: dict[str, str]  # {path within the checkout: the beginning of its SHA-256}
    cores: list[int]  # those that this process may run on
    networks: list[list[str]]  # [address, network in CIDR form] of each IPv4 interface that leads out of the host
    temporary: str  # the folder where mpirun keeps the files of a job, each host its own
    temporary_bytes: int | None = field(compare=False)  # free there for this user; None if unknown
    temporary_error: str  # why nothing can be written there, or ""
    shared_bytes: int | None = field(compare=False)  # free in /dev/shm, where ranks of a host talk; None if unknown
    quotas: dict[str, float] = field(default_factory=dict)  # {group: cores} of its cgroups, see `cpu_quotas`

    @classmethod
    def look(cls, checkout: str) -> "HostFacts":
        """Return the facts of this host. checkout: the folder that holds run_dist.py and az_mpi."""
        temporary = temporary_folder()
        return cls(
            socket.gethostname(),
            os.geteuid(),
            platform.machine(),
            _processor(),
            platform.release(),
            " ".join(platform.libc_ver()),
            platform.python_version(),
            package_versions(),
            _version(checkout),
            _digests(checkout),
            sorted(os.sched_getaffinity(0)),
            _networks(),
            temporary,
            free_bytes(temporary),
            _error_of_writing(temporary),
            free_bytes("/dev/shm"),
            cpu_quotas(),
        )

    def sources_hash(self) -> str:
        """Return one short hash of all sources: checkouts of one version may differ."""
        return hashlib.sha256(repr(sorted(self.sources.items())).encode()).hexdigest()[:12]

    def to_dict(self) -> dict:
        """Return the facts as a JSON-able dict; `HostFacts(**values)` is the inverse."""
        return asdict(self)


def cgroup_folders(
    controller: str, own: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup"
) -> "list[tuple[int, Path]]":
    """Return (the cgroup version, folder) of this process for a controller and of all groups above it.

    own: the file that names the groups of the process. mount: where the file systems of the groups are mounted.
    """
    found = []
    for line in (_read(own) or b"").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = Path(mount, controller if controllers else "")
        here = top / path.lstrip("/")
        # Inside a container the path may be the host's; then only its top is visible.
        found += [(1 if controllers else 2, folder) for folder in (here, *here.parents) if folder.is_relative_to(top)]
    return found


def cpu_quotas(own: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> "dict[str, float]":
    """Return {group: cores} of the groups of this process that limit its processor time, such as those of `docker run
    --cpus 2.5`. All processes of a group share its quota; the keys are the same for all processes of a host. The
    arguments are those of `cgroup_folders`."""
    quotas = {}
    for version, folder in cgroup_folders("cpu", own, mount):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in names for word in (_read(folder / name) or b"").split()]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            place = os.stat(folder)
            quotas[f"{place.st_dev}:{place.st_ino}"] = int(words[0]) / int(words[1])
    return quotas


def temporary_folder() -> str:
    """Return the folder that Open MPI takes for temporary files."""
    return next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")


def free_bytes(folder: str) -> int | None:
    """Return the bytes that this user may still write in a folder, which need not exist yet; None if its file system
    does not tell."""
    try:
        found = os.statvfs(_nearest(folder))
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def _error_of_writing(folder):
    """Return why no file can be written in a folder, which need not exist yet, or ""."""
    try:
        with tempfile.NamedTemporaryFile(dir=_nearest(folder), prefix="az_mpi-") as file:
            file.write(b"0" * 2**16)
            file.flush()
        return ""
    except OSError as error:
        return error.strerror or str(error)


def _nearest(folder):
    """Return a folder, or the nearest one above it that exists."""
    folder = os.path.abspath(folder)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def package_versions() -> dict[str, str | None]:
    """Return {name: version} of PACKAGES, None for one that is missing. Imports none of them."""
    return {name: _package_version(name) for name in PACKAGES}


def _package_version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _processor():
    found = re.search(rb"^model name\s*: (.*)", _read("/proc/cpuinfo") or b"", re.MULTILINE)
    return found[1].decode() if found else platform.machine()


def _version(checkout):
    text = _read(os.path.join(checkout, "az_mpi", "__init__.py")) or b""
    found = re.search(rb'^__version__ = "(.*)"', text, re.MULTILINE)
    return found and found[1].decode()


def _digests(checkout):
    paths = [os.path.join(checkout, "run_dist.py")]
    for folder, _, names in os.walk(os.path.join(checkout, "az_mpi")):
        paths += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    texts = {os.path.relpath(path, checkout): _read(path) for path in paths}
    return {path: hashlib.sha256(text).hexdigest()[:12] for path, text in texts.items() if text is not None}


def _networks():
    try:
        import psutil
    except ImportError:
        return []
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family == socket.AF_INET and address.netmask and name in up:
                interface = ipaddress.ip_interface(f"{address.address}/{address.netmask}")
                if not (interface.is_loopback or interface.is_link_local):
                    found.append([str(interface.ip), str(interface.network)])
    return found
