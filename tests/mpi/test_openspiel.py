"""OpenSpiel's games in whole runs."""

import pytest

from az_mpi.games.openspiel_fit import longest

pytestmark = pytest.mark.mpi
pyspiel = pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
from openspiel_list import fitting  # noqa: E402

LONGEST = 24  # plies; longer games are cut, which the rules of the run allow
SMALL = {
    "go": {"board_size": 5},
    "hex": {"board_size": 4},
    "y": {"board_size": 5},
    "gomoku": {"size": 5},
    "havannah": {"board_size": 3},
    "cursor_go": {"board_size": 5, "max_cursor_moves": 10},
}
# Of games for any of several numbers of players: those that differ in kind, and the most.
SEATS = {
    "chinese_checkers": (2, 3, 6),
    "maedn": (2, 3, 4),
    "pig": (2, 3, 10),
    "quoridor": (2, 3, 4),
    "yacht": (1, 2, 10),
}
PARTS = 5  # in which all games are trained, each a test; the nightly tests have the first four
# These stand for all on two ranks: many actions, heaps, moves in a row, several boards, one player, dice, many players.
SOME = [
    "chess",
    "nim",
    "mancala",
    "go",
    "quoridor",
    "ultimate_tic_tac_toe",
    "cliff_walking",
    "catch",
    "backgammon",
    "pig",
]


def names():
    """Return what the program takes, by OpenSpiel's name of the game: [(name, text)], a text for each number of
    players, with a small board and no more plies than LONGEST."""
    found = []
    for game in fitting():
        name, players = game.get_type().short_name, game.get_parameters().get("players")
        if players and players not in SEATS.get(name, (players,)):
            continue
        given = SMALL.get(name, {}) | ({"players": players} if players else {})
        if longest(pyspiel.load_game(name, given)) > LONGEST:
            given |= {"max_plies": LONGEST}
        found.append((name, f"{name}({', '.join(f'{key}={value}' for key, value in given.items())})"))
    return found


def test_ten_games_of_all_kinds_play_and_train_on_two_ranks(program, tmp_path):
    chosen = dict(names())  # of several numbers of players the most
    program(2, "openspiel_games", tmp_path, *(chosen[name] for name in SOME))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_game_with_the_numbers_of_players_that_differ_plays_trains_and_is_evaluated(program, tmp_path, part):
    found = names()
    assert len({name for name, _ in found}) >= 40
    program(1, "openspiel_games", tmp_path, *(text for _, text in found[part::PARTS]))


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
