"""az_mpi: AlphaZero for clusters, MPI-native."""

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from az_mpi.core import kernel_cache

__version__ = "1.0.0"


# The files with compiled kernels, and the one that says how these are kept.
KERNELS = (
    "core/evaluation_table.py",
    "core/hashing.py",
    "core/intrinsics.py",
    "core/kernel_cache.py",
    "core/ranks.py",
    "evaluate/compiled_solvers.py",
    "games/*.py",
    "network/*.py",
    "search/*.py",
    "selfplay/*.py",
    "train/replay.py",
)


def _sources():
    """Return a hash of the files KERNELS. Numba recompiles a kernel when its own file changes, but not when the file of
    a kernel that it calls does."""
    here = Path(__file__).parent
    sources = sorted(path for pattern in KERNELS for path in here.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def _cache_folder():
    """Return a folder for compiled kernels that this user may write to: beside the sources, else in the user's cache,
    else in the system's temporary folder, where no other user can have made it."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "az_mpi"
    for folder in (Path(__file__).parent / "__pycache__", own):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    import tempfile  # here, since it is slow to load and rarely needed

    temporary = Path(tempfile.gettempdir()) / f"az_mpi-{os.getuid()}"
    with suppress(OSError):
        temporary.mkdir(mode=0o700, exist_ok=True)
        if temporary.lstat().st_uid == os.getuid():
            return temporary
    return Path(tempfile.mkdtemp(prefix="az_mpi-"))


def __getattr__(name: str) -> Any:
    """Import `load_player`, and with it torch, only when it is used."""
    if name == "load_player":
        from az_mpi.player.loaded_player import load_player

        return load_player
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


SOURCES = _sources()
# Before anything imports Numba, which reads this once.
# A program of another checkout, or of a pack, that a process of this one starts does not take this one's choice.
if os.environ.get("NUMBA_CACHE_DIR") in (None, os.environ.get("AZ_MPI_KERNELS")):
    os.environ["NUMBA_CACHE_DIR"] = os.environ["AZ_MPI_KERNELS"] = str(_cache_folder() / f"numba-{SOURCES}")
kernel_cache.install(SOURCES)
# Before anything imports OpenVINO or ONNX Runtime, which tell hosts on the internet that they were imported, and write
# to the home. OpenVINO does neither where this module cannot be imported, which is what None says; ONNX Runtime, which
# a user's own class may use, reads this variable.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Before anything loads OpenMP (libgomp), which reads this once. A thread with nothing to do spins before it sleeps, by
# default for milliseconds. OpenVINO's threads and other processes need its core meanwhile.
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "1000"  # turns, some microseconds
# Before anything loads torch, which reads this once. Its store asks for the name of each address that it connects to
# and warns where name servers know none; what goes wrong with a connection is raised as an exception all the same.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
