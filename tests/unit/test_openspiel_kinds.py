"""Games of OpenSpiel of one player, of several, and with chance moves."""

import re
from pathlib import Path

import numpy as np
import pytest

from az_mpi import games
from az_mpi.games.base import CHANCE

pyspiel = pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
from openspiel_list import fitting, kind_of, kinds_of_perfect_information, name_of, of_players, table  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def after(game, moves):
    """Return the state, [1, S], after these moves: words of actions and of outcomes."""
    states = game.initial(1)
    for move in moves:
        if game.to_play(states)[0] == CHANCE:
            words = {game.outcome_to_text(states[0], o): o for o in np.flatnonzero(game.chances(states)[0])}
            states = game.play(states, np.array([words[move]]))
        else:
            states = game.play(states, np.array([game.text_to_action(states[0], move)]))
    return states


def test_a_game_against_a_program_is_never_shorter_than_one_of_training():
    for max_plies, untruncated in ((60, 1024), (1500, 1500)):
        assert games.make(f"openspiel:chess(max_plies={max_plies})").untruncated().max_plies == untruncated


def test_every_game_of_perfect_information_is_taken_but_those_of_sampled_chance_a_file_or_a_crash():
    taken = {game.get_type().short_name for game in fitting()}
    left_out = {kind.short_name for kind in kinds_of_perfect_information()} - taken
    assert len(taken) >= 40 and left_out == {"stones_and_gems", "efg_game", "morpion_solitaire"}
    assert of_players(pyspiel.load_game("stones_and_gems").get_type())
    assert {kind_of(game) for game in fitting()} == {(n, chance) for n in (1, 2, 3) for chance in (False, True)}


def test_every_game_has_openspiels_sizes():
    for other in fitting():
        game = games.make(name_of(other))
        assert (game.num_players, game.num_actions) == (other.num_players(), other.num_distinct_actions()), game.name
        assert game.num_outcomes == other.max_chance_outcomes(), game.name
        assert bool(game.score_name) == (game.num_players == 1), game.name


def test_the_document_lists_the_games_that_fit():
    text = (ROOT / "docs/games.md").read_text()
    assert table() in text, "run `python tests/openspiel_list.py` and put its table into docs/games.md"
    taken = {game.get_type().short_name for game in fitting()}
    assert re.search(rf"These are {len(taken)} games", text)


def test_one_player_has_a_score_whose_range_is_the_range_of_values():
    """Of 100 moves the shortest way along the cliff takes 9; a step into it costs 100."""
    game = games.make("openspiel:cliff_walking")
    assert game.num_players == 1 and game.num_outcomes == 0 and game.score_name == "utility"
    best = after(game, ["UP", *["RIGHT"] * 7, "DOWN"])
    worse = after(game, ["UP", "UP", *["RIGHT"] * 7, "DOWN", "DOWN"])
    for states, score in ((best, -9), (worse, -11)):
        ended, value = game.terminal(states)
        assert ended.tolist() == [True] and game.score(states).tolist() == [score]
        assert value[0] == pytest.approx(2 * (score + 199) / 190 - 1)
    assert game.to_play(best).tolist() == [0] and game.planes(game.initial(1)).shape == (1, 1, 4, 8)
    assert game.planes(game.initial(1))[0, 0, 3, 0] == 1


def test_a_game_of_one_player_that_is_cut_counts_what_it_has():
    game = games.make("openspiel:2048(max_plies=6)")
    states = after(game, ["4_added_to_row_1,_column_1", "4_added_to_row_1,_column_2", "Left"])
    assert game.score(states).tolist() == [8.0] and not game.terminal(states)[0][0]
    assert game.terminal(states)[1][0] == pytest.approx(2 * 8 / 20480 - 1)
    states = after(
        game,
        ["4_added_to_row_1,_column_1", "4_added_to_row_1,_column_2", "Left", *["2_added_to_row_4,_column_4"], "Up"],
    )
    states = game.play(states, np.array([np.flatnonzero(game.chances(states)[0])[0]]))
    ended, value = game.terminal(states)
    assert ended[0] and game.is_cut(states[0]) and value[0] == pytest.approx(2 * 8 / 20480 - 1)


def test_2048_shows_exponents_on_one_board():
    game = games.make("openspiel:2048")
    states = after(game, ["4_added_to_row_1,_column_1", "2_added_to_row_2,_column_3"])
    planes = game.planes(states)[0]
    assert planes.shape == (1, 4, 4) and planes.sum() == 3 and planes[0, 0, 0] == 2 and planes[0, 1, 2] == 1


