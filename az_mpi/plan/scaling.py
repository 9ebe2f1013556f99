"""python -m az_mpi scaling: runs a configuration on several numbers of ranks, and reports how it scales.

What is done is kept in DIR/scaling.json, so the same command continues where it was stopped.
"""

import itertools
import json
import shlex
import signal
import sys
import time
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from az_mpi.core.arguments import Parser, count, positive
from az_mpi.core.exit_codes import DONE, RESUMABLE
from az_mpi.core.host_facts import HostFacts
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, escape, show, write_file
from az_mpi.core.signals import handling
from az_mpi.launch import hosts, mpi_job
from az_mpi.plan import scaling_report, state_file, variants
from az_mpi.plan.scaling_runs import Case, Runs
from az_mpi.telemetry.status_text import duration

PROG = "python -m az_mpi scaling"
ABOUT = """\
Run a configuration on several numbers of ranks, with the same games for all of them together (strong scaling) and with
games for each of them (weak scaling), and write a report: rates, efficiency, where the time goes, what it uses, a
fitted model, and how many ranks are useful."""
EPILOG = """examples:
  python -m az_mpi scaling --config_file configs/connect4_quick.json --ranks 1,2
  python -m az_mpi scaling --config_file A.json --ranks 8,16,32,64 --hosts "node1:32,node2:32" --minutes 5
  sbatch --nodes=8 --ntasks-per-node=32 --mem=48G slurm/scaling.sh --config_file A.json --ranks 32,64,128,256 ...

A size uses the first hosts and fills each of them. In weak scaling the smallest size has the games and the batch of
the configuration, and the others have them in proportion. After Ctrl-C or a kill, and with more --ranks or --repeats,
the same command does what is missing. It needs no GPU."""
STATE = "scaling.json"
START_S = 20.0  # that a job takes besides its minutes, until one has been timed
ENOUGH = 0.7  # efficiency


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status. Raises Refusal."""
    options = parser().parse_args(arguments)
    with mpi_job.interruptible(RESUMABLE), handling({signal.SIGUSR2: _leave}):
        return scale(options)


def _leave(*_):
    """Answer USR2, with which the batch scripts ask for a stop."""
    raise SystemExit(RESUMABLE)


def scale(options: Namespace) -> int:
    """Measure what is missing, write the report, print its table, and return the exit status. Raises Refusal."""
    scaling = Scaling(options)
    scaling.run()
    *paths, page = scaling_report.write(scaling.folder, scaling.state, options.efficiency)
    print(next(path for path in paths if path.suffix == ".md").read_text(encoding="utf-8"))
    print(page)
    return DONE


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(PROG, ABOUT, EPILOG)
    made.add_argument("--config_file", required=True, metavar="FILE", help="the configuration, as for run_dist.py")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of it")
    made.add_argument(
        "--ranks", type=_sizes, required=True, metavar="N,N,...", help="the numbers of ranks, such as 1,2,4,8"
    )
    made.add_argument(
        "--kinds",
        type=_kinds,
        default=["strong", "weak"],
        metavar="{strong,weak}",
        help="what is measured (default strong,weak)",
    )
    made.add_argument(
        "--minutes",
        type=positive,
        default=3.0,
        metavar="M",
        help="minutes of each job behind its first iteration, or two more iterations if they take longer (default 3)",
    )
    made.add_argument("--repeats", type=count, default=2, metavar="R", help="jobs of each size (default 2)")
    made.add_argument(
        "--cores",
        type=count,
        metavar="C",
        help="cores of each rank, at every size (default: those of a host, divided by the ranks that the largest size "
        "has there)",
    )
    made.add_argument(
        "--efficiency",
        type=_share,
        default=ENOUGH,
        metavar="E",
        help=f"ranks are useful up to this efficiency (default {ENOUGH:g})",
    )
    made.add_argument(
        "--logdir",
        type=Path,
        default=Path("runs/scaling"),
        metavar="DIR",
        help="the folder of the report and its jobs, on a file system that all hosts share (default runs/scaling)",
    )
    hosts.add_options(made, np=False)
    return made


def _sizes(text):
    """Return an option's text "1,2,4" as ascending numbers."""
    numbers = sorted({count(word.strip()) for word in text.split(",")})
    if len(numbers) < 2:
        raise ArgumentTypeError(f"{show(text)} is no list of two or more numbers of ranks, such as 1,2,4,8")
    return numbers


