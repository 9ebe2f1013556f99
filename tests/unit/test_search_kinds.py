"""Searches of games of one player, with chance, and of three players, against exact values and each other."""

import numpy as np
import pytest
from exact import after, values
from helpers import tree_as_dict
from kinds import Digits, Pig, Rain, Sums, Trio, plain

from az_mpi.config import schema
from az_mpi.core.players import by_player, from_mover, of_players
from az_mpi.games import chance
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import RolloutEvaluator, UniformEvaluator
from az_mpi.search import make_play_search, make_search
from az_mpi.search.tree import NARROW, NO_CHILD

ALL = pytest.mark.parametrize("game", [Digits(), Pig(), Rain(), Trio()], ids=lambda game: game.name)
BOTH = pytest.mark.parametrize("algorithm", ["puct", "gumbel"])


def half(rows):
    return np.full(len(rows), 0.5)


def searching(game, algorithm, simulations, evaluate=None, num_trees=1, make=make_search, **settings):
    """Return a search of a game's first positions with a move, one a tree, after chance has drawn."""
    config = schema.Search(algorithm=algorithm, simulations=simulations, **settings)
    extra = {} if make is make_play_search else {"noise": False}
    search = make(game, evaluate or UniformEvaluator(game), config, num_trees, **extra)
    slots = np.arange(num_trees)
    rng = np.random.default_rng(1)
    states = chance.resolve(game, game.initial(num_trees), lambda rows: rng.random(len(rows)))
    search.reset(slots, states, slots.astype(np.uint64))
    return search, slots


@ALL
@BOTH
def test_the_compiled_loop_makes_the_trees_that_steps_of_batches_make(game, algorithm):
    found = []
    for rules in (game, plain(game)):
        search, slots = searching(rules, algorithm, 200, Sums(game), num_trees=3)
        search.run(slots)
        policy = [part.tolist() for part in search.policy(slots)]
        found.append([[tree_as_dict(search.trees, b) for b in slots], policy])
    assert found[0] == found[1]


@pytest.mark.parametrize("game", [Digits(), Trio()], ids=lambda game: game.name)
@BOTH
def test_a_small_game_is_proven_to_have_the_value_of_best_play(game, algorithm):
    search, slots = searching(game, algorithm, 30_000)
    search.run(slots)
    root = search.trees.node[0, 0]
    best = values(game, game.initial(1)[0])
    assert root["exact"] or algorithm == "gumbel"  # whose halving may leave the last actions open
    if root["exact"]:
        assert root["exact_value"] == pytest.approx(best[0])
    if game.num_players > 2 and root["exact"]:
        assert search.trees.several[0, 0] == pytest.approx(best)
    action = search.choose(slots, np.zeros(1))
    known = {}
    assert after(game, game.initial(1)[0], action, known)[0, 0] == pytest.approx(best[0])


class ShortRain(Rain):
    """Rain until two drops were taken: small enough to be searched to its end."""

    name, max_plies = "short_rain", 7

    def result(self, state):
        return state[5] == 2 and state[6] == 0, state[0] / 4 + state[5] / 5 - 0.5


@BOTH
def test_a_game_with_chance_is_proven_to_have_its_expected_value(algorithm):
    """The last drop decides: a chance node is known once all of its outcomes are."""
    game = ShortRain()
    search, slots = searching(game, algorithm, 20_000)
    search.run(slots)
    node = search.trees.node[0, : search.trees.nodes_used[0]]
    known = {}
    for n in np.flatnonzero(node["exact"]):
        state = search.trees.state[0, n]
        plies = int(2 * state[5] + (2 - state[6] if state[5] == 0 else 1 - state[6]))
        assert node["exact_value"][n] == pytest.approx(values(game, state, known, plies)[0], abs=1e-6)
    assert (node["chance"] & node["exact"]).any() and (node["exact"][0] or algorithm == "gumbel")


