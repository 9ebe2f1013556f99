"""The exact solvers of tests, and the games that they solve: a tour of the example, and Pig."""

from itertools import permutations

import numpy as np
import pytest
from kinds import Pig
from solved import shortest_tour, solve_pig

from az_mpi import games
from az_mpi.games import chance
from az_mpi.games.random_games import play_out, random_games

TOUR = "examples/own_puzzle.py:Tour(cities=7, size=6)"


def cities_of(game, state):
    return np.array([divmod(int(cell), game.size) for cell in np.flatnonzero(state[: game.cells])])


def test_the_shortest_tour_is_the_best_of_all_orders():
    rng = np.random.default_rng(0)
    for _ in range(4):
        points = rng.integers(0, 9, (7, 2))
        lengths = []
        for order in permutations(range(1, 7)):
            tour = points[[0, *order, 0]]
            lengths.append(np.sqrt((np.diff(tour, axis=0) ** 2).sum(axis=1)).sum())
        assert shortest_tour(points) == pytest.approx(min(lengths))


def test_the_example_of_a_puzzle_has_the_shortest_tour_as_its_best_score():
    game = games.make(TOUR)
    start = next(random_games(game, 1, np.random.default_rng(4)))[0]
    best = -np.inf
    for order in permutations(np.flatnonzero(start[0, : game.cells] == 1).tolist()):
        states = start
        for cell in order:
            assert not game.terminal(states)[0][0]
            states = game.play(states, np.array([cell]))
        ended, value = game.terminal(states)
        score = float(game.score(states)[0])
        assert ended[0] and value[0] == pytest.approx(max(1 + score / (0.3 * 7 * 6), -1), abs=1e-6)
        best = max(best, score)
    assert -best == pytest.approx(shortest_tour(cities_of(game, start[0])), abs=0.004)  # lengths are in thousandths


def test_each_game_of_the_puzzle_is_another_instance_and_cities_are_drawn_alike():
    game = games.make(TOUR)
    starts = next(random_games(game, 2000, np.random.default_rng(1)))[0]
    assert len(np.unique(starts[:, : game.cells] > 0, axis=0)) > 1990
    shares = (starts[:, : game.cells] > 0).mean(axis=0)
    assert abs(shares - 7 / 36).max() < 0.04 and (starts[:, : game.cells] == 2).sum(axis=1).tolist() == [1] * 2000
    assert games.check(games.make("examples/own_puzzle.py:Tour(cities=5, size=4)"), 16) == []


def test_the_example_of_a_puzzle_is_drawn_with_its_tour():
    game = games.make("examples/own_puzzle.py:Tour(cities=3, size=3)")
    states = game.initial(1)
    for cell in (8, 2, 0):
        assert chance.due(game, states)[0]
        states = game.play(states, np.array([cell]))
    assert game.show(states[0]) == "O . X\n. . .\n. . X" and game.board(states[0]).strokes == ()
    states = game.play(game.play(states, np.array([2])), np.array([8]))
    assert game.show(states[0]) == "O . O\n. . .\n. . O"
    assert game.board(states[0]).strokes == ((0, 0, 0, 2), (0, 2, 2, 2))
    assert game.score(states)[0] == pytest.approx(-(4 + 8**0.5), abs=0.002)


@pytest.mark.process
def test_pig_is_solved_as_in_the_literature():
    """At 100 points the player who begins wins 53.06 % of the games (Neller and Presser 2004)."""
    wins, _ = solve_pig(100, within=1e-7)
    assert wins[0, 0, 0] == pytest.approx(0.5306, abs=1e-4)


def test_games_of_pig_by_the_solution_end_as_it_says():
    """Both players of 4,000 games follow the solution."""
    game, rng = Pig(), np.random.default_rng(0)
    wins, hold = solve_pig(game.goal)
    states, won = game.initial(4000), 0
    while len(states):
        due = chance.due(game, states)
        actions = hold[tuple(_seen(states[~due]).T)].astype(np.int64)
        played = np.empty(len(states), np.int64)
        played[~due] = actions
        if due.any():
            played[due] = chance.draw(game, states[due], rng.random(int(due.sum())))
        states = game.play(states, played)
        ended, value = game.terminal(states)
        first = np.where(game.to_play(states) == 0, value, -value)
        won += int((first[ended] > 0).sum())
        states = states[~ended]
    assert abs(won / 4000 - wins[0, 0, 0]) < 0.03


def _seen(states):
    """Return (own points, the other's, the turn's total) of states of Pig, [n, 3]."""
    player, rows = states[:, 3] >> 1, np.arange(len(states))
    return np.stack([states[rows, player], states[rows, 1 - player], states[:, 2]], axis=1)


def test_random_play_of_pig_is_worth_less_than_the_solution_says():
    game = Pig()
    value, _ = play_out(game, game.initial(2000), np.random.default_rng(0))
    assert value.mean() / 2 + 0.5 < solve_pig(game.goal)[0][0, 0, 0] + 0.05
