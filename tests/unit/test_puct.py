"""The search: simulations computed by hand, a second search on objects, forced wins, and what always holds of trees."""

import math

import numpy as np
import pytest
from helpers import (
    Hashed,
    Table,
    Ways,
    after,
    board,
    edges_of_root,
    policy_of,
    searching,
    steps,
    tree_as_dict,
    visits_of,
)

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search.puct_rule import exploration_table

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
FLAT = {"c_puct": 1.0, "c_puct_base": 1e12}  # C(s) = 1


# the formula, by hand


def test_exploration_table_by_hand():
    """c_init = 1.25 and c_base = 9: at N = 0, 8, 26 the logarithm is that of 10/9, 2, 4; times the root of N."""
    table = exploration_table(models.Search(simulations=30, c_puct=1.25, c_puct_base=9.0))
    assert len(table) >= 31 + 1
    assert table[0] == 0
    assert table[8] == pytest.approx((math.log(2) + 1.25) * math.sqrt(8), rel=1e-6)
    assert table[26] == pytest.approx((math.log(4) + 1.25) * math.sqrt(26), rel=1e-6)


# Root: priors 3/4 and 1/4, value 0.2; the state after the left move is worth 0.6 to the other player.
BY_HAND = {(0, 0): ([0.75, 0.25], 0.2), (1, 0): ([0.5, 0.5], 0.6), (1, 1): ([0.5, 0.5], -0.4)}


def test_first_simulations_by_hand():
    """Simulation 1 evaluates the root, 2 takes the larger prior. At 3, with N = 2 and V = (0.2 - 0.6) / 2 = -0.2:
    left -0.6 + sqrt(2) 0.75 / 2 = -0.0697; right -0.2 - 0.25 sqrt(0.75) + sqrt(2) 0.25 = -0.0630. Right it is."""
    evaluate = Table(Ways(4), BY_HAND)
    search, slots = searching(Ways(4), evaluate, Ways(4).initial(1), simulations=20, fpu_reduction=0.25, **FLAT)
    steps(search, slots, 3)
    assert evaluate.seen == [(0, 0), (1, 0), (1, 1)]
    _, visits, value_sum = edges_of_root(search)
    assert visits.tolist() == [1, 1] and value_sum == pytest.approx([-0.6, 0.4])
    assert search.value(slots)[0] == pytest.approx((0.2 - 0.6 + 0.4) / 3, abs=1e-7)
    # 4: left -0.6 + sqrt(3) 0.75 / 2 = 0.0495, right 0.4 + sqrt(3) 0.25 / 2 = 0.6165.
    steps(search, slots, 1)
    assert evaluate.seen[-1][0] == 2 and evaluate.seen[-1][1] in (2, 3)
    assert visits_of(search, slots).tolist() == [[1, 2]]


def test_larger_first_play_urgency_reduction_turns_the_choice():
    """With 0.3 the right move counts -0.2 - 0.3 sqrt(0.75) + 0.3536 = -0.1063, below the left one's -0.0697."""
    evaluate = Table(Ways(4), BY_HAND)
    search, slots = searching(Ways(4), evaluate, Ways(4).initial(1), simulations=20, fpu_reduction=0.3, **FLAT)
    steps(search, slots, 3)
    assert visits_of(search, slots).tolist() == [[2, 0]]
    assert evaluate.seen[-1] == (2, 0)  # of equal priors the first


