"""Memory that the ranks of a host share.

It has no name in any file system, so nothing is left of it however a job ends, and the size of /dev/shm, 64 MiB in
many containers, does not limit it. The system frees it when the last rank of the host has ended.
"""

import mmap
import os
import secrets
from collections.abc import Callable

import numpy as np

from az_mpi.mpi.world import World

TOKEN_BYTES = 32  # a multiple of 8, so that numbers after it are aligned


def share(world: World, num_bytes: Callable[[int], int]) -> np.ndarray | None:
    """Return memory of zeros that all ranks of this host see, uint8. Collective. num_bytes(n): the size for n ranks,
    the same on all ranks of a host.

    None if the rank is alone on its host, or if the ranks cannot open each other's memory, as in containers that have
    one host name but do not see each other's processes."""
    here = [rank for rank, host in enumerate(world.hosts) if host == world.host]
    size, token, fd = num_bytes(len(here)) + TOKEN_BYTES, secrets.token_hex(TOKEN_BYTES // 2), None
    if world.local_rank == 0 and len(here) > 1:
        fd = _create(size, token)
    pid, fd_there, token_there = world.collect((os.getpid(), fd, token))[here[0]]
    memory = None if fd_there is None else _open(pid, fd_there, token_there, size)
    opened = world.collect(memory is not None)
    if fd is not None:
        os.close(fd)  # every rank has opened it, or cannot
    return memory if all(opened[rank] for rank in here) else None


def _create(size, token):
    """Return the descriptor of new memory that begins with `token`; None if the system refuses."""
    try:
        fd = os.memfd_create("az_mpi", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # AttributeError: not Linux
        return None
    try:
        os.ftruncate(fd, size)  # refused above `ulimit -f`
        os.pwrite(fd, token.encode(), 0)
    except OSError:
        os.close(fd)
        return None
    return fd


def _open(pid, fd, token, size):
    """Return the memory, without its token, that process `pid` has under this descriptor; None if it is another's."""
    try:
        with open(f"/proc/{pid}/fd/{fd}", "r+b") as file:
            memory = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
    except (OSError, ValueError):  # ValueError: it is another file, and shorter
        return None
    return memory[TOKEN_BYTES:] if memory[:TOKEN_BYTES].tobytes() == token.encode() else None
