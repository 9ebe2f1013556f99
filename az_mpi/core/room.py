"""The space that an MPI job needs on each host beside the run's folder: in the folder for temporary files, where mpirun
keeps its own, and in /dev/shm, through which the ranks of a host talk. Figures of Open MPI 5.0."""

import os
from collections.abc import MutableMapping

from az_mpi.core.host_facts import HostFacts
from az_mpi.core.printing import counted

MIB = 2**20
# mpirun's files took 128 KiB with 2 ranks, 344 KiB with 24. It maps them: where they do not fit, it dies of a signal.
JOB_BYTES, RANK_BYTES = MIB, 64 * 1024
# Each rank maps a segment of so many bytes in /dev/shm, and takes them as its messages need them. A rank that finds no
# room for its segment talks over TCP; one that finds the room taken later dies of SIGBUS.
SEGMENT_BYTES, SEGMENT_BYTES_MIN = 16 * MIB, 2 * MIB
SEGMENT, TRANSPORTS = "OMPI_MCA_btl_sm_segment_size", "OMPI_MCA_btl"
MORE = (
    "docker run --shm-size 1g (compose: shm_size); Apptainer: the host's /dev/shm is seen without --contain; "
    "or --mca btl_sm_backing_directory DIR, a folder on a local disk"
)


def lack_of_temporary(facts: HostFacts, num_ranks: int) -> tuple[str, str] | None:
    """Return (what is wrong, cure) if a job with so many ranks on this host would find no room for its temporary files,
    else None."""
    folder = facts.temporary
    free = facts.temporary_bytes
    needed = JOB_BYTES + num_ranks * RANK_BYTES
    cure = (
        f"make room in {folder}, or name another folder on a local disk: export TMPDIR=DIR, or mpirun --prtemca "
        "prte_tmpdir_base DIR"
    )
    if facts.temporary_error:
        room = "" if free is None else f" ({free / 1024:,.0f} KiB free)"
        return f"{folder}, where mpirun keeps its files, cannot be written to: {facts.temporary_error}{room}", cure
    if free is not None and free < needed:
        return (
            f"{folder} has {free / 1024:,.0f} KiB free, and mpirun needs {needed / 1024:,.0f} KiB there for "
            f"{counted(num_ranks, 'rank')}"
        ), cure
    return None


def lack_of_shared_memory(free: int | None, num_ranks: int) -> tuple[str, str] | None:
    """Return (what follows, cure) if /dev/shm with so many bytes free is small for the ranks of a host, else None."""
    if num_ranks < 2 or free is None or free >= (num_ranks + 1) * SEGMENT_BYTES:
        return None
    does = "they share what there is" if segment_bytes(free, num_ranks) else "they talk over TCP, which is slower"
    return (
        f"/dev/shm has {free / MIB:.1f} MiB free, and Open MPI takes up to {SEGMENT_BYTES // MIB} MiB for each of "
        f"{num_ranks} ranks: {does}"
    ), MORE


def segment_bytes(free: int, num_ranks: int) -> int:
    """Return the size of the segments with which so many ranks fit into /dev/shm, one segment left over; 0 if none is
    large enough."""
    share = min(free // (num_ranks + 1), SEGMENT_BYTES) // MIB * MIB
    return share if share >= SEGMENT_BYTES_MIN else 0


def fit_into_shared_memory(free: int | None, environment: MutableMapping[str, str] = os.environ) -> str:
    """Set what Open MPI reads when it starts, so that the ranks of this host fit into /dev/shm. What the user has set
    stays. Return a note for the user, "" if there is enough room, or if mpirun did not start this process.

    free: bytes in /dev/shm. environment: of a rank.
    """
    num_ranks = int(environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", 1))
    lack = lack_of_shared_memory(free, num_ranks)
    if lack is None or any(name.startswith(("OMPI_MCA_btl_sm_", "OMPI_MCA_btl_vader_")) for name in environment):
        return ""
    if size := segment_bytes(free or 0, num_ranks):
        environment[SEGMENT] = str(size)
    elif environment.get(TRANSPORTS, "^").startswith("^"):
        environment[TRANSPORTS] = f"{environment.get(TRANSPORTS, '^ofi')},sm"
    return f"note: {lack[0]}\n  more room: {lack[1]}"
