"""2048: moves, points and chance as an implementation of lists has them, symmetries, drawings."""

import numpy as np
import pytest

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games import chance
from az_mpi.games.base import CHANCE
from az_mpi.games.twenty48 import value_of

GAME = games.make("2048")


def state_of(rows, points=0, owed=0):
    tiles = [int(tile).bit_length() - 1 if tile else 0 for row in rows for tile in row]
    return np.array([[*tiles, points, owed]], np.int32)


def rows_of(state, size=4):
    return [[2**tile if tile else 0 for tile in row] for row in state[: size * size].reshape(size, size).tolist()]


def to_the_left(row):
    """Return (a row slid to the left, the points)."""
    tiles, made, points = [tile for tile in row if tile], [], 0
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tile += tiles.pop(0)
            points += tile
        made.append(tile)
    return made + [0] * (len(row) - len(made)), points


def moved(rows, action):
    """Return (the board after a move, the points)."""
    board = np.array(rows)
    turns = {"left": 0, "up": 1, "right": 2, "down": 3}[("up", "right", "down", "left")[action]]
    slid = [to_the_left(row) for row in np.rot90(board, turns).tolist()]
    return np.rot90(np.array([row for row, _ in slid]), -turns).tolist(), sum(points for _, points in slid)


@pytest.mark.parametrize("name", ["2048", "2048(size=2)", "2048(size=5)"])
def test_random_games_follow_the_rules_of_lists(name):
    game, rng = games.make(name), np.random.default_rng(2)
    states, points = game.initial(6), np.zeros(6, np.int64)
    for _ in range(120):
        for _ in range(2):
            due = chance.due(game, states)
            if due.any():
                outcomes = chance.draw(game, states[due], rng.random(int(due.sum())))
                states[due] = game.play(states[due], outcomes)
        ended = game.terminal(states)[0]
        legal = game.legal(states)
        for state, can, over, have in zip(states, legal, ended, points):
            rows = rows_of(state, game.size)
            assert can.tolist() == [moved(rows, action)[0] != rows for action in range(4)]
            assert over == (not can.any()) and state[-2] == have
        states, points, legal = states[~ended], points[~ended], legal[~ended]
        if not len(states):
            break
        actions = np.argmax(legal * rng.random(legal.shape), axis=1)
        after = game.play(states, actions)
        for i, (state, action) in enumerate(zip(states, actions)):
            rows, more = moved(rows_of(state, game.size), action)
            points[i] += more
            assert rows_of(after[i], game.size) == rows
        states = after
    assert game.size > 2 or not len(states)


def test_a_tile_that_was_made_does_not_become_another_one_in_the_same_move():
    states = state_of([[2, 2, 4, 0], [4, 4, 4, 4], [2, 0, 2, 2], [0, 0, 0, 0]], points=10)
    after = GAME.play(states, np.array([3]))[0]
    assert rows_of(after) == [[4, 4, 0, 0], [8, 8, 0, 0], [4, 2, 0, 0], [0, 0, 0, 0]]
    assert after[-2] == 10 + 4 + 16 + 4 and GAME.to_play(after[None])[0] == CHANCE
    after = GAME.play(states, np.array([1]))[0]
    assert rows_of(after) == [[0, 0, 4, 4], [0, 0, 8, 8], [0, 0, 2, 4], [0, 0, 0, 0]]


def test_chance_puts_two_tiles_at_the_start_and_one_after_each_move():
    states = GAME.initial(1)
    for tiles in range(2):
        assert GAME.to_play(states)[0] == CHANCE and (states[0, :16] > 0).sum() == tiles
        chances = GAME.chances(states)[0]
        assert chances[0::2] == pytest.approx((states[0, :16] == 0) * 0.9 / (16 - tiles))
        assert chances[1::2] == pytest.approx((states[0, :16] == 0) * 0.1 / (16 - tiles))
        states = GAME.play(states, np.array([[5, 18][tiles]]))
    assert GAME.to_play(states)[0] == 0
    assert rows_of(states[0]) == [[0, 0, 4, 0], [0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]]
    assert GAME.to_play(GAME.play(states, np.array([0])))[0] == CHANCE


