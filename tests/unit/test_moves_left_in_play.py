"""Of moves that win alike the one that ends the game soonest is played, of moves that lose alike the one that lasts."""

import numpy as np
import pytest
import torch
from helpers import float_planes, make_run, positions

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network.evaluators import Evaluator
from az_mpi.network.heads.moves_left import UNIT, MovesLeft
from az_mpi.player import trained_network
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import load_player
from az_mpi.player.session import Session
from az_mpi.search import make_play_search
from az_mpi.search.reading import root_moves

CONNECT4, TICTACTOE = games.make("connect4"), games.make("tictactoe")
SLOT = np.arange(1)
BOTTOM = int(np.argwhere(CONNECT4.planes(CONNECT4.play(CONNECT4.initial(1), np.array([3])))[0].any(axis=0))[0, 0])
BOTH = pytest.mark.parametrize("algorithm", ["puct", "gumbel"])


class Told(Evaluator):
    """Thinks that the player who began has `value` everywhere, and `value` - `less` where the first stone is in column
    `worse`; the game ends `short` plies sooner where it is in column `column`."""

    def __init__(self, value, column, short=10.0, worse=-1, less=0.0):
        self.value, self.column, self.short, self.worse, self.less = value, column, short, worse, less
        self.plies_left = self.lengths

    def __call__(self, states):
        first = self.first(states)
        value = np.where(first == self.worse, self.value - self.less, self.value)
        sign = np.where(CONNECT4.to_play(states) == 0, 1, -1)
        return np.zeros((len(states), 7), np.float32), (sign * value).astype(np.float32)

    def lengths(self, states):
        """Return the plies left: the game ends after 30, or sooner."""
        num_stones = CONNECT4.planes(states).sum(axis=(1, 2, 3))
        return np.where(self.first(states) == self.column, 30.0 - self.short, 30.0) - num_stones

    def first(self, states):
        """Return the column of the stone at the bottom that the player who began has, -1 for several or none."""
        planes = CONNECT4.planes(states)
        own = planes[np.arange(len(states)), CONNECT4.to_play(states)]
        bottom = own.reshape(len(states), 6, 7)[:, BOTTOM]
        return np.where(bottom.sum(axis=1) == 1, bottom.argmax(axis=1), -1)


def searched(evaluate, algorithm="puct", simulations=200):
    search = make_play_search(CONNECT4, evaluate, models.Search(algorithm=algorithm, simulations=simulations), 1)
    search.reset(SLOT, CONNECT4.initial(1), np.zeros(1, np.uint64))
    search.run(SLOT)
    return search


def chosen(*given, **more):
    """Return the action that PUCT plays after so few simulations that the first stone can be told from the others."""
    return chosen_by(Told(*given, **more))


def chosen_by(evaluate):
    return int(searched(evaluate, simulations=40).choose(SLOT, np.zeros(1))[0])


@BOTH
@pytest.mark.parametrize("column", [1, 5])
def test_the_shortest_of_won_moves_is_played(column, algorithm):
    search = searched(Told(0.95, column), algorithm)
    assert search.choose(SLOT, np.zeros(1)).tolist() == [column] == [root_moves(search, 0)[0].action]


def test_each_tree_has_its_own_choice_and_the_evaluator_is_asked_once_for_all():
    """In the second tree the first player has a stone in the middle, and the second one is to move and loses."""
    evaluate, asked = Told(0.95, 5), []
    evaluate.plies_left = lambda states: asked.append(len(states)) or evaluate.lengths(states)
    states = np.concatenate([CONNECT4.initial(1), CONNECT4.play(CONNECT4.initial(1), np.array([3]))])
    search = make_play_search(CONNECT4, evaluate, models.Search(simulations=40), 2)
    slots = np.arange(2)
    search.reset(slots, states, np.zeros(2, np.uint64))
    search.run(slots)
    first = search.choose(slots, np.zeros(2)).tolist()
    assert first[0] == 5 and len(asked) == 1
    assert first == search.choose(slots, np.zeros(2)).tolist() and len(asked) == 1, "nothing was searched meanwhile"
    search.advance(slots, np.array(first))
    search.run(slots)
    search.choose(slots, np.zeros(2))
    assert len(asked) == 2


def test_lengths_take_a_small_share_of_the_search():
    """An eighth of 200 simulations, for 7 moves: 3 positions each."""
    evaluate, asked = Told(0.95, 5), []
    evaluate.plies_left = lambda states: asked.append(len(states)) or evaluate.lengths(states)
    search = searched(evaluate)
    search.choose(SLOT, np.zeros(1))
    assert asked == [3 * 7]


@pytest.mark.parametrize("column", [1, 5])
def test_the_longest_of_lost_moves_is_played(column):
    assert chosen(-0.95, column, short=-10.0) == column


def test_the_length_does_not_count_in_a_game_that_is_open():
    plain = chosen(0.7, -2)
    assert [chosen(0.7, column) for column in range(7)] == [plain] * 7


@pytest.mark.parametrize("value", [0.95, -0.95])
def test_where_all_last_alike_the_choice_of_the_search_stays(value):
    evaluate = Told(value, -2)
    evaluate.plies_left = None
    assert chosen(value, -2) == chosen_by(evaluate)


@pytest.mark.parametrize(("less", "is_played"), [(0.02, True), (0.06, False)])
def test_a_length_is_worth_a_little_of_the_value(less, is_played):
    """10 plies are worth 0.027."""
    assert (chosen(0.95, 4, worse=4, less=less) == 4) == is_played


def test_a_length_is_worth_no_more_than_its_limit():
    assert chosen(0.95, 4, short=1000.0, worse=4, less=0.03) == 4
    assert chosen(0.95, 4, short=1000.0, worse=4, less=0.05) != 4


@pytest.mark.parametrize("heads", [["policy", "value"], ["policy", "value", "moves_left"]])
def test_a_loaded_network_tells_the_length_if_it_has_the_head(heads, tmp_path, monkeypatch):
    monkeypatch.setattr(MovesLeft, "initialise", lambda head: None)  # which would leave it at 0
    run, states = make_run(tmp_path / "run", heads=heads), positions(20, TICTACTOE)
    player = load_player(run, engine="torch", precision="fp32")
    if "moves_left" not in heads:
        assert player.evaluator.plies_left is None
        return
    network = trained_network.read(run).network
    with torch.inference_mode():
        expected = UNIT * network(float_planes(states, TICTACTOE))["moves_left"].numpy()
    assert expected.std() > 0.01
    assert player.evaluator.plies_left(states) == pytest.approx(expected, rel=1e-5)
    session = Session(player, 4)
    session.think(Limit(simulations=20))
    assert session.best() in range(9)
