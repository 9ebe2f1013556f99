"""The search: simulations computed by hand, a second search on objects, forced wins, and what always holds of trees."""

import math

import numpy as np
import pytest
from helpers import Hashed, Table, Ways, after, board, check_tree, tree_as_dict

from az_mpi import config, games
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import streams
from az_mpi.search.puct import Search, exploration_table

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
FLAT = {"c_puct": 1.0, "c_puct_base": 1e12}  # C(s) = 1


def searching(game, evaluate, states, noise=False, words=None, **settings):
    """Return a search with one tree for each of `states`, nothing simulated yet, and its slots."""
    search = Search(game, evaluate, config.Search(**settings), len(states), noise)
    slots = np.arange(len(states))
    search.reset(slots, states, slots.astype(np.uint64) if words is None else words)
    return search, slots


def steps(search, slots, n):
    for _ in range(n):
        search.step(slots)


def edges_of_root(search, b=0):
    """Return the priors, visits and value sums of the root's edges."""
    trees = search.trees
    at = slice(trees.first_edge[b, 0], trees.first_edge[b, 0] + trees.edge_count[b, 0])
    return trees.edge_prior[b, at], trees.edge_visits[b, at], trees.edge_value_sum[b, at]


# the formula, by hand


def test_exploration_table_by_hand():
    """c_init = 1.25 and c_base = 9: at N = 0, 8, 26 the logarithm is that of 10/9, 2, 4; times the root of N."""
    table = exploration_table(config.Search(simulations=30, c_puct=1.25, c_puct_base=9.0))
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
    assert search.visits(slots).tolist() == [[1, 2]]


def test_larger_first_play_urgency_reduction_turns_the_choice():
    """With 0.3 the right move counts -0.2 - 0.3 sqrt(0.75) + 0.3536 = -0.1063, below the left one's -0.0697."""
    evaluate = Table(Ways(4), BY_HAND)
    search, slots = searching(Ways(4), evaluate, Ways(4).initial(1), simulations=20, fpu_reduction=0.3, **FLAT)
    steps(search, slots, 3)
    assert search.visits(slots).tolist() == [[2, 0]]
    assert evaluate.seen[-1] == (2, 0)  # of equal priors the first


def test_root_has_no_reduction_with_noise_and_other_nodes_have():
    """With the reduction 2 for self-play the root's third simulation still goes right: Q is not reduced there. Below
    the root it is, so that the left move is taken again before the right one is tried."""
    settings = {"simulations": 20, "fpu_reduction": 2.0, "dirichlet_fraction": 0.0, **FLAT}
    search, slots = searching(Ways(4), Table(Ways(4), BY_HAND), Ways(4).initial(1), noise=True, **settings)
    steps(search, slots, 3)
    assert search.visits(slots).tolist() == [[1, 1]]
    evaluate = Table(Ways(4), {(0, 0): ([1 - 1e-6, 1e-6], 0.0)})
    search, slots = searching(Ways(4), evaluate, Ways(4).initial(1), noise=True, **settings)
    steps(search, slots, 4)
    # (1, 0) chose left first; left again: 0 + sqrt(2) / 4 = 0.35; right: 0 - 2 sqrt(0.5) + sqrt(2) / 2 = -0.71.
    assert evaluate.seen == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_one_simulation_takes_the_largest_prior():
    evaluate = Table(Ways(4), {(0, 0): ([0.4, 0.6], 0.0)})
    search, slots = searching(Ways(4), evaluate, Ways(4).initial(1), simulations=1)
    search.run(slots)
    assert search.visits(slots).tolist() == [[0, 1]] and search.choose(slots, np.zeros(1)).tolist() == [1]


class Node:
    """A node of `search_on_objects`: what AlphaZero's pseudocode keeps."""

    def __init__(self, state):
        self.state, self.children, self.priors, self.n, self.w = state, {}, None, 0, 0.0


def search_on_objects(game, evaluate, state, simulations, c_init, c_base, reduction):
    """Return the root after the simulations, by recursion; values are for the player to move at each node."""

    def simulate(node):
        ended, value = (part[0] for part in game.terminal(node.state))
        if not ended and node.priors is None:
            logits, value = (part[0] for part in evaluate(node.state))
            legal = np.flatnonzero(game.legal(node.state)[0])
            weights = np.exp(logits[legal].astype(float))
            node.priors = dict(zip(legal.tolist(), weights / weights.sum()))
        elif not ended:
            c = math.log((1 + node.n + c_base) / c_base) + c_init
            tried = sum(p for a, p in node.priors.items() if a in node.children)

            def score(a):
                if child := node.children.get(a):
                    same = game.to_play(child.state)[0] == game.to_play(node.state)[0]
                    q = child.w / child.n * (1 if same else -1)
                else:
                    q = node.w / node.n - reduction * math.sqrt(tried)
                return q + c * node.priors[a] * math.sqrt(node.n) / (1 + (child.n if child else 0))

            action = max(node.priors, key=score)
            child = node.children.setdefault(action, Node(game.play(node.state, np.array([action]))))
            same = game.to_play(child.state)[0] == game.to_play(node.state)[0]
            value = simulate(child) * (1 if same else -1)
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


