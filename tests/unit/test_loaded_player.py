"""A player in a program: results of a search and of an evaluation, and errors for wrong states."""

import numpy as np
import pytest
from helpers import loaded_player

from az_mpi import games
from az_mpi.games.base import after

TICTACTOE = games.make("tictactoe")
WINS = after(TICTACTOE, [0, 3, 1, 4])  # X has a3 and b3, and wins by c3; O would win by c2
BLOCKS = after(TICTACTOE, [4, 0, 2])  # X has b2 and c3; O must play a1, and then it is a draw


def test_a_search_returns_visits_values_and_the_expected_variation():
    found = loaded_player("tictactoe").search(WINS, 200)
    legal = TICTACTOE.legal(WINS[None])[0]
    assert (found.action, found.move, found.variation, found.value) == (2, "c3", ["c3"], 1)
    assert found.visits.shape == found.values.shape == (9,) and found.values.dtype == np.float32
    assert (found.visits[~legal] == 0).all() and np.isnan(found.values[~legal]).all()
    assert found.values[2] == 1 and (np.isnan(found.values) == (found.visits == 0)).all()
    assert {move.action for move in found.moves} == set(np.flatnonzero(legal).tolist())
    assert all(found.visits[move.action] == move.visits for move in found.moves)


def test_the_variation_is_a_game_from_the_state_on():
    found, state = loaded_player("tictactoe").search(BLOCKS, 600), BLOCKS
    for word in found.variation:
        state = TICTACTOE.play(state[None], np.array([TICTACTOE.text_to_action(state, word)]))[0]
    assert found.variation[0] == found.move == "a1" and len(found.variation) >= 3


def test_a_value_of_an_action_is_for_the_player_who_plays_it():
    """Every move of O but the one that blocks loses."""
    found = loaded_player("tictactoe").search(BLOCKS, 600)
    others = [action for action in (1, 3, 5, 7, 8) if found.visits[action]]
    assert others and all(found.values[action] < found.values[6] for action in others)


def test_moves_that_are_drawn_by_lot_are_drawn_before_a_search():
    player = loaded_player("2048(max_plies=20)")
    start = player.game.initial(1)[0]
    with pytest.raises(ValueError, match="drawn by lot in this position: search what `draw` returns"):
        player.search(start)
    drawn = player.draw(start, np.random.default_rng(1))
    assert (drawn == player.draw(start, np.random.default_rng(1))).all()
    assert (player.draw(drawn) == drawn).all() and (player.draw(start) != start).any()
    found = player.search(drawn, 20)
    assert found.visits.sum() == 20 and player.game.legal(drawn[None])[0][found.action]


def test_probabilities_are_the_logits_of_legal_actions_alone():
    rows = np.linspace(-3, 90, 9)  # the illegal ones too: a softmax that is not careful overflows
    player = loaded_player("tictactoe").with_evaluator(
        lambda states: (np.tile(rows, (len(states), 1)), np.full(len(states), 0.5))
    )
    over = after(TICTACTOE, [0, 3, 1, 4, 2])
    states = np.stack([TICTACTOE.initial(1)[0], WINS, over])
    logits, value = player.evaluate(states)
    shares, same_value = player.probabilities(states)
    assert shares.dtype == np.float32 and (value == same_value).all() and (value == 0.5).all()
    assert shares.sum(axis=1).tolist() == pytest.approx([1, 1, 0])
    legal = TICTACTOE.legal(states[1:2])[0]
    expected = np.exp(logits[1][legal].astype(float) - 90)
    assert shares[1][legal].tolist() == pytest.approx((expected / expected.sum()).tolist(), rel=1e-5)
    assert (shares[1][~legal] == 0).all() and (logits[1][~legal] != 0).any()


def test_an_empty_batch_is_not_given_to_the_game():
    player = loaded_player("tictactoe")
    for call in (player.evaluate, player.probabilities):
        first, value = call(np.zeros((0, TICTACTOE.state_size), TICTACTOE.state_dtype))
        assert first.shape == (0, 9) and value.shape == (0,)


