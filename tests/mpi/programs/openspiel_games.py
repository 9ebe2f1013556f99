"""Every game of OpenSpiel that fits: two iterations of self-play and training in argv[1]/NAME; then root plays what was
stored again in OpenSpiel itself, move by move. argv[2:] are the names, with their parameters."""

import sys
from pathlib import Path

import numpy as np

from az_mpi import games, modes
from az_mpi.config import command_line
from az_mpi.config import load as configuration
from az_mpi.core.signals import Requests
from az_mpi.mpi.world import World
from az_mpi.storage import segment

SETTINGS = {
    "iterations": 2,
    "search": {"simulations": 2},
    "network": {"blocks": 1, "channels": 8, "cache_bytes": 2**20, "engine": "torch"},
    "selfplay": {"num_games": 2, "parallel_games": 2},
    "replay": {"window_min": 10},
    "train": {"batch_size": 8, "replay_ratio": 0.5},
    "report": {"tensorboard": False},
    "evaluate": {"every": 0, "opponents": [], "solver_positions": 0},
}


def play_again(game, folder):
    """Check the states, the moves and the results of all games in the segments of a run."""
    num_game = 0
    for path in sorted((folder / "games").glob("*.h5")):
        record, at = segment.read(path, game), 0
        for stored in record.games:
            state = game.game.new_initial_state()
            rows = record.positions[at : at + stored["length"]]
            for row in rows:
                moves = row["state"][1 : 1 + row["state"][0]]
                assert moves.tolist() == state.history() and state.current_player() in (0, 1)
                state.apply_action(int(row["action"]))
            cut = not state.is_terminal()
            assert not cut or len(rows) == game.max_plies
            first = game.game.new_initial_state().current_player()
            result = 0.0 if cut else state.returns()[first] / game.game.max_utility()
            assert np.isclose(stored["outcome"], result), (stored["outcome"], result)
            at, num_game = at + stored["length"], num_game + 1
    assert num_game >= 4


world = World.start()
folder = Path(sys.argv[1])
for number, name in enumerate(sys.argv[2:]):
    config = configuration.validate({**SETTINGS, "game": f"openspiel:{name}"}, "test")
    run = folder / str(number)
    modes.train(command_line.parse(["--config_file", "-", "--logdir", str(run)]), config, world, Requests())
    if world.is_root:
        play_again(games.make(config.game), run)
    world.barrier()
print("all checks passed")
