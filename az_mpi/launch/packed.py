"""python -m az_mpi pack FILE: the program, its packages and its Python as one file, from which a job starts.

The ranks of a job run FILE in place of `python run_dist.py`. It begins with packed_start.sh: the first rank of a host
unpacks the rest into the host's own temporary folder, and all ranks of the host start there. So a file server is asked
for one file a host, instead of thousands a rank.
"""

import gzip
import hashlib
import importlib.metadata
import os
import shlex
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from az_mpi.core.arguments import Parser
from az_mpi.core.exit_codes import DONE
from az_mpi.core.problems import Refusal, escape
from az_mpi.storage.run_folder import commit

PROG = "python -m az_mpi pack"
ABOUT = """\
Write this checkout, its .venv and its Python as one file. On a shared file system start a job of many ranks with it:
  mpirun ... FILE --config_file ... --logdir ...       in place of: mpirun ... python run_dist.py ...
  python -m az_mpi launch --packed FILE ... -- ...     which writes FILE where it is missing or out of date
The first rank of a host unpacks it into /tmp/az_mpi-UID (AZ_MPI_LOCAL=DIR: DIR/az_mpi-UID), and all ranks there start
from that copy. Where there is no room, they say so and start from the checkout."""
START = Path(__file__).with_name("packed_start.sh")
CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = ("run_dist.py", "az_mpi", "configs", "examples")
# What no run needs: what builds and tests az_mpi. Everything else is packed, since a user's own file may import it.
LEFT_OUT = ("az-mpi", "cmake", "mypy", "onnxruntime", "pip", "pytest", "pytest-timeout", "pytest-xdist", "ruff")
NOT_OF_PYTHON = {"site-packages", "dist-packages", "test", "idlelib", "tkinter", "ensurepip", "turtledemo"}
BLOCK = 4096
SIZE = "@HEADER_BYTES@"


class Member(NamedTuple):
    """A file or link to pack: where it is, and its name in the archive."""

    path: Path
    name: str


def main(arguments: list[str]) -> int:
    """Write the file that `arguments` name and return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT)
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write; an older pack is replaced")
    given = parser.parse_args(arguments)
    write(given.file)
    return DONE


def write(path: Path) -> None:
    """Write the pack, and print its size. Raises Refusal."""
    with _usable(path):
        is_other = path.exists() and not is_pack(path)
    if is_other:
        raise Refusal(f"{PROG}: error: {escape(str(path))} is there already and is no pack\n  name another file")
    path = path.absolute()
    members = list(contents())
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _usable(path):
        try:
            with open(temporary, "xb") as file:
                file.write(header(members, fingerprint(members)))
                _append(file, members)
            os.chmod(temporary, 0o755)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    num_bytes = sum(_size(member) for member in members)
    print(f"{path}: {path.stat().st_size / 2**20:,.0f} MiB; {num_bytes / 2**20:,.0f} MiB on each host")


@contextmanager
def _usable(path):
    """Turn an OSError in the block into a Refusal."""
    try:
        yield
    except OSError as error:
        raise Refusal(f"{PROG}: error: {escape(str(error.filename or path))}: {error.strerror}") from error


def is_pack(path: Path) -> bool:
    """Return whether a file is a pack, of this or another state of the program."""
    with open(path, "rb") as file:
        return file.read(200).startswith(START.read_bytes()[:100])


def is_current(path: Path) -> bool:
    """Return whether a file is a pack of the program and packages as they are now. Raises Refusal if it cannot be
    read."""
    with _usable(path):
        if not path.is_file() or not is_pack(path):
            return False
    with open(path, "rb") as file:
        return f"name={fingerprint(list(contents()))} ".encode() in file.read(2**14)


def contents() -> Iterator[Member]:
    """Yield all that is packed, sorted. Raises Refusal outside of a checkout."""
    if not (CHECKOUT / "run_dist.py").is_file():
        raise Refusal(f"there is no {CHECKOUT / 'run_dist.py'}: run this from a checkout of az_mpi")
    for name in PROGRAM:
        for path in _files(CHECKOUT / name):
            yield Member(path, f"program/{path.relative_to(CHECKOUT)}")
    prefix, base = Path(sys.prefix), Path(sys.base_prefix)
    unwanted = _left_out()
    for name in ("etc", "lib", "lib64", "share"):
        for path in _files(prefix / name):
            if path not in unwanted:
                yield Member(path, f"venv/{path.relative_to(prefix)}")
    if is_local(base):
        return
    yield Member(_base_python(), f"base/bin/{_base_python().name}")
    stdlib = Path(sysconfig.get_path("stdlib"))
    for path in _files(stdlib, lambda folder: folder.name in NOT_OF_PYTHON or folder.name.startswith("config-")):
        yield Member(path, f"base/{path.relative_to(base)}")
    for path in sorted((base / "lib").glob("*.so*")):
        yield Member(path, f"base/{path.relative_to(base)}")


def is_local(base: Path) -> bool:
    """Return whether a Python is the system's, which each host has on its own disk."""
    return base.is_relative_to("/usr")


