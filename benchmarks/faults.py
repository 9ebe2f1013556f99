"""What it costs, while nothing fails, to be ready for what may: seconds of an iteration with all of it and without.

    python benchmarks/faults.py

Ready: mpirun --with-ft ulfm, watchdogs that watch, a checkpoint each iteration. Not: plain mpirun, watchdogs without a
limit, one checkpoint at the end. Both jobs play and train on the same games. They take turns, an iteration each, while
the other one is stopped, so that both meet the same moods of the machine; the first iteration compiles and is left out.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import mpirun, spread, tell

ROOT = Path(__file__).resolve().parents[1]
SAME = ("selfplay.deterministic=true", "evaluate.every=0", "evaluate.opponents=[]", "evaluate.solver_positions=0",
        "report.tensorboard=false")  # fmt: skip
READY = (("--with-ft", "ulfm"), ("checkpoint.every=1",))
BARE = ((), ("fault.hang_s=0", "checkpoint.every=1000000"))
LOOK_S = 0.05


class Job:
    """A training that runs only while it is let."""

    def __init__(self, arguments, folder, options, settings):
        """Start it in a folder; `options` are mpirun's."""
        words = [sys.executable, str(ROOT / "run_dist.py"), "--config_file", str(arguments.config_file), "--logdir",
                 f"{folder}/run", "--set", f"iterations={arguments.pairs + 2}"]  # fmt: skip
        for setting in (*SAME, *settings):
            words += ["--set", setting]
        self.metrics, self.output = folder / "run" / "metrics.jsonl", folder / "output"
        self.seen, self.ahead_s = 0, 0.0  # ahead_s: of the next iteration, before the job was stopped
        with open(self.output, "w") as output:
            self.process = subprocess.Popen([*mpirun(arguments.ranks, options), *words], stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=subprocess.STDOUT)  # fmt: skip

    def iterate(self):
        """Let it run to the end of its next iteration; return the seconds of that and its record in metrics.jsonl."""
        begun = time.time()
        self.send(signal.SIGCONT)
        while len(records := self.records()) == self.seen:
            if self.process.poll() is not None:
                self.fail()
            time.sleep(LOOK_S)
        self.send(signal.SIGSTOP)
        record = records[self.seen]
        seconds, self.ahead_s = self.ahead_s + record["time"] - begun, time.time() - record["time"]
        self.seen += 1
        return seconds, record

    def records(self):
        lines = self.metrics.read_text().splitlines(keepends=True) if self.metrics.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return [record for record in records if record["kind"] == "iteration"]

    def send(self, number):
        for rank in psutil.Process(self.process.pid).children(recursive=True):
            rank.send_signal(number)

    def finish(self):
        self.send(signal.SIGCONT)
        if self.process.wait():
            self.fail()

    def fail(self):
        sys.exit(f"mpirun ended with status {self.process.returncode}\n{self.output.read_text()[-3000:]}")

    def kill(self):
        """Leave nothing of it behind, stopped ranks above all."""
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--config_file", type=Path, default=ROOT / "configs" / "connect4_quick.json")
    parser.add_argument("--pairs", type=int, default=15, help="of iterations (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no stopped ranks
    rows = {name: [] for name in ("ready_s", "bare_s", "ready / bare")}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        jobs = {}
        for name, side in (("ready_s", READY), ("bare_s", BARE)):
            (Path(folder) / name).mkdir()
            jobs[name] = Job(arguments, Path(folder) / name, *side)
            stack.callback(jobs[name].kill)
            jobs[name].iterate()
        for pair in range(arguments.pairs):
            took = {name: jobs[name].iterate() for name in sorted(jobs, reverse=bool(pair % 2))}
            (ready, with_all), (bare, without) = took["ready_s"], took["bare_s"]
            if with_all["positions_num"] != without["positions_num"]:
                sys.exit(f"iteration {with_all['iteration']}: the two jobs did not play the same games")
            for row, value in zip(rows.values(), (ready, bare, ready / bare), strict=True):
                row.append(value)
        for job in jobs.values():
            job.finish()
    title = f"readiness for faults, {arguments.ranks} ranks, {arguments.config_file.name}, an iteration"
    tell(title, {name: spread(values) for name, values in rows.items()}, arguments.json)


if __name__ == "__main__":
    main()
