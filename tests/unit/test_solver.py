"""Exact values against known counts, drawn boards and each other; shares of optimal moves against their definition."""

from dataclasses import dataclass

import numpy as np
import pytest

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.evaluate import solver
from az_mpi.evaluate.opponents import SearchPlayer
from az_mpi.evaluate.optimal import optimal_share
from az_mpi.games.base import Game
from az_mpi.network.evaluators import UniformEvaluator

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")


@pytest.fixture(scope="module")
def whole():
    return solver.enumerate_all(TICTACTOE)


@pytest.fixture(scope="module")
def connect4():
    pytest.importorskip("bitbully")
    return solver.of_game(CONNECT4).share(60, 0, 1)


def worth(solved, state):
    """What each action is worth in one solved state, [A]."""
    return solved.action_values[(solved.states == state).all(axis=1)][0]


def drawn(board):
    """The tic-tac-toe state of a drawing for the player to move, X who began or O."""
    cells = np.array(board.split())
    stones = [int(sum(1 << i for i in np.flatnonzero(cells == mark))) for mark in "XO"]
    return np.array(stones if (cells == "X").sum() == (cells == "O").sum() else stones[::-1], np.uint16)


def dropped(columns):
    """The Connect Four state after stones in these columns, counted from 1."""
    state = CONNECT4.initial(1)
    for column in columns:
        state = CONNECT4.play(state, np.array([int(column) - 1]))
    return state


def test_tictactoe_counts(whole):
    """5,478 positions: 4,520 in play; 626 won by X, 316 by O, 16 drawn."""
    assert len(whole.states) == 4520
    rows, actions = np.nonzero(whole.legal)
    after = np.unique(TICTACTOE.play(whole.states[rows], actions), axis=0)
    ended, value = TICTACTOE.terminal(after)
    assert len(after) == 5478 - 1  # all but the empty board
    lost_by_o = ended & (value < 0) & (TICTACTOE.to_play(after) == 1)
    lost_by_x = ended & (value < 0) & (TICTACTOE.to_play(after) == 0)
    assert (lost_by_o.sum(), lost_by_x.sum(), (ended & (value == 0)).sum()) == (626, 316, 16)


def test_tictactoe_is_a_draw(whole):
    assert worth(whole, drawn(". . . . . . . . .")).tolist() == [0] * 9


@pytest.mark.parametrize(
    "board, values",
    [
        # In the centre X is answered by corners only, in a corner by the centre only.
        (". . .  . X .  . . .", "0 - 0  - n -  0 - 0"),
        ("X . .  . . .  . . .", "n - -  - 0 -  - - -"),
        # X wins at once, or parries and draws, or loses to O's line.
        ("X X .  O O .  . . .", "n n +  n n 0  - - -"),
        # O is lost: two lines threaten.
        ("X . X  . O .  X . O", "n - n  - n -  n - n"),
        # One cell is left.
        ("X O X  X O O  O X .", "n n n  n n n  n n 0"),
    ],
)
def test_tictactoe_drawn_positions(whole, board, values):
    expected = [{"n": np.nan, "-": -1, "0": 0, "+": 1}[mark] for mark in values.split()]
    assert np.array_equal(worth(whole, drawn(board)), expected, equal_nan=True)


def test_value_is_that_of_the_best_move(whole):
    assert (np.isnan(whole.action_values) == ~whole.legal).all()
    for i in range(0, len(whole.states), 50):
        best = max(v for v, legal in zip(whole.action_values[i], whole.legal[i]) if legal)
        assert whole.values[i] == best
        assert (whole.keeps[i] == (whole.action_values[i] == best)).all()


