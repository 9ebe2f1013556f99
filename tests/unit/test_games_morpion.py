"""Morpion solitaire: moves as an implementation of sets of points and lines has them, counts by hand, drawings."""

import numpy as np
import pytest

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.random_games import random_games

NAMES = pytest.mark.parametrize("name", ["morpion", "morpion(variant='5T')"])
STEPS = (0, 1), (1, 0), (1, 1), (1, -1)


def cross(size):
    """Return the 36 points at the start, as (row, column): a Greek cross with sides of four points."""
    begin, points = (size - 10) // 2, set()
    corners = [(0, 3), (0, 6), (3, 6), (3, 9), (6, 9), (6, 6), (9, 6), (9, 3), (6, 3), (6, 0), (3, 0), (3, 3)]
    for (r, c), (to_r, to_c) in zip(corners, corners[1:] + corners[:1]):
        for k in range(4):
            points.add((begin + r + k * (to_r - r) // 3, begin + c + k * (to_c - c) // 3))
    return points


def lines(points, drawn, size, touching):
    """Return the legal actions. drawn: the lines so far, each (its direction, its five points)."""
    found = set()
    for d, (down, right) in enumerate(STEPS):
        for r in range(size):
            for c in range(size):
                five = [(r + k * down, c + k * right) for k in range(5)]
                if not all(0 <= x < size and 0 <= y < size for x, y in five):
                    continue
                if sum(point in points for point in five) != 4:
                    continue
                shared = [len(set(five) & set(other)) for direction, other in drawn if direction == d]
                if all(num <= (1 if touching else 0) for num in shared):
                    found.add(4 * (five[2][0] * size + five[2][1]) + d)
    return found


@NAMES
def test_random_games_follow_the_rules_of_sets(name):
    game, rng = games.make(name), np.random.default_rng(1)
    state, points, drawn = game.initial(1), cross(game.size), []
    assert {tuple(divmod(int(cell), game.size)) for cell in np.flatnonzero(state[0, :-2])} == points
    while True:
        legal = set(np.flatnonzero(game.legal(state)[0]).tolist())
        assert legal == lines(points, drawn, game.size, game.touching)
        ended, value = game.terminal(state)
        assert ended[0] == (not legal) and game.score(state)[0] == len(drawn)
        assert value[0] == pytest.approx(len(drawn) / (100 if game.touching else 50) - 1)
        if not legal:
            break
        action = int(rng.choice(sorted(legal)))
        (row, column), d = divmod(action // 4, game.size), action % 4
        five = [(row + k * STEPS[d][0], column + k * STEPS[d][1]) for k in range(-2, 3)]
        points |= set(five)
        drawn.append((d, five))
        state = game.play(state, np.array([action]))
    assert len(drawn) >= 20 and len(points) == 36 + len(drawn)
    _check_strokes(game, state[0], drawn)


def _check_strokes(game, state, drawn):
    """The lines that are drawn are those of the game; in 5T they are drawn from point to point."""
    ends = [(*five[0], *five[-1]) for _, five in drawn]
    if game.touching:
        ends = [(*one, *other) for _, five in drawn for one, other in zip(five, five[1:])]
    assert sorted(game.board(state).strokes) == sorted(ends)


@NAMES
def test_there_are_28_moves_at_the_start_and_half_as_many_up_to_the_half_turn(name):
    """Each of the 12 sides of four points is lengthened at either end, and there are four more lines that go over a gap
    of the cross."""
    game = games.make(name)
    state = game.initial(1)
    legal = game.legal(state)[0]
    assert legal.sum() == 28
    assert len({game.canonical_key(game.play(state, np.array([a])))[0][0] for a in np.flatnonzero(legal)}) == 14


def test_lines_of_5t_may_touch_and_those_of_5d_may_not():
    """After a line to the right along the top of the cross, one that begins where it ends needs four more points."""
    for name, legal in (("morpion", False), ("morpion(variant='5T')", True)):
        game = games.make(name)
        state, top = game.initial(1), (game.size - 10) // 2
        first = 4 * (top * game.size + top + 4)  # columns 2 to 6 of the cross's top row
        state = game.play(state, np.array([first]))
        state[0, top * game.size + top + 7 : top * game.size + top + 10] |= 16
        second = 4 * (top * game.size + top + 8)  # columns 6 to 10
        assert game.legal(state)[0, second] == legal
        state[0, top * game.size + top + 10] |= 16
        assert game.legal(state)[0, second + 4]  # columns 7 to 11 have no point of the first line


@NAMES
def test_the_check_accepts_it(name):
    assert games.check(games.make(name), 4) == []


def test_moves_are_written_as_the_new_point_with_the_direction_and_the_middle_of_the_line():
    game = games.make("morpion")
    state = game.initial(1)[0]
    top = (game.size - 10) // 2
    cell = top * game.size + top
    words = {game.action_to_text(state, action) for action in np.flatnonzero(game.legal(state[None])[0])}
    assert len(words) == 28 and {"i7-+2", "n7--2", "j6|+2", "j11|-2"} <= words
    assert game.action_to_text(state, 4 * (cell + 4)) == "i7-+2"  # columns 2 to 6 of the top row: the new one is 2
    assert game.text_to_action(state, "i7-+2") == 4 * (cell + 4)


def test_a_drawing_has_points_names_and_lines():
    game = games.make("morpion(size=12)")
    state = game.play(game.initial(1), np.array([game.text_to_action(game.initial(1)[0], "d2-+2")]))[0]
    board = game.board(state)
    assert game.show(state).splitlines()[:3] == [
        ". . . . . . . . . . . .",
        ". . . X X X X X . . . .",
        ". . . . X . . X . . . .",
    ]
    assert board.strokes == ((1, 3, 1, 7),) and board.beside == "1 moves"
    assert (board.players == 0).sum() == 37


def test_games_of_random_moves_do_not_reach_the_edge():
    game, seen = games.make("morpion"), 0
    for states, _ in random_games(game, 30, np.random.default_rng(0)):
        boards = states[:, :-2].reshape(-1, game.size, game.size)
        assert not (boards[:, [0, -1]].any() or boards[:, :, [0, -1]].any())
        seen += len(states)
    assert seen > 30 * 20


@pytest.mark.parametrize(
    "arguments, said", [("variant='4D'", "allowed: 5D, 5T"), ("size=11", "from 12 to 50"), ("size=51", "size is 51")]
)
def test_what_it_does_not_take_is_refused(arguments, said):
    with pytest.raises(Refusal, match=said):
        games.make(f"morpion({arguments})")