def test_an_immediate_win_is_worth_exactly_1():
    """X wins with c3: that edge's mean is 1 and not nearly 1, and the root's value tends to it."""
    state = board(TICTACTOE, """
        X X .
        O O .
        . . .""")
    search, slots = searching(TICTACTOE, UniformEvaluator(TICTACTOE), state, simulations=400)
    before = 0.0
    for n in (20, 80, 300):
        steps(search, slots, n)
        _, visits, value_sum = edges_of_root(search)
        assert value_sum[0] == visits[0] > 0 and visits[0] == visits.max()
        assert search.value(slots)[0] > before
        before = search.value(slots)[0]
    assert before > 0.9
    assert search.choose(slots, np.zeros(1)).tolist() == [2]


def test_an_ended_game_is_not_evaluated():
    """One cell is open and wins: after the root, every simulation ends there."""
    state = board(TICTACTOE, """
        X O X
        O X O
        O X .""")
    evaluate = Table(TICTACTOE, {})
    search, slots = searching(TICTACTOE, evaluate, state, simulations=10)
    search.run(slots)
    assert evaluate.seen == [tuple(map(int, state[0]))]
    assert search.visits(slots).tolist() == [[0] * 8 + [10]] and search.value(slots)[0] == np.float32(10 / 11)


def test_search_from_an_ended_game_knows_its_result_and_asks_nothing():
    state = board(TICTACTOE, """
        X X X
        O O .
        . . .""")
    evaluate = Table(TICTACTOE, {})
    search, slots = searching(TICTACTOE, evaluate, state, noise=True, simulations=5)
    search.run(slots)
    assert evaluate.seen == [] and search.value(slots).tolist() == [-1] and not search.visits(slots).any()


MUST_PLAY = {
    "X blocks the column": (CONNECT4, {2}, """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O . . . .
        . . O . . . .
        X . O . X . X"""),
    "O blocks the row": (CONNECT4, {3}, """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        O . . . . . .
        X X X . . . O"""),
    "X blocks the row": (TICTACTOE, {8}, """
        . X .
        X . .
        O O ."""),
    "O blocks the diagonal": (TICTACTOE, {8}, """
        X . .
        O X .
        . . ."""),
    "X wins before it blocks": (CONNECT4, {5}, """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O . . . .
        X . O . . . .
        O . O X X . X"""),
    "X makes three with two open ends": (CONNECT4, {1, 4}, """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O O . . .
        . . X X . . ."""),
}  # fmt: skip


@pytest.mark.parametrize("game, moves, drawing", MUST_PLAY.values(), ids=MUST_PLAY)
def test_finds_the_move_that_must_be_played_without_any_knowledge(game, moves, drawing):
    """Equal priors and value 0: all it knows are the games that end below."""
    search, slots = searching(game, UniformEvaluator(game), board(game, drawing), simulations=1500)
    search.run(slots)
    assert search.choose(slots, np.zeros(1))[0] in moves


def test_forced_win_and_loss_show_in_the_value():
    """X with three in a row and two open ends has won, whoever's view it is."""
    won = board(CONNECT4, """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . O O . . .
        . . X X X . .""")
    search, slots = searching(CONNECT4, UniformEvaluator(CONNECT4), won, simulations=3000)
    search.run(slots)
    assert search.value(slots)[0] < -0.5  # O is to move
    search, slots = searching(
        CONNECT4, UniformEvaluator(CONNECT4), CONNECT4.play(won, np.array([6])), simulations=1000
    )
    search.run(slots)
    assert search.value(slots)[0] > 0.8  # X is


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
        visits = search.visits(live)
        assert (visits.sum(axis=1) == simulations).all()
        assert not (visits * ~game.legal(states[live])).any()
        for b in live:
            assert check_tree(game, search.trees, b, states[b]) <= simulations + 1
        # Half of the games go on with a searched move, the others with any.
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
    assert search.visits(slots).sum() == 200  # not 200 more


