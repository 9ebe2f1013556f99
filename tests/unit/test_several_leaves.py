"""Several leaves of one tree at a time, for a game that is searched deeply."""

import numpy as np
import pytest
from helpers import Hashed, board, check_tree, loaded_player, positions, searching, tree_as_dict, visits_of

from az_mpi import games
from az_mpi.evaluate import solver
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session
from az_mpi.search import simulation, tree

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
BOTH = pytest.mark.parametrize("algorithm", ["puct", "gumbel"])


class Batches(Hashed):
    """Keeps the sizes of the batches that it is asked for."""

    def __init__(self, game):
        super().__init__(game)
        self.sizes = []

    def __call__(self, states):
        self.sizes.append(len(states))
        return super().__call__(states)


@BOTH
@pytest.mark.parametrize("game, simulations", [(TICTACTOE, 60), (CONNECT4, 150)], ids=["tictactoe", "connect4"])
def test_trees_stay_sound_through_a_game(game, simulations, algorithm):
    evaluate, state = Batches(game), game.initial(1)
    search, slots = searching(game, evaluate, state, simulations=1000, algorithm=algorithm)
    while not game.terminal(state)[0][0]:
        search.target[:] = simulations  # there is room for more
        while not search.done(slots)[0]:
            search.step_several(0, 8)
        check_tree(game, search.trees, 0, state[0])
        visits = visits_of(search, slots).sum()
        assert search.trees.exact[0, 0] or simulations <= visits < simulations + 8
        action = search.choose(slots, np.zeros(1))
        search.advance(slots, action)
        state = game.play(state, action)
    assert max(evaluate.sizes) == 8 and np.mean(evaluate.sizes) > 3


@pytest.mark.parametrize("m, simulations, visits", [(16, 32, [4] * 4 + [2] * 4 + [1] * 8), (4, 8, [3, 3, 1, 1])])
def test_halving_gives_the_same_visits_with_several_leaves(m, simulations, visits):
    """All moves are alike, and no two descents of a batch meet: test_gumbel.py has these visits by hand."""
    game = games.make("mnk(m=4,n=4,k=4)")
    search, slots = searching(
        game, UniformEvaluator(game), game.initial(1), simulations=40, algorithm="gumbel", gumbel_actions=m
    )
    search.target[:] = simulations
    search.step(slots)
    while not search.done(slots)[0]:
        search.step_several(0, min(8, simulations + 1 - search.trees.visits[0, 0]))
    assert visits_of(search, slots)[0].tolist() == visits + [0] * (16 - len(visits))


def test_gumbel_chooses_one_of_its_most_visited_actions_however_many_leaves_it_takes():
    """Descents that meet are taken back; they must not end the round."""
    for state in positions(20, CONNECT4):
        search, slots = searching(CONNECT4, Hashed(CONNECT4), state[None], simulations=200, algorithm="gumbel")
        search.target[:] = 64
        while not search.done(slots)[0]:
            search.step_several(0, 16)
        visits = visits_of(search, slots)[0]
        assert search.trees.exact[0, 0] or visits[search.choose(slots, np.zeros(1))[0]] == visits.max()


@BOTH
def test_one_leaf_at_a_time_is_the_plain_search(algorithm):
    found = []
    for step in (lambda search: search.step_several(0, 1), lambda search: search.step(np.arange(1))):
        search, _ = searching(CONNECT4, Hashed(CONNECT4), CONNECT4.initial(1), simulations=100, algorithm=algorithm)
        for _ in range(100):
            step(search)
        found.append(tree_as_dict(search.trees, 0))
    assert found[0] == found[1]


@BOTH
def test_choosing_leaves_leaves_the_tree_as_it_was(algorithm):
    search, slots = searching(CONNECT4, Hashed(CONNECT4), CONNECT4.initial(1), simulations=400, algorithm=algorithm)
    for _ in range(50):
        search.step(slots)
    before = tree_as_dict(search.trees, 0)
    nodes, actions, states, _ = simulation.select_several(
        tree.in_bytes(search.trees), 0, 16, search.rule, search.root_noise, 2
    )
    assert tree_as_dict(search.trees, 0) == before and 4 < len(nodes) <= 16
    assert len(set(zip(nodes.tolist(), actions.tolist()))) == len(nodes)
    assert (states.view(search.game.state_dtype) == search.trees.state[0, nodes]).all()


@BOTH
def test_proven_results_are_the_exact_ones(algorithm):
    """Every 97th position of tic-tac-toe, as minimax has it."""
    whole = solver.enumerate_all(TICTACTOE)
    proven = 0
    for state, values in zip(whole.states[::97], whole.action_values[::97]):
        search, slots = searching(TICTACTOE, Hashed(TICTACTOE), state[None], simulations=3000, algorithm=algorithm)
        for _ in range(150):
            search.step_several(0, 8)
        check_tree(TICTACTOE, search.trees, 0, state)
        if search.trees.exact[0, 0]:
            proven += 1
            assert search.value(slots)[0] == np.nanmax(values)
            assert values[search.choose(slots, np.zeros(1))[0]] == np.nanmax(values)
    assert proven > 25


def test_a_tree_grows_where_there_is_no_room_for_the_edges_of_all_leaves():
    search, _ = searching(CONNECT4, Hashed(CONNECT4), CONNECT4.initial(1), simulations=300)
    search.trees = search.trees._replace(edge=search.trees.edge[:, :40].copy())
    while search.trees.visits[0, 0] < 250:
        search.step_several(0, 16)
    assert check_tree(CONNECT4, search.trees, 0, CONNECT4.initial(1)[0]) > 200


def test_a_session_with_several_leaves_keeps_to_its_limit_and_asks_for_larger_batches():
    batches = []
    player = loaded_player("connect4", lambda: batches.append(1))
    session = Session(player, leaves_max=16, cache_bytes=2**20)
    session.think(Limit(simulations=400))
    assert session.simulations in range(400, 402) and len(batches) < 120
    session.play(session.best())
    kept = session.simulations
    assert kept > 10
    session.think(Limit(simulations=400))
    assert session.simulations in range(400, 402)


def test_a_session_with_several_leaves_finds_the_winning_move():
    session = Session(loaded_player("connect4"), leaves_max=16)
    for action in (0, 1) * 3:
        session.play(action)
    session.think(Limit(simulations=300))
    assert (
        session.value == 1
        and (session.game.terminal(session.game.play(session.state[None], np.array([session.best()])))[0]).all()
    )
    assert (
        board(
            CONNECT4,
            """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        X O . . . . .
        X O . . . . .
        X O . . . . .""",
        ).tolist()
        == session.state[None].tolist()
    )
