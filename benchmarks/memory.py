"""The memory of each rank of a long run of short iterations: does it stay bounded?

    python benchmarks/memory.py --iterations 2000 --plot docs/memory.png
    python benchmarks/memory.py --plot docs/memory.png --draw before.json after.json

Starts a training with each engine in turn, and notes each rank's resident memory (RSS, what `top` shows) whenever an
iteration has ended. `growth_mib` is from iteration --settled
to the last one, each the median of a few samples around it. That includes the replay window, which grows by
`replay.window_growth` of all positions up to `replay.window_max`: `window_mib` is a rank's share at the end, computed
from the number of its positions and what those of the newest segment take. `slowdown` is the time of an iteration at
the end over that at --settled. --plot needs matplotlib, which az_mpi itself does not: `pip install matplotlib`.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import make_parser, mpirun, spread, tell

from az_mpi import games
from az_mpi.network.heads.value import Value
from az_mpi.storage import run_folder, segment
from az_mpi.train import replay

ROOT = Path(__file__).resolve().parents[1]
SHORT = (
    "selfplay.num_games=20",
    "search.simulations=4",
    "train.batch_size=256",
    "evaluate.every=0",
    "evaluate.solver_positions=0",
    "evaluate.opponents=[]",
    "report.tensorboard=false",
)
MIB = 2**20
AROUND = 10  # samples whose median stands for one iteration
POLL_S = 0.1


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--engines", nargs="+", choices=("openvino", "torch"), default=("openvino", "torch"))
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--settled", type=int, default=100, help="the iteration with which the last one is compared")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--config_file", type=Path, default=ROOT / "configs" / "smoke.json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for run_dist.py")
    parser.add_argument("--label", default="", help="of the samples, such as the commit; for --draw")
    parser.add_argument("--samples", type=Path, help="write the samples to this file, for --draw")
    parser.add_argument("--draw", nargs="+", type=Path, default=[], help="measure nothing; draw these samples")
    parser.add_argument("--plot", type=Path, help="draw the samples into this file")
    arguments = parser.parse_args()
    jobs = [job for file in arguments.draw for job in json.loads(file.read_text())]
    if not jobs:
        jobs = [measure(arguments, engine) for engine in arguments.engines]
        rows = {f"{job['engine']}.{name}": spread(values) for job in jobs for name, values in figures(job).items()}
        tell(
            f"memory, {arguments.ranks} ranks, iterations {arguments.settled} to {arguments.iterations} of "
            f"{arguments.config_file.name}; by rank",
            rows,
            arguments.json,
        )
    if arguments.samples:
        arguments.samples.write_text(json.dumps(jobs))
    if arguments.plot:
        draw(jobs, arguments.plot)


def measure(arguments, engine):
    """Run one training; return its samples: for each rank [iteration, bytes], and when iterations ended."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [sys.executable, str(ROOT / "run_dist.py"), "--logdir", str(run)]
        words += ["--config_file", str(arguments.config_file)]
        for setting in (*SHORT, *arguments.set, f"network.engine={engine}", f"iterations={arguments.iterations}"):
            words += ["--set", setting]
        with open(Path(folder) / "output", "w+") as output:
            job = subprocess.Popen(
                [*mpirun(arguments.ranks), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                samples, ended = watch(job, run / "metrics.jsonl", arguments)
            finally:
                job.terminate()
                job.wait()
            if not ended or ended[-1][0] < arguments.iterations:
                output.seek(0)
                sys.exit(f"the job ended with status {job.returncode}\n{output.read()[-3000:]}")
        window = window_bytes(run)
    return {
        "label": arguments.label,
        "engine": engine,
        "ranks": samples,
        "ended": ended,
        "settled": arguments.settled,
        "window_bytes": window,
    }


def watch(job, metrics, arguments):
    """Sample the ranks' memory after each iteration until the last one has ended or the job is over."""
    samples, ended, position, ranks = {}, [], 0, []
    while job.poll() is None and (not ended or ended[-1][0] < arguments.iterations):
        time.sleep(POLL_S)
        with suppress(FileNotFoundError), open(metrics) as file:
            file.seek(position)
            for line in file:
                if not line.endswith("\n"):
                    break
                position += len(line)
                record = json.loads(line)
                if record["kind"] == "iteration":
                    ended.append((record["iteration"], record["time"]))
        ranks = ranks or (processes(job.pid, arguments.ranks) if ended else [])
        seen = next(iter(samples.values()), [(0,)])[-1][0]
        if ended and ended[-1][0] > seen:
            with suppress(psutil.NoSuchProcess):
                for rank, process in ranks:
                    samples.setdefault(rank, []).append((ended[-1][0], process.memory_info().rss))
    return samples, ended


def processes(mpirun_pid, ranks):
    """Return (rank, its process) for all ranks of a job; [] where they are not all there."""
    found = {}
    for process in psutil.Process(mpirun_pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            rank = process.environ().get("OMPI_COMM_WORLD_RANK")
            if rank is not None and psutil.Process(process.ppid()).environ().get("OMPI_COMM_WORLD_RANK") is None:
                found.setdefault(int(rank), process)  # not the watchdog beside it
    return sorted(found.items()) if len(found) == ranks else []


def window_bytes(run):
    """Return how much memory the whole window of a run takes now, over all trainers."""
    config = run_folder.recorded_config(run, {})
    records = [json.loads(line) for line in open(run / "metrics.jsonl")]
    made = sum(record["num_positions"] for record in records if record["kind"] == "iteration")
    game = games.make(config.game)
    heads, newest = {"value": Value(game, channels=8)}, segment.read(segment.paths(run / "games")[-1][1], game)
    window = replay.Replay(game, heads)
    window.add(replay.to_samples(newest, game, heads, config.train, 0))
    return min(made, replay.window_size(config.replay, made)) * window.num_bytes / window.num_positions


def figures(job):
    """Return {name: values by rank} of one job."""
    last, settled, ranks = job["ended"][-1][0], job["settled"], job["ranks"].values()
    at = [(near(rank, settled), near(rank, last)) for rank in ranks]
    values = {f"rss_mib.{settled}": [first[1] / MIB for first, _ in at]}
    values |= {f"rss_mib.{last}": [end[1] / MIB for _, end in at]}
    values |= {"growth_mib": [(end[1] - first[1]) / MIB for first, end in at]}
    values |= {"window_mib": [job["window_bytes"] / len(ranks) / MIB]}
    times = dict(job["ended"])
    took = [times[k + 1] - times[k] for k in sorted(times)[:-1]]
    few = min(AROUND * 5, len(took))
    first = statistics.median(took[max(settled - few, 0) : settled] or took)
    return values | {"iteration_s": [statistics.median(took)], "slowdown": [statistics.median(took[-few:]) / first]}


def near(samples, iteration):
    """Return the column medians of the AROUND samples nearest to an iteration."""
    nearest = sorted(samples, key=lambda sample: abs(sample[0] - iteration))[:AROUND]
    return [statistics.median(column) for column in zip(*nearest)]


def draw(jobs, path):
    """Draw the resident memory of every rank of every job over its iterations, as SVG or PNG by the file's name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    engines = list(dict.fromkeys(job["engine"] for job in jobs))
    labels = list(dict.fromkeys(job["label"] for job in jobs))
    figure, plots = pyplot.subplots(
        1, len(engines), figsize=(5.5 * len(engines), 3.6), layout="constrained", sharey=True, squeeze=False
    )
    for axes, engine in zip(plots[0], engines):
        axes.set(title=f"network.engine={engine}", xlabel="iteration", ylabel="resident memory, MiB")
        for job in (job for job in jobs if job["engine"] == engine):
            for k, (rank, samples) in enumerate(sorted(job["ranks"].items())):
                step = max(1, len(samples) // 200)
                axes.plot(
                    [s[0] for s in samples[::step]],
                    [s[1] / MIB for s in samples[::step]],
                    color=f"C{labels.index(job['label'])}",
                    linestyle="-:"[k % 2],
                    linewidth=1.2,
                    label=f"{job['label']} rank {rank}".strip(),
                )
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    plots[0, 0].set_ylim(bottom=0)  # and so all of them
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
