"""python -m az_mpi COMMAND, or az_mpi COMMAND: all commands but training, which is run_dist.py, started by mpirun."""

import importlib
import runpy
import sys
from pathlib import Path

from az_mpi.core import shipped
from az_mpi.core.exit_codes import DONE, INTERRUPTED, USAGE
from az_mpi.core.files import have_home, keep_private
from az_mpi.core.printing import environment_rank, finish, prepare, print_once
from az_mpi.core.problems import Refusal, escape, nearest

PROG = "python -m az_mpi"
# Each module has main(arguments) -> exit status, which handles --help, and raises Refusal for mistakes of its user.
COMMANDS = {
    "launch": ("az_mpi.launch.launcher", "check the hosts of a job, then start it with mpirun"),
    "hosts": ("az_mpi.launch.hosts_command", "show and change the hosts of a run that launch supervises"),
    "pack": ("az_mpi.launch.packed", "write the program and its packages as one file, for quick starts of many ranks"),
    "doctor": ("az_mpi.doctor.command", "say whether a run would start here, and how fast it would be"),
    "check-game": ("az_mpi.plan.check_game", "check the rules of a game, and say what learning it takes"),
    "suggest": ("az_mpi.plan.suggest", "write a configuration for a game and a time, from speeds measured here"),
    "status": ("az_mpi.telemetry.status_command", "show how far a run is and what each of its ranks does"),
    "report": ("az_mpi.report.html_report", "make one HTML page of a run"),
    "play": ("az_mpi.play.terminal", "play against the network of a run in the terminal"),
    "gtp": ("az_mpi.play.gtp", "let programs play against the network of a run: Go Text Protocol"),
    "uci": ("az_mpi.play.uci", "let chess programs play against the network of a run: Universal Chess Interface"),
    "gomocup": ("az_mpi.play.gomocup", "let programs for Gomoku play against the network of a run: Gomocup's protocol"),
    "analyse": ("az_mpi.play.analyse", "analyse many positions at a time, as KataGo's analysis engine does"),
    "web": ("az_mpi.play.web_server", "play against the network of a run in a browser, and look at what it thinks"),
    "compare": ("az_mpi.plan.compare_command", "train configurations for equal time and say which one plays best"),
    "scaling": ("az_mpi.plan.scaling", "measure how a configuration scales, and report how many ranks are useful"),
    "export": ("az_mpi.export.export_command", "write the network of a run as a file for other programs"),
    "match": ("az_mpi.evaluate.match", "play a match between runs, other programs and simple opponents"),
    "ladder": ("az_mpi.evaluate.ladder", "play the checkpoints of a run against each other, for one Elo curve"),
    "games": ("az_mpi.records.games_command", "write games of a run as SGF, PGN or JSON lines"),
    "import": ("az_mpi.records.import_command", "bring games of people and of other programs into a run"),
    "verify": ("az_mpi.storage.verify", "check every file of a run, and fix what can be"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command in argv, by default of this process, and return its exit status."""
    prepare()
    return finish(lambda: obey(sys.argv[1:] if argv is None else argv))


def obey(argv: list[str]) -> int:
    """Run the command in argv and return its exit status. Raises OutputFailed."""
    if not argv or argv[0] in ("-h", "--help"):
        print(help_text())
        return DONE if argv else USAGE
    name, arguments = argv[0], argv[1:]
    keep_private()
    have_home()
    try:
        if name not in COMMANDS:
            near = "".join(f"; did you mean {other}?" for other in nearest(name, list(COMMANDS))[:1])
            raise Refusal(f"{PROG}: error: there is no command {escape(name)}{near}\nAll commands: {PROG} --help")
        return importlib.import_module(COMMANDS[name][0]).main(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Refusal as error:
        # Of a command that mpirun has started on many ranks, all of them come here before they have joined the job.
        return print_once(f"{error}\n", sys.stderr, error.status, environment_rank())


def run_dist() -> None:
    """Run the program run_dist.py, which lies beside this package, in this process."""
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "run_dist.py"), run_name="__main__")


def help_text() -> str:
    """Return the list of commands."""
    lines = [f"usage: {PROG} COMMAND [options]   ({PROG} COMMAND --help says more)", ""]
    lines += [f"  {name:<10} {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join([*lines, "", f"configs, examples, hostfiles and slurm (batch scripts) are in {shipped.folder()}"])


if __name__ == "__main__":
    sys.exit(main())
