"""From mpirun to the first games on disk, and how many files each rank opens for it.

    python benchmarks/startup.py

Starts `mpirun -np 2 run_dist.py` in a temporary folder. The start ends when the first segment is written, which follows
the first phase of self-play directly. Cold: kernels are compiled into a new NUMBA_CACHE_DIR, which the warm starts then
find filled. The system's own cache of file contents is warm in both. Files are counted in runs of their own.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import launch, make_parser, spread, tell

ROOT = Path(__file__).resolve().parents[1]
SHORT = ("iterations=1", "evaluate.opponents=[]", "evaluate.solver_positions=0", "report.tensorboard=false")
STRACE = 'exec strace -f -qq -e trace=open,openat -o "$0/$OMPI_COMM_WORLD_RANK" "$@"'
# Without strace: what Python's own open() and os.open() see, which is not what libraries in C open.
AUDIT = """
import os, runpy, sys
log = os.open(f"{sys.argv[1]}/{os.environ['OMPI_COMM_WORLD_RANK']}", os.O_WRONLY | os.O_CREAT)
sys.addaudithook(lambda event, _: os.write(log, b"open = 3\\n") if event == "open" else None)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--config_file", type=Path, default=ROOT / "configs" / "smoke.json")
    parser.add_argument("--cold_runs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5, help="with warm caches")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        caches = [folder / f"cache-{k}" for k in range(arguments.cold_runs)]
        rows = {"cold_start_s": spread([start(arguments, folder, cache) for cache in caches])}
        rows["warm_start_s"] = spread([start(arguments, folder, caches[0]) for _ in range(arguments.runs)])
        opened, missed = count_files(arguments, folder, caches[0])
        rows |= {"files_opened": spread(opened), "files_missed": spread(missed)}
    tracer = "strace" if shutil.which("strace") else "Python's audit hook, which does not see libraries in C"
    tell(
        f"startup, {arguments.ranks} ranks, {arguments.config_file.name}; files of each rank by {tracer}",
        rows,
        arguments.json,
    )


def start(arguments, folder, cache):
    """Run one short training and return the seconds from mpirun to its first segment."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    begun = time.time()
    launch(arguments.ranks, [sys.executable, *program(arguments, run)], NUMBA_CACHE_DIR=str(cache))
    return (run / "games" / "000000-000.h5").stat().st_mtime - begun


def count_files(arguments, folder, cache):
    """Run one short training; return how often each rank opened a file, and how often it looked where none was."""
    logs = Path(tempfile.mkdtemp(dir=folder))
    command = program(arguments, logs / "run")
    if shutil.which("strace"):
        command = ["sh", "-c", STRACE, str(logs), sys.executable, *command]
    else:
        command = [sys.executable, "-c", AUDIT, str(logs), *command]
    launch(arguments.ranks, command, NUMBA_CACHE_DIR=str(cache))
    lines = [(logs / str(rank)).read_text().splitlines() for rank in range(arguments.ranks)]
    missed = [sum(" = -1 " in line for line in rank) for rank in lines]
    return [sum(" = " in line for line in rank) - miss for rank, miss in zip(lines, missed)], missed


def program(arguments, run):
    """Return the arguments of Python for a run of one iteration in the folder `run`."""
    settings = [word for setting in SHORT for word in ("--set", setting)]
    return [str(ROOT / "run_dist.py"), "--config_file", str(arguments.config_file), "--logdir", str(run), *settings]


if __name__ == "__main__":
    main()
