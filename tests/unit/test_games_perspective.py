"""games.check finds values for the wrong player, and planes that hide who is to move, and neither in right games."""

import numpy as np
import pytest
from boxes import Boxes, Kalah

from az_mpi import games
from az_mpi.games import othello
from az_mpi.games.perspective import Seen


@pytest.mark.parametrize("game", [
    Boxes(), Boxes(planes="board"), Boxes(n=3), Boxes(n=12), Kalah()], ids=lambda game: game.name)  # fmt: skip
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


class Relative(othello.Rules):
    """Othello, whose states hold the mover's stones first, with the value of the player who began."""

    def terminal(self, states):
        ended, value = super().terminal(states)
        return ended, np.where(states[:, 2] == 0, value, 0 - value).astype(np.float32)

    def lead(self, states):
        return None


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


for method in ("legal", "to_play", "terminal", "planes"):
    setattr(Solid, method, lambda self, s, method=method: getattr(Boxes, method)(self, self._plain(s)))


@pytest.mark.parametrize("game", [Relative(6), Solid(value="first"), Kalah(value="first")],
                         ids=["relative states", "hidden mover", "no end for the other player"])
def test_where_no_state_can_be_turned_the_value_of_player_0_is_a_warning_with_two_ends(game):
    [warning] = games.check(game)
    assert warning.startswith("terminal seems to give the value for one and the same player")
    assert "to_play 0" in warning and "to_play 1" in warning


def test_states_that_hide_the_mover_are_no_mistake():
    assert games.check(Solid()) == []


@pytest.mark.parametrize("n", [2, 5, 12])
def test_planes_that_hide_who_is_to_move_are_a_warning_with_two_states(n):
    [warning] = games.check(Boxes(n, planes="no mover"))
    assert warning.startswith("planes do not show who is to move")
    assert "to_play 0" in warning and "to_play 1" in warning


def test_a_result_that_is_the_last_movers_by_the_rules_is_no_mistake():
    """Nobody can move, so that the player to move has lost, whoever it is: the value is -1 for both."""

    class Last(Boxes):
        def terminal(self, states):
            ended = states[:, : self.num_actions].all(axis=1)
            return ended, 0 - ended.astype(np.float32)

    assert games.check(Last()) == []


def test_the_number_that_says_who_is_to_move_is_found():
    game, seen = Boxes(n=2), Seen()
    states = game.initial(4)
    assert not len(seen.columns())
    for action in (0, 1, 2, 3):
        seen.add(states, game.to_play(states), game.terminal(states)[0])
        states = game.play(states, np.full(4, action))
    assert seen.columns().tolist() == [game.state_size - 1]
    other = seen.with_other_mover(states, game.to_play(states))
    assert (game.to_play(other) == 1 - game.to_play(states)).all() and (other[:, :-1] == states[:, :-1]).all()
