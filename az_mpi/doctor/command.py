"""python -m az_mpi doctor: options, the order of the checks, and the exit status."""

import argparse
import contextlib
import io
import json
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi import __version__
from az_mpi.core.arguments import Parser, positive, setting
from az_mpi.core.exit_codes import DONE, PROBLEMS
from az_mpi.core.printing import environment_rank
from az_mpi.core.problems import OwnCodeError, Refusal, is_on_every_rank
from az_mpi.doctor import diagnosis, facts, folder, job, machine
from az_mpi.doctor.checks import OK, PROBLEM, WARNING, Check, Report, in_words, ranks_in_words, tried
from az_mpi.mpi.frame import Frame
from az_mpi.telemetry import console

if TYPE_CHECKING:
    from az_mpi.mpi.world import World

PROG = "python -m az_mpi doctor"
OTHERS_WAIT_S = 10.0
SECONDS = 5.0  # of the trial of a configuration of the user
SHORT_S = 0.2  # of the trial without one, which shows whether a run starts and not how fast it is
SMALLEST = {
    "game": "tictactoe",
    "network": {"blocks": 1, "channels": 8},
    "search": {"simulations": 8},
    "selfplay": {"parallel_games": 8},
}
DESCRIPTION = """\
Say whether a run would start here, and how fast it would be. Checks the MPI and its mpirun, Horovod, torch and
devices, cores and memory, versions on every rank, the shared folder, and the network between the ranks; then tries the
program. Start it as the run will be started, on the same hosts. Its files are removed at the end."""
EPILOG = """\
examples:
  python -m az_mpi doctor
  mpirun -n 4 -H node1:2,node2:2 python -m az_mpi doctor --logdir /shared/runs
  mpirun -n 2 python -m az_mpi doctor --config_file configs/connect4.json --set search.simulations=400

Each check is ok, a warning, or a problem with its cure.

exit codes:
  0    a run would start
  1    it would not: there is a problem
  2    usage or configuration: nothing was tried
"""


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = Parser(PROG, DESCRIPTION, EPILOG, usage=f"[mpirun -n RANKS] {PROG} [options]")
    made.add_argument(
        "--logdir",
        metavar="DIR",
        default="runs",
        help="the folder that runs are to be in, on a file system all hosts share (default: runs)",
    )
    made.add_argument("--config_file", metavar="FILE", help="predict games/s and hours for this configuration")
    made.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key of it, as for run_dist.py; may be repeated",
    )
    made.add_argument(
        "--seconds",
        type=positive,
        default=SECONDS,
        metavar="S",
        help="seconds of self-play, and of training, that are measured for the prediction (default: %(default)g)",
    )
    made.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object instead of the report, and what is being done on standard error",
    )
    return made


def main(arguments: list[str]) -> int:
    """Run the checks on every rank and return the exit status. Raises Refusal, on every rank."""
    rank = environment_rank()
    with contextlib.redirect_stdout(io.StringIO() if rank else sys.stdout):  # --help
        options = parse(arguments)
    launcher = job.started_by()
    with job.watch("starting MPI"):
        world, why_alone = job.join()
        text = world.from_root(lambda: load(options, world.size))
    if why_alone and rank:
        return tell_only(why_alone, rank)

    def check():
        report = Report(world.is_root, options.json)
        examine(world, why_alone, launcher, options, text, report)
        report.finish()
        world.barrier()  # mpirun ends the others with the first that fails
        return DONE if report.would_start else PROBLEMS

    return Frame(world).run(check)