def test_a_full_board_without_equal_neighbours_ends_the_game_and_so_does_a_large_sum():
    stuck = state_of([[2, 4, 2, 4], [4, 2, 4, 2], [2, 4, 2, 4], [4, 2, 4, 2]], points=1000)
    ended, value = GAME.terminal(stuck)
    assert ended[0] and value[0] == pytest.approx(2 * np.log(3) / np.log(1001) - 1)
    assert not GAME.is_cut(stuck[0]) and not GAME.legal(stuck).any()
    short = games.make("2048(max_plies=100)")
    below, above = ([[64, 32, 2, 0], [0] * 4, [0] * 4, [0] * 4], [[64, 32, 4, 0], [0] * 4, [0] * 4, [0] * 4])
    assert [bool(short.terminal(state_of(rows))[0][0]) for rows in (below, above)] == [False, True]
    assert short.is_cut(state_of(above)[0]) and short.name == "2048(max_plies=100)"


def test_the_value_rises_with_the_points_and_tells_usual_scores_apart():
    values = [value_of(points) for points in (0, 500, 1100, 3000, 20_000, 100_000, 500_000, 3_000_000)]
    assert values[0] == -1 and values[-1] == values[-2] == pytest.approx(1)
    assert all(one + 0.1 < other for one, other in zip(values, values[1:-1]))
    states = np.concatenate([state_of([[0] * 4] * 4, points=points, owed=1) for points in (0, 3000)])
    ended, value = GAME.terminal(states)
    assert not ended.any() and value == pytest.approx([values[0], values[3]])
    assert GAME.score(states).tolist() == [0, 3000]


def test_images_of_a_board_share_a_key_and_others_do_not():
    rows = np.array([[2, 4, 8, 0], [0, 0, 2, 0], [0, 16, 0, 0], [0, 0, 0, 2]])
    images = [np.rot90(side, k).tolist() for side in (rows, rows[:, ::-1]) for k in range(4)]
    keys = GAME.canonical_key(np.concatenate([state_of(image, points=40) for image in images]))[0]
    assert len(set(keys.tolist())) == 1
    assert GAME.canonical_key(state_of(rows[::-1] * 2, points=40))[0] != keys[0]
    assert GAME.canonical_key(state_of(rows, points=44))[0] != keys[0], "the planes show the points"


def test_the_check_accepts_it():
    assert games.check(games.make("2048(size=3)"), 8) == []


def test_boards_moves_and_outcomes_are_written():
    state = state_of([[2048, 4, 0, 0], [0, 0, 2, 0], [0, 16, 0, 0], [0, 0, 0, 2]], points=12_345)[0]
    assert GAME.show(state) == (
        "1 2048    4    .    .\n2    .    .    2    .\n3    .   16    .    .\n4    .    .    .    2\n"
        "     a    b    c    d\n12,345 points"
    )
    assert [GAME.action_to_text(state, action) for action in range(4)] == ["up", "right", "down", "left"]
    assert [GAME.outcome_to_text(state, outcome) for outcome in (0, 5, 31)] == ["2@a1", "4@c1", "4@d4"]
    board = GAME.board(state)
    assert board.symbols[0][0] == "2048" and (board.players >= 0).sum() == 5
    planes = GAME.planes(state[None])[0]
    assert (planes[17] == np.float32(value_of(12_345))).all()
    assert planes[:17].sum() == 5 and planes[10, 0, 0] == planes[3, 2, 1] == planes[0, 3, 3] == 1


@pytest.mark.parametrize("arguments", ["size=1", "size=9", "max_plies=1", "size='4'"])
def test_what_it_does_not_take_is_refused(arguments):
    with pytest.raises(Refusal, match="allowed: a whole number"):
        games.make(f"2048({arguments})")
