"""python -m az_mpi compare: trains configurations on the same cores for equal time, and says which one plays best.

Each configuration, with each seed, is a run in the folder of the comparison. The runs train alternately: each of them
for a part of its time, then the next one. After each part the network is measured, which does not count as time. What
is done is kept in DIR/compare.json, so the same command continues where it was stopped.
"""

import json
import shutil
import sys
import time
from argparse import Namespace
from pathlib import Path

from az_mpi.core.arguments import Parser, count, even, positive
from az_mpi.core.exit_codes import DONE, RESUMABLE
from az_mpi.core.problems import Refusal, escape, write_file
from az_mpi.launch import hosts, mpi_job
from az_mpi.plan import comparison_page, figures, state_file
from az_mpi.plan.jobs import Jobs
from az_mpi.plan.variants import Variant, read
from az_mpi.telemetry import metrics

PROG = "python -m az_mpi compare"
ABOUT = "Train configurations alternately on the same cores for equal time, and say which one plays best."
EPILOG = """examples:
  python -m az_mpi compare A.json "A.json train.replay_ratio=3" --minutes 8 --np 2
  python -m az_mpi compare A.json B.json C.json --minutes 30 --seeds 3 --hosts "node1:8,node2:8"

A configuration is a file, or a quoted text of a file and keys with their values. The first one is what the others are
compared with. After Ctrl-C, or when it was killed, the same command continues. With more --seeds, or with further
configurations, only what is missing is done. DIR/compare.html has the curves."""
STATE = "compare.json"
WARM_UP = (
    "iterations=1",
    "selfplay.num_games=2",
    "search.simulations=2",
    "evaluate.num_games=2",
    "evaluate.solver_positions=0",
    "evaluate.simulations=2",
    'evaluate.opponents=["random"]',
)


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status. Raises Refusal."""
    options = _parser().parse_args(arguments)
    with mpi_job.interruptible(RESUMABLE):
        return compare(options)


def compare(options: Namespace) -> int:
    """Do what is missing of the comparison, print its table and return the exit status. Raises Refusal."""
    comparison = Comparison(options)
    first, *others = comparison.variants
    seeds = range(1, options.seeds + 1)
    comparison.warm_up()
    for part in range(1, options.points + 1):
        for seed in seeds:
            for variant in (first, *others):
                comparison.train(variant, seed, part)
    for seed in seeds:
        for variant in others:
            comparison.match(variant, first, seed)
    print(figures.table(comparison.state, comparison.variants, options.seeds))
    print(comparison_page.write(comparison.folder, comparison.state, comparison.variants, options))
    return DONE


def _parser():
    parser = Parser(PROG, ABOUT, EPILOG)
    parser.add_argument("configurations", nargs="+", metavar="CONFIGURATION", help="two or more")
    parser.add_argument(
        "--minutes",
        type=positive,
        required=True,
        help="minutes of training for each run; the learning rate falls over them",
    )
    parser.add_argument("--seeds", type=count, default=1, metavar="S", help="runs of each configuration (default 1)")
    parser.add_argument(
        "--points",
        type=count,
        default=4,
        metavar="P",
        help="into how many parts the time is divided, each followed by a measurement (default 4)",
    )
    parser.add_argument(
        "--games", type=even, default=100, metavar="N", help="games of each match, an even number (default 100)"
    )
    parser.add_argument(
        "--simulations",
        type=count,
        default=100,
        metavar="N",
        help="simulations for each move in all measurements (default 100)",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a key in all configurations"
    )
    parser.add_argument(
        "--logdir",
        type=Path,
        default=Path("runs/compare"),
        metavar="DIR",
        help="the folder of the comparison, on a file system that all hosts share (default runs/compare)",
    )
    hosts.add_options(parser)
    return parser


class Comparison:
    """What is compared, and what is done of it. `state` is the content of DIR/compare.json."""

    def __init__(self, options: Namespace):
        """options: of the command line. Raises Refusal."""
        self.options = options
        self.folder = options.logdir
        self.variants = read(options.configurations, options.set)
        self.jobs = Jobs(options, self.folder)
        self.jobs.num_ranks()  # raises Refusal if the hosts are given wrongly
        self.state = self._opened()

    def _opened(self):
        """Return the state of the comparison in the folder, a new one if the folder holds none. Raises Refusal if it
        holds something else, or a comparison with other options."""
        folder = self.folder
        options = self.options
        asked = {variant.label: variant.config.model_dump() for variant in self.variants}
        mine = {
            "minutes": options.minutes,
            "points": options.points,
            "games": options.games,
            "simulations": options.simulations,
        }
        state = state_file.read(folder / STATE, "comparison")
        if state is None:
            return {"options": mine, "configurations": asked, "warm": [], "runs": {}, "matches": {}}
        if state["options"] != mine:
            given = ", ".join(f"--{name} {value:g}" for name, value in state["options"].items())
            raise Refusal(f"--logdir {folder}: holds a comparison with {given}\n  give the same, or another --logdir")
        before = state.setdefault("configurations", {})  # older states have none
        mine_first = self.variants[0].label
        if (first := next(iter(before), mine_first)) != mine_first:  # all matches are against it
            raise Refusal(
                f"--logdir {folder}: holds a comparison with {escape(first)}, its first configuration\n"
                "  name that one first, or give another --logdir"
            )
        for variant in self.variants:
            old = before.setdefault(variant.label, asked[variant.label])
            if different := state_file.changes(folder / STATE, old, variant.config):
                raise Refusal(
                    f"--logdir {folder}: holds a comparison in which {escape(variant.label)} has {different}\n"
                    "  give the same --set and file, or another --logdir"
                )
        return state

    def _save(self):
        write_file(self.folder / STATE, json.dumps(self.state, indent=1))

    def warm_up(self) -> None:
        """Start each configuration once for a moment: mistakes show early, and no run loses time by compiling
        kernels."""
        self._save()
        for variant in self.variants:
            if variant.label in self.state["warm"]:
                continue
            _say(f"trying {variant.label}")
            run = self.folder / "trial"
            shutil.rmtree(run, ignore_errors=True)
            self.jobs.train(variant, run, 1, (*WARM_UP, f"train.batch_size={max(32, self.jobs.num_ranks())}"))
            shutil.rmtree(run)
            self.state["warm"].append(variant.label)
            self._save()

    def train(self, variant: Variant, seed: int, part: int) -> None:
        """Train one run until `part` of its parts of the time are over, and measure it."""
        name = variant.run_name(seed)
        options = self.options
        run = self.folder / name
        mine = self.state["runs"].setdefault(name, {"seconds": 0.0, "begun": None, "points": []})
        if len(mine["points"]) >= part:
            return
        if mine["begun"] is not None:  # this program was killed: count what the run trained until then
            file = run / "metrics.jsonl"
            newest = [record["time"] for record in metrics.read(file)] if file.exists() else []
            mine["seconds"] += max([0.0, *(at - mine["begun"] for at in newest)])
            mine["begun"] = None
        due = 60 * options.minutes * part / options.points - mine["seconds"]
        complete = bool(mine["points"]) and mine["points"][-1]["complete"]
        if due > 1 and not complete:
            _say(f"{name}: training until minute {options.minutes * part / options.points:g} of {options.minutes:g}")
            mine["begun"] = time.time()
            self._save()
            settings = ("evaluate.every=0", f"max_hours={due / 3600:.6f}", f"train.hours={options.minutes / 60:.6f}")
            took, complete = self.jobs.train(variant, run, seed, settings, due / 2)
            mine["seconds"] += took
            mine["begun"] = None
            self._save()
        measured = self.jobs.measure(variant, run)
        mine["points"].append(figures.point(run, mine["seconds"], measured, complete))
        self._save()
        _say(figures.line(name, mine["points"][-1]))

    def match(self, variant: Variant, base: Variant, seed: int) -> None:
        """Let the networks of two configurations with one seed play each other."""
        name, other = variant.run_name(seed), base.run_name(seed)
        if name not in self.state["matches"]:
            _say(f"{name}: a match against {other}")
            self.state["matches"][name] = self.jobs.match(self.folder / name, self.folder / other)
            self._save()


def _say(text):
    print(text, file=sys.stderr, flush=True)
