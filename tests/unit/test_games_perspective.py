"""games.check finds values for the wrong player, and planes that hide who is to move, and neither in right games."""

import numpy as np
import pytest
from boxes import Boxes, Kalah

from az_mpi import games
from az_mpi.games.perspective import Seen


@pytest.mark.parametrize(
    "game", [Boxes(), Boxes(planes="board"), Boxes(n=3), Boxes(n=12), Kalah()], ids=lambda game: game.name
)
@pytest.mark.parametrize("seed", range(3))
def test_right_games_have_no_warning(game, seed):
    assert games.check(game, seed=seed) == []


@pytest.mark.parametrize("n", [3, 5, 12])
@pytest.mark.parametrize("planes", ["mover", "board"])
@pytest.mark.parametrize("seed", range(3))
def test_the_value_of_player_0_in_a_game_where_a_player_moves_twice_is_refused(n, planes, seed):
    with pytest.raises(AssertionError, match="terminal gives the value for one and the same player"):
        games.check(Boxes(n, "first", planes), seed=seed)


def test_the_refusal_draws_one_end_with_each_player_to_move():
    with pytest.raises(AssertionError) as caught:
        games.check(Boxes(n=3, value="first"))
    *_, movers, winners, boards = str(caught.value).splitlines()
    assert movers.split("to_play ")[1][0] != movers.split("to_play ")[2][0]
    assert "player 0 has won" in winners and "player 1 has won" in winners
    assert boards.split()[:3] == boards.split()[3:]


class Solid(Boxes):
    """The planes show boxes as the mover sees them; no number of a state is who is to move, but the count of moves in a
    row that the first player, or with a minus the second one, has made."""

    def initial(self, n):
        return self._hidden(super().initial(n))

    def play(self, states, actions):
        return self._hidden(super().play(self._plain(states), actions))

    def _hidden(self, states):
        states = states.copy()
        states[:, -1] = (1 - 2 * states[:, -1]) * (1 + states[:, : self.num_actions].sum(axis=1))
        return states

    def _plain(self, states):
        states = states.copy()
        states[:, -1] = states[:, -1] < 0
        return states


class Relative(Solid):
    """States hold the mover's boxes as 1 and the other player's as 2."""

    def _hidden(self, states):
        states, owners = states.copy(), states[:, self.num_actions : -1]
        states[:, self.num_actions : -1] = np.where((states[:, -1:] == 1) & (owners > 0), 3 - owners, owners)
        return states

    _plain = _hidden


for method in ("legal", "to_play", "terminal", "planes"):
    setattr(Solid, method, lambda self, s, method=method: getattr(Boxes, method)(self, self._plain(s)))


@pytest.mark.parametrize(
    "game",
    [Relative(value="first"), Solid(value="first"), Kalah(value="first")],
    ids=["relative states", "hidden mover", "no end for the other player"],
)
def test_where_no_state_can_be_turned_the_value_of_player_0_is_a_warning_with_two_ends(game):
    [warning] = games.check(game)
    assert warning.startswith("terminal seems to give the value for one and the same player")
    assert "to_play 0" in warning and "to_play 1" in warning


@pytest.mark.parametrize("game", [Relative(), Solid()], ids=["relative states", "hidden mover"])
def test_states_in_which_no_number_alone_turns_the_mover_are_no_mistake(game):
    assert games.check(game) == []


@pytest.mark.parametrize("n", [2, 5, 12])
def test_planes_that_hide_who_is_to_move_are_a_warning_with_two_states(n):
    [warning] = games.check(Boxes(n, planes="no mover"))
    assert warning.startswith("planes do not show who is to move")
    assert "to_play 0" in warning and "to_play 1" in warning


def test_a_result_that_is_the_last_movers_by_the_rules_is_no_mistake():
    """Nobody can move, so that the player to move has lost, either of them: the value is -1 for both."""

    class Last(Boxes):
        def terminal(self, states):
            ended = states[:, : self.num_actions].all(axis=1)
            return ended, 0 - ended.astype(np.float32)

    assert games.check(Last()) == []


class Pairs(Boxes):
    """The players draw two edges each, alternately, and fill the row. Who draws the last one wins: by the last move
    ("last"), or by who has the first edge of the upper row ("first": the value is the first player's)."""

    def __init__(self, value):
        super().__init__(4, value)

    def play(self, states, actions):
        after = states.copy()
        after[np.arange(len(states)), actions] = 1 + states[:, -1]
        after[:, -1] = (after[:, : self.num_actions] > 0).sum(axis=1) // 2 % 2
        return after

    def terminal(self, states):
        edges = states[:, : self.num_actions]
        taken = (edges > 0).sum(axis=1)
        ended = (edges > 0).all(axis=1) | (edges[:, 0] > 0) & (edges[:, 1] > 0)
        value = np.where(taken % 2 == 1, 1, -1) if self.value == "last" else np.where(edges[:, 0] == 1, 1, -1)
        return ended, np.where(ended, value, 0).astype(np.float32)

    def planes(self, states):
        edges, planes = states[:, : self.num_actions], np.zeros((len(states), *self.planes_shape), np.uint8)
        planes[:, 0, 0], planes[:, 1, 0] = edges == states[:, -1:] + 1, edges == 2 - states[:, -1:]
        planes[:, 2] = ((edges > 0).sum(axis=1) % 2)[:, None, None]
        return planes


def test_a_win_of_the_last_mover_is_no_mistake_where_turns_have_two_moves():
    assert games.check(Pairs("last")) == []
    with pytest.raises(AssertionError, match="terminal gives the value for one and the same player"):
        games.check(Pairs("first"))


class Listed(Kalah):
    """The planes are a list of numbers, each a plane of one cell."""

    planes_shape, symmetry_cells = (15, 1, 1), np.zeros((1, 1), np.int32)

    def planes(self, states):
        numbers = np.concatenate([self._own(states).reshape(-1, 14), states[:, 14:15]], axis=1)
        return (numbers / np.float32(9)).astype(np.float32)[:, :, None, None]


def test_planes_that_are_a_list_of_numbers_are_checked_too():
    assert games.check(Listed()) == []
    [warning] = games.check(Listed("first"))
    assert warning.startswith("terminal seems to give the value for one and the same player")


def test_the_number_that_says_who_is_to_move_is_found():
    game, seen = Boxes(n=2), Seen()
    states = game.initial(4)
    assert not len(seen.columns())
    for action in (0, 1, 2, 3):
        seen.add(states, game.to_play(states), game.terminal(states)[0], np.full(4, -1))
        states = game.play(states, np.full(4, action))
    assert seen.columns().tolist() == [game.state_size - 1]
    other = seen.with_other_mover(states, game.to_play(states))
    assert (game.to_play(other) == 1 - game.to_play(states)).all() and (other[:, :-1] == states[:, :-1]).all()
