"""A match between the newest networks of two runs: mpirun … python -m az_mpi.compare.compare_match FIRST SECOND.

It prints the result for the first one as a JSON object, see `rating.summary`. Games are without noise, from random
openings; game 2 k and game 2 k + 1 begin with the same one.
"""

import json
import sys
from pathlib import Path

import torch

from az_mpi.evaluate import rating
from az_mpi.evaluate.arena import play_match
from az_mpi.evaluate.opponents import SearchPlayer
from az_mpi.mpi.world import World
from az_mpi.network.cache import network_evaluator
from az_mpi.play.loaded_player import load_player
from az_mpi.storage.run_folder import recorded_config


def main(first: str, second: str, games_num: str, simulations: str) -> None:
    """Play the match. Collective."""
    torch.set_num_threads(1)
    world, players = World.start(), []
    for run in (Path(first), Path(second)):
        loaded, config = load_player(run), recorded_config(run)
        settings = loaded.settings.model_copy(update={"simulations": int(simulations)})
        players.append(SearchPlayer(network_evaluator(loaded.game, loaded.engine, config.network), settings))
    ours, theirs = players
    result = play_match(world, loaded.game, ours, theirs, int(games_num), config.evaluate.opening_plies, (config.seed,))
    if world.is_root:
        print(json.dumps(rating.summary(result)))


if __name__ == "__main__":
    main(*sys.argv[1:])
