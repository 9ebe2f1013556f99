"""Games of OpenSpiel: two iterations of self-play and training and an evaluation each, in argv[1]/NUMBER; then root
plays what was stored again in OpenSpiel itself, move by move. argv[2:] are the names, with their parameters."""

import sys
import time
from pathlib import Path

import numpy as np

from az_mpi import games, modes
from az_mpi.config import command_line
from az_mpi.config import load as configuration
from az_mpi.core.signals import Requests
from az_mpi.games.openspiel_fit import bounds
from az_mpi.mpi.frame import Frame
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
    "evaluate": {"every": 0, "num_games": 2, "opponents": ["random"], "solver_positions": 0},
}


def played_again(game, moves):
    """Return OpenSpiel's state after the moves of a game, {ply: (number of the move, the position before it or None
    where chance moved)}, and who of OpenSpiel's players made the first move that is not chance's."""
    state, first = game.game.new_initial_state(), None
    for ply in range(len(moves)):
        move, row = moves[ply]
        assert state.is_chance_node() == (row is None) and not state.is_terminal()
        if row is not None:
            first = state.current_player() if first is None else first
            assert row["state"][1 : 1 + row["state"][0]].tolist() == state.history()
            assert row["to_play"] == (state.current_player() - first) % game.num_players
        state.apply_action(int(move))
    return state, first


def check_stored(game, folder):
    """Check the states, the moves and the results of all games in the segments of a run."""
    num_games = 0
    for path in sorted((folder / "games").glob("*.h5")):
        record = segment.read(path, game)
        for stored in record.games:
            rows = record.positions[record.positions["game"] == stored["id"]]
            moves = {int(row["ply"]): (row["action"], row) for row in rows}
            if game.num_outcomes:
                drawn = record.chance[record.chance["game"] == stored["id"]]
                moves |= {int(row["ply"]): (row["outcome"], None) for row in drawn}
            state, first = played_again(game, moves)
            assert stored["length"] == len(rows)
            assert state.is_terminal() or len(moves) == game.max_plies
            check_results(game, state, first, stored, rows)
            num_games += 1
    assert num_games >= 4


def check_results(game, state, first, stored, rows):
    """Check what is stored of the result against what OpenSpiel's players have in the last state."""
    low, high = bounds(game.game)
    if game.num_players == 2:
        low, high = -high, high
    result = 2 * (np.roll(state.returns(), -first) - low) / (high - low) - 1
    if game.num_players == 2 and not state.is_terminal():
        result = np.zeros(2)  # a draw
    assert np.isclose(stored["outcome"], result[0], atol=1e-6), (stored["outcome"], result)
    if game.num_players == 1:
        assert stored["score"] == np.float32(state.returns()[0])
    for row in rows:
        of_mover = np.roll(result, -int(row["to_play"]))
        assert np.allclose(row["value"], of_mover if game.num_players > 2 else of_mover[0], atol=1e-6)


world = World.start()
folder = Path(sys.argv[1])
for number, name in enumerate(sys.argv[2:]):
    start = time.process_time()
    config = configuration.validate({**SETTINGS, "game": f"openspiel:{name}"}, "test")
    run = folder / str(number)
    modes.train(command_line.parse(["--config_file", "-", "--logdir", str(run)]), config, Frame(world), Requests())
    if world.is_root:
        check_stored(games.make(config.game), run)
        print(f"{name}: {time.process_time() - start:.1f} s of processor time")
    world.barrier()
print("all checks passed")
