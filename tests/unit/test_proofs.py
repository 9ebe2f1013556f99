"""Results that the search knows: proven by the games that end below, never by the network."""

import numpy as np
import pytest
from helpers import Corridor, Hashed, Table, board, edges_of_root, policy_of, searching, steps, tree_as_dict

from az_mpi import games
from az_mpi.evaluate import solver
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import streams

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
WON_IN_TWO = """
    . . . . . . .
    . . . . . . .
    . . . . . . .
    . . . . . . .
    . . O O . . .
    . . X X . . ."""  # column 2 or 5 makes three with two open ends


@pytest.fixture(scope="module")
def solved():
    """Every 9th position of tic-tac-toe, with what each action is worth."""
    whole = solver.enumerate_all(TICTACTOE)
    return whole.states[::9], whole.action_values[::9]


def test_proven_results_are_the_exact_ones(solved):
    """500 positions, evaluations that look random: 4,000 simulations prove nearly all, each as minimax has it, and
    the policy keeps only best actions."""
    states, action_values = solved
    search, slots = searching(TICTACTOE, Hashed(TICTACTOE), states, simulations=4000)
    search.run(slots)
    known = search.trees.exact[:, 0]
    assert known.mean() > 0.9
    best = np.nanmax(action_values, axis=1)
    assert (search.value(slots)[known] == best[known]).all()
    policy = policy_of(search, slots)
    assert (policy.sum(axis=1) > 0).all()
    assert (action_values[known][policy[known] > 0] == np.repeat(best[known], (policy[known] > 0).sum(axis=1))).all()


def test_few_simulations_prove_less_but_nothing_false(solved):
    states, action_values = solved
    search, slots = searching(TICTACTOE, Hashed(TICTACTOE), states, noise=True, simulations=40)
    search.run(slots)
    known = search.trees.exact[:, 0]
    assert 0.1 < known.mean() < 0.9
    assert (search.value(slots)[known] == np.nanmax(action_values, axis=1)[known]).all()
    assert (search.trees.visits[:, 0] == 41)[~known].all()


def test_connect_four_won_in_two_is_proven_without_knowledge():
    search, slots = searching(CONNECT4, UniformEvaluator(CONNECT4), board(CONNECT4, WON_IN_TWO), simulations=3000)
    search.run(slots)
    assert search.value(slots).tolist() == [1] and search.trees.visits[0, 0] < 2000
    assert set(np.flatnonzero(policy_of(search, slots)[0])) <= {1, 4}


def test_a_move_proven_to_lose_is_tried_no_more_and_not_played():
    """O must take the lower left corner at once: every other move is lost once X's answer has been seen."""
    state = board(
        TICTACTOE,
        """
        X . .
        X O .
        . . .""",
    )
    search, slots = searching(TICTACTOE, UniformEvaluator(TICTACTOE), state, simulations=120)
    steps(search, slots, 40)
    _, before, _ = edges_of_root(search)
    before = before.copy()
    tree = tree_as_dict(search.trees, 0)
    lost = [k for k, edge in enumerate(tree["edges"].values()) if edge[3] and edge[3]["exact"] == 1]
    assert len(lost) >= 3 and not search.trees.exact[0, 0]
    steps(search, slots, 10)
    _, after, _ = edges_of_root(search)
    assert (after[lost] == before[lost]).all() and after.sum() == before.sum() + 10
    assert not policy_of(search, slots)[0, np.array(list(tree["edges"]))[lost]].any()
    assert search.choose(slots, np.zeros(1)).tolist() == [6]


def test_lost_positions_keep_the_moves_that_held_longest():
    """Whatever O plays, X has a fork; blocking holds longest and was tried most before everything was known."""
    state = board(
        TICTACTOE,
        """
        X . .
        O X .
        . . .""",
    )
    search, slots = searching(TICTACTOE, UniformEvaluator(TICTACTOE), state, simulations=5000)
    search.run(slots)
    assert search.value(slots).tolist() == [-1] and search.choose(slots, np.zeros(1)).tolist() == [8]


def test_a_known_root_takes_no_evaluation():
    asked = []

    class Asking(UniformEvaluator):
        def __call__(self, states):
            asked.append(len(states))
            return super().__call__(states)

    search, slots = searching(
        TICTACTOE,
        Asking(TICTACTOE),
        board(
            TICTACTOE,
            """
        X X .
        O O .
        . . .""",
        ),
        simulations=400,
    )
    search.run(slots)
    before = len(asked), int(search.trees.visits[0, 0]), search.trees.value_sum[0, 0]
    steps(search, slots, 5)
    assert len(asked) == before[0] and search.trees.visits[0, 0] == before[1] + 5
    assert search.trees.value_sum[0, 0] == before[2] + 5


class Doors(Corridor):
    """Who opens the first of four doors loses. The others lead on."""

    name, num_actions = "doors", 4
    symmetry_actions = np.arange(4, dtype=np.int32)[None]

    def play(self, states, actions):
        cells = np.where(actions == 0, 0, 2)
        return np.stack([cells, 1 - self.to_play(states)], axis=1).astype(np.uint64)

    def legal(self, states):
        return np.ones((len(states), 4), bool)


@pytest.mark.parametrize("noise", [False, True])
def test_a_search_that_has_tried_proven_losses_alone_plays_the_other_moves_by_their_priors(noise):
    game = Doors()
    evaluate = Table(game, {(2, 0): ([0.5, 0.1, 0.3, 0.1], 0.0)})
    settings = {"algorithm": "puct", "simulations": 1, "dirichlet_fraction": 0.0, "forced_playouts": 2.0}
    words = streams.keyed(1, np.arange(400, dtype=np.uint64))
    search, slots = searching(game, evaluate, np.repeat(game.initial(1), 400, axis=0), noise, words, **settings)
    search.run(slots)
    assert (search.trees.edge_visits[:, :4] == [1, 0, 0, 0]).all()
    assert search.trees.edge_exact[:, 0].all() and not search.trees.exact[:, 0].any()
    assert np.abs(policy_of(search, slots) - [0, 0.2, 0.6, 0.2]).max() < 1e-6
    assert (search.choose(slots, np.zeros(400)) == 2).all()
    drawn = np.bincount(search.choose(slots, np.ones(400)), minlength=4)
    assert drawn[0] == 0 and (drawn[1:] > [40, 190, 40]).all()  # expected: 80, 240, 80


def test_a_root_that_no_simulation_has_left_has_no_visits_that_count():
    search, slots = searching(TICTACTOE, UniformEvaluator(TICTACTOE), TICTACTOE.initial(1), algorithm="puct")
    search.step(slots)
    assert not policy_of(search, slots).any()