def test_the_solver_asks_the_game_who_moves_next():
    """Take one or two of five stones, and move again after taking one: who takes the last wins. Worked out by hand:
    with one or two left the mover wins; with n > 2 it takes one and moves again."""

    class Stones(Game):
        num_actions, state_size, state_dtype, max_plies = 2, 2, np.dtype(np.int8), 5

        def initial(self, n):
            return np.tile(np.array([5, 0], np.int8), (n, 1))

        def legal(self, states):
            return states[:, :1] >= [1, 2]

        def play(self, states, actions):
            left = states[:, 0] - actions - 1
            # At the end the loser is to move, as terminal says.
            moves_on = (actions == 1) | (left == 0)
            return np.stack([left, states[:, 1] ^ moves_on], axis=1).astype(np.int8)

        def terminal(self, states):
            ended = states[:, 0] == 0
            return ended, np.where(ended, -1, 0).astype(np.float32)

        def to_play(self, states):
            return states[:, 1]

        def planes(self, states):
            raise NotImplementedError

        def show(self, state):
            raise NotImplementedError

    solved = solver.enumerate_all(Stones())
    for state, values in zip(solved.states, solved.action_values):
        # Taking two hands the move over, to a mover who wins, unless they were the last two.
        two = np.nan if state[0] == 1 else 1 if state[0] == 2 else -1
        assert np.array_equal(values, [1, two], equal_nan=True), state
    assert set(solved.states[:, 0].tolist()) == {1, 2, 3, 4, 5}


# Connect Four


def test_connect4_opening_moves():
    """Allis 1988: the centre wins, its neighbours draw, the others lose."""
    pytest.importorskip("bitbully")
    assert solver.solve_connect4(CONNECT4, dropped("")).action_values.tolist() == [[-1, -1, 0, 1, 0, -1, -1]]


def test_connect4_drawn_positions():
    pytest.importorskip("bitbully")
    # X has three in column 4 and O three in column 1, X to move: it wins at once; who neither wins nor parries loses.
    race = solver.solve_connect4(CONNECT4, dropped("414141"))
    assert race.action_values[0, 3] == 1 and race.values[0] == 1
    assert (race.action_values[0, [1, 2, 4, 5, 6]] == -1).all()
    # O to move cannot stop three in row 1, open at both ends.
    open_three = solver.solve_connect4(CONNECT4, dropped("33445"))
    assert (open_three.action_values == -1).all()
    # A full column is not legal.
    full = solver.solve_connect4(CONNECT4, dropped("444444"))
    assert np.isnan(full.action_values[0]).tolist() == [False] * 3 + [True] + [False] * 3


def test_connect4_agrees_with_enumeration():
    """Two solvers that share nothing: BitBully, and working back from all ends, at 28 plies and later."""
    pytest.importorskip("bitbully")
    roots = solver.positions(CONNECT4, 20, 5, 28, 28)
    exact = solver.enumerate_all(CONNECT4, roots)
    some = np.random.default_rng(1).permutation(len(exact.states))[:2000]
    assert set(map(bytes, roots)) <= set(map(bytes, exact.states)) and len(np.unique(exact.values)) == 3
    found = solver.solve_connect4(CONNECT4, exact.states[some])
    assert np.array_equal(found.action_values, exact.action_values[some], equal_nan=True)


def test_positions():
    states = solver.positions(CONNECT4, 270, 0, 4, 30)
    assert len(np.unique(states, axis=0)) == 270
    assert (np.bincount(np.bitwise_count(states).sum(axis=1), minlength=31)[4:] == 10).all()
    assert not CONNECT4.terminal(states)[0].any() and (CONNECT4.legal(states).sum(axis=1) >= 2).all()
    assert (states == solver.positions(CONNECT4, 270, 0, 4, 30)).all()
    assert (states != solver.positions(CONNECT4, 270, 1, 4, 30)).any()


def test_positions_stop_where_there_are_no_more():
    """Tic-tac-toe has 9 positions after one move, and after eight none with a choice."""
    assert len(solver.positions(TICTACTOE, 40, 0, 1, 1)) == 9
    assert len(solver.positions(TICTACTOE, 40, 0, 8, 8)) == 0


def test_shares_of_all_ranks_are_the_whole(connect4, whole):
    for game, all_of_it in ((CONNECT4, connect4), (TICTACTOE, whole)):
        parts = [solver.of_game(game).share(60, rank, 4) for rank in range(4)]
        states = np.concatenate([part.states for part in parts])
        assert sorted(map(bytes, states)) == sorted(map(bytes, all_of_it.states))
        values = np.concatenate([part.action_values for part in parts])
        for i in range(0, len(states), 10):
            assert np.array_equal(values[i], worth(all_of_it, states[i]), equal_nan=True)


