"""Self-play of one rank on one core against the bare engine in the same run.

    python benchmarks/selfplay.py --run runs/connect4_quick      # a trained network; without --run an untrained one

The floor is the network's forward pass: `ratio` is simulations/s over the bare engine's evaluations/s at its best
batch. Self-play and bare engine take turns, so that a machine whose speed drifts slows both.
"""

import argparse
import itertools
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from common import bare_rate, spread, tell

from az_mpi import checkpoint, games, run_folder
from az_mpi import config as configuration
from az_mpi.network import engines, resnet
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.evaluators import NetworkEvaluator
from az_mpi.problems import parse_json
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import game_ids

BATCHES = (32, 64, 128, 256, 512)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="the folder of a run: its configuration and newest network")
    parser.add_argument("--config_file", type=Path, default=Path("configs/connect4_quick.json"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for run_dist.py")
    parser.add_argument("--engine", choices=("auto", "openvino", "torch"), default="auto")
    parser.add_argument("--seconds", type=float, default=5.0, help="of self-play in each of the runs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    overrides = {key: parse_json(value) for key, value in (item.split("=", 1) for item in arguments.set)}
    if arguments.run:
        config = run_folder.recorded_config(arguments.run, overrides)
    else:
        config = configuration.load(arguments.config_file, overrides)
    game = games.make(config.game)
    network = resnet.build(game, config.network, config.seed)
    if arguments.run:
        newest, _ = checkpoint.load_newest(arguments.run / "checkpoints", set_aside=False)
        network.load_state_dict(newest.model)
    engine, choice = engines.make(network, game, arguments.engine, "cpu", threads=1)
    entries = config.network.cache_entries
    evaluate = CachedEvaluator(game, engine, entries) if entries else NetworkEvaluator(game, engine)
    player = Player(config, game, evaluate, rank=0)
    ids = itertools.count()
    play(player, ids, arguments.seconds)  # kernels compiled, games spread over all plies
    figures = [measure(player, ids, engine, game, arguments.seconds) for _ in range(arguments.runs)]
    tell(f"selfplay {config.game} {config.network.blocks}x{config.network.channels}, {choice}",
         {name: spread([f[name] for f in figures]) for name in figures[0]}, arguments.json)


def measure(player, ids, engine, game, seconds):
    """Return the figures of one turn of self-play and of the bare engine; the cache begins empty."""
    counted = isinstance(player.search.evaluate, CachedEvaluator)
    if counted:
        player.search.evaluate.clear()
        player.search.evaluate.take_counts()
    simulations, finished = player.simulations_num, player.finished_num
    took = play(player, ids, seconds)
    bare = max(bare_rate(engine, game, batch) for batch in BATCHES)
    figures = {"simulations_per_s": (player.simulations_num - simulations) / took, "bare_evaluations_per_s": bare}
    figures["ratio"] = figures["simulations_per_s"] / bare
    figures["games_per_s"] = (player.finished_num - finished) / took
    if counted:
        asked, evaluated = player.search.evaluate.take_counts()
        figures |= {"evaluations_per_s": evaluated / took, "cache_hit_rate": 1 - evaluated / asked}
    return figures


def play(player, ids, seconds):
    """Play for about `seconds` and return how long it was."""
    begun = time.perf_counter()
    while (took := time.perf_counter() - begun) < seconds:
        slots = player.free()
        if len(slots):
            player.start(slots, game_ids(0, 0, list(itertools.islice(ids, len(slots)))), 0)
        player.step()
    player.take()
    return took


if __name__ == "__main__":
    main()
