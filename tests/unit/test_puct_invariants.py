"""What always holds of search trees: through whole games, in batches, with and without reuse."""

import numpy as np
import pytest
from helpers import Hashed, Table, Ways, after, board, check_tree, searching, steps, tree_as_dict, visits_of

from az_mpi import games
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import streams

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
FLAT = {"c_puct": 1.0, "c_puct_base": 1e12}  # C(s) = 1


# what always holds


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("game, simulations", [(TICTACTOE, 40), (CONNECT4, 60), (Ways(9, twice=True), 25)])
def test_trees_stay_sound_through_whole_games_with_reuse(game, simulations, noise):
    """24 games to their ends: after each search and each move, every tree is checked node by node."""
    rng = np.random.default_rng(1)
    states = game.initial(24)
    search, slots = searching(game, Hashed(game), states, noise, simulations=simulations)
    live, reused = slots, 0
    while len(live):
        search.run(live)
        visits = visits_of(search, live)
        known = search.trees.exact[live, 0]
        assert ((visits.sum(axis=1) == simulations) | known & (visits.sum(axis=1) <= simulations)).all()
        assert not (visits * ~game.legal(states[live])).any()
        for b in live:
            assert check_tree(game, search.trees, b, states[b]) <= simulations + 1
        # Half of the games continue with a searched move, the others with any.
        actions = search.choose(live, np.ones(len(live)))
        other = np.argmax(rng.random(visits.shape) * game.legal(states[live]), axis=1)
        actions = np.where(live % 2, actions, other)
        states[live] = game.play(states[live], actions)
        search.advance(live, actions)
        for b in live:
            check_tree(game, search.trees, b, states[b])
            kept = visits[live == b, actions[live == b]][0]
            assert search.trees.visits[b, 0] == kept
            reused += int(kept)
        live = live[~game.terminal(states[live])[0]]
    assert reused > 100


def test_capacity_is_just_enough_for_a_chain_of_new_nodes():
    """Every simulation adds a node, one below the other, to the longest game's end."""
    game = Ways(12)
    table = {(ply, 0): ([1, 0], 0.0) for ply in range(12)}
    search, slots = searching(game, Table(game, table), np.repeat(game.initial(1), 2, axis=0), simulations=12)
    steps(search, slots[:1], 13)
    trees = search.trees
    assert trees.nodes_used.tolist() == [13, 1] and trees.path_length[0] == 12
    assert trees.path.shape[1] >= 12 and trees.state.shape[1] >= 13 and trees.edge_prior.shape[1] >= 26
    assert trees.state[0, :13, 0].tolist() == list(range(13)) and trees.ended[0, 12]
    assert check_tree(game, trees, 1, game.initial(1)[0]) == 1


@pytest.mark.parametrize("game", [TICTACTOE, CONNECT4], ids=lambda game: game.name)
@pytest.mark.parametrize("noise", [False, True])
def test_many_trees_at_once_are_the_trees_one_by_one(game, noise):
    """Also through moves, in another order of the slots."""
    starts = np.concatenate([after(game, moves) for moves in ([], [0], [4, 3], [2, 4, 1], [6, 5, 1, 3])])
    words = streams.keyed(3, np.arange(5, dtype=np.uint64))
    together, slots = searching(game, Hashed(game), starts, noise, words, simulations=50)
    order = np.array([3, 0, 4, 1, 2])
    temperature = np.array([1.0, 0.0, 0.5, 1.0, 2.0])
    moved = []
    for _ in range(3):
        together.run(order)
        moved.append(together.choose(order, temperature[order])[np.argsort(order)])
        together.advance(order, moved[-1][order])
    for k in slots:
        alone, one = searching(game, Hashed(game), starts[[k]], noise, words[[k]], simulations=50)
        for actions in moved:
            alone.run(one)
            assert alone.choose(one, temperature[[k]]).tolist() == [actions[k]]
            alone.advance(one, actions[[k]])
        assert tree_as_dict(alone.trees, 0) == tree_as_dict(together.trees, k)


def test_a_stopped_slot_is_left_as_it_is():
    search, slots = searching(TICTACTOE, Hashed(TICTACTOE), TICTACTOE.initial(3), True, simulations=30)
    steps(search, slots, 10)
    before = [tree_as_dict(search.trees, b) for b in slots], search.streams.tolist()
    steps(search, np.array([1]), 5)
    search.advance(np.array([1]), np.array([4]))
    for b in (0, 2):
        assert tree_as_dict(search.trees, b) == before[0][b] and search.streams[b] == before[1][b]


# advance


def test_advance_with_reuse_keeps_the_subtree_with_its_statistics():
    search, slots = searching(CONNECT4, Hashed(CONNECT4), CONNECT4.initial(1), simulations=200)
    search.run(slots)
    root = tree_as_dict(search.trees, 0)
    action = int(search.choose(slots, np.zeros(1))[0])
    search.advance(slots, np.array([action]))
    assert tree_as_dict(search.trees, 0) == root["edges"][action][3]
    carried = root["edges"][action][1]
    assert search.trees.visits[0, 0] == carried and 1 < carried < 200
    search.run(slots)
    assert visits_of(search, slots).sum() == 200  # not 200 more


@pytest.mark.parametrize("reuse, action", [(False, 4), (True, 8)])
def test_advance_starts_a_new_tree_without_reuse_or_where_nothing_was_searched(reuse, action):
    """Cell 8 has prior 0 and is not visited: its node is new, its state the game's, also after more simulations."""
    start = TICTACTOE.initial(1)
    table = {(0, 0): ([1, 1, 1, 1, 1, 1, 1, 1, 0], 0.0)}
    search, slots = searching(TICTACTOE, Table(TICTACTOE, table), start, simulations=60, reuse_tree=reuse)
    search.run(slots)
    assert (visits_of(search, slots)[0] > 0).tolist() == [True] * 8 + [False]
    search.advance(slots, np.array([action]))
    state = TICTACTOE.play(start, np.array([action]))
    assert search.trees.visits[0, 0] == 0 and search.trees.nodes_used[0] == 1 and search.trees.edges_used[0] == 0
    assert (search.trees.state[0, 0] == state[0]).all() and search.trees.player[0, 0] == 1
    search.run(slots)
    fresh, _ = searching(TICTACTOE, Table(TICTACTOE, table), state, simulations=60)
    fresh.run(slots)
    assert tree_as_dict(search.trees, 0) == tree_as_dict(fresh.trees, 0)


def test_advance_into_the_end_of_the_game():
    state = board(
        TICTACTOE,
        """
        X X .
        O O .
        . . .""",
    )
    for reuse in (True, False):
        search, slots = searching(TICTACTOE, UniformEvaluator(TICTACTOE), state, True, simulations=50, reuse_tree=reuse)
        search.run(slots)
        search.advance(slots, np.array([2]))
        assert search.trees.ended[0, 0] and search.trees.edge_count[0, 0] == 0
        search.run(slots)
        assert search.value(slots).tolist() == [-1]