def test_root_has_no_reduction_with_noise_and_other_nodes_have():
    """With the reduction 2 for self-play the root's third simulation still goes right: Q is not reduced there. Below
    the root it is, so that the left move is taken again before the right one is tried."""
    settings = {"simulations": 20, "fpu_reduction": 2.0, "dirichlet_fraction": 0.0, **FLAT}
    search, slots = searching(Ways(4), Table(Ways(4), BY_HAND), Ways(4).initial(1), noise=True, **settings)
    steps(search, slots, 3)
    assert visits_of(search, slots).tolist() == [[1, 1]]
    evaluate = Table(Ways(4), {(0, 0): ([1 - 1e-6, 1e-6], 0.0)})
    search, slots = searching(Ways(4), evaluate, Ways(4).initial(1), noise=True, **settings)
    steps(search, slots, 4)
    # (1, 0) chose left first; left again: 0 + sqrt(2) / 4 = 0.35; right: 0 - 2 sqrt(0.5) + sqrt(2) / 2 = -0.71.
    assert evaluate.seen == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_one_simulation_takes_the_largest_prior():
    evaluate = Table(Ways(4), {(0, 0): ([0.4, 0.6], 0.0)})
    search, slots = searching(Ways(4), evaluate, Ways(4).initial(1), simulations=1)
    search.run(slots)
    assert visits_of(search, slots).tolist() == [[0, 1]] and search.choose(slots, np.zeros(1)).tolist() == [1]


class Node:
    """A node of `search_on_objects`: what AlphaZero's pseudocode keeps."""

    def __init__(self, state):
        self.state, self.children, self.priors, self.n, self.w = state, {}, None, 0, 0.0
        self.exact = None  # the result for the player to move, where it is known


def search_on_objects(game, evaluate, state, simulations, c_init, c_base, reduction):
    """Return the root after the simulations, by recursion; values are for the player to move at each node."""

    def sign(node, child):
        return 1 if game.to_play(child.state)[0] == game.to_play(node.state)[0] else -1

    def simulate(node):
        ended, value = (part[0] for part in game.terminal(node.state))
        if ended:
            node.exact = float(value)
        if node.exact is not None:
            value = node.exact
        elif node.priors is None:
            logits, value = (part[0] for part in evaluate(node.state))
            legal = np.flatnonzero(game.legal(node.state)[0])
            weights = np.exp(logits[legal].astype(float))
            node.priors = dict(zip(legal.tolist(), weights / weights.sum()))
        else:
            c = math.log((1 + node.n + c_base) / c_base) + c_init
            tried = sum(p for a, p in node.priors.items() if a in node.children)

            def score(a):
                """In two parts: what is proven lost comes after everything else."""
                if child := node.children.get(a):
                    q = (child.w / child.n if child.exact is None else child.exact) * sign(node, child)
                else:
                    q = node.w / node.n - reduction * math.sqrt(tried)
                lost = child is not None and child.exact is not None and q == -1
                return not lost, q + c * node.priors[a] * math.sqrt(node.n) / (1 + (child.n if child else 0))

            action = max(node.priors, key=score)
            child = node.children.setdefault(action, Node(game.play(node.state, np.array([action]))))
            value = simulate(child) * sign(node, child)
            known = [c.exact * sign(node, c) for c in node.children.values() if c.exact is not None]
            if 1 in known or len(known) == len(node.priors):
                node.exact = max(known)
        node.n += 1
        node.w += float(value)
        return value

    root = Node(state)
    for _ in range(simulations + 1):
        simulate(root)
    return root


def assert_same_tree(found, node):
    """`found`: as `tree_as_dict` gives it."""
    assert found["state"] == tuple(node.state[0].tolist()) and found["visits"] == node.n
    assert found["value_sum"] == pytest.approx(node.w, abs=1e-9)
    assert found["exact"] == pytest.approx(node.exact, abs=1e-7)
    assert {a for a, edge in found["edges"].items() if edge[3]} == set(node.children)
    for action, child in node.children.items():
        assert_same_tree(found["edges"][action][3], child)


