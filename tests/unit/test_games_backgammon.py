"""Backgammon: the rules by hand, and the boards after each throw beside OpenSpiel's."""

import numpy as np
import pytest

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.backgammon import BAR, DIE, FIRST_THROW, LEFT, OTHER, PLAYER, POINTS, SECOND, SIDE, THROWS
from az_mpi.games.base import CHANCE

GAME = games.make("backgammon")
BAR_POINT = BAR + 1
START = """
X . . . O .   O . . . . X
X . . . O .   O . . . . X
X . . . O .   O . . . . .
X . . . . .   O . . . . .
X . . . . .   O . . . . .
. . . . . .   . . . . . .
O . . . . .   X . . . . .
O . . . . .   X . . . . .
O . . . X .   X . . . . .
O . . . X .   X . . . . O
O . . . X .   X . . . . O
"""


def position(own, other, dice, player=0):
    """Return a state. own, other: {point as that player counts it, 25 for the bar: checkers}; all others are off."""
    state = np.zeros(GAME.state_size, np.int8)
    for begin, side in ((0, own), (OTHER, other)):
        for point, num in side.items():
            state[begin + point - 1] = num
    high, low = max(dice), min(dice)
    state[[DIE, SECOND, LEFT, PLAYER]] = high, 0 if high == low else low, 4 if high == low else 2, player
    return state


def words(state):
    return {GAME.action_to_text(state, action) for action in np.flatnonzero(GAME.legal(state[None])[0])}


def after(state, *moves):
    for move in moves:
        actions = {GAME.action_to_text(state, a): a for a in np.flatnonzero(GAME.legal(state[None])[0])}
        state = GAME.play(state[None], np.array([actions[move]]))[0]
    return state


@pytest.mark.parametrize("name", ["backgammon", "backgammon(gammons=True)"])
def test_random_games_keep_the_invariants(name):
    assert games.check(games.make(name), 32) == []


def test_a_game_begins_with_two_different_dice_and_15_checkers_each():
    (state,) = GAME.initial(1)
    assert state[LEFT] == FIRST_THROW and GAME.to_play(state[None])[0] == CHANCE
    chances = GAME.chances(state[None])[0]
    for (high, low), chance in zip(THROWS, chances):
        assert chance == pytest.approx(0 if high == low else 1 / 15)
    assert GAME.outcome_to_text(state, THROWS.index((5, 2))) == "5-2"
    thrown = GAME.play(state[None], np.array([THROWS.index((3, 1))]))[0]
    assert words(thrown) == {"8/5", "6/3", "13/10", "24/21", "8/7", "6/5", "24/23"}
    board = GAME.board(thrown)
    assert (board.players == 0).sum() == (board.players == 1).sum() == 15
    assert board.text().splitlines() == START.strip().splitlines() and board.beside == "dice 3 1; off: X 0, O 0"
    moved = after(thrown, "8/5", "6/5")
    assert moved[PLAYER] == 1 and GAME.to_play(moved[None])[0] == CHANCE
    assert GAME.chances(moved[None])[0] == pytest.approx([1 / 36 if a == b else 1 / 18 for a, b in THROWS])
    assert (moved[OTHER : OTHER + SIDE] == position({5: 2, 6: 4, 8: 2, 13: 5, 24: 2}, {}, (1, 1))[:SIDE]).all()


def test_a_checker_from_the_bar_enters_before_any_other_move():
    state = position({BAR_POINT: 1, 6: 2}, {3: 2, 6: 2}, (4, 3))  # point 22 is the other player's point 3
    assert words(state) == {"bar/21"}
    assert words(after(state, "bar/21")) == {"21/18", "6/3"}
    shut = position({BAR_POINT: 2, 6: 2}, {3: 2, 4: 2}, (4, 3))
    assert words(shut) == {"pass"} and after(shut, "pass")[PLAYER] == 1
    half = position({BAR_POINT: 2, 6: 2}, {3: 2}, (4, 3))  # one of two enters: the turn ends then
    assert after(half, "bar/21")[PLAYER] == 1


def test_a_single_checker_is_hit():
    state = after(position({8: 1, 6: 1}, {18: 1, 1: 2}, (2, 1)), "8/7")  # the point 7 is the other player's 18
    assert state[OTHER + BAR] == 1 and state[OTHER + 18 - 1] == 0 and state[7 - 1] == 1


def test_both_dice_are_played_if_that_is_possible():
    """After 13/8 no six could be played, since 18 and 2 are blocked. After 13/7 the five is 24/19."""
    state = position({24: 1, 13: 1}, {7: 2, 23: 2}, (6, 5))
    assert words(state) == {"13/7", "24/19"}
    assert words(after(state, "13/7")) == {"24/19"} and words(after(state, "24/19")) == {"13/7", "19/13"}


def test_the_larger_die_is_played_if_only_one_of_the_two_can_be():
    state = position({24: 1}, {12: 2}, (6, 5))  # 24/18 or 24/19, then point 13 is blocked
    assert words(state) == {"24/18"} and after(state, "24/18")[PLAYER] == 1
    only_small = position({24: 1}, {12: 2, 7: 2}, (6, 5))  # 18 is blocked too
    assert words(only_small) == {"24/19"}