class Certain(Pig):
    """A die with `num_outcomes` sides decides nothing: who throws it has won."""

    name, num_outcomes, max_plies = "certain", 41, 2

    def apply(self, state, action):
        state[0], state[3] = state[0] + 1, 1 if state[0] == 0 else 2

    def result(self, state):
        return state[0] == 2, -1.0 if state[0] == 2 else 0.0

    def outcome_chances(self, state, chances):
        chances[:] = 1 / self.num_outcomes


@BOTH
def test_a_win_whatever_chance_draws_is_a_proven_win(algorithm):
    """The probabilities add up to 0.99999994 in float32."""
    search, slots = searching(Certain(), algorithm, 200)
    search.run(slots)
    root = search.trees.node[0, 0]
    assert root["exact"] and root["exact_value"] == 1


@BOTH
def test_values_of_a_dice_game_come_near_the_exact_ones(algorithm):
    """Pig with 12 points: value iteration has the values (`pig_values`)."""
    game = Pig()
    best = pig_values(game.goal)
    search, slots = searching(game, algorithm, 40_000, RolloutEvaluator(game, [3]))
    for state in ([0, 0, 7, 0], [6, 8, 3, 2], [9, 3, 0, 0]):
        search.reset(slots, np.array([state], np.int16), np.ones(1, np.uint64))
        search.run(slots)
        player = state[3] >> 1
        mine, other, total = state[player], state[1 - player], state[2]
        share = (1 + search.value(slots)[0]) / 2
        # Gumbel search expects what its improved policy would win, which explores.
        assert share == pytest.approx(best[mine, other, total], abs=0.03 if algorithm == "puct" else 0.08)


def pig_values(goal):
    """Return the probability that the player to move wins under best play, [own points, other's, turn's total], by
    value iteration (Neller and Presser 2004, "Optimal Play of the Dice Game Pig")."""
    win = np.zeros((goal, goal, goal + 7))
    for _ in range(200):
        for mine in range(goal):
            for other in range(goal):
                for total in range(goal - mine):
                    thrown = 1 - win[other, mine, 0]
                    for face in range(2, 7):
                        ends = mine + total + face >= goal
                        thrown += 1.0 if ends else win[mine, other, total + face]
                    hold = 1 - win[other, mine + total, 0] if total else 0.0
                    win[mine, other, total] = max(thrown / 6, hold)
    return win


@pytest.mark.parametrize("rules", [Pig(), plain(Pig()), Rain()], ids=["compiled", "plain", "rain"])
@BOTH
def test_visits_of_outcomes_follow_their_probabilities(rules, algorithm):
    """Closer than independent draws: by the golden ratio an outcome is off by less than 3 visits."""
    search, slots = searching(rules, algorithm, 3000)
    search.run(slots)
    trees = search.trees
    seen = 0
    for n in np.flatnonzero(trees.node["chance"][0, : trees.nodes_used[0]]):
        node = trees.node[0, n]
        edges = trees.edge[0, node["first_edge"] : node["first_edge"] + node["edge_count"]]
        num = edges["edge_visits"].sum()  # later ones end at the node, once it is known
        assert num == node["visits"] or node["exact"]
        assert (np.abs(edges["edge_visits"] - num * edges["edge_prior"]) < 3).all()
        assert edges["edge_prior"].sum() == pytest.approx(1)
        seen += node["visits"] >= 50
    assert seen >= 1


@ALL
@BOTH
def test_nodes_of_every_kind_have_the_sums_of_their_edges(game, algorithm):
    search, slots = searching(game, algorithm, 500, Sums(game), num_trees=2)
    search.run(slots)
    trees = search.trees
    for b in slots:
        for n in range(trees.nodes_used[b]):
            node = trees.node[b, n]
            first, count = node["first_edge"], node["edge_count"]
            for e in range(first, first + count):
                edge = trees.edge[b, e]
                if edge["edge_child"] == NO_CHILD:
                    continue
                child = trees.node[b, edge["edge_child"]]
                assert child["visits"] == edge["edge_visits"] and child["parent"] == n
                if game.num_players == 3 and not child["exact"]:
                    assert trees.several[b, edge["edge_child"], node["player"]] == pytest.approx(edge["edge_value_sum"])
                    assert trees.several[b, edge["edge_child"], child["player"]] == pytest.approx(child["value_sum"])
                elif game.num_players < 3:
                    same = child["player"] == node["player"]
                    assert child["value_sum"] == pytest.approx(edge["edge_value_sum"] * (1 if same else -1))


