"""What a host says of itself before a job. This file's text is sent to that host's Python, so that it works where there
is no az_mpi yet: the standard library only, and what is missing is told, not raised."""

import hashlib
import importlib.metadata
import ipaddress
import json
import os
import platform
import re
import signal
import socket
import subprocess
import time

MARK = "az_mpi-probe "  # begins the line that counts: a log-in may print others
PACKAGES = ("torch", "mpi4py", "horovod", "numpy", "numba", "h5py")
LAUNCH = "AZ_MPI_LAUNCH"  # in the environment of every rank that launch starts: its id
LOOKS, PAUSE_S = 5, 0.5  # for the token: a network file system may show a new file late


def look(asked):
    """Return what the launcher compares, JSON-able.

    asked: {"checkout", "cwd", "mpirun": paths, "token": [path, text] or None, "gpus": whether to count them,
    "end": the id of a launch whose ranks are killed, or None}
    """
    return {
        "left": _end(asked["end"]) if asked["end"] else 0,
        "host": socket.gethostname(),
        "uid": os.geteuid(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "mpirun": _first_line([asked["mpirun"], "--version"]),
        "az_mpi": _own_version(asked["checkout"]),
        "files": _digests(asked["checkout"]),
        "cwd": os.path.isdir(asked["cwd"]),
        "token": asked["token"] and _token(*asked["token"]),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": _gpus() if asked["gpus"] else None,
        "networks": _networks(),
    }


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        return (done.stdout.splitlines() or [None])[0]
    except (OSError, subprocess.SubprocessError):
        return None


def _own_version(checkout):
    try:
        with open(os.path.join(checkout, "az_mpi", "__init__.py"), encoding="utf-8") as file:
            return (re.findall(r'^__version__ = "(.*)"', file.read(), re.MULTILINE) or [None])[0]
    except OSError:
        return None


def _digests(checkout):
    """Return {path: the beginning of its SHA-256} of the program's sources."""
    paths = [os.path.join(checkout, "run_dist.py")]
    for folder, _, names in os.walk(os.path.join(checkout, "az_mpi")):
        paths += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    found = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                found[os.path.relpath(path, checkout)] = hashlib.sha256(file.read()).hexdigest()[:12]
        except OSError:
            pass
    return found


def _token(path, text):
    """Return "" where this host sees the launcher's file, and may write beside it, else what is wrong."""
    folder = os.path.dirname(path)
    for _ in range(LOOKS):
        if not os.path.isdir(folder):
            return f"there is no folder {folder}"
        try:
            with open(path, encoding="utf-8") as file:
                if file.read() == text:
                    return "" if os.access(folder, os.W_OK) else f"{folder} cannot be written to"
        except OSError:
            pass
        time.sleep(PAUSE_S)
    return f"{folder} is another folder there: a file written here is not seen"


def _gpus():
    """Return how many GPUs torch would see there, as run_dist.py will, or None without torch."""
    try:
        import torch

        return torch.cuda.device_count()
    except (ImportError, OSError, RuntimeError):
        return None


def _end(launch):
    """Kill our own processes here that belong to a launch; return how many of them do not go."""
    ours = f"{LAUNCH}={launch}".encode()
    for _ in range(LOOKS * 10):
        left = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if os.stat(f"/proc/{name}").st_uid == os.geteuid() and ours in file.read().split(b"\0"):
                        left.append(name)
                        os.kill(int(name), signal.SIGKILL)
            except OSError:
                pass  # another's, or gone
        if not left:
            break
        time.sleep(PAUSE_S / 5)
    return len(left)


def _networks():
    """Return [[address, network]] of the IPv4 interfaces that lead out of the host, as CIDR; [] without psutil."""
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


def main(asked):
    print(MARK + json.dumps(look(asked)), flush=True)