@pytest.mark.parametrize(
    "game, moves",
    [(TICTACTOE, []), (TICTACTOE, [4, 0, 8]), (CONNECT4, [3, 3, 3, 3, 3]), (Ways(5), []), (Ways(7, twice=True), [1])],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_whole_tree_equals_that_of_a_search_on_objects(game, moves):
    """150 simulations with priors and values that look random: every node, visit count and value sum."""
    state = after(game, moves)
    search, slots = searching(
        game, Hashed(game), state, simulations=150, c_puct=1.6, c_puct_base=500.0, fpu_reduction=0.4
    )
    search.run(slots)
    root = search_on_objects(game, Hashed(game), state, 150, 1.6, 500.0, 0.4)
    assert root.n == 151
    assert_same_tree(tree_as_dict(search.trees, 0), root)


# values and their signs


def test_an_immediate_win_is_worth_exactly_1_and_ends_the_search():
    """X wins with c3: once that has been tried, it is all there is to know."""
    state = board(
        TICTACTOE,
        """
        X X .
        O O .
        . . .""",
    )
    search, slots = searching(TICTACTOE, UniformEvaluator(TICTACTOE), state, simulations=400)
    search.run(slots)
    _, visits, value_sum = edges_of_root(search)
    assert value_sum[0] == visits[0] == 1 and visits.sum() < 10
    assert search.value(slots).tolist() == [1] and policy_of(search, slots).tolist() == [[0, 0, 1, 0, 0, 0, 0, 0, 0]]
    assert search.choose(slots, np.ones(1)).tolist() == [2]


def test_an_ended_game_is_not_evaluated():
    """One cell is open and wins."""
    state = board(
        TICTACTOE,
        """
        X O X
        O X O
        O X .""",
    )
    evaluate = Table(TICTACTOE, {})
    search, slots = searching(TICTACTOE, evaluate, state, simulations=10)
    search.run(slots)
    assert evaluate.seen == [tuple(map(int, state[0]))]
    assert visits_of(search, slots).tolist() == [[0] * 8 + [1]] and search.value(slots).tolist() == [1]


def test_search_from_an_ended_game_knows_its_result_and_asks_nothing():
    state = board(
        TICTACTOE,
        """
        X X X
        O O .
        . . .""",
    )
    evaluate = Table(TICTACTOE, {})
    search, slots = searching(TICTACTOE, evaluate, state, noise=True, simulations=5)
    search.run(slots)
    assert evaluate.seen == [] and search.value(slots).tolist() == [-1] and not visits_of(search, slots).any()


MUST_PLAY = {
    "X blocks the column": (
        CONNECT4,
        {2},
        """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O . . . .
        . . O . . . .
        X . O . X . X""",
    ),
    "O blocks the row": (
        CONNECT4,
        {3},
        """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        O . . . . . .
        X X X . . . O""",
    ),
    "X blocks the row": (
        TICTACTOE,
        {8},
        """
        . X .
        X . .
        O O .""",
    ),
    "O blocks the diagonal": (
        TICTACTOE,
        {8},
        """
        X . .
        O X .
        . . .""",
    ),
    "X wins before it blocks": (
        CONNECT4,
        {5},
        """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O . . . .
        X . O . . . .
        O . O X X . X""",
    ),
    "X makes three with two open ends": (
        CONNECT4,
        {1, 4},
        """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O O . . .
        . . X X . . .""",
    ),
}


@pytest.mark.parametrize("game, moves, drawing", MUST_PLAY.values(), ids=MUST_PLAY)
def test_finds_the_move_that_must_be_played_without_any_knowledge(game, moves, drawing):
    """Equal priors and value 0: all it knows are the games that end below."""
    search, slots = searching(game, UniformEvaluator(game), board(game, drawing), simulations=1500)
    search.run(slots)
    assert search.choose(slots, np.zeros(1))[0] in moves


def test_forced_win_and_loss_show_in_the_value():
    """X with three in a row and two open ends has won in either player's view."""
    won = board(
        CONNECT4,
        """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O O . . .
        . . X X X . .""",
    )
    search, slots = searching(CONNECT4, UniformEvaluator(CONNECT4), won, simulations=3000)
    search.run(slots)
    assert search.value(slots)[0] < -0.5  # O is to move
    search, slots = searching(CONNECT4, UniformEvaluator(CONNECT4), CONNECT4.play(won, np.array([6])), simulations=1000)
    search.run(slots)
    assert search.value(slots)[0] > 0.8  # X is