def test_checkers_go_off_from_home_alone_and_with_a_larger_die_from_the_highest_point():
    assert words(position({7: 1, 2: 1}, {1: 1}, (6, 2))) == {"7/1", "7/5"}
    state = position({4: 1, 2: 2}, {1: 1}, (6, 3))
    assert words(state) == {"4/off(6)", "4/1"}
    assert words(after(state, "4/off(6)")) == {"2/off(3)"}
    won = after(position({2: 1, 1: 1}, {1: 1}, (5, 2)), "2/off", "1/off(5)")
    assert GAME.terminal(won[None]) == (True, 1.0) and GAME.to_play(won[None])[0] == 0


def test_a_double_gives_four_moves():
    state = position({24: 2, 6: 2}, {1: 2}, (2, 2))
    for left in (4, 3, 2, 1):
        assert state[LEFT] == left and state[PLAYER] == 0
        state = after(state, "24/22" if left > 2 else "6/4")
    assert state[PLAYER] == 1 and state[LEFT] == 0


@pytest.mark.parametrize(
    "other, value", [({1: 14}, 1 / 3), ({6: 10, 18: 5}, 2 / 3), ({6: 14, 19: 1}, 1), ({6: 14, BAR_POINT: 1}, 1)]
)
def test_gammons_count_two_thirds_and_backgammons_one(other, value):
    state = after(position({1: 1}, other, (1, 1)), "1/off")
    assert GAME.terminal(state[None])[1] == [1]
    assert games.make("backgammon(gammons=True)").terminal(state[None])[1] == pytest.approx([value])


def test_both_players_see_the_board_alike():
    own, other = {13: 4, 6: 3, 3: 1}, {24: 2, 5: 4, BAR_POINT: 1}
    states = np.stack([position(own, other, (4, 2), player) for player in (0, 1)])
    first, second = GAME.planes(states)
    assert (first == second).all() and len(set(GAME.canonical_key(states)[0].tolist())) == 1
    assert first[0, 0].nonzero()[0].tolist() == [2, 5, 12] and first[3, 0, 12] == 0.25
    # The other player's points 24 and 5 are 1 and 20 here.
    assert first[5, 0].nonzero()[0].tolist() == [0, 19] and (first[10] == 0.5).all()
    boards = [GAME.board(state).players for state in states]
    assert (boards[0] == 0).sum() == (boards[1] == 1).sum() == 8


def ends_of_turn(state):
    """Return the boards that the player to move can leave, as (own, other)."""
    found, left = set(), [state]
    while left:
        before = left.pop()
        for action in np.flatnonzero(GAME.legal(before[None])[0]):
            now = GAME.play(before[None], np.array([action]))[0]
            if now[PLAYER] == state[PLAYER] and now[LEFT] > 0 and not GAME.terminal(now[None])[0][0]:
                left.append(now)
            else:
                sides = now[:SIDE].tolist(), now[OTHER : OTHER + SIDE].tolist()
                found.add(tuple(map(tuple, sides if now[PLAYER] == state[PLAYER] else sides[::-1])))
    return found


def seen(live, player):
    sides = []
    for side in (player, 1 - player):
        points = [live.board(side, point) for point in range(POINTS)]
        sides.append((*(points[::-1] if side == 0 else points), live.board(side, 100)))
    return tuple(sides)


def ends_in_openspiel(live):
    player, found = live.current_player(), set()
    left = [live]
    while left:
        before = left.pop()
        for action in before.legal_actions():
            child = before.child(action)
            goes_on = not child.is_terminal() and child.current_player() == player
            (left.append if goes_on else lambda one: found.add(seen(one, player)))(child)
    return found


def test_the_boards_after_each_throw_are_those_of_openspiel():
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    rng, num = np.random.default_rng(7), 0
    for _ in range(3):
        live = pyspiel.load_game("backgammon").new_initial_state()
        while not live.is_terminal():
            if live.is_chance_node():
                outcomes, chances = zip(*live.chance_outcomes())
                live.apply_action(int(rng.choice(outcomes, p=chances)))
                continue
            player = live.current_player()
            dice = [int(digit) for digit in str(live).split("Dice: ")[1][:2]]
            own, other = seen(live, player)
            sides = [{k + 1: n for k, n in enumerate(side) if n} for side in (own, other)]
            ours, theirs = ends_of_turn(position(*sides, dice, player)), ends_in_openspiel(live)
            assert ours == theirs, live
            num += 1
            while not live.is_terminal() and live.current_player() == player:
                live.apply_action(int(rng.choice(live.legal_actions())))
    assert num > 150


@pytest.mark.parametrize("gammons", ["-1", "0", "1", "2", "'yes'", "None"])
def test_whether_gammons_count_is_true_or_false(gammons):
    """-1 gave a game that counts them under the name of one that does not."""
    with pytest.raises(Refusal, match=f"gammons is {gammons}; allowed: True, False"):
        games.make(f"backgammon(gammons={gammons})")
