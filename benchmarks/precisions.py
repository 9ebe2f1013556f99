"""What int8 costs in strength, and what its speed gains: matches of a network in two precisions against itself.

    mpirun -np 2 -H localhost:2 python benchmarks/precisions.py runs/connect4/checkpoints/000010 --games 1000

Each match is of `--games` paired games between the network in `--first` and in `--second`, without noise, from random
openings: at equal simulations, and with `--gain` times as many for the first one, its speed over the other's
(benchmarks/engines.py), which is equal time. Elo is of the first one, with its 95 % interval.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from common import make_parser, tell

import az_mpi
from az_mpi.evaluate import rating
from az_mpi.evaluate.arena import play_match
from az_mpi.evaluate.opponents import SearchPlayer
from az_mpi.mpi.world import World


def main():
    parser = make_parser(__doc__)
    parser.add_argument("networks", nargs="+", help="runs, checkpoints or files of weights")
    parser.add_argument("--first", default="int8")
    parser.add_argument("--second", default="bf16")
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--opening_plies", type=int, default=6)
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--gain", type=float, default=1.6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world, rows = World.start(), {}
    for path in arguments.networks:
        for factor in sorted({1.0, arguments.gain}):
            match = play(world, path, arguments, factor)
            name = f"{Path(path).name}, {factor:g} times the simulations"
            for figure in ("score", "elo"):
                rows[f"{figure}: {name}"] = {
                    "median": match[figure] or 0.0,
                    "min": match[f"{figure}_low"] or 0.0,
                    "max": match[f"{figure}_high"] or 0.0,
                    "runs": match["num_games"],
                }
            if world.is_root and not arguments.json:
                print(f"{name}: {match['wins']} won, {match['draws']} drawn, {match['losses']} lost", flush=True)
    if world.is_root:
        tell(f"{arguments.first} against {arguments.second}", rows, arguments.json)


def play(world, path, arguments, factor):
    """Return the summary of one match, of the first precision with `factor` times the simulations. Collective."""
    players = []
    for precision, simulations in (
        (arguments.first, factor * arguments.simulations),
        (arguments.second, arguments.simulations),
    ):
        loaded = az_mpi.load_player(path, engine="openvino", precision=precision)
        settings = loaded.settings.model_copy(update={"simulations": round(simulations)})
        players.append(SearchPlayer(loaded.evaluator, settings))
    match = play_match(world, loaded.game, players[0], players[1], arguments.games, arguments.opening_plies, seed=(1,))
    return rating.summary(match)


if __name__ == "__main__":
    main()