class TrialFailed(OwnCodeError):
    """The trial fails on this rank, perhaps on it alone. The others wait for it, so the job ends without a report."""

    status = PROBLEMS


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options. Raises Refusal."""
    options = parser().parse_args(arguments)
    if options.set and not options.config_file:
        raise Refusal(f"{PROG}: error: --set changes a configuration: give --config_file FILE")
    if not options.logdir:
        raise Refusal(f"{PROG}: error: argument --logdir: the name is empty")
    return options


def load(options: argparse.Namespace, num_ranks: int) -> str | None:
    """Return the configuration as JSON text, None if libraries for it are missing. Raises Refusal."""
    try:
        from az_mpi.config import load as configuration
    except ImportError:
        return None
    if options.config_file:
        return configuration.to_json(configuration.load(options.config_file, dict(options.set)))
    smallest = SMALLEST | {"train": {"batch_size": max(256, num_ranks)}}
    return configuration.to_json(configuration.validate(smallest, "the doctor's own configuration"))


def tell_only(why_alone: str, rank: int) -> int:
    """Print why this rank, which a launcher has started beside a rank 0, has no MPI; give rank 0 the time to report;
    return the exit status."""
    print(f"rank {rank} on {socket.gethostname()} ({sys.executable}): {why_alone}", file=sys.stderr)
    facts.import_libraries(0)  # as long as it takes rank 0
    time.sleep(OTHERS_WAIT_S)
    return PROBLEMS


def examine(
    world: "World",
    why_alone: str | None,
    launcher: str | None,
    options: argparse.Namespace,
    text: str | None,
    report: Report,
) -> None:
    """Add every section to the report. Collective: all ranks' findings are collected before a check is made of them."""
    with job.watch("importing libraries on every rank", report.progress):
        outcomes = world.collect(tried(facts.gather, world.local_rank, world.is_root))
    ranks = [outcome for outcome, _ in outcomes]
    if failed := [k for k, (_, error) in enumerate(outcomes) if error]:
        text = f"collecting facts fails on {ranks_in_words(failed)}: {outcomes[failed[0]][1]}"
        return report.add("Ranks", [Check("ranks", PROBLEM, text)])
    backend = json.loads(text)["train"]["backend"] if text else "auto"
    agree, table = diagnosis.versions(ranks, backend)
    if len({rank["sources"] for rank in ranks}) > 1:  # different programs would call different collectives
        return report.add("Versions", agree, console.table(table), ranks=ranks)
    report.say(f"az_mpi {__version__} in {ranks[0]['folder']}, Python {ranks[0]['python']}")
    report.say()
    report.add("MPI", diagnosis.mpi(ranks, why_alone), ranks=ranks)
    report.add("Launchers", diagnosis.launcher(ranks, launcher))
    report.add("Libraries", diagnosis.libraries(ranks, backend) + diagnosis.horovod(ranks, backend))
    report.add("Versions", agree, console.table(table) if agree[0].level != OK else [], versions=table)
    found, table = machine.devices(ranks)
    found += machine.cores(ranks) + machine.memory(ranks) + machine.rooms(ranks) + machine.kernels(ranks)
    report.add("Machines", found, console.table(table))
    with job.watch(f"writing to {options.logdir} from every rank", report.progress):
        found, figures = folder.examine(world, options.logdir)
    if options.config_file:
        found += same_run(world, options.logdir, text)
    report.add("Shared folder", found, **figures)
    if not why_alone:
        with job.watch("sending data between the ranks", report.progress):
            from az_mpi.doctor import bandwidth

            found, figures = bandwidth.examine(world)
        report.add("Network", found, **figures)
    if world.share(report.would_start):
        try_run(world, ranks, options, text, report)
    else:
        report.add("Trial", [Check("start", WARNING, "not tried, because of the problems above", "fix them first")])


def same_run(world: "World", logdir: str, text: str) -> list[Check]:
    """Return a check if the run in `logdir` cannot continue with this configuration, else none."""

    def look():
        from az_mpi.config import load as configuration
        from az_mpi.storage import run_folder

        if run_folder.holds_run(logdir):
            run_folder.check(Path(logdir), configuration.loads(text), fresh=False)

    _, error = world.share(tried(look) if world.is_root else None)
    return [Check("run", PROBLEM, error, "another --logdir")] if error else []


def try_run(
    world: "World", ranks: list[dict[str, Any]], options: argparse.Namespace, text: str, report: Report
) -> None:
    """Set a run up, play and train, and report how long the whole run would take. Collective."""

    def prepare():
        from az_mpi.config import load as configuration
        from az_mpi.doctor import trial

        return trial, configuration.loads(text)

    prepared, error = tried(prepare)
    errors = world.collect(error)
    if broken := [rank for rank, error in enumerate(errors) if error]:
        words = f"the program cannot be loaded on {ranks_in_words(broken)}: {errors[broken[0]]}"
        return report.add("Trial", [Check("start", PROBLEM, words, "make setup")])
    trial, config = prepared
    seconds = options.seconds if options.config_file else SHORT_S
    try:
        with job.watch("playing and training", report.progress, job.HANG_S + 20 * seconds):
            figures, table = trial.measure(world, config, seconds, Path(options.logdir))
    except Exception as error:
        if is_on_every_rank(error):
            return report.add("Trial", [Check("start", PROBLEM, str(error))])
        words = f"rank {world.rank} on {world.host}: {in_words(error)}"
        if world.size > 1:
            raise TrialFailed(f"doctor: the trial fails on {words}; a run would not start here") from error
        return report.add("Trial", [Check("start", PROBLEM, f"the trial fails on {words}")])
    found, lines, more = trial.examine(ranks, config, figures, bool(options.config_file))
    report.add("Trial", found, [*table, *lines] if options.config_file else [], **more)
