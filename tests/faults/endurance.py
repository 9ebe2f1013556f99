"""One long run: many short iterations without a fault, then as many with a fault after every few of them.

python tests/faults/endurance.py --iterations 10000 --faults 1000 --folder runs/endurance

The first half is one job. Whenever an iteration has ended, the memory (RSS), the open files and the threads of each
rank are noted. The second half is a chain of jobs in the same folder: each gets one fault of catalogue.py, and the next
one continues. What must hold after a trial (invariants.py) must hold after each job; that every game is stored once and
that every file is whole is looked at after every hundredth job and at the end. The last job has no fault and completes
the run. A folder whose first half is done continues with the second; --first then is the seed of its next fault.

Prints one JSON object; exit status 1 if something is broken, memory or open files grow, or a fault loses something.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import trial  # first: it makes this checkout's az_mpi the one that the others import
from trial import LAUNCHER, ROOT, Outcome  # isort: split

import catalogue
import invariants
import psutil
from catalogue import Trial

from az_mpi.telemetry import metrics

SETTINGS = {
    "selfplay.num_games": 16,
    "search.simulations": 4,
    "train.replay_ratio": 1.0,
    "train.batch_size": 64,
    "train.bad_steps_max": 5,
    "replay.window_min": 1000,  # the window is full, and so as large as it gets, before memory is compared
    "replay.window_max": 2000,
    "network.cache_bytes": 2**20,  # it is full by then, too
    "network.engine": "torch",
    "exchange.every_s": 0.3,
    "evaluate.opponents": '["random"]',
    "evaluate.num_games": 16,
    "evaluate.solver_positions": 0,
    "evaluate.every": 10,
    "report.tensorboard": "false",
    "report.summary_frequency": 20,
}
# Training returns to an earlier checkpoint three times in a run, and then the run ends: it cannot continue by design.
LEFT_OUT = ("gradients not finite for good",)
THOROUGH_EVERY = 100  # jobs; it takes 20 ms for a segment
AROUND = 50  # iterations whose median stands for one moment
FLAT = 0.01  # how much of its memory a rank may gain from --settled to the end of the first half
SAMPLES = "samples.json"  # of the first half
MIB = 2**20


def main(words):
    parser = argparse.ArgumentParser(
        prog="python tests/faults/endurance.py",
        allow_abbrev=False,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--iterations", type=int, default=10_000, help="of the whole run (default 10000)")
    parser.add_argument("--faults", type=int, default=1000, help="jobs with a fault (default 1000; 0: the first half)")
    parser.add_argument("--settled", type=int, default=500, help="iteration from which memory must be flat")
    parser.add_argument("--hours", type=float, default=24, help="no fault is injected later than that (default 24)")
    parser.add_argument("--ranks", type=int, default=2, help="of the first half (default 2)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first fault (default 0)")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder; the run stays in it")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for run_dist.py")
    given = parser.parse_args(words)
    folder, given.until = given.folder.resolve(), time.monotonic() + 3600 * given.hours
    is_half = (folder / SAMPLES).exists()
    if folder.exists() and any(folder.iterdir()) and not is_half:
        parser.error(f"--folder {given.folder}: is not empty, and holds no first half that is done")
    folder.mkdir(parents=True, exist_ok=True)
    options = SETTINGS | dict(word.split("=", 1) for word in given.set)
    if not is_half:
        quiet(given, folder, options)
    half = json.loads((folder / SAMPLES).read_text())
    broken = [] if half["status"] == 0 else [f"the job without a fault ended with {half['status']}"]
    found = {"iterations": given.iterations, "faults": given.faults}
    found |= figures(half["samples"], half["ended"], given.settled, broken) | {"broken": broken}
    if given.faults:
        more = with_faults(given, folder, options)
        found |= more | {"broken": found["broken"] + more["broken"]}
    found["run_bytes"] = {place.name: size(place) for place in sorted((folder / "run").iterdir())}
    print(json.dumps(found, indent=1))
    return 1 if found["broken"] else 0


def quiet(given, folder, options):
    """Run the first half in one job, and write what was noted of it to SAMPLES."""
    iterations = given.iterations // 2 if given.faults else given.iterations
    words = [sys.executable, ROOT / "run_dist.py", "--config_file", ROOT / "configs" / "smoke.json"]
    words += ["--logdir", folder / "run"]
    for name, value in (options | {"iterations": iterations}).items():
        words += ["--set", f"{name}={value}"]
    start = [LAUNCHER, "-np", given.ranks, "-H", f"localhost:{given.ranks}", "--bind-to", "none"]
    with open(folder / "quiet.log", "w") as output:
        job = subprocess.Popen(
            [str(word) for word in [*start, "--mca", "mpi_yield_when_idle", 1, *words]],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            samples, ended = sample(job, folder / "run" / "metrics.jsonl", given.ranks)
        finally:
            job.terminate()
            status = job.wait()
    (folder / SAMPLES).write_text(json.dumps({"samples": samples, "ended": ended, "status": status}))


def sample(job, metrics, num_ranks):
    """Note what each rank holds whenever an iteration has ended, until the job is over.

    Return ({rank: [iteration, bytes, open files, threads] each}, [iteration, seconds since 1970] each)."""
    samples, ended, position, ranks = {}, [], 0, []
    while job.poll() is None:
        time.sleep(0.2)
        with suppress(FileNotFoundError), open(metrics, "rb") as file:
            file.seek(position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                position += len(line)
                record = json.loads(line)
                if record["kind"] == "iteration":
                    ended.append((record["iteration"], record["time"]))
        if len(ranks) < num_ranks and ended:
            ranks = ranks_of(job.pid)
        if ended and len(ranks) == num_ranks:
            with suppress(psutil.Error):
                for rank, process in ranks.items():
                    with process.oneshot():
                        row = (ended[-1][0], process.memory_info().rss, process.num_fds(), process.num_threads())
                    if row[1]:  # else it has just ended
                        samples.setdefault(rank, []).append(row)
    return samples, ended


def ranks_of(pid):
    """Return {rank: its process} of an mpirun; the watchdog beside a rank is its child, and left out."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            rank = process.environ().get("OMPI_COMM_WORLD_RANK")
            if rank is not None and "OMPI_COMM_WORLD_RANK" not in psutil.Process(process.ppid()).environ():
                found[int(rank)] = process
    return found


