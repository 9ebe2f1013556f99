"""Files that are whole whenever they can be seen (temporary name, fsync, rename, fsync of the folder), and what to do
while a file system fails."""

import errno
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from az_mpi.core.earlier_names import modern_keys

Result = TypeVar("Result")
FULL = {errno.ENOSPC, errno.EDQUOT}  # no room, or this user may not have more
# Errors of a file system that may pass by themselves: it is full, its server is away, a cable is out.
PASSING = FULL | {
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EAGAIN,
    errno.EINTR,
    errno.ENOTCONN,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENOLCK,
    errno.ENOMEM,
    errno.EREMOTEIO,
}
# Errors that say that this user has no access, or no longer: the ticket (Kerberos, AFS) of a long job has expired.
REFUSED = {errno.EACCES, errno.EPERM, errno.ENOKEY, errno.EKEYEXPIRED, errno.EKEYREVOKED, errno.EKEYREJECTED}
MAY_NOT = "give this user access, and see that its ticket (Kerberos, AFS) has not ended"
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}  # of file systems without hard links
READ_S = 2.5  # how long `read` tries again
SPARSE = 100  # a file of so many times the bytes that it takes on its disk is one of holes: none of a run's files is
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # between two tries
# The largest file that is read, by kind. Each is far above what a run writes: a larger file is not one of ours.
TEXT_BYTES_MAX = 2**24  # JSON and sums: 10,000 ranks need some 3 MB
LINES_BYTES_MAX = 2**30  # metrics.jsonl: a million records need some 300 MB
DATA_BYTES_MAX = 2**33  # tensors of a checkpoint; games of one exchange, compressed


def passes(error: BaseException) -> bool:
    """Return whether an exception is an error of a file system that may pass by itself."""
    return isinstance(error, OSError) and error.errno in PASSING


def unavailable(error: BaseException) -> bool:
    """Return whether an exception says that a file cannot be used now, and nothing about its content: its file system
    fails, or this user has no access. A run under way waits for both to pass."""
    return passes(error) or isinstance(error, OSError) and error.errno in REFUSED


def lack_of_memory(error: Exception, path: str | Path | None = None) -> OSError | None:
    """Return the OSError, which may pass, for an exception that says that memory was too little for the content of a
    file: it says nothing about the file. None for another exception."""
    of_torch = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    if of_torch or isinstance(error, MemoryError):
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path and str(path))
    return None


def retry_while_unavailable(
    action: Callable[[], Result],
    give_up_s: float,
    say: Callable[[Exception], object] = lambda error: None,
    unavailable: Callable[[Exception], bool] = unavailable,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Return `action()`; call it again while it raises an error that `unavailable(error)` accepts.

    give_up_s: seconds after which such an error is raised; other errors are raised at once. say: called with the first
    error. sleep: called with the seconds of each pause; they double from FIRST_PAUSE_S to LONGEST_PAUSE_S.
    """
    end = clock() + give_up_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return action()
        except Exception as error:
            if not unavailable(error) or clock() >= end:
                raise
            if pause_s == FIRST_PAUSE_S:
                say(error)
        sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class Forbidden(Exception):
    """This process may no longer write here. resumable: whether the same command can continue later."""

    def __init__(self, text: str, resumable: bool = True):
        super().__init__(text)
        self.resumable = resumable


class Foreign(OSError, ValueError):
    """Something with the name of a run's file that is none: a pipe, a folder, a device, or larger than its kind may be.

    Trying again does not help. It counts as damaged."""


@contextmanager
def whole_file(path: str | Path, durable: bool = True, before: Callable[[], None] | None = None) -> Iterator[Path]:
    """Give a temporary path to write to. The file becomes `path` when the block ends, or is removed if it raises.

    durable=False leaves out the fsyncs, for files that are written often and may be lost in a power cut.
    before: called right before the file appears under its name; may raise `Forbidden`.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of an earlier process with this number
    try:
        yield temporary
        if durable:
            sync(temporary)
        if before:
            before()
        os.replace(temporary, path)
        if durable:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: str | Path, before: Callable[[], None] | None = None) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes `path`, which must not exist, when the block ends.

    before: see `whole_file`.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(FileNotFoundError):
        shutil.rmtree(temporary)  # of an earlier process with this number, or try
    temporary.mkdir()  # not its parents: a run's folder that was renamed must not appear again
    try:
        yield temporary
        for file in temporary.iterdir():
            sync(file)
        sync(temporary)
        if before:
            before()
        os.rename(temporary, path)
        sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def keep_private() -> None:
    """From now on only this user may write this process's new files, and at most its group may read them."""
    os.umask(os.umask(0) | 0o027)


def have_home() -> None:
    """Set HOME if it is not set, as in some containers and services: without it Open MPI does not start."""
    home = os.path.expanduser("~")  # without HOME, from the user database; "~" for a user who is not in it
    os.environ.setdefault("HOME", home if os.path.isabs(home) else "/")


