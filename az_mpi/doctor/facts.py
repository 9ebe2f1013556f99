"""What one rank knows of itself without asking others: its host, libraries, mpirun, cores and memory."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from az_mpi.core import kernel_cache
from az_mpi.core.host_facts import HostFacts, cgroup_folders
from az_mpi.doctor import probe
from az_mpi.doctor.checks import tried

PROBE_S = 300  # the longest for imports, from a slow file system
TOOL_S = 20  # the longest for a launcher's --version
THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY")
CHECKOUT = Path(__file__).resolve().parents[2]


def gather(local_rank: int, with_mpirun: bool) -> dict[str, Any]:
    """Return {what: fact}, JSON-able: those of `HostFacts`, the sources as one hash, and more. with_mpirun: also ask
    the mpirun on PATH, which one rank does for all."""
    load = os.getloadavg()[0]  # before the doctor's own work counts
    libraries = import_libraries(local_rank)
    after_start, error = tried(probe.mpi) if "error" not in libraries["mpi4py"] else (None, None)
    if error:
        libraries["mpi4py"]["error"] = error
    elif after_start:
        libraries["mpi4py"] |= after_start
    facts = HostFacts.look(str(CHECKOUT))
    return facts.to_dict() | {
        "sources": facts.sources_hash(),
        "folder": str(CHECKOUT / "az_mpi"),
        "executable": sys.executable,
        "libraries": libraries,
        "mpirun": mpirun() if with_mpirun else None,
        "num_cores": os.cpu_count(),
        "load": load,
        "memory": memory(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "kernels": {"folder": os.environ["NUMBA_CACHE_DIR"], "error": None if local_rank else kernel_cache.trial()},
        "gpu_files": Path("/dev/nvidiactl").exists(),
        "mps": Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists(),
    }


def import_libraries(local_rank: int) -> dict[str, dict[str, Any]]:
    """Return {library: its facts} from `probe`; {"error": reason} for one that cannot be imported."""
    command = [sys.executable, "-m", "az_mpi.doctor.probe", str(local_rank)]
    environment = os.environ | {"MPI4PY_RC_INITIALIZE": "0"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROBE_S)
        output = done.stdout
        end = ""  # why the interpreter ended before it had tried all libraries
        if done.returncode:
            end = f"{_ended(done.returncode)}: {' '.join(done.stderr.split())[-300:]}"
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode()
        end = f"did not end in {PROBE_S} s"
    except OSError as error:
        output = ""
        end = str(error)
    found = dict.fromkeys(probe.LIBRARIES)
    # Other lines were printed by libraries.
    for line in output.splitlines():
        row, _ = tried(json.loads, line)
        if isinstance(row, dict) and row.get("name") in found:
            found[row["name"]] = row.get("facts", {"error": f"importing it ended the interpreter: {end}"})
    return {name: facts or {"error": f"not tried: the interpreter had ended ({end})"} for name, facts in found.items()}


def _ended(status):
    return f"killed by signal {-status}" if status < 0 else f"status {status}"


def mpirun() -> dict[str, str] | None:
    """Return {path, version or error} of the mpirun on PATH; None if there is none."""
    path = shutil.which("mpirun")
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TOOL_S,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"path": path, "error": str(error)}
    text = " ".join((done.stdout + done.stderr).split())[:400]
    return (
        {"path": path, "error": f"{_ended(done.returncode)}: {text}"}
        if done.returncode
        else {"path": path, "version": text}
    )


def memory_limit(**places: str) -> int | None:
    """Return the memory limit of the cgroups in bytes, None without a limit."""
    names = {1: "memory.limit_in_bytes", 2: "memory.max"}
    found = [_words(folder / names[version]) for version, folder in cgroup_folders("memory", **places)]
    limits = [int(words[0]) for words in found if words and words[0].isdecimal()]
    return min((limit for limit in limits if limit < 2**60), default=None)  # version 1 writes "no limit" as nearly 2^63


def memory() -> dict[str, int | None]:
    """Return the bytes of memory of this host, those free for programs, and the limit of this process's cgroups."""
    text, _ = tried(Path("/proc/meminfo").read_text)
    values = dict(re.findall(r"^(\w+):\s+(\d+) kB", text or "", re.MULTILINE))
    return {
        "total_bytes": int(values.get("MemTotal", 0)) * 1024,
        "available_bytes": int(values.get("MemAvailable", 0)) * 1024,
        "limit_bytes": memory_limit(),
    }


def room(memory: dict[str, int | None]) -> int:
    """Return the bytes that a run may use, from what `memory` returned."""
    return min(memory["available_bytes"] or 0, memory["limit_bytes"] or memory["total_bytes"] or 0)


def _words(path):
    text, _ = tried(path.read_text)
    return (text or "").split()
