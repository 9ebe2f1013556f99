"""What it costs, while nothing fails, to be ready for what may: seconds of an iteration with all of it and without.

    python benchmarks/faults.py

Ready: mpirun --with-ft ulfm, watchdogs that watch, a checkpoint each iteration. Not: plain mpirun, watchdogs without a
limit, one checkpoint at the end. Both jobs play and train on the same games. They take turns of half a second, while
the other one is stopped, so that both meet the same moods of the machine. An iteration is from one line of
metrics.jsonl to the next, of the time that its job was let run; the first one compiles and is left out.
"""

import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import make_parser, mpirun, spread, tell

from az_mpi.liveness import watchdog

ROOT = Path(__file__).resolve().parents[1]
SAME = (
    "selfplay.deterministic=true",
    "evaluate.every=0",
    "evaluate.opponents=[]",
    "evaluate.solver_positions=0",
    "report.tensorboard=false",
)
READY = (("--with-ft", "ulfm"), ("checkpoint.every=1",))
ENDLESS = 1_000_000  # iterations: a job that ended while the other one is behind would leave nothing to compare
BARE = ((), ("fault.hang_s=0", f"checkpoint.every={ENDLESS}"))
TURN_S = 0.5


class Job:
    """A training that runs only while it is let."""

    def __init__(self, arguments, folder, options, settings):
        """Start it in a folder; `options` are mpirun's."""
        words = [
            sys.executable,
            str(ROOT / "run_dist.py"),
            "--config_file",
            str(arguments.config_file),
            "--logdir",
            f"{folder}/run",
            "--set",
            f"iterations={ENDLESS}",
        ]
        for setting in (*SAME, *settings):
            words += ["--set", setting]
        self.metrics, self.output = folder / "run" / "metrics.jsonl", folder / "output"
        folder.mkdir()
        self.children = []
        self.turns = []  # (begun, ended), seconds of the clock
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(
                [*mpirun(arguments.ranks, options), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def warm_up(self):
        """Let it run to the end of its first iteration."""
        begun = time.time()
        while not self.iterations():
            time.sleep(TURN_S)
        self.send(signal.SIGSTOP)
        self.turns.append((begun, time.time()))

    def run(self, seconds):
        """Let it run for so long."""
        begun = time.time()
        self.send(signal.SIGCONT)
        time.sleep(seconds)
        self.send(signal.SIGSTOP)
        self.turns.append((begun, time.time()))

    def iterations(self):
        """Return the records of the iterations that are over, first to last; ends this program if the job has ended."""
        if self.process.poll() is not None:
            sys.exit(f"mpirun ended with status {self.process.returncode}\n{self.output.read_text()[-3000:]}")
        lines = self.metrics.read_text().splitlines(keepends=True) if self.metrics.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return [record for record in records if record["kind"] == "iteration"]

    def ran_s(self, until):
        """Return for how long it had been let run at a time of the clock."""
        return sum(max(0.0, min(ended, until) - begun) for begun, ended in self.turns)

    def send(self, number):
        if self.process.poll() is None:
            self.children = psutil.Process(self.process.pid).children(recursive=True)
        for process in self.children:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def watching_s(self):
        """Return the seconds of processor time that its watchdogs have taken."""
        times = [
            process.cpu_times()
            for process in psutil.Process(self.process.pid).children(recursive=True)
            if watchdog.PROGRAM in process.cmdline()
        ]
        return sum(each.user + each.system for each in times)

    def kill(self):
        """Leave nothing of it behind, stopped ranks above all."""
        self.send(signal.SIGKILL)
        self.process.wait()


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--config_file", type=Path, default=ROOT / "benchmarks" / "connect4.json")
    parser.add_argument("--iterations", type=int, default=15, help="to compare, 2 or more (default: %(default)s)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no stopped ranks
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ready = Job(arguments, Path(folder) / "ready", *READY)
        stack.callback(ready.kill)
        ready.warm_up()
        bare = Job(arguments, Path(folder) / "bare", *BARE)
        stack.callback(bare.kill)
        bare.warm_up()
        turns = [ready, bare]
        while min(len(job.iterations()) for job in turns) <= arguments.iterations:
            for job in turns:
                job.run(TURN_S)
            turns.reverse()  # so that each is as often the second
        rows = compare(ready, bare, arguments.iterations)
    title = f"readiness for faults, {arguments.ranks} ranks, {arguments.config_file.name}, an iteration"
    tell(title, rows, arguments.json)


def compare(ready, bare, count):
    """Return the rows of figures of two jobs' first iterations after the one that compiled."""
    first = [job.iterations()[: count + 1] for job in (ready, bare)]
    games = [[(record["num_games"], record["num_positions"]) for record in records] for records in first]
    if games[0] != games[1]:
        sys.exit("the two jobs did not play the same games")
    took = [
        [job.ran_s(after["time"]) - job.ran_s(before["time"]) for before, after in pairwise(records)]
        for job, records in zip((ready, bare), first, strict=True)
    ]
    ratios = [with_all / without for with_all, without in zip(*took, strict=True)]
    mean, error = statistics.mean(ratios), statistics.stdev(ratios) / math.sqrt(count)
    return {
        "ready_s": spread(took[0]),
        "bare_s": spread(took[1]),
        "ready / bare": spread(ratios),
        "their mean, +- its error": {**spread(ratios), "median": mean, "min": mean - error, "max": mean + error},
        "save_s of ready": spread([record["save_s"] for record in first[0][1:]]),
        "watchdogs, of a core": spread([ready.watching_s() / ready.ran_s(math.inf)]),
    }


if __name__ == "__main__":
    main()
