"""The command line of run_dist.py. It prints nothing and imports no MPI: the caller lets one rank print."""

import argparse
import json
import shlex
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi import __version__
from az_mpi.config.load import KEYS, SECTIONS_ABOUT
from az_mpi.core import shipped
from az_mpi.core.arguments import Parser, json_or_word, positive, setting, share
from az_mpi.core.problems import escape

PROG = "python run_dist.py"
MODES = ("train", "fit", "eval", "selfplay")
HELD_OUT = 0.02
TRAINING = ("train", "fit")  # modes that may begin a run, write its files and answer signals
# Options for the keys that are changed most often; --set does the same for every key.
SHORTCUTS = {
    "--max_steps": "train.max_steps",
    "--max_hours": "max_hours",
    "--summary_frequency": "report.summary_frequency",
    "--checkpoint_frequency": "checkpoint.every",
    "--num_games": "selfplay.num_games",
    "--batch_size": "train.batch_size",
    "--learning_rate": "train.learning_rate",
    "--mixed_precision": "train.mixed_precision",
}
EARLIER_SHORTCUTS = {"--games_num": "selfplay.num_games"}  # of 1.0.0 and before
# Options without a value: (key, value).
FLAGS = {"--train_distributed": ("train.ranks", "all"), "--train_distributed_native": ("train.ranks", "root_host")}
DESCRIPTION = """\
Train AlphaZero on one machine or on a cluster: every rank that mpirun starts plays games against itself, and all of
them train, or one for each GPU. Started again on the same --logdir, a run continues from its last checkpoint."""
EPILOG = """\
examples:
  python run_dist.py --config_file configs/smoke.json
  mpirun -n 4 python run_dist.py --config_file configs/tictactoe.json --logdir runs/first
  mpirun -n 16 -H node1:8,node2:8 python run_dist.py --config_file configs/connect4.json --batch_size 4096
  mpirun -n 4 python run_dist.py --mode eval --logdir runs/first --set evaluate.num_games=400
  python run_dist.py --config_file configs/connect4.json --check_config

train.batch_size and selfplay.num_games are totals over all ranks: more ranks share the same work.
An option beats the configuration file; of several options for one key the last one counts.

exit codes:
  0    done
  2    usage or configuration: nothing was started
  70   internal error, or training diverged: see the end of LOGDIR/logs/run.log
  75   stopped: the same command resumes the run
  130  interrupted twice (SIGINT)
docs/trouble.md says what causes each of them, and when mpirun ends with another one.

signals, to mpirun or to a rank: USR1: checkpoint and continue; USR2 (also TERM and INT to a rank itself): store
what is finished and leave with status 75. mpirun ends its ranks by force when TERM or INT is sent to it.
"""


class PrintAndExit(Exception):
    """The user asked for information only: print str() on stdout, exit code 0."""


class Arguments(NamedTuple):
    """What the command line asks for.

    `overrides` ({dotted key: value}) and `sources` ({dotted key: option}) are for `config.load`. `config_file` may be
    None for an existing run, whose configuration is in `logdir`."""

    config_file: Path | None
    logdir: Path
    mode: str
    fresh: bool
    check_config: bool
    overrides: dict[str, Any]
    sources: dict[str, str]
    without_checkpoint: bool = False
    allow_other_source: bool = False
    epochs: float = 1.0
    minutes: float = 0.0
    held_out: float = HELD_OUT
    begin_from: str = ""

    @property
    def trains(self) -> bool:
        """Whether this begins or continues a training; --check_config only looks at its configuration."""
        return self.mode in TRAINING and not self.check_config


class _Print(argparse.Action):
    """Stop with the text that `const` makes of the parser."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        raise PrintAndExit(self.const(parser))


class _Set(argparse.Action):
    """Note an override, key and value. `const` is (key, value) for an option without a value, the key for one with a
    value, and None for KEY=VALUE. Of several options for a key the last one counts."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        if isinstance(self.const, tuple):
            key, value = self.const
        else:
            key, value = (self.const, values) if self.const else values
        namespace.overrides[key] = value
        namespace.sources[key] = option_string