def is_there(path: str | Path) -> bool:
    """Return whether a file exists. Raises OSError if that cannot be known now, unlike Path.exists of newer Pythons."""
    try:
        os.stat(path)
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False


def refresh(folder: str | Path) -> None:
    """Change a folder and change it back, so that a client of NFS lists what other hosts have just written there. It
    may list an old state for a minute otherwise. Does nothing if the folder cannot be written."""
    path = Path(folder) / f".fresh.{os.getpid()}.tmp"
    with suppress(OSError):
        create(path, b"")
    with suppress(OSError):
        path.unlink()


def names(folder: str | Path) -> list[str]:
    """Return the names in a folder, sorted; none if it does not exist. Raises OSError if it cannot be read; a glob of
    newer Pythons would find nothing."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_folder(path: str | Path) -> None:
    """Remove a folder. Nobody sees a part of it under its name, even if this is broken off.

    A file in it that another host has open stays, under a temporary name, until `remove_leftovers`."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    os.rename(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)  # on NFS it is not empty while a client has a file of it open


def remove_leftovers(folder: str | Path, pids: Iterable[int] | None = None, besides: Iterable[str] = ()) -> None:
    """Remove temporary files that killed writers have left in `folder` and one level below it.

    pids: only those of these processes, while others are at work. besides: names of folders in it that are left as they
    are."""
    folder = Path(folder)
    left = {folder / name for name in besides}
    for path in [*folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")]:
        if path.parent in left or pids is not None and path.name.split(".")[-2] not in map(str, pids):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # see `remove_folder`
        else:
            path.unlink(missing_ok=True)


def write_text(path: str | Path, text: str, durable: bool = True) -> None:
    """Write a small text file whole, as UTF-8; characters that it lacks (bytes of other encodings) become "?".

    durable: see `whole_file`."""
    write_bytes(path, text.encode(errors="replace"), durable)


def write_bytes(
    path: str | Path, content: bytes | memoryview, durable: bool = True, before: Callable[[], None] | None = None
) -> None:
    """Write a file whole. content: bytes-like. durable, before: see `whole_file`."""
    with whole_file(path, durable, before) as temporary:
        create(temporary, content)


def create(path: str | Path, content: bytes | memoryview) -> None:
    """Write a new file; raises FileExistsError if there is one, or a link. content: bytes-like."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(content)


def claim_text(path: Path, text: str) -> None:
    """Write a new small text file durably. Raises FileExistsError if there is one."""
    whole = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    whole.unlink(missing_ok=True)
    try:
        create(whole, text.encode())
        sync(whole)
        os.link(whole, path)  # unlike a rename, it never replaces a file
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        create(path, text.encode())
        sync(path)
    finally:
        whole.unlink(missing_ok=True)
    sync(path.parent)


def in_memory() -> IO[bytes]:
    """Return a new file to write and read that lies in memory: /tmp may be full."""
    return open(os.memfd_create("az_mpi"), "w+b")


def open_plain(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Return the descriptor of a plain file. Follows no link and does not block on a pipe.

    flags: of `os.open`. Raises OSError; Foreign for what is not a plain file."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            raise Foreign(errno.EINVAL, "not a plain file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Foreign(errno.EINVAL, "not a plain file", str(path))
    return descriptor


def read(path: str | Path, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """Return the bytes of a plain file. After an error that may pass it tries again for up to READ_S.

    Raises OSError; Foreign if it is no plain file, or larger than `bytes_max`, or of holes and larger than memory."""

    def look():
        with open(open_plain(path), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > bytes_max:
                raise Foreign(errno.EFBIG, f"larger than {bytes_max:,} bytes", str(path))
            try:
                return file.read()
            except MemoryError as error:
                if status.st_size > SPARSE * 512 * status.st_blocks:
                    raise Foreign(errno.EFBIG, "larger than this machine's free memory", str(path)) from error
                raise lack_of_memory(error, path) from error

    return retry_while_unavailable(look, READ_S, unavailable=passes)


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """Return the value of a JSON text, str or bytes. Raises ValueError, also if it is nested too deeply for Python.

    hooks: of `json.loads`."""
    try:
        return json.loads(text, **hooks)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(path: str | Path, bytes_max: int = TEXT_BYTES_MAX) -> Any:
    """Return the value of a JSON file, with today's names of keys. Raises ValueError if it is damaged; OSError, see
    `read`."""
    return parse_json(read(path, bytes_max), object_hook=modern_keys)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to NAME.damaged, or NAME.damaged-1 and so on, and return its new path."""
    first = path.with_name(path.name + ".damaged")
    names = [first, *(first.with_name(f"{first.name}-{k}") for k in range(1, 1000))]
    aside = next(name for name in names if not os.path.lexists(name))
    path.rename(aside)
    return aside


def sync(path: str | Path) -> None:
    """Write a file or folder through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
