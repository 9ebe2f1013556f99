"""`python -m az_mpi scaling` with ranks whose engine and training only wait, so that one machine can hold many.

    python benchmarks/scaling.py --ranks 1,2,4,8,16 --logdir runs/scaling
    python benchmarks/scaling.py --ranks 1,2,4,8,16,32,64 --kinds weak --minutes 4 --repeats 1 --logdir runs/scaling

A batch of evaluations takes `--batch_s`, a sample's forward pass in training `--sample_s` (programs/waiting.py); all
else is the program's own, and each rank is kept to one core that it shares with others. The efficiency is therefore
what communication, waiting and root's work leave of each rank. Options that are not listed are those of the command.
"""

import json
import shlex
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import machine, make_parser

from az_mpi.core import files
from az_mpi.core.problems import Refusal
from az_mpi.launch import mpi_job
from az_mpi.plan import scaling, scaling_report

PLUG_INS = Path(__file__).resolve().parent / "programs" / "waiting.py"


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--games", type=int, default=24, help="games an iteration, on the smallest number of ranks")
    parser.add_argument("--batch_s", type=float, default=0.25, help="seconds that a batch of evaluations takes")
    parser.add_argument("--sample_s", type=float, default=0.025, help="seconds that a sample takes in training")
    parser.add_argument("--logdir", help="where the report goes (default: a folder that is removed)")
    given, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "waiting.json"
        file.write_text(json.dumps(configuration(given)))
        logdir = Path(given.logdir or Path(folder) / "report")
        words = ["--config_file", str(file), "--logdir", str(logdir), "--cores", "1", *options]
        arguments = scaling.parser().parse_args(words)
        try:
            with mpi_job.interruptible():
                scaling.Scaling(arguments).run()
        except Refusal as error:
            sys.exit(str(error))
        state = files.read_json(logdir / scaling.STATE)
        scaling_report.write(logdir, state, arguments.efficiency)
        what = scaling_report.measured(state, arguments.efficiency)
        print(json.dumps(figures(what, words)) if given.json else scaling_report.as_markdown(what))


def configuration(given):
    """Return a configuration whose ranks wait."""
    return {
        "game": "tictactoe",
        "network": {
            "blocks": 1,
            "channels": 8,
            "block": f"{PLUG_INS}:WaitingBlock(sample_s={given.sample_s})",
            "engine": f"{PLUG_INS}:WaitingEngine",
        },
        "search": {"simulations": 2},
        "selfplay": {
            "num_games": given.games,
            "parallel_games": 4,
            "evaluator": f"{PLUG_INS}:WaitingEvaluator(batch_s={given.batch_s})",
        },
        "train": {"batch_size": 16, "replay_ratio": 1.0, "mixed_precision": False},
        "report": {"tensorboard": False, "summary_frequency": 1000},
    }


def figures(what, words):
    """Return what was measured, JSON-able."""
    rows = {
        kind: {
            one.num_ranks: {
                "games_per_s": interval(one.games_per_s, one),
                "efficiency": interval(scaling_report.efficiency(one, sizes[0]), one),
                "iteration_s": interval(one.iteration_s, one),
                **one.terms,
            }
            for one in sizes
        }
        for kind, sizes in what.sizes.items()
    }
    return {"benchmark": f"scaling {shlex.join(words)}", "machine": machine(), **rows}


def interval(figure, one):
    """Return a figure with the ends of its 95 % interval, in the form of `common.spread`."""
    low, high = (figure.value if end is None else end for end in (figure.low, figure.high))
    return {"median": figure.value, "min": low, "max": high, "runs": one.num_iterations}


if __name__ == "__main__":
    main()