@pytest.mark.parametrize("reuse, action", [(False, 4), (True, 8)])
def test_advance_starts_anew_without_reuse_or_where_nothing_was_searched(reuse, action):
    """Cell 8 has prior 0 and is not visited: its node is new, its state the game's, also after more simulations."""
    start = TICTACTOE.initial(1)
    table = {(0, 0): ([1, 1, 1, 1, 1, 1, 1, 1, 0], 0.0)}
    search, slots = searching(TICTACTOE, Table(TICTACTOE, table), start, simulations=60, reuse_tree=reuse)
    search.run(slots)
    assert (search.visits(slots)[0] > 0).tolist() == [True] * 8 + [False]
    search.advance(slots, np.array([action]))
    state = TICTACTOE.play(start, np.array([action]))
    assert search.trees.visits[0, 0] == 0 and search.trees.nodes_used[0] == 1 and search.trees.edges_used[0] == 0
    assert (search.trees.state[0, 0] == state[0]).all() and search.trees.player[0, 0] == 1
    search.run(slots)
    fresh, _ = searching(TICTACTOE, Table(TICTACTOE, table), state, simulations=60)
    fresh.run(slots)
    assert tree_as_dict(search.trees, 0) == tree_as_dict(fresh.trees, 0)


def test_advance_into_the_end_of_the_game():
    state = board(TICTACTOE, """
        X X .
        O O .
        . . .""")
    for reuse in (True, False):
        search, slots = searching(TICTACTOE, UniformEvaluator(TICTACTOE), state, True, simulations=50, reuse_tree=reuse)
        search.run(slots)
        search.advance(slots, np.array([2]))
        assert search.trees.ended[0, 0] and search.trees.edge_count[0, 0] == 0
        search.run(slots)
        assert search.value(slots).tolist() == [-1]


# noise


def noisy(num, alpha=10.0, fraction=0.25, game=CONNECT4):
    words = streams.keyed(1, np.arange(num, dtype=np.uint64))
    return searching(
        game, UniformEvaluator(game), game.initial(num), True, words,
        simulations=20, dirichlet_alpha=alpha, dirichlet_fraction=fraction,
    )  # fmt: skip


@pytest.mark.parametrize("alpha", [0.7, 10.0])
def test_noise_is_a_dirichlet_distribution_of_total_concentration_alpha(alpha):
    """Whole noise, 7 actions, 4000 roots: mean 1/7, variance 1/7 6/7 / (alpha + 1), covariance -1/49 / (alpha + 1)."""
    search, slots = noisy(4000, alpha, fraction=1.0)
    search.step(slots)
    drawn = search.trees.edge_prior[:, :7].astype(float)
    assert np.abs(drawn.sum(axis=1) - 1).max() < 1e-6 and (drawn >= 0).all()
    variance = 6 / 49 / (alpha + 1)
    assert np.abs(drawn.mean(axis=0) - 1 / 7).max() < 5 * math.sqrt(variance / 4000)
    assert drawn.var(axis=0) == pytest.approx(np.full(7, variance), rel=0.15)
    assert np.cov(drawn[:, 0], drawn[:, 3])[0, 1] == pytest.approx(-1 / 49 / (alpha + 1), rel=0.35)


def test_noise_is_mixed_with_the_priors_by_its_fraction():
    """The same streams with fractions 1 and 0.25: P = 3/4 * 1/7 + 1/4 noise."""
    (whole, slots), (part, _) = noisy(10, fraction=1.0), noisy(10, fraction=0.25)
    whole.step(slots)
    part.step(slots)
    expected = 0.75 / 7 + 0.25 * whole.trees.edge_prior[:, :7]
    assert part.trees.edge_prior[:, :7] == pytest.approx(expected, abs=1e-6)
    assert np.ptp(part.trees.edge_prior[:, :7], axis=1).min() > 0.001
    assert len(np.unique(part.trees.edge_prior[:, 0])) == 10  # each root has its own


def test_noise_is_for_the_root_alone_and_once():
    search, slots = noisy(5)
    search.step(slots)
    root = search.trees.edge_prior[:, :7].copy()
    steps(search, slots, 19)
    assert (search.trees.edge_prior[:, :7] == root).all()
    for b in slots:
        below = search.trees.edge_prior[b, 7 : search.trees.edges_used[b]]
        assert len(below) and np.abs(below - 1 / 7).max() < 1e-7