def _parser():
    usage = f"[mpirun -n RANKS] {PROG} {{--config_file FILE | --logdir DIR}} [options]"
    parser = Parser(PROG, DESCRIPTION, EPILOG, usage=usage, add_help=False)
    group = parser.add_argument_group("what to run")
    _add_run_options(group)
    _add_other_sources(group)
    _add_key_options(
        parser.add_argument_group("configuration keys", 'VALUE is JSON (3, 0.1, true, ["best"]) or a word.')
    )
    _add_information_options(parser.add_argument_group("information, without a run"))
    return parser


def _add_run_options(group):
    """Add the options that say which run is started, and how."""
    group.add_argument(
        "--config_file",
        metavar="FILE",
        help="the configuration, JSON; needed for a new run; without it the run in --logdir continues with its own",
    )
    group.add_argument(
        "--logdir",
        metavar="DIR",
        help="the run's folder, on a file system all hosts share; default: "
        "runs/NAME for a configuration file NAME.json",
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        default="train",
        help="train (default) trains a run; fit trains it on the games that it has alone, such as imported ones; of "
        "an existing run, eval measures the newest network, and selfplay plays more games with it",
    )
    group.add_argument("--fresh", action="store_true", help="only begin a new run: refuse a --logdir that holds one")
    group.add_argument(
        "--without_checkpoint",
        action="store_true",
        help="if no checkpoint of the run can be used: begin again with new weights, and use the games that are stored",
    )
    group.add_argument(
        "--allow_other_source",
        action="store_true",
        help="continue although a file of your own (a game, an evaluator, ...) is not the one that made the run",
    )


def _add_other_sources(group):
    """Add the options about games and weights that the run has not made itself."""
    group.add_argument(
        "--epochs",
        type=positive,
        metavar="N",
        help="with --mode fit: train on as many samples as N times the games' positions (default 1)",
    )
    group.add_argument("--minutes", type=positive, metavar="M", help="with --mode fit: train for M minutes instead")
    group.add_argument(
        "--held_out",
        type=share,
        metavar="SHARE",
        help=f"with --mode fit: share of the games that measure the network, and do not train it (default {HELD_OUT})",
    )
    group.add_argument(
        "--from",
        dest="begin_from",
        default="",
        metavar="NETWORK",
        help="only for a new run: begin with the weights of a run, a checkpoint, a file of `export`, or zoo:NAME, also "
        "of another board size or network; the start says what was taken",
    )


def _add_key_options(group):
    """Add the options that change keys of the configuration."""
    group.add_argument(
        "--set", type=setting, action=_Set, metavar="KEY=VALUE", help="any key, by its dotted name; may be repeated"
    )
    for option, key in SHORTCUTS.items():
        name = f"{{{','.join(KEYS[key].choices)}}}" if KEYS[key].choices else "VALUE"
        about = f"{key}: {KEYS[key].description}".replace("%", "%%")
        group.add_argument(option, type=json_or_word, action=_Set, const=key, metavar=name, help=about)
    for option, key in EARLIER_SHORTCUTS.items():
        group.add_argument(option, type=json_or_word, action=_Set, const=key, help=argparse.SUPPRESS)
    for option, (key, value) in FLAGS.items():
        group.add_argument(option, action=_Set, nargs=0, const=(key, value), help=f"short for --set {key}={value}")


def _add_information_options(group):
    """Add the options that print something in place of a run."""
    group.add_argument(
        "--check_config",
        action="store_true",
        help="check the configuration as a start would, without "
        "MPI: list its problems, or print it with every default filled in",
    )
    for names, make, about in (
        (["--help_config"], lambda _: help_config(), "print every configuration key with its default"),
        (["--help_config_markdown"], lambda _: help_config_markdown(), "the same, as docs/configuration.md has it"),
        (["--version"], lambda _: f"az_mpi {__version__}\n", "print the version"),
        (["--help", "-h"], lambda parser: parser.format_help(), "print this"),
    ):
        group.add_argument(*names, action=_Print, nargs=0, const=make, help=about)


def _sections():
    """Yield (section, what it is for, [(dotted key, Key, its default in words)]); "" is the top of the file."""
    for section, about in SECTIONS_ABOUT.items():
        names = [name for name in KEYS if name.rpartition(".")[0] == section]
        yield (
            section,
            about,
            [
                (name, KEYS[name], json.dumps(KEYS[name].default) if KEYS[name].default is not ... else "(required)")
                for name in names
            ],
        )


