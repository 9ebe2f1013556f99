"""The arrays that hold search trees, and the kernels that change them."""

import copy

import numpy as np
import pytest
from helpers import Hashed, Ways, callable_by_python, check_tree, searching, tree_as_dict, visits_of

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import reroot, simulation, tree
from az_mpi.search.puct import Search
from az_mpi.search.root import SHARED_FROM
from az_mpi.search.tree import NO_CHILD

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
NONE = np.zeros(2, np.int32)
NO_RESULT = np.zeros(2, np.float32)
# Those that Python calls.
expand, add_node, backup = map(callable_by_python, (tree.expand, tree.add_node, simulation.backup))
note_visit = callable_by_python(tree.note_visit)


def slots(*numbers):
    return np.array(numbers, np.int64)


def one_tree(game=TICTACTOE, nodes=10):
    trees = tree.allocate(game, 1, nodes)
    tree.reset(trees, slots(0), game.initial(1), np.zeros(1, np.int8), np.zeros(1, bool), NO_RESULT[None])
    return trees


def grown(game, simulations, num_trees):
    settings = models.Search(simulations=simulations)
    search = Search(game, Hashed(game), settings, num_trees, noise=False)
    search.reset(np.arange(num_trees), game.initial(num_trees), np.arange(num_trees, dtype=np.uint64))
    search.run(np.arange(num_trees))
    return search


def test_priors_are_the_softmax_of_the_legal_logits():
    """exp of 0, log 2, log 5 is 1, 2, 5: priors 1/8, 2/8, 5/8. The highest logit is illegal."""
    trees = one_tree()
    logits = np.full(9, 50, np.float32)
    legal = np.isin(np.arange(9), (1, 4, 8))
    logits[[1, 4, 8]] = np.log([1, 2, 5])
    expand(trees, 0, 0, logits, legal)
    assert trees.edge_count[0, 0] == 3 and trees.edges_used[0] == 3
    assert trees.edge_action[0, :3].tolist() == [1, 4, 8]
    assert trees.edge_prior[0, :3] == pytest.approx([1 / 8, 2 / 8, 5 / 8], rel=1e-6)
    assert (trees.edge_child[0, :3] == NO_CHILD).all()
    assert not trees.edge_visits[0, :3].any() and not trees.edge_value_sum[0, :3].any()