def test_a_share_is_solved_once_and_heard_before_each_position(monkeypatch):
    """BitBully takes seconds for some positions: a signal waits for one of them at most."""
    pytest.importorskip("bitbully")
    monkeypatch.setattr(solver, "SOLVED", {})
    told = []
    first = solver.of_game(CONNECT4).share(21, 1, 3, lambda *what: told.append(what))
    assert told == [(i, 7) for i in range(7)]
    assert solver.of_game(CONNECT4).share(21, 1, 3, lambda *what: told.append(what)) is first and len(told) == 7


# shares of optimal moves


@dataclass
class Oracle:
    """Searches to the best move (or the worst), and its policy prefers the last legal move."""

    solved: solver.Solved
    sign: int

    def actions(self, game, states, plies):
        values = np.stack([worth(self.solved, state) for state in states])
        return np.nanargmax(self.sign * values, axis=1)

    def evaluate(self, states):
        return np.tile(np.arange(9, dtype=np.float32), (len(states), 1)), np.zeros(len(states), np.float32)


def test_optimal_share_by_definition(world, whole):
    part = whole.part(0, 10)
    expected = {"policy": [], "random": []}
    for values in part.action_values:
        legal = [v for v in values if not np.isnan(v)]
        row = (len(set(legal)) > 1, float(legal[-1] == max(legal)), legal.count(max(legal)) / len(legal))
        expected["policy"].append(row[:2])
        expected["random"].append((row[0], row[2]))
    told = []
    shares = optimal_share(
        world, TICTACTOE, Oracle(whole, 1), part, lambda *what: told.append(what), lambda: told.append("all")
    )
    assert told == [(0, 452), (256, 452), "all"]  # in between a signal is heard
    differ = [row for row in expected["random"] if row[0]]
    assert shares["num_positions"] == 452 and shares["num_positions_differ"] == len(differ)
    assert shares["overall"] == shares["where_moves_differ"] == 1.0
    for name, rows in expected.items():
        assert shares[f"{name}_overall"] == pytest.approx(np.mean([v for _, v in rows]), abs=1e-6)
        assert shares[f"{name}_where_moves_differ"] == pytest.approx(np.mean([v for d, v in rows if d]), abs=1e-6)
    worst = optimal_share(world, TICTACTOE, Oracle(whole, -1), part)
    assert worst["where_moves_differ"] == 0.0
    assert worst["overall"] == pytest.approx(1 - len(differ) / 452, abs=1e-6)


def test_optimal_share_without_positions_that_differ(world, whole):
    """On the empty board every move draws."""
    first = np.flatnonzero((whole.states == 0).all(axis=1))
    one = solver.Solved(whole.states[first], whole.legal[first], whole.action_values[first])
    shares = optimal_share(world, TICTACTOE, Oracle(whole, 1), one)
    assert shares["overall"] == shares["random_overall"] == 1.0 and shares["num_positions"] == 1
    assert shares["num_positions_differ"] == 0 and shares["where_moves_differ"] is None


def test_a_rank_may_have_no_positions(world, whole):
    shares = optimal_share(world, TICTACTOE, Oracle(whole, 1), whole.part(4520, 4521))
    assert shares["num_positions"] == 0 and shares["overall"] is None


def test_search_finds_more_than_chance(world, whole):
    part = whole.part(0, 8)
    player = SearchPlayer(UniformEvaluator(TICTACTOE), models.Search(simulations=200))
    shares = optimal_share(world, TICTACTOE, player, part)
    assert shares["where_moves_differ"] > 0.97 > 0.5 > shares["random_where_moves_differ"]


def test_search_on_connect4(world, connect4):
    player = SearchPlayer(UniformEvaluator(CONNECT4), models.Search(simulations=200))
    shares = optimal_share(world, CONNECT4, player, connect4)
    assert shares["num_positions"] == 60
    assert shares["where_moves_differ"] > shares["random_where_moves_differ"] + 0.2
