"""A trial of the shared folder: every rank does with files what a run does, and the time is measured.

It uses a new folder within --logdir. In the end it removes that folder, and those above it that it had to make.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core.files import whole_file
from az_mpi.doctor.checks import OK, PROBLEM, WARNING, Check, ranks_in_words, tried
from az_mpi.doctor.scratch import removed_at_end

if TYPE_CHECKING:
    from az_mpi.mpi.world import World

MIB = 2**20
SEEN_S = 10.0  # a network file system may take so long to show one host what another wrote
# The most that a rank writes, that all ranks write together, and the longest that they write.
BULK_BYTES, BULK_ALL_BYTES, BULK_S = 32 * MIB, 1024 * MIB, 3.0
SAME_FOLDER = "--logdir on a file system that every host mounts under the same path"
LEAST_FREE_BYTES, SLOW_MB_PER_S = 1024 * MIB, 5.0  # below these the folder gets a warning


def examine(world: "World", logdir: str | Path) -> tuple[list[Check], dict[str, Any]]:
    """Return (checks, figures). Collective."""
    logdir = Path(logdir).absolute()
    made, error = world.share(tried(make, logdir) if world.is_root else None)
    if error:
        return [
            Check(
                "folder",
                PROBLEM,
                f"{logdir} cannot be written to: {error}",
                "--logdir on a file system that all hosts share and you may write to",
            )
        ], {}
    with removed_at_end(*made) if world.is_root else contextlib.nullcontext():
        outcome = _examine(world, logdir, Path(made[0]))
        world.barrier()
    world.barrier()
    return outcome


def make(logdir: Path) -> tuple[str, list[str]]:
    """Make a new folder in `logdir`; return (its path, the folders that had to be made for it, innermost first)."""
    missing = [path for path in [logdir, *logdir.parents] if not path.exists()]
    made = []
    try:
        for path in reversed(missing):
            path.mkdir()
            made.insert(0, str(path))
        return tempfile.mkdtemp(prefix=".doctor-", dir=logdir), made
    except OSError:
        for path in made:
            os.rmdir(path)
        raise


def _examine(world, logdir, folder):
    place, error = world.share(
        tried(lambda: [mount_of(logdir.resolve()), shutil.disk_usage(logdir).free]) if world.is_root else None
    )
    found = [_kind(*place) if place else Check("space", WARNING, f"its file system is unknown: {error}")]
    _, unseen = tried(wait_for, folder.exists)
    _, failed = (None, None) if unseen else tried(write_twice, folder, world.rank)
    everyone = world.collect([unseen, failed])
    if blind := [rank for rank, (unseen, _) in enumerate(everyone) if unseen]:
        return [
            *found,
            Check(
                "visible",
                PROBLEM,
                f"{_where(world, blind)} does not see the folder that rank 0 on "
                f"{world.hosts[0]} made in {logdir} ({everyone[blind[0]][0]})",
                SAME_FOLDER,
            ),
        ], {}
    if bad := [rank for rank, (_, failed) in enumerate(everyone) if failed]:
        return [
            *found,
            Check(
                "files",
                PROBLEM,
                "writing a file (fsync, rename, fsync of the folder) fails on "
                f"{_where(world, bad)}: {everyone[bad[0]][1]}",
                "another file system, or other mount options",
            ),
        ], {}
    found.append(Check("files", OK, "every rank can write (fsync, rename, fsync of the folder) and replace files"))
    found += _visible(world, folder, logdir)
    speed, figures = _speed(world, folder)
    return [*found, *speed], figures


def mount_of(path: str | Path, mounts: str | Path = "/proc/self/mounts") -> list[str]:
    """Return (mount point, type, options) of the file system that holds a path."""
    rows = [line.split()[1:4] for line in Path(mounts).read_text().splitlines()]
    rows = [row for row in rows if Path(path).is_relative_to(row[0].replace("\\040", " "))]
    return max(reversed(rows), key=lambda row: len(row[0]), default=["/", "unknown", ""])  # the last is on top


def _kind(mount, free):
    point, kind, options = mount
    words = f"{kind} mounted on {point}, {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Check("space", WARNING, words, "make room: a run keeps checkpoints and all of its games")
    if kind.startswith("nfs") and "soft" in options.split(","):
        return Check(
            "space", WARNING, f"{words}, soft", "mount it hard: a slow server should make a job wait, not fail"
        )
    return Check("space", OK, words)


def wait_for(seen: Callable[[], object]) -> float:
    """Wait until `seen()` is true and return for how many seconds. Raises TimeoutError after SEEN_S."""
    begun = time.monotonic()
    while not seen():
        if time.monotonic() - begun > SEEN_S:
            raise TimeoutError(f"waited {SEEN_S:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - begun


def write_twice(folder: Path, rank: int) -> None:
    """Do what a run does with files: make one that appears whole, then replace it. A run needs neither locks nor
    links."""
    for text in ("old", str(rank)):
        with whole_file(folder / f"rank-{rank}") as temporary:
            temporary.write_text(text)


def _visible(world, folder, logdir):
    """Check whether every rank can read the files of all others, and how long that takes."""

    def read(rank):
        return tried((folder / f"rank-{rank}").read_text)[0] == str(rank)

    waited, error = tried(wait_for, lambda: all(read(rank) for rank in range(world.size)))
    missing = [rank for rank in range(world.size) if not read(rank)] if error else []
    everyone = world.collect([missing, waited])
    if blind := [rank for rank, (missing, _) in enumerate(everyone) if missing]:
        return [
            Check(
                "visible",
                PROBLEM,
                f"{_where(world, blind)} does not see in {logdir} what {ranks_in_words(everyone[blind[0]][0])} wrote",
                SAME_FOLDER,
            )
        ]
    longest = max(SEEN_S if waited is None else waited for _, waited in everyone)
    return [
        Check("visible", OK, f"every rank sees the files of all {world.size}, after {longest:.1f} s at most")
        if world.size > 1
        else Check("visible", OK, "one rank: nothing to compare")
    ]


def _speed(world, folder):
    """Measure MB/s while all ranks write a file durably, and while each reads that of the next rank."""
    wanted = max(MIB, min(BULK_BYTES, BULK_ALL_BYTES // world.size))
    world.barrier()
    written, error = tried(_write, folder / f"bulk-{world.rank}", wanted)
    writes = world.collect([written, error])
    failed = [rank for rank, (_, error) in enumerate(writes) if error]
    if failed:
        return [
            Check(
                "speed",
                PROBLEM,
                f"{_where(world, failed)} cannot write {wanted / 1e6:.0f} MB: {writes[failed[0]][1]}",
                "make room, or ask for a larger quota",
            )
        ], {}
    other = (world.rank + 1) % world.size
    reads = world.collect(tried(_read, folder / f"bulk-{other}"))
    failed = [rank for rank, (_, error) in enumerate(reads) if error]
    if failed:
        return [
            Check(
                "speed",
                PROBLEM,
                f"{_where(world, failed)} cannot read what the next rank wrote: {reads[failed[0]][1]}",
                "another file system, or other mount options",
            )
        ], {}
    rates = [sum(row[0][0] for row in rows) / max(row[0][1] for row in rows) / 1e6 for rows in (writes, reads)]
    figures = {"folder": {"write_mb_per_s": round(rates[0], 1), "read_mb_per_s": round(rates[1], 1)}}
    slow = rates[0] < SLOW_MB_PER_S
    return [
        Check(
            "speed",
            WARNING if slow else OK,
            f"all ranks at once write {rates[0]:,.0f} MB/s, fsync counted, and read {rates[1]:,.0f} MB/s",
            "checkpoints and segments will be slow: another file system",
        )
    ], figures


def _write(path, wanted):
    """Write up to `wanted` bytes durably, for at most BULK_S; return (bytes, seconds)."""
    block = os.urandom(MIB)
    done = 0
    begun = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        while done < wanted and time.perf_counter() - begun < BULK_S:
            done += file.write(block)
        os.fsync(file.fileno())
        took = time.perf_counter() - begun
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # so that it is then read from the disk
    return done, took


def _read(path):
    """Read a whole file; return (bytes, seconds)."""
    done = 0
    begun = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(MIB):
            done += len(block)
    return done, time.perf_counter() - begun


def _where(world, ranks):
    hosts = ", ".join(dict.fromkeys(world.hosts[rank] for rank in ranks))
    return f"{ranks_in_words(ranks)} on {hosts}"
