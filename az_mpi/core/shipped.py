"""Where this installation has its configurations, hostfiles, batch scripts and examples."""

from pathlib import Path


def folder() -> Path:
    """Return the folder that holds configs/, examples/, hostfiles/ and slurm/: of a wheel az_mpi/share, else the
    checkout."""
    package = Path(__file__).resolve().parents[1]
    share = package / "share"
    return share if share.is_dir() else package.parent