@ALL
def test_several_leaves_of_one_tree_are_searched_in_games_of_every_kind(game):
    search, slots = searching(game, "puct", 400, Sums(game))
    while not search.done(slots)[0]:
        search.step_several(0, 8)
    alone, _ = searching(game, "puct", 400, Sums(game))
    alone.run(slots)
    assert search.value(slots)[0] == pytest.approx(alone.value(slots)[0], abs=0.25)
    chance_nodes = search.trees.node["chance"][0, : search.trees.nodes_used[0]]
    assert chance_nodes.any() == (game.num_outcomes > 0)
    assert (search.trees.visits[0, : search.trees.nodes_used[0]] > 0).all()


@pytest.mark.parametrize("game", [Pig(), plain(Pig()), Rain()], ids=["compiled", "plain", "rain"])
@BOTH
def test_a_tree_is_kept_through_an_outcome_that_was_searched(game, algorithm):
    search, slots = searching(game, algorithm, 600, Sums(game))
    search.run(slots)
    edges = search.trees.edge[0, : search.trees.node[0, 0]["edge_count"]]
    action = int(edges["edge_action"][np.argmax(edges["edge_visits"])])
    if isinstance(game, Pig):
        action = 0  # to throw
    search.advance(slots, np.array([action]))
    assert search.trees.node["chance"][0, 0]
    root = search.trees.node[0, 0]
    outcomes = search.trees.edge[0, root["first_edge"] : root["first_edge"] + root["edge_count"]]
    most = outcomes[np.argmax(outcomes["edge_visits"])].copy()
    search.advance(slots, np.array([most["edge_action"]]))
    assert search.trees.node[0, 0]["visits"] == most["edge_visits"] > 1
    assert not search.trees.node["chance"][0, 0]
    search.run(slots)
    assert search.done(slots)[0]


class Values(Engine):
    """An engine for three players, whose outputs depend on the planes."""

    def __init__(self, game):
        self.game = game

    def evaluate(self, planes):
        numbers = planes.reshape(len(planes), -1).astype(np.float64) @ np.sqrt(np.arange(planes[0].size) + 1)
        logits = np.sin(numbers[:, None] * np.arange(1, self.game.num_actions + 1))
        value = np.cos(
            numbers[:, None] * np.arange(3, 3 + max(self.game.num_players, 3) - 2 * (self.game.num_players < 3))
        )
        value = value[:, 0] if self.game.num_players < 3 else value
        return {"policy": logits.astype(np.float32), "value": value.astype(np.float32)}


def test_the_cache_keeps_the_values_of_all_players():
    """The second look at the same states is answered without the engine, turned or not."""
    game = Trio()
    evaluate = CachedEvaluator(game, Values(game), 1 << 20)
    states = game.initial(1)
    states = game.play(np.repeat(states, 3, axis=0), np.array([0, 2, 6]))  # the last one is the image of the first
    logits, value = evaluate(states)
    assert value.shape == (3, 3) and np.array_equal(value[0], value[2]) and not np.array_equal(value[0], value[1])
    evaluate.take_counts()
    logits_too, value_too = evaluate(states)
    assert evaluate.take_counts() == (3, 0) and np.array_equal(value, value_too)
    legal = game.legal(states)
    assert np.array_equal(logits[legal], logits_too[legal])


