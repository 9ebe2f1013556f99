"""What the file system sees of a start, of an iteration and of `status`, counted by strace.

    python benchmarks/file_system.py --ranks 1,2,8
    python benchmarks/file_system.py --ranks 1,2,8 --packed /tmp/az_mpi.pack    # written by python -m az_mpi pack

Each row is one command; figures are sums over its ranks. Calls are counted by where their path is:

- program: the checkout, its .venv and its Python, which many hosts share; with --packed also the pack itself;
- run: the run's folder.

What is elsewhere (/proc, /dev, /usr, /tmp and so the copy that a pack makes) is each host's own, and is left out.
`opens` have succeeded; `looks` are stat, access, readlink and opens of what is not there; `changes` make, rename or
remove names, or change times; `syncs` are fsyncs. The rows "an iteration" are differences of two runs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import make_parser, mpirun, spread, tell

ROOT = Path(__file__).resolve().parents[1]
SHORT = ("evaluate.opponents=[]", "evaluate.solver_positions=0", "report.tensorboard=false")
MORE = 5  # iterations
STRACE = 'exec strace -f -qq -y -e trace=%file,read,pread64,write,pwrite64,fsync,fdatasync -o "$0.$$" "$@"'
LOOKS = {"stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat"}
CHANGES = {"mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "link", "linkat"}
CHANGES |= {"symlink", "symlinkat", "utimensat", "chmod", "fchmodat", "truncate"}
LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+|\?)")
NAME = re.compile(r'^(?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:[^"\\]|\\.)*)"')
DESCRIPTOR = re.compile(r"^\d+<([^>]*)>")
COLUMNS = ("opens", "looks", "changes", "syncs", "read", "written")


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", default="1,2,8")
    parser.add_argument("--packed", type=Path, help="start from this pack; the first start on this host unpacks it")
    parser.add_argument("--config_file", type=Path, default=ROOT / "configs" / "smoke.json")
    arguments = parser.parse_args()
    if not shutil.which("strace"):
        sys.exit("strace is not installed: apt install strace")
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for ranks in map(int, arguments.ranks.split(",")):
            one, more = (train(arguments, folder, ranks, n) for n in (1, 1 + MORE))
            rows += [("a start and one iteration", ranks, place, one[place]) for place in one]
            rows += [("an iteration", ranks, place, part(more[place], one[place])) for place in one]
        words = [sys.executable, "-m", "az_mpi", "status", str(folder / f"run-{ranks}-1")]
        rows += [("status", 1, *row) for row in count(words, folder, f"run-{ranks}-1").items()]
    if arguments.json:
        tell(
            "what the file system sees",
            {f"{what}.{n}.{place}.{name}": spread([found[name]]) for what, n, place, found in rows for name in COLUMNS},
            True,
        )
        return
    print("| what | ranks | where | " + " | ".join(COLUMNS) + " |")
    print("|---" * (3 + len(COLUMNS)) + "|")
    for row in rows:
        show(*row)


def train(arguments, folder, ranks, iterations):
    """Count what a run of so many iterations does."""
    name = f"run-{ranks}-{iterations}"
    words = ["--config_file", str(arguments.config_file), "--logdir", str(folder / name)]
    for setting in (*SHORT, f"iterations={iterations}"):
        words += ["--set", setting]
    program = [str(arguments.packed.resolve())] if arguments.packed else [sys.executable, str(ROOT / "run_dist.py")]
    return count([*program, *words], folder, name, mpirun(ranks), arguments.packed)


def count(command, folder, name, start=(), packed=None):
    """Run a command under strace, on the ranks that the words `start` start; return {place: Counter}."""
    traces = folder / f"traces-{name}"
    done = subprocess.run(
        [*start, "sh", "-c", STRACE, str(traces), *command],
        cwd=ROOT,
        env=os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}\n{done.stderr[-2000:]}")
    program = [ROOT, Path(sys.prefix), *([] if sys.base_prefix == "/usr" else [Path(sys.base_prefix)])]
    places = {
        "program": [*map(str, program), *([str(packed.resolve())] if packed else [])],
        "run": [str(folder / name)],
    }
    found = {place: Counter() for place in places}
    for path in sorted(folder.glob(f"traces-{name}.*")):
        with open(path, errors="replace") as file:
            for line in file:
                add(line, places, found)
        path.unlink()
    return found


def add(line, places, found):
    """Add one line of strace to the counters of its place."""
    if not (match := LINE.match(line)):
        return
    call, words, result = match[1], match[2], match[3]
    if by_name := NAME.match(words):
        path = os.path.normpath(os.path.join(by_name[1] or str(ROOT), by_name[2]))
    elif by_number := DESCRIPTOR.match(words):
        path = by_number[1]
    else:
        return
    place = next((name for name, tops in places.items() if any(inside(path, top) for top in tops)), None)
    if place is None:
        return
    counter = found[place]
    if call in LOOKS or call in ("open", "openat") and result == "-1":
        counter["looks"] += 1
    elif call in ("open", "openat"):
        counter["opens"] += 1
    elif call in CHANGES:
        counter["changes"] += 1
    elif call in ("fsync", "fdatasync"):
        counter["syncs"] += 1
    elif call in ("read", "pread64", "write", "pwrite64") and result.isdecimal():
        counter["read" if "read" in call else "written"] += int(result)


def inside(path, top):
    return path == top or path.startswith(f"{top}/")


def part(more, one):
    """Return what one iteration of `more` takes that `one` has not."""
    return {name: (more[name] - one[name]) / MORE for name in COLUMNS}


def show(what, ranks, place, found):
    """Print one row of the table."""
    cells = [
        f"{found[name] / 2**20:,.2f} MiB" if name in ("read", "written") else f"{found[name]:,.0f}" for name in COLUMNS
    ]
    print(f"| {what} | {ranks} | {place} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
