"""az_mpi: AlphaZero for clusters, MPI-native."""

import hashlib
import os
from pathlib import Path

__version__ = "0.1.0"


def _numba_cache():
    """Return the folder for compiled kernels, one for each state of the sources.

    Numba looks only at the file of a kernel for changes, but kernels have those of other files compiled into them.
    """
    here = Path(__file__).parent
    patterns = ("hashing.py", "games/*.py", "search/*.py", "network/*.py")
    sources = sorted(path for pattern in patterns for path in here.glob(pattern))
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    return str(here / "__pycache__" / f"numba-{stamp}")


# Before anything imports Numba, which reads it once.
os.environ.setdefault("NUMBA_CACHE_DIR", _numba_cache())