def figures(samples, ended, settled, broken):
    """Return the figures of the first half; add to `broken` what grows that must not."""
    last, found = ended[-1][0] if ended else 0, {}
    for rank, rows in sorted(samples.items()):
        first, end = near(rows, settled), near(rows, last)
        growth = end[1] / first[1] - 1
        found[f"rank_{rank}"] = {
            "rss_mib": [round(first[1] / MIB, 1), round(end[1] / MIB, 1)],
            "growth_percent": round(100 * growth, 2),
            "open_files": [first[2], end[2]],
            "threads": [first[3], end[3]],
        }
        if growth > FLAT:
            broken.append(f"rank {rank} gains {100 * growth:.1f} % of its memory from iteration {settled} to {last}")
        if end[2] > first[2] or end[3] > first[3]:
            broken.append(f"rank {rank} has {first[2:]} open files and threads at {settled}, {end[2:]} at {last}")
    times = dict(ended)
    took = [times[k + 1] - times[k] for k in sorted(times)[:-1] if k + 1 in times]
    parts = took[settled : settled + 10 * AROUND], took[-10 * AROUND :]
    if all(parts):
        found["iteration_s"] = [round(statistics.median(part), 4) for part in parts]
    return found


def near(rows, iteration):
    """Return the column medians of the samples nearest to an iteration."""
    nearest = sorted(rows, key=lambda row: abs(row[0] - iteration))[:AROUND]
    return [statistics.median(column) for column in zip(*nearest)]


def with_faults(given, folder, options):
    """Run the second half, a job for each fault and one that completes the run; return {metric: figure}."""
    run, chain, seed = folder / "run", Chain(folder), given.first
    begun = max(record["iteration"] for record in metrics.read(run / "metrics.jsonl") if record["kind"] == "iteration")
    remove(folder / "job")  # of a half that was broken off
    for place in range(given.faults):
        if time.monotonic() > given.until:
            break
        one = catalogue.make(seed)
        while one.fault in LEFT_OUT:
            seed += 1
            one = catalogue.make(seed)
        goal = begun + (given.iterations - begun) * (place + 1) // (given.faults + 1)
        more = {name: one.options[name] for name in ("train.backend", "train.ranks")}
        more |= catalogue.FAULTS[one.fault].options
        chain.add(replace(one, options=options | more | {"iterations": max(goal, begun + 1)}), run)
        if place % THOROUGH_EVERY == THOROUGH_EVERY - 1:
            chain.look_at_all(run)
        seed += 1
    last = options | {"iterations": given.iterations, "train.backend": "horovod", "train.ranks": "all"}
    chain.add(Trial(-1, "kill", 3, (), last), run)
    chain.look_at_all(run)
    if chain.statuses[-1] != 0:
        chain.broken.append(f"the last job, without a fault, ended with {chain.statuses[-1]}")
    return {
        "jobs": len(chain.statuses),
        "injected": chain.num_injected,
        "faults_by_kind": dict(Counter(chain.kinds)),
        "statuses": dict(Counter(map(str, chain.statuses))),
        "games": len(chain.needed),
        "broken": chain.broken,
    }


