"""What it costs, while nothing fails, to be ready for what may: seconds of an iteration with all of it and without.

    python benchmarks/faults.py

Ready: mpirun --with-ft ulfm, watchdogs that watch, a checkpoint each iteration. Not: plain mpirun, watchdogs without a
limit, one checkpoint at the end. Both play and train on the same games, in turn, so that they share whatever else the
machine does. An iteration is from one line of metrics.jsonl to the next; the first one compiles and is left out.
"""

import argparse
import json
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import launch, spread, tell

ROOT = Path(__file__).resolve().parents[1]
SAME = ("selfplay.deterministic=true", "evaluate.every=0", "evaluate.opponents=[]", "evaluate.solver_positions=0",
        "report.tensorboard=false")  # fmt: skip
READY = (("--with-ft", "ulfm"), ("checkpoint.every=1",))
BARE = ((), ("fault.hang_s=0", "checkpoint.every=1000000"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--config_file", type=Path, default=ROOT / "configs" / "connect4_quick.json")
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = {"ready_s": [], "bare_s": [], "ready / bare": []}
    for pair in range(arguments.pairs):
        sides = {"ready_s": READY, "bare_s": BARE}
        took = {name: iteration_s(arguments, *sides[name]) for name in sorted(sides, reverse=bool(pair % 2))}
        for name, seconds in took.items():
            rows[name].append(seconds)
        rows["ready / bare"].append(took["ready_s"] / took["bare_s"])
    tell(f"readiness for faults, {arguments.ranks} ranks, {arguments.config_file.name}, median iteration of a run",
         {name: spread(values) for name, values in rows.items()}, arguments.json)


def iteration_s(arguments, options, settings):
    """Run a training in a temporary folder and return the median seconds of its iterations but the first."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "run_dist.py"), "--config_file", str(arguments.config_file), "--logdir",
                   f"{folder}/run", "--set", f"iterations={arguments.iterations}"]
        for setting in (*SAME, *settings):
            command += ["--set", setting]
        launch(arguments.ranks, command, options)
        records = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    ends = [record["time"] for record in records if record["kind"] == "iteration"]
    return statistics.median(after - before for before, after in pairwise(ends))


if __name__ == "__main__":
    main()