@pytest.mark.parametrize(
    "method, states, says",
    [
        ("search", np.zeros((1, 2), np.uint16), r"one state of tictactoe: expected uint16 \[2\].*got shape \[1, 2\]"),
        ("search", np.zeros(3, np.uint16), r"expected uint16 \[2\].*got shape \[3\]"),
        ("search", "a1", r"expected uint16 \[2\].*got str"),
        ("evaluate", np.zeros(2, np.uint16), r"states of tictactoe: expected uint16 \[n, 2\].*got shape \[2\]"),
        ("evaluate", [[0, 0], [0]], r"expected uint16 \[n, 2\].*got list"),
        ("probabilities", np.zeros((4, 9), np.uint16), r"expected uint16 \[n, 2\].*got shape \[4, 9\]"),
    ],
)
def test_states_of_the_wrong_size_are_refused_with_what_is_expected(method, states, says):
    with pytest.raises(ValueError, match=says):
        getattr(loaded_player("tictactoe"), method)(states)


def test_simulations_below_0_are_refused():
    with pytest.raises(ValueError, match="simulations is -1"):
        loaded_player("tictactoe").search(WINS, -1)


def test_a_search_asks_the_users_evaluator():
    asked = []

    def corners(states):
        asked.append(len(states))
        return np.tile([9, 0, 9, 0, 0, 0, 9, 0, 9], (len(states), 1)), [0] * len(states)

    player = loaded_player("tictactoe")
    found = player.with_evaluator(corners).search(TICTACTOE.initial(1)[0], 40)
    assert sum(asked) > 10 and found.visits[[0, 2, 6, 8]].sum() > 0.9 * found.visits.sum()
    assert player.search(TICTACTOE.initial(1)[0], 40).visits[[0, 2, 6, 8]].sum() < 30  # which is as it was


@pytest.mark.parametrize(
    "answer, says",
    [
        (lambda n: (np.zeros((n, 8)), np.zeros(n)), r"logits of an evaluator: expected shape \[1, 9\]; got \[1, 8\]"),
        (lambda n: (np.zeros((n, 9)), np.zeros((n, 1))), r"value of an evaluator: expected shape \[1\]; got \[1, 1\]"),
        (lambda n: (np.zeros((n, 9)), np.full(n, np.nan)), "value of an evaluator: NaN"),
        (lambda n: np.zeros(n), "two arrays"),
    ],
)
def test_results_of_a_wrong_evaluator_never_reach_the_search(answer, says):
    player = loaded_player("tictactoe").with_evaluator(lambda states: answer(len(states)))
    with pytest.raises(ValueError, match=says):
        player.search(TICTACTOE.initial(1)[0], 5)


def test_an_evaluator_gives_the_values_of_three_players_each():
    player = loaded_player("kinds:Trio")
    state, num_actions = player.game.initial(1)[0], player.game.num_actions
    found = player.with_evaluator(lambda states: (np.zeros((len(states), num_actions)), [[0.5, 0, -0.5]] * len(states)))
    assert found.search(state, 5).visits.sum() == 5
    assert found.evaluate(state[None])[1].tolist() == [[0.5, 0, -0.5]]
    one = player.with_evaluator(lambda states: (np.zeros((len(states), num_actions)), np.zeros(len(states))))
    with pytest.raises(ValueError, match=r"value of an evaluator: expected shape \[1, 3\]; got \[1\]"):
        one.search(state, 5)


def test_a_player_of_another_game_evaluates_and_ranks_as_before():
    """The network sees planes of the other game's states; an evaluator of a user's own is asked as it is."""
    player, other = loaded_player("mnk(m=3,n=3,k=3)"), games.make("tictactoe")
    player.evaluator.threshold = 0.25
    found = player.with_game(other)
    assert found.game is found.evaluator.game is other and found.evaluator.threshold == 0.25
    own = player.with_evaluator(lambda states: (np.zeros((len(states), 9)), np.zeros(len(states))))
    assert own.with_game(other).evaluator is own.evaluator
