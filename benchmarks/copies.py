"""What it costs that a second rank holds a copy of the only trainer's state after each step
(az_mpi/run/partner_checkpoint.py).

    python benchmarks/copies.py --blocks 10 --channels 128

Two ranks of this host, one of which trains while the other plays. Trainings with copies and without take turns within
one job; each pair of neighbours gives a ratio: of the seconds a step takes, and of the simulations/s of the other rank
meanwhile.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import make_parser, mpirun, spread, tell

ROOT = Path(__file__).resolve().parents[1]
SAME = (
    "train.ranks=1",
    "evaluate.every=0",
    "evaluate.opponents=[]",
    "evaluate.solver_positions=0",
    "report.tensorboard=false",
    "selfplay.num_games=64",
    "search.simulations=16",
)


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=256, help="a small one, so that copies show")
    parser.add_argument("--replay_ratio", type=float, default=6.0, help="more makes more steps of a training")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable,
            ROOT / "benchmarks" / "programs" / "alternating_copies.py",
            f"{folder}/lines",
            "--config_file",
            ROOT / "benchmarks" / "connect4.json",
            "--logdir",
            f"{folder}/run",
        ]
        for setting in (
            *SAME,
            f"network.blocks={arguments.blocks}",
            f"network.channels={arguments.channels}",
            f"train.batch_size={arguments.batch_size}",
            f"train.replay_ratio={arguments.replay_ratio}",
            f"iterations={1 + 2 * arguments.pairs}",
        ):
            words += ["--set", setting]
        command = [*mpirun(2, ("--with-ft", "ulfm")), *map(str, words)]
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(f"mpirun ended with status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        trainer, player = (
            [json.loads(line) for line in Path(f"{folder}/lines.{rank}").read_text().splitlines()] for rank in (0, 1)
        )
    rows = compare(trainer, 1) | {f"other rank's {name}": row for name, row in compare(player, 2).items()}
    title = f"copies of a lone trainer, {arguments.blocks} x {arguments.channels}, batch {arguments.batch_size}"
    tell(title, rows, arguments.json)


def compare(lines, column):
    """Return the rows of figures of one column with copies, without, and of their ratios pair by pair."""
    copies, none = ([line[column] for line in lines if line[0] == kind] for kind in (True, False))
    name = "step_s" if column == 1 else "simulations/s"
    ratios = [one / other for one, other in zip(copies, none)]
    return {f"{name}, copies": spread(copies), f"{name}, none": spread(none), f"{name}, ratio": spread(ratios)}


if __name__ == "__main__":
    main()
