"""One rank of a job of `python -m az_mpi scaling`: run_dist.py on some cores of the host, with a thread that notes what
the process uses.

python -m az_mpi.plan.measured_rank FOLDER CORES STRIDE OPTIONS… Every rank writes FOLDER/rank-NNNNN.jsonl: a line about
itself. Those whose number is a multiple of STRIDE, and the first of each host, then write a line for each second with
the values of COLUMNS.
"""

import json
import os
import resource
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from az_mpi.core.printing import environment_rank

EVERY_S = 1.0
GPU_EVERY = 5  # samples between two looks at the power of the GPUs, each of which starts a program
# The rank's sums since its start, but for `time` and `resident_bytes`. queued_s: the main thread was ready to run and
# had no core. written_bytes: to file systems. joules, gpu_joules: of the whole host, by its first rank alone.
COLUMNS = ("time", "cpu_s", "queued_s", "written_bytes", "opened", "resident_bytes", "joules", "gpu_joules")
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
RAPL = Path("/sys/class/powercap")


class Energy:
    """The energy that the processors of this host have used, by RAPL, where Linux shows it to this user."""

    def __init__(self, folder: Path = RAPL):
        """folder: where Linux has a folder for each domain; those named "package-N" are whole processors."""
        self._domains: list[tuple[Path, int]] = []
        self._before: list[int] = []
        self._joules = 0.0
        for place in sorted(folder.glob("*-rapl:*")):
            try:
                if (place / "name").read_text().startswith("package"):
                    end = int((place / "max_energy_range_uj").read_text())
                    self._before.append(int((place / "energy_uj").read_text()))
                    self._domains.append((place / "energy_uj", end))
            except (OSError, ValueError):
                continue

    def joules(self) -> float | None:
        """Return the energy since this object was made, None where it cannot be read."""
        for k, (path, end) in enumerate(self._domains):
            try:
                now = int(path.read_text())
            except (OSError, ValueError):
                return None
            self._joules += ((now - self._before[k]) % end) / 1e6  # the counter begins again at its end
            self._before[k] = now
        return self._joules if self._domains else None


class Gpus:
    """The energy that the GPUs of this host have used, from their power now and then, by nvidia-smi."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._joules, self._looked, self._num_looks = 0.0, time.time(), 0

    def joules(self) -> float | None:
        """Return the energy since the first call, None without GPUs."""
        self._num_looks += 1
        if self._program and self._num_looks % GPU_EVERY == 1:
            query = [self._program, "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
            try:
                text = subprocess.run(query, capture_output=True, text=True, timeout=EVERY_S * GPU_EVERY).stdout
                watts, now = sum(map(float, text.split())), time.time()
                self._joules += watts * (now - self._looked)
                self._looked = now
            except (OSError, ValueError, subprocess.TimeoutExpired):
                self._program = None
        return self._joules if self._program else None


class Sampler:
    """Notes what this process uses, from the moment on when this object is made."""

    def __init__(self, local_rank: int):
        self._opened = 0
        self._energy = Energy() if local_rank == 0 else None
        self._gpus = Gpus() if local_rank == 0 else None
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        """Count a file that Python opens. C libraries open others."""
        self._opened += event == "open"

    def sample(self) -> list[float | None]:
        """Return the values of COLUMNS now; None for what this host does not tell."""
        opened = self._opened
        pages = _words("/proc/self/statm")
        return [
            round(time.time(), 3),
            round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), 3),
            _number(_words("/proc/self/schedstat"), 1, 1e-9),
            _number(_words("/proc/self/io"), 11, 1),  # "write_bytes: N" is the sixth line
            opened,
            _number(pages, 1, resource.getpagesize()),
            self._energy and self._energy.joules(),
            self._gpus and self._gpus.joules(),
        ]

    def write(self, file: TextIO) -> None:
        """Write a line of `sample` each second, for ever."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        while True:
            file.write(json.dumps(self.sample()) + "\n")
            file.flush()
            time.sleep(EVERY_S)


def _words(path):
    try:
        return Path(path).read_text().split()
    except OSError:
        return []


def _number(words, place, unit):
    return round(int(words[place]) * unit, 3) if len(words) > place else None


def local_rank() -> int:
    """Return this rank's number on its host, from its launcher's environment; 0 without one."""
    return next((int(os.environ[name]) for name in LOCAL_RANKS if os.environ.get(name, "").isdecimal()), 0)


def about(cores: int) -> dict[str, Any]:
    """Keep this process to `cores` cores of its host, or to fewer if there are fewer, and return what a reader should
    know of the rank. Ranks that are more than the cores share them evenly."""
    allowed = sorted(os.sched_getaffinity(0))
    here = local_rank()
    mine = {allowed[(here * cores + k) % len(allowed)] for k in range(cores)}
    os.sched_setaffinity(0, mine)
    return {"rank": environment_rank(), "host": socket.gethostname(), "cores": sorted(mine), "num_cores": len(allowed)}


def main(words: list[str]) -> None:
    """Run run_dist.py with the options behind the first three words, in this process, which does not return."""
    folder, cores, stride = words[0], int(words[1]), int(words[2])
    known = about(cores)
    path = Path(folder) / f"rank-{known['rank']:05d}.jsonl"
    path.write_text(json.dumps(known) + "\n")
    if known["rank"] % stride == 0 or local_rank() == 0:
        sampler, file = Sampler(local_rank()), open(path, "a")
        threading.Thread(target=sampler.write, args=(file,), name="sampler", daemon=True).start()
    program = str(Path(__file__).resolve().parents[2] / "run_dist.py")
    sys.argv = [program, *words[3:]]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