class Chain:
    """Jobs in one folder, one after the other, and what they have acknowledged."""

    def __init__(self, folder):
        self.folder, self.visible, self.needed = folder, {}, set()
        self.statuses, self.kinds, self.broken, self.num_injected = [], [], [], 0

    def add(self, one, run):
        """Run a job with the trial's fault, and check all that is cheap to check."""
        place = self.folder / "job"
        job = trial.watch(one, place, run, one.injections, self.visible)
        outcome = Outcome(of_start_up(one, job), run, job)
        for ids in job.visible.values():
            self.needed.update(ids or [])
        self.visible = {name: None for name in job.visible}
        self.needed |= invariants.acknowledged(outcome)
        self.statuses.append(job.status)
        self.kinds += [one.fault] * bool(outcome.injected)
        self.num_injected += outcome.injected
        cheap = [
            invariants.bounded_time,
            invariants.documented_status,
            invariants.same_weights,
            invariants.one_step_at_most,
            invariants.nothing_left,
        ]
        found = [f"{each.__name__}: {text}" for each in cheap for text in each(outcome)]
        # Root was killed: with mpirun, by MPI_Abort or in the start-up. The next job takes its lock over.
        if job.status not in (0, 75) or outcome.trial.fault == "kill in the start-up":
            found = [text for text in found if not text.startswith("nothing_left: the lock ")]
        self.broken += [f"job {len(self.statuses)}, seed {one.seed}, {one.fault}: {text}" for text in found]
        num_kept = len(list(self.folder.glob("job-*")))  # of an earlier chain too
        kept = place.with_name(f"job-{num_kept + 1:04d}")
        place.rename(kept)
        if not found:
            remove(kept)
        line = f"job {len(self.statuses)}: {one.fault}, {one.phase if one.injections else '-'}: status {job.status}"
        print("\n  BROKEN: ".join([f"{line}, {job.seconds:.0f} s", *found]), file=sys.stderr, flush=True)

    def look_at_all(self, run):
        """Check that each acknowledged game is stored exactly once, and that every file is whole."""
        where, there = f"after job {len(self.statuses)}", Counter(invariants.stored(run))
        if lost := sorted(self.needed - there.keys()):
            self.broken.append(f"{where}: {len(lost)} acknowledged games are not stored: {lost[:3]}")
        if twice := [game for game, num in there.items() if num > 1]:
            self.broken.append(f"{where}: {len(twice)} games are stored twice: {twice[:3]}")
        self.broken += [f"{where}: {text}" for text in invariants.files_whole(Outcome(None, run, None))]


def of_start_up(one, job):
    """Return the trial; as one of the start-up if a rank was killed, or stopped for good, before it had its weights,
    since a job that resumes also exchanges games while it fills its window."""
    actions = [each.action for each in one.injections]
    ends = [each for each in actions if each[0] == "signal" and each[2] in (9, 11) or each == ["stop", 0]]
    fired = next((event for event in job.events if event["event"] == "fired"), None)
    if fired is None or not ends or ends[0][0] == "signal" and "mpirun" in ends[0][1]:
        return one
    has_weights = any(
        event["event"] == "weights" and event["rank"] == fired["rank"] and event["time"] < fired["time"]
        for event in job.events
    )
    return one if has_weights else replace(one, fault="kill in the start-up")


def remove(folder):
    subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


def size(path):
    """Return the bytes of a file, or of all files in a folder."""
    return sum(each.stat().st_size for each in [path, *path.rglob("*")] if each.is_file())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the job is ended too
    sys.exit(main(sys.argv[1:]))