@pytest.mark.parametrize("reuse", [True, False])
def test_each_new_root_gets_noise_of_its_own_once(reuse):
    game = TICTACTOE
    search, slots = searching(game, UniformEvaluator(game), game.initial(1), True, simulations=60, reuse_tree=reuse)
    roots = []
    for action in (4, 0, 8):
        search.run(slots)
        search.advance(slots, np.array([action]))
        search.step(slots)
        roots.append(edges_of_root(search)[0].copy())
        steps(search, slots, 3)
        assert (edges_of_root(search)[0] == roots[-1]).all()
        assert np.ptp(roots[-1]) > 0.001 and roots[-1].sum(dtype=float) == pytest.approx(1, abs=1e-6)
    assert [len(root) for root in roots] == [8, 7, 6]


def test_matches_have_no_noise():
    search, slots = searching(CONNECT4, UniformEvaluator(CONNECT4), CONNECT4.initial(1), False, simulations=20)
    search.run(slots)
    assert np.ptp(edges_of_root(search)[0]) == 0 and search.streams.tolist() == [0]


# choice


def with_visits(visits, num, seed=4):
    """Return a search whose `num` roots have these visit counts."""
    search, slots = searching(
        TICTACTOE, UniformEvaluator(TICTACTOE), TICTACTOE.initial(num), simulations=1,
        words=streams.keyed(seed, np.arange(num, dtype=np.uint64)),
    )  # fmt: skip
    search.step(slots)
    search.trees.edge_visits[:, :9] = visits
    return search, slots


@pytest.mark.parametrize("temperature, expected", [(1.0, [1, 2, 5]), (0.5, [1, 4, 25]), (2.0, [1, 2**0.5, 5**0.5])])
def test_choice_follows_visits_to_the_power_of_one_over_temperature(temperature, expected):
    """6000 draws of three moves: chi-square with 2 degrees of freedom is above 20 by chance once in 20,000."""
    search, slots = with_visits([0, 10, 0, 20, 0, 0, 50, 0, 0], 6000)
    counts = np.bincount(search.choose(slots, np.full(6000, temperature)), minlength=9)
    assert counts[[0, 2, 4, 5, 7, 8]].sum() == 0
    expected = np.array(expected) / sum(expected) * 6000
    assert ((counts[[1, 3, 6]] - expected) ** 2 / expected).sum() < 20


def test_choice_at_temperature_0_is_the_most_visited_the_first_of_equals():
    search, slots = with_visits([0, 3, 7, 7, 0, 7, 1, 0, 0], 50)
    before = search.streams.copy()
    assert search.choose(slots, np.zeros(50)).tolist() == [2] * 50
    assert (search.streams == before).all()


@pytest.mark.parametrize("temperature", [1e-3, 1e-300, 1e-310, 5e-324])
def test_choice_at_tiny_temperatures_is_the_most_visited(temperature):
    search, slots = with_visits([0, 99, 100_000, 98, 0, 0, 0, 1, 0], 50)
    assert search.choose(slots, np.full(50, temperature)).tolist() == [2] * 50


def test_choice_at_tiny_temperatures_is_among_equals():
    search, slots = with_visits([0, 30, 30, 29, 0, 0, 0, 0, 0], 200)
    counts = np.bincount(search.choose(slots, np.full(200, 1e-4)), minlength=9)
    assert counts[1] > 60 and counts[2] > 60 and counts[1] + counts[2] == 200


def test_temperatures_belong_to_their_slots():
    search, slots = with_visits([1, 1, 1, 1, 1, 1, 1, 1, 2], 400)
    actions = search.choose(slots, np.where(slots % 2 == 0, 0.0, 1.0))
    assert (actions[::2] == 8).all() and (actions[1::2] != 8).sum() > 100


def test_choice_leaves_the_visits_alone():
    search, slots = with_visits([1, 2, 3, 4, 5, 6, 7, 8, 9], 3)
    search.choose(slots, np.array([0.0, 0.1, 1.0]))
    assert search.visits(slots).tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 3


def test_tiny_alpha_keeps_priors_a_distribution():
    search, slots = noisy(200, alpha=0.001)
    search.step(slots)
    assert np.abs(search.trees.edge_prior[:, :7].sum(axis=1) - 1).max() < 1e-6


def test_noise_is_in_the_priors_before_the_first_simulation_of_a_reused_root():
    search = Search(TICTACTOE, Hashed(TICTACTOE), config.Search(simulations=30), 1, True)
    slots = np.arange(1)
    search.reset(slots, TICTACTOE.initial(1), np.ones(1, np.uint64))
    search.run(slots)
    search.advance(slots, np.array([int(search.visits(slots).argmax())]))
    priors = search.trees.edge_prior
    before, during, evaluate = priors[0, :8].copy(), [], search.evaluate
    search.evaluate = lambda states: (during.append(priors[0, :8].copy()), evaluate(states))[1]
    search.step(slots)
    assert (during[0] != before).any()
