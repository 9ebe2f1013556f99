"""One side of a comparison at equal time in Connect Four: trains it, judges it, and prints one JSON object.

    python benchmarks/others/equal_time.py az_mpi runs/equal/az_mpi --sets Test_L3_R1
    python benchmarks/others/equal_time.py pgx runs/equal/pgx --seconds 545 --sets Test_L3_R1 \\
        --python jax-env/bin/python --example pgx/examples/alphazero --against runs/equal/az_mpi/run \\
        num_channels=32 num_layers=3 selfplay_batch_size=128 max_num_steps=64 training_batch_size=256

Both sides have two cores. az_mpi is what `make train` runs, for as long as its configuration says, or for --seconds.
The other side is pgx's AlphaZero example with the settings `key=value`, after an iteration that only fills JAX's cache
of compiled programs. Its network is judged twice: with its own search (mctx), and with az_mpi's, under the settings of
the run --against; then each of the two plays a match against that run. The sets are as for test_sets.py. The folder
must be new; a side that trained already is judged again with --judge_only.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import machine, mpirun

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "connect4_quick.json"
RANKS = 2
PHASES = "report_s", "play_s", "exchange_s", "train_s", "broadcast_s", "save_s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("az_mpi", "pgx"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", metavar="key=value", help="settings of pgx's example")
    parser.add_argument("--seconds", type=float, default=0.0, help="of training")
    parser.add_argument("--sets", nargs="+", type=Path, default=[], help="files of positions")
    parser.add_argument("--positions", type=int, default=1000, help="of each set (default 1000)")
    parser.add_argument("--simulations", type=int, default=600, help="of each search on the sets (default 600)")
    parser.add_argument("--python", help="of an environment with JAX and what pgx's example imports")
    parser.add_argument("--example", help="the folder of pgx's train.py")
    parser.add_argument("--against", help="a run of az_mpi")
    parser.add_argument("--games", type=int, default=200, help="of each match (default 200)")
    parser.add_argument("--match_simulations", type=int, default=100, help="of each move in a match (default 100)")
    parser.add_argument("--judge_only", action="store_true", help="the folder holds a trained network")
    arguments = parser.parse_intermixed_args()
    if arguments.side == "pgx" and not (arguments.python and arguments.example and arguments.against):
        parser.error("pgx needs --python, --example, --against")
    if arguments.side == "pgx" and not arguments.seconds and not arguments.judge_only:
        parser.error("pgx needs --seconds")
    if arguments.folder.exists() != arguments.judge_only:
        parser.error(f"{arguments.folder} must be {'there' if arguments.judge_only else 'new'}")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(arguments.folder.resolve() / "jax_cache"))
    found = {"benchmark": "equal time", "side": arguments.side, "machine": machine()}
    if not arguments.judge_only:
        found["training"] = TRAIN[arguments.side](arguments)
    players = {"": str(arguments.folder / "run")} if arguments.side == "az_mpi" else pgx_players(arguments)
    found["errors_percent"] = {name: judge(player, arguments) for name, player in players.items()}
    if arguments.side == "pgx":
        found["matches"] = {name: match(player, arguments) for name, player in players.items()}
    print(json.dumps(found))


def train_az_mpi(arguments):
    """Run what `make train` runs; return what it made."""
    run = arguments.folder / "run"
    command = [*mpirun(RANKS), sys.executable, ROOT / "run_dist.py", "--config_file", CONFIG, "--logdir", run]
    if arguments.seconds:
        command += ["--set", f"train.hours={arguments.seconds / 3600}", "--set", "iterations=100000"]
    begun = time.perf_counter()
    say("training", *command)
    subprocess.run(command, stdout=sys.stderr, check=True)
    took = time.perf_counter() - begun
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    iterations = [row for row in rows if row["kind"] == "iteration"]
    return {
        "program": "az_mpi",
        "command": " ".join(map(str, command)),
        "seconds": sum(row.get(phase, 0.0) for row in iterations for phase in PHASES),
        "evaluation_seconds": sum(row["evaluate_s"] for row in rows if row["kind"] == "evaluation"),
        "wall_seconds": took,
        "iterations": len(iterations),
        "games": iterations[-1]["num_games_stored"],
        "positions": iterations[-1]["num_positions_stored"],
        "losses": [[row["policy_loss"], row["value_loss"]] for row in iterations],
    }


def train_pgx(arguments):
    """Train pgx's example; return what `pgx_example.py train` prints."""
    program = [arguments.python, Path(__file__).with_name("pgx_example.py"), "train", arguments.example]
    for folder, seconds in ((arguments.folder / "compiled", 0.001), (arguments.folder / "run", arguments.seconds)):
        command = [*program, folder, "--seconds", seconds, *arguments.words]
        say("training", *command)
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


TRAIN = {"az_mpi": train_az_mpi, "pgx": train_pgx}


def pgx_players(arguments):
    """Return {who searches: the side of a match}."""
    place = f"{Path(__file__).with_name('pgx_player.py')}:PgxPlayer"
    given = {"python": arguments.python, "example": arguments.example, "folder": str(arguments.folder / "run")}
    words = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return {"mctx": f"{place}({words})", "az_mpi's search": f"{place}({words}, search_of={arguments.against!r})"}


def judge(player, arguments):
    """Return {set: [errors in %, low, high]}, also those without a search."""
    if not arguments.sets:
        return {}
    options = ["--positions", arguments.positions, "--simulations", arguments.simulations, "--policy", "--json"]
    rows = started(ROOT / "benchmarks" / "test_sets.py", player, *arguments.sets, *options)
    return {
        name: [row[key] for key in ("median", "min", "max")]
        for name, row in rows.items()
        if isinstance(row, dict) and "median" in row
    }


def match(player, arguments):
    """Return what `az_mpi match` prints of a match of the run --against and a player."""
    options = ["--games", arguments.games, "--opening_plies", 4, "--simulations", arguments.match_simulations]
    result = started("-m", "az_mpi", "match", arguments.against, player, *options, "--json")
    return {key: result[key] for key in ("wins", "draws", "losses", "score", "score_low", "score_high")}


def started(*words):
    """Run a program on two ranks; return the JSON object in its last line."""
    command = [*mpirun(RANKS), sys.executable, *words]
    say("judging", *command)
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n  ended with status {done.returncode}\n{done.stdout[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