def test_priors_of_extreme_logits_are_finite():
    trees = one_tree()
    expand(trees, 0, 0, np.array([3e38, 0, -3e38, 3e38, 0, 0, 0, 0, 0], np.float32), np.ones(9, bool))
    assert trees.edge_prior[0, :9].tolist() == [0.5, 0, 0, 0.5, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_an_edge_that_was_visited_keeps_its_action_in_whatever_order_a_rule_takes_edges(seed):
    """And priors stay with their actions."""
    trees, rng = one_tree(), np.random.default_rng(seed)
    expand(trees, 0, 0, np.zeros(9, np.float32), np.ones(9, bool))
    add_node(trees, 0, 0, NONE, 1, False, NO_RESULT)
    expand(trees, 0, 1, rng.random(9).astype(np.float32), np.ones(9, bool))
    edges = trees.edge[0, 9:18]
    priors, visited = dict(zip(edges["edge_action"].tolist(), edges["edge_prior"].tolist())), {}
    for e in rng.permutation(9).tolist():
        edges["edge_visits"][e] = 1
        visited[e] = int(edges["edge_action"][e])
        note_visit(trees, 0, 1, 9 + e)
        assert {place: int(edges["edge_action"][place]) for place in visited} == visited
        assert dict(zip(edges["edge_action"].tolist(), edges["edge_prior"].tolist())) == priors


def chain(players, value):
    """Back up `value` from the last of nodes in a row, whose players are given, and return the trees."""
    game = Ways(len(players) - 1)
    trees = tree.allocate(game, 1, len(players))
    first = np.array(players[:1], np.int8)
    tree.reset(trees, slots(0), np.zeros((1, 2), np.int32), first, np.zeros(1, bool), NO_RESULT[None])
    for depth, player in enumerate(players[1:]):
        expand(trees, 0, depth, np.zeros(2, np.float32), np.ones(2, bool))
        edge = trees.first_edge[0, depth] + 1
        trees.path[0, depth] = edge
        trees.edge_child[0, edge] = add_node(trees, 0, depth, NONE, player, False, NO_RESULT)
    trees.path_length[0] = len(players) - 1
    rule = searching(game, UniformEvaluator(game), game.initial(1))[0].rule
    gains = np.array([value, -value] if players[-1] == 0 else [-value, value], np.float32)
    backup(trees, 0, len(players) - 1, gains, rule)
    return trees


@pytest.mark.parametrize(
    "players, signs",
    [
        ([0, 1, 0, 1], [-1, 1, -1, 1]),
        ([0, 0, 1, 1], [-1, -1, 1, 1]),  # a player who moves twice keeps the sign
        ([1, 0, 0, 1], [1, -1, -1, 1]),
        ([1], [1]),
    ],
)
def test_backup_gives_each_node_the_value_for_its_own_player(players, signs):
    trees = chain(players, 0.75)
    nodes = range(len(players))
    assert [trees.value_sum[0, n] for n in nodes] == [0.75 * sign for sign in signs]
    assert [trees.visits[0, n] for n in nodes] == [1] * len(players)
    # Edges: even numbers were not taken; W(s, a) is for the player who chooses, at the upper end.
    edges = range(2 * (len(players) - 1))
    assert [trees.edge_visits[0, e] for e in edges] == [e % 2 for e in edges]
    assert [trees.edge_value_sum[0, e] for e in edges] == [e % 2 * 0.75 * signs[e // 2] for e in edges]


def test_reset_leaves_nothing_of_the_tree_before():
    search = grown(TICTACTOE, 30, 2)
    states = TICTACTOE.play(TICTACTOE.initial(1), np.array([4]))
    kept = tree_as_dict(search.trees, 0)
    tree.reset(search.trees, slots(1), states, np.ones(1, np.int8), np.zeros(1, bool), NO_RESULT[None])
    assert tree_as_dict(search.trees, 1) == {
        "state": tuple(states[0].tolist()),
        "player": 1,
        "ended": False,
        "exact": None,
        "visits": 0,
        "value_sum": 0.0,
        "edges": {},
    }
    assert search.trees.nodes_used.tolist() == [31, 1] and search.trees.edges_used[1] == 0
    assert search.trees.parent[1, 0] == NO_CHILD
    assert tree_as_dict(search.trees, 0) == kept


def test_child_of_root_finds_searched_moves_only():
    trees = one_tree()
    expand(trees, 0, 0, np.zeros(9, np.float32), np.isin(np.arange(9), (2, 5)))
    trees.edge_child[0, 1] = add_node(trees, 0, 0, np.zeros(2, np.uint16), 1, False, NO_RESULT)
    assert [tree.child_of_root(trees, 0, action) for action in (5, 2, 7)] == [1, NO_CHILD, NO_CHILD]


def room_to_move(trees):
    return np.empty(trees.node.shape[1], np.int32)


@pytest.mark.parametrize("game", [TICTACTOE, CONNECT4, Ways(6), Ways(6, twice=True)], ids=["3", "4", "ways", "twice"])
def test_reroot_keeps_exactly_the_subtree(game):
    """The subtree of each child of the root is kept with its statistics, and nothing else."""
    full = grown(game, 120, 2).trees
    before, first = tree_as_dict(full, 1), tree_as_dict(full, 0)
    searched = [a for a, edge in before["edges"].items() if edge[3] is not None]
    assert len(searched) >= 2
    for action in searched:
        trees = copy.deepcopy(full)
        reroot.reroot(trees, 1, tree.child_of_root(trees, 1, action), room_to_move(trees))
        subtree = before["edges"][action][3]
        assert tree_as_dict(trees, 1) == subtree
        if not subtree["ended"]:
            nodes = check_tree(game, trees, 1, np.array(subtree["state"], game.state_dtype))
            assert trees.nodes_used[1] == nodes == _count(subtree)
        assert tree_as_dict(trees, 0) == first


def _count(node):
    return 1 + sum(_count(edge[3]) for edge in node["edges"].values() if edge[3])


def test_reroot_to_a_grandchild_equals_two_steps():
    one, two = (grown(TICTACTOE, 200, 1).trees for _ in range(2))
    child = tree.child_of_root(one, 0, 4)
    edges = range(one.first_edge[0, child], one.first_edge[0, child] + one.edge_count[0, child])
    most = max(edges, key=lambda e: one.edge_visits[0, e])
    action = one.edge_action[0, most]
    reroot.reroot(one, 0, one.edge_child[0, most], room_to_move(one))
    for a in (4, action):
        reroot.reroot(two, 0, tree.child_of_root(two, 0, a), room_to_move(two))
    assert tree_as_dict(one, 0) == tree_as_dict(two, 0) and one.nodes_used[0] == two.nodes_used[0] > 2


def test_the_size_of_trees_is_that_of_their_arrays():
    """101 nodes with 7 edges each. One edge is int32 + int32 + float32 + int32 + float64."""
    trees = tree.allocate(CONNECT4, 3, 101)
    assert trees.num_bytes == sum(array.nbytes for array in trees)
    assert trees.edge.nbytes == 3 * 101 * 7 * (4 * 4 + 8)


class Opening(Ways):
    """600 actions, of which few are legal: 2 in the first position, 5 more after each move."""

    num_actions, symmetry_actions = 600, np.arange(600, dtype=np.int32)[None]

    def legal(self, states):
        return np.arange(600) < 2 + 5 * states[:, :1]


@pytest.mark.process
@pytest.mark.parametrize("threads", [1, 2])
def test_trees_take_memory_for_legal_moves_and_grow_where_there_are_more(threads):
    """They are sound at all times, and as if there had been room from the beginning."""
    game, found = Opening(30), []
    for room in (0, 600 * 41):
        search = Search(game, Hashed(game), models.Search(simulations=40), 6, noise=True, threads=threads)
        if room:
            search.trees = tree.widened(search.trees, room)
        begun = search.trees.num_bytes
        states = game.initial(6)
        search.reset(np.arange(6), states, np.arange(6, dtype=np.uint64))
        visits = []
        for _ in range(8):
            search.run(np.arange(6))
            assert all(check_tree(game, search.trees, b, states[b]) > 1 for b in range(6))
            visits.append(visits_of(search, np.arange(6)))
            actions = search.choose(np.arange(6), np.ones(6))
            search.advance(np.arange(6), actions)
            states = game.play(states, actions)
        trees = search.trees
        found.append((np.array(visits), [tree_as_dict(trees, b) for b in range(6)], begun, trees.num_bytes))
    assert (found[0][0] == found[1][0]).all() and found[0][1] == found[1][1]
    assert found[0][2] < found[0][3] < 0.15 * found[1][3] and found[1][2] == found[1][3]


def test_many_trees_advance_alike_in_one_thread_and_in_three():
    num, found = SHARED_FROM + 6, []
    states = CONNECT4.initial(num)
    for ply in range(3):
        states = CONNECT4.play(states, np.arange(num) // 7**ply % 7)
    for threads in (1, 3):
        search = Search(CONNECT4, Hashed(CONNECT4), models.Search(simulations=9), num, noise=False, threads=threads)
        search.reset(np.arange(num), states, np.arange(num, dtype=np.uint64), 3)
        search.run(np.arange(num))
        before = visits_of(search, np.arange(num))
        actions = np.arange(num) % 7
        search.advance(np.arange(num), actions)
        found.append([tree_as_dict(search.trees, b) for b in range(num)])
        kept = before[np.arange(num), actions]
        assert search.trees.visits[:, 0].tolist() == kept.tolist() and kept.min() == 0 and kept.max() > 1
    assert found[0] == found[1]