def test_chance_moves_have_openspiels_outcomes_and_probabilities():
    """A new tile is a 2 nine times out of ten, on each of the 16 cells alike."""
    game = games.make("openspiel:2048")
    states = game.initial(1)
    chances = game.chances(states)
    assert game.to_play(states).tolist() == [CHANCE] and chances.shape == (1, 33) and chances.dtype == np.float32
    of_tiles = {}
    for outcome in np.flatnonzero(chances[0]):
        tile = game.outcome_to_text(states[0], outcome).split("_")[0]
        of_tiles.setdefault(tile, []).append(float(chances[0, outcome]))
    assert {tile: len(p) for tile, p in of_tiles.items()} == {"2": 16, "4": 16}
    assert np.allclose(of_tiles["2"], 0.9 / 16) and np.allclose(of_tiles["4"], 0.1 / 16)
    with pytest.raises(ValueError, match="no chance moves"):
        games.make("openspiel:hex").chances(games.make("openspiel:hex").initial(1))


def test_the_first_throw_of_backgammon_says_who_is_player_0():
    """The higher die begins. Either way the one who begins is player 0, and wins with value 1."""
    game = games.make("openspiel:backgammon")
    for throw, number in (("roll_12", 0), ("roll_21", 1)):
        states = after(game, [throw])
        assert game.live(states[0]).current_player() == number, throw
        assert game.to_play(states).tolist() == [0] and game.planes(states)[0, -1, 0, 0] == 0
        rng = np.random.default_rng(1)
        while not game.terminal(states)[0][0]:
            if game.to_play(states)[0] == CHANCE:
                move = rng.choice(np.flatnonzero(game.chances(states)[0]))
            else:
                assert game.planes(states)[0, -1, 0, 0] == game.to_play(states)[0]
                move = rng.choice(np.flatnonzero(game.legal(states)[0]))
            states = game.play(states, np.array([move]))
        assert game.terminal(states)[1][0] == game.live(states[0]).returns()[number] != 0


def test_a_game_that_is_cut_where_chance_would_move_ends_with_a_player_to_move():
    game = games.make("openspiel:pig(max_plies=3)")
    states = after(game, ["roll", "Roll_4", "roll"])
    assert game.terminal(states)[0].tolist() == [True] and game.to_play(states).tolist() == [0]
    assert game.terminal(states)[1].tolist() == [0.0] and not game.legal(states).any()


def test_several_players_have_a_value_each_in_the_order_of_play():
    """Three players of pig, up to 6 points: the second one throws 6 at once."""
    game = games.make("openspiel:pig(players=3, winscore=6)")
    states = after(game, ["roll", "Roll_2", "stop"])
    assert game.to_play(states).tolist() == [1]
    assert game.planes(states)[0, -2:, 0, 0].tolist() == [1, 0]
    ended, value = game.terminal(states)
    assert value.shape == (1, 3) and not ended[0] and not value.any()
    states = after(game, ["roll", "Roll_2", "stop", "roll", "Roll_6", "stop"])
    ended, value = game.terminal(states)
    assert ended[0] and value.dtype == np.float32 and value[0].tolist() == [-0.5, 1.0, -0.5]
    assert game.to_play(states).tolist() == [0] and game.score(states) is None


def test_utilities_of_several_players_are_mapped_to_values_by_the_games_bounds():
    """In maedn and chinese checkers the winner of three gets 2 and each other one -1; nobody anything if it is cut."""
    game = games.make("openspiel:chinese_checkers(players=3, max_plies=2)")
    states = game.initial(1)
    for _ in range(2):
        states = game.play(states, game.legal(states).argmax(axis=1))
    assert game.terminal(states)[1][0] == pytest.approx([-1 / 3] * 3)
    game = games.make("openspiel:maedn(players=3)")
    rng = np.random.default_rng(0)
    states = game.initial(1)
    while not game.terminal(states)[0][0]:
        odds = game.chances(states)[0] if game.to_play(states)[0] == CHANCE else game.legal(states)[0]
        states = game.play(states, np.array([rng.choice(np.flatnonzero(odds))]))
    assert sorted(game.terminal(states)[1][0].tolist()) == [-1.0, -1.0, 1.0]


def test_results_of_chance_do_not_depend_on_the_cache():
    large, small = (games.make(f"openspiel:backgammon(cache_mb={size})") for size in (64, 0))
    rng, states = np.random.default_rng(0), large.initial(4)
    for _ in range(30):
        assert (large.to_play(states) == small.to_play(states)).all()
        by_lot = large.to_play(states) == CHANCE
        moves = np.zeros(4, np.int64)
        if by_lot.any():
            odds = large.chances(states[by_lot])
            assert (odds == small.chances(states[by_lot])).all()
            moves[by_lot] = np.argmax(rng.random(odds.shape) * odds, axis=1)
        if not by_lot.all():
            legal = large.legal(states[~by_lot])
            assert (legal == small.legal(states[~by_lot])).all()
            assert (large.planes(states[~by_lot]) == small.planes(states[~by_lot])).all()
            moves[~by_lot] = np.argmax(rng.random(legal.shape) * legal, axis=1)
        states = large.play(states, moves)