@BOTH
def test_a_search_of_three_players_is_the_same_with_the_cache_that_has_all_evaluations(algorithm):
    game = Trio()
    found = []
    for _ in range(2):
        evaluate = CachedEvaluator(game, Values(game), 1 << 20)
        for _ in range(2):
            search, slots = searching(game, algorithm, 150, evaluate)
            search.run(slots)
            found.append(search.trees.several[0, : search.trees.nodes_used[0]].copy())
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_values_of_players_are_turned_to_the_one_who_moves_and_back():
    results = np.array([[1.0, 0.5, -1.0], [0.25, -0.5, 0.75]])
    player = np.array([1, 2])
    seen = from_mover(results, player)
    assert seen.tolist() == [[0.5, -1.0, 1.0], [0.75, 0.25, -0.5]]
    assert by_player(3, seen, player).tolist() == results.tolist()
    assert of_players(2, np.array([0.5, 0.5]), np.array([0, 1])).tolist() == [[0.5, -0.5], [-0.5, 0.5]]
    assert of_players(1, np.array([0.5]), np.array([0])).tolist() == [[0.5]]


@pytest.mark.parametrize("several", [1, 8])
def test_play_of_three_players_takes_the_win_at_once(several):
    """Player 0 has stones 0 and 2 beside the empty cell 1: a player who plays there beside an own stone wins."""
    game = Trio()
    states = game.initial(1)
    for move in (0, 3, 6):
        states = game.play(states, np.array([move]))
    search, slots = searching(game, "puct", 50, make=make_play_search)
    search.reset(slots, states, np.ones(1, np.uint64), np.array([3]))
    while not search.done(slots)[0]:
        search.step_several(0, several)
    assert search.choose(slots, np.zeros(1))[0] == 1


class SmallDigits(Digits):
    """The same game with 64 times smaller differences of values, all near 0.5."""

    name = "small_digits"

    def result(self, state):
        return state[0] == self.max_plies, (state[1] / 16.0 - 1) / 64 + 0.5


@BOTH
def test_one_player_is_searched_alike_whatever_the_scale_of_its_values(algorithm):
    trees = []
    for game in (Digits(), SmallDigits()):
        search, slots = searching(game, algorithm, 40, RolloutEvaluator(game, (3,)), num_trees=4)
        search.run(slots)
        trees.append([search.trees.edge_visits[b, : search.trees.edges_used[b]].tolist() for b in slots])
    assert trees[0] == trees[1]


@BOTH
def test_values_as_they_are_make_other_searches_of_small_differences(algorithm):
    trees = []
    for game in (Digits(), SmallDigits()):
        evaluate = RolloutEvaluator(game, (3,))
        search, slots = searching(game, algorithm, 40, evaluate, num_trees=4, relative_values=False)
        search.run(slots)
        trees.append([search.trees.edge_visits[b, : search.trees.edges_used[b]].tolist() for b in slots])
        assert (search.trees.width[slots] == 1).all()
    assert trees[0] != trees[1]


def test_the_range_of_a_tree_is_that_of_its_nodes_also_below_the_move_that_was_played():
    game = Rain()
    search, slots = searching(game, "puct", 60, RolloutEvaluator(game, (3,)), num_trees=3)
    for _ in range(2):
        search.run(slots)
        for b in slots:
            nodes = search.trees.node[b, : search.trees.nodes_used[b]]
            nodes = nodes[nodes["visits"] > 0]
            means = np.where(nodes["exact"], nodes["exact_value"], nodes["value_sum"] / nodes["visits"])
            low, high = search.trees.smallest[b], search.trees.largest[b]
            assert low <= means.min() + 1e-6 and high >= means.max() - 1e-6
            assert search.trees.width[b] == pytest.approx(max((high - low) / 2, NARROW))
        search.advance(slots, search.choose(slots, np.zeros(3)))
        while len(rows := slots[search.trees.node["chance"][slots, 0]]):
            chances = game.chances(search.trees.state[rows, 0])
            search.advance(rows, chances.argmax(axis=1))


def test_values_of_two_players_are_searched_as_they_are():
    search, slots = searching(Pig(), "puct", 30)
    search.run(slots)
    assert search.trees.width[0] == 1