def fingerprint(members: list[Member]) -> str:
    """Return a name for the content of these files: it changes if one is added, removed or written again."""
    found = [(member.name, place.st_size, place.st_mtime_ns) for member in members for place in [member.path.lstat()]]
    known = [row for row in found if "__pycache__" not in row[0]]  # what is compiled appears when it is first used
    return f"pack-{hashlib.sha256(repr((known, str(CHECKOUT), sys.prefix)).encode()).hexdigest()[:16]}"


def header(members: list[Member], name: str) -> bytes:
    """Return packed_start.sh with its values, as the beginning of a pack."""
    base = Path(sys.base_prefix)
    values = {
        "NAME": name,
        "KIB": str(sum(-(-_size(member) // BLOCK) * BLOCK for member in members) // 1024),
        "PYTHON": shlex.quote(sys.executable),
        "CHECKOUT": shlex.quote(str(CHECKOUT)),
        "HOME": shlex.quote(str(_base_python().parent)) if is_local(base) else "''",
        "BASE_PYTHON": shlex.quote(str(_base_python()) if is_local(base) else f"../../base/bin/{_base_python().name}"),
        "SITE_PACKAGES": shlex.quote(str(Path(sysconfig.get_path("purelib")).relative_to(sys.prefix))),
        "COMMIT": shlex.quote(commit() or ""),
    }
    text = START.read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return sized(text).encode()


def sized(text: str) -> str:
    """Return the beginning of a pack with the number of its own bytes."""
    num_bytes = len(text.encode()) - len(SIZE)
    digits = next(n for n in range(1, 9) if len(str(num_bytes + n)) == n)
    return text.replace(SIZE, str(num_bytes + digits))


def _append(file: IO[bytes], members):
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as archive:
            for member in members:
                archive.add(member.path, member.name, recursive=False)


def settle(checkout: str) -> None:
    """Make the kernels that were compiled in `checkout` those of this copy, in which this is called: Numba names their
    folders by the paths of the sources. Also shows that libraries can be loaded from here."""
    import numpy  # noqa: F401

    for folder in CHECKOUT.glob("az_mpi/__pycache__/numba-*"):
        for package in filter(Path.is_dir, (CHECKOUT / "az_mpi").iterdir()):
            there = folder / _of_numba(Path(checkout, "az_mpi", package.name))
            if there.is_dir():
                there.rename(folder / _of_numba(package))


def _of_numba(sources):
    """Return Numba's name for the folder of what it compiled of the sources in a folder."""
    return f"{sources.name}_{hashlib.sha1(str(sources).encode()).hexdigest()}"


def _files(place, leave_out=lambda folder: False):
    """Yield the files and links at or below a path, sorted, without the folders that `leave_out(folder)` names."""
    if place.is_symlink() or not place.is_dir():
        if place.is_symlink() or place.is_file():
            yield place
        return
    for path in sorted(place.iterdir()):
        if path.is_symlink() or not path.is_dir():
            yield path
        elif not leave_out(path):
            yield from _files(path, leave_out)


def _left_out():
    """Return the files of the packages LEFT_OUT."""
    found = set()
    for name in LEFT_OUT:
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found |= {Path(os.path.normpath(file.locate())) for file in files}
    return found


def _base_python():
    return Path(os.path.realpath(sys.executable))


def _size(member):
    return member.path.lstat().st_size
