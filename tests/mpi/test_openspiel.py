"""OpenSpiel's games in whole runs."""

import pytest

from az_mpi import games
from az_mpi.games import openspiel_fit

pytestmark = pytest.mark.mpi
pyspiel = pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
LONGEST = 24  # plies; longer games are cut, which the rules of the run allow

SMALL = {
    "go": "board_size=5",
    "hex": "board_size=4",
    "y": "board_size=5",
    "gomoku": "size=5",
    "havannah": "board_size=3",
    "cursor_go": "board_size=5, max_cursor_moves=10",
}


# These stand for all: many actions, heaps, moves in a row, several boards, a board of each shape.
SOME = [
    "chess",
    "nim",
    "mancala",
    "dots_and_boxes",
    "go",
    "othello",
    "quoridor",
    "oware",
    "hex",
    "ultimate_tic_tac_toe",
]


def with_parameters(name):
    """Return what the program takes: a small board, and no more plies than LONGEST."""
    smaller = SMALL.get(name, "")
    longest = games.make(f"openspiel:{name}({smaller})").max_plies
    cut = f"max_plies={LONGEST}" * (longest > LONGEST)
    return f"{name}({', '.join(filter(None, [smaller, cut]))})"


def test_ten_games_play_and_train_on_two_ranks(program, tmp_path):
    program(2, "openspiel_games", tmp_path, *map(with_parameters, SOME))


@pytest.mark.slow
def test_every_game_that_fits_plays_and_trains_on_two_ranks(program, tmp_path):
    fitting = [
        kind.short_name
        for kind in pyspiel.registered_games()
        if kind.default_loadable
        and kind.min_num_players <= 2 <= kind.max_num_players
        and openspiel_fit.misfit(game := pyspiel.load_game(kind.short_name)) is None
        and (game.num_players(), game.max_chance_outcomes()) == (2, 0)
    ]
    assert len(fitting) >= 31 and set(SOME) <= set(fitting)
    program(2, "openspiel_games", tmp_path, *map(with_parameters, fitting))


def test_an_opponent_that_cannot_play_the_game_is_refused_at_the_start(mpirun, tmp_path):
    """The refusal does not wait for the first evaluation, iterations later."""
    done = mpirun(
        2,
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        tmp_path / "run",
        "--set",
        'evaluate.opponents=["mcts_bot"]',
        status=2,
    )
    assert done.stderr.count('"mcts_bot" plays games of OpenSpiel') == 1 and not (tmp_path / "run").exists()