def help_config() -> str:
    """Return the table of every configuration key as text."""
    lines = [
        "Every configuration key, its default and what it takes. A resumed run may change those marked *.",
        'A dotted key stands in its section: {"game": "connect4", "train": {"batch_size": 512}}.',
        "",
        f"{'key':<28} {'default':<12} allowed",
    ]
    for _, about, rows in _sections():
        lines += ["", *textwrap.wrap(about, 110)]
        for name, key, default in rows:
            marked = f"{name} *" if key.may_change else name
            lines.append(f"{marked:<28} {default:<12} {key.allowed}")
            lines += textwrap.wrap(key.description, 110, initial_indent=" " * 4, subsequent_indent=" " * 4)
    return "\n".join(lines) + "\n"


MARKDOWN = """\
# Configuration

What each key of a configuration does, its default, the values that it takes, and whether a resumed run may change it.

A configuration is a JSON file, given by `--config_file`; [configs/](../configs) has examples. Only `game` is required.
A key with a dot stands in its section: `{"game": "connect4", "train": {"batch_size": 512}}`. On the command line
`--set train.batch_size=512` changes any key and beats the file. `--check_config` checks a configuration
as a start of the run would, on the machine where it is given and without MPI: that its plug-ins load, and that game,
network, search, opponents and solver fit together. It lists what is wrong, or prints the configuration with every
default filled in. What only this machine lacks, such as bf16 on a login node, is a note.

Set first: `game`; `iterations`, or `train.hours` with `iterations` so large that the hours end the run, such as 100000;
`network.blocks`, `network.channels`; `search.algorithm`, `search.simulations`; `selfplay.num_games`;
`train.batch_size`. `python -m az_mpi suggest` chooses all of them. The rest can stay.

A resumed run may change the keys marked *, and may raise `network.blocks`. Any other change is refused, and the keys
that differ are listed.

This page is made from the schema in `az_mpi/config/`, and a test compares the two. After a change there, run:
`python run_dist.py --help_config_markdown >docs/configuration.md`
"""


def help_config_markdown() -> str:
    """Return the same table as docs/configuration.md."""
    lines = [MARKDOWN]
    for section, about, rows in _sections():
        lines += [
            f"## {section or 'Without a section'}",
            "",
            about,
            "",
            "| key | default | allowed | what it does |",
            "|---|---|---|---|",
        ]
        for name, key, default in rows:
            marked = f"`{name}` *" if key.may_change else f"`{name}`"
            cells = marked, f"`{default}`", key.allowed, key.description
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def parse(argv: list[str]) -> Arguments:
    """Return the Arguments of `argv` (without the program's name). Raises Refusal or PrintAndExit; never prints."""
    parser = _parser()
    given = parser.parse_args(argv, argparse.Namespace(overrides={}, sources={}))
    for option in ("config_file", "logdir"):
        if getattr(given, option) == "":
            parser.error(f"argument --{option}: the name is empty")
    if given.config_file is None and given.logdir is None:
        command = shlex.join([*PROG.split(), "--config_file", "configs/smoke.json", *argv])
        parser.error(
            "--config_file FILE is needed for a new run, or --logdir DIR of an existing run\n"
            f"  such as: {escape(command)}\n"
            f"  {escape(str(shipped.folder() / 'configs'))} has configurations\n"
            "  python -m az_mpi suggest GAME --hours H writes one for a game"
        )
    if given.mode != "fit" and (given.epochs or given.minutes or given.held_out is not None):
        parser.error("--epochs, --minutes and --held_out are for --mode fit alone")
    if given.begin_from and given.mode not in TRAINING:
        parser.error(f"--from is for --mode {' and '.join(TRAINING)} alone")
    if given.epochs and given.minutes:
        parser.error("--epochs and --minutes say the same in two ways: give one of them")
    config_file = given.config_file and Path(given.config_file)
    logdir = Path(given.logdir) if given.logdir else Path("runs") / config_file.stem
    return Arguments(
        config_file,
        logdir,
        given.mode,
        given.fresh,
        given.check_config,
        given.overrides,
        given.sources,
        given.without_checkpoint,
        given.allow_other_source,
        given.epochs or (0.0 if given.minutes else 1.0),
        given.minutes or 0.0,
        HELD_OUT if given.held_out is None else given.held_out,
        given.begin_from,
    )