def _kinds(text):
    words = [word.strip() for word in text.split(",")]
    if not words or not set(words) <= set(scaling_report.KINDS):
        raise ArgumentTypeError(f"{show(text)} is not strong, weak or strong,weak")
    return list(dict.fromkeys(words))


def _share(text):
    if (number := positive(text)) < 1:
        return number
    raise ArgumentTypeError(f"{show(text)} is no number between 0 and 1")


class Scaling:
    """What is measured, and what is done of it. `state` is the content of DIR/scaling.json."""

    def __init__(self, options: Namespace):
        """options: of the command line. Raises Refusal."""
        self.options = options
        self.folder: Path = options.logdir
        self.variant = variants.read_one(shlex.join([options.config_file, *options.set]), [])
        self.runs = Runs(options, self.variant)
        self.state = self._opened()

    def run(self) -> None:
        """Measure the cases that are missing. Raises Refusal if one fails."""
        missing = [case for case in self._cases() if case.name not in self.state["cases"]]
        if not missing:
            return _say(f"{self.folder}: all sizes are complete; the report is written again")
        num_done = len(self._cases()) - len(missing)
        if num_done:
            _say(f"{self.folder}: {num_done} of {counted(len(self._cases()), 'job')} are complete")
        _say(f"trying {counted(max(self.options.ranks), 'rank')}; then {self._estimate(missing, START_S)}")
        self._save()
        begun = time.monotonic()
        self.runs.try_largest()
        start_s = time.monotonic() - begun
        for k, case in enumerate(missing):
            _say(f"{case.name}, job {num_done + k + 1} of {len(self._cases())}; {self._estimate(missing[k:], start_s)}")
            self.state["cases"][case.name] = found = self.runs.measure(case)
            self._save()
            rows = found["iterations"][1:]
            rate = sum(row["num_games"] for row in rows) / sum(row["iteration_s"] for row in rows)
            _say(f"  {counted(len(rows), 'iteration')}, {rate:.3g} games/s")

    def _cases(self):
        """Return all cases, repeat by repeat: a machine whose speed drifts then slows all sizes."""
        orders = itertools.product(range(1, self.options.repeats + 1), self.options.kinds, self.options.ranks)
        cases = [Case(kind, num_ranks, repeat) for repeat, kind, num_ranks in orders]
        twice = {("weak", self.options.ranks[0])} if "strong" in self.options.kinds else set()  # the same work
        return [case for case in cases if case[:2] not in twice]

    def _estimate(self, missing, start_s):
        seconds = len(missing) * (60 * self.options.minutes + start_s)
        return f"{counted(len(missing), 'job')} left, about {duration(seconds)}"

    def _opened(self) -> dict[str, Any]:
        """Return the state of the folder, a new one if it holds none. Raises Refusal if it holds something else, or
        what was measured with another configuration."""
        folder = self.folder
        mine = {"smallest": self.options.ranks[0], "cores": self.runs.cores}
        state = state_file.read(folder / STATE, "scaling")
        if state is None:
            listed = [str(host) for host in hosts.listed(self.options)]
            about = {"configuration": self.variant.label, "rank": f"{counted(self.runs.cores, 'core')} each"}
            about |= scaling_report.machine(listed, HostFacts.look(str(Path(__file__).resolve().parents[2])).to_dict())
            config = self.variant.config.model_dump()
            return {"options": mine, "configuration": config, "about": about, "cases": {}}
        if state["options"] != mine:
            raise Refusal(
                f"--logdir {escape(str(folder))}: holds a scaling from {counted(state['options']['smallest'], 'rank')} "
                f"on, with {counted(state['options']['cores'], 'core')} for each rank\n"
                f"  begin --ranks with {state['options']['smallest']} and give --cores {state['options']['cores']}, or "
                "give another --logdir"
            )
        if changed := state_file.changes(folder / STATE, state["configuration"], self.variant.config):
            raise Refusal(
                f"--logdir {escape(str(folder))}: holds a scaling with {changed}\n"
                "  give the same --set and file, or another --logdir"
            )
        return state

    def _save(self):
        write_file(self.folder / STATE, json.dumps(self.state, indent=1))


def _say(text):
    print(text, file=sys.stderr, flush=True)
