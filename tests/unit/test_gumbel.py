"""Gumbel search: the rules of the paper by hand, a second search on objects, chances, and proofs."""

import json
import math

import mctx_cases
import numpy as np
import pytest
from helpers import (
    Hashed,
    Table,
    Ways,
    after,
    board,
    check_tree,
    edges_of_root,
    policy_of,
    searching,
    steps,
    tree_as_dict,
    visits_of,
)

from az_mpi import games
from az_mpi.evaluate import solver
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import streams

TICTACTOE, CONNECT4, WIDE = games.make("tictactoe"), games.make("connect4"), games.make("mnk(m=4,n=4,k=4)")


def gumbel(game, evaluate, states, noise=False, words=None, **settings):
    return searching(game, evaluate, states, noise, words, algorithm="gumbel", **settings)


# the rules, by hand


@pytest.mark.parametrize(
    "m, simulations, visits",
    [
        (16, 32, [4, 4, 4, 4, 2, 2, 2, 2, *[1] * 8]),  # 16, 8, 2 x 4: the budget ends before 2 are left
        (16, 2, [1, 1]),
        (4, 8, [3, 3, 1, 1]),  # 4, then 2 x 2
        (8, 24, [7, 7, 3, 3, 1, 1, 1, 1]),  # 8, 2 x 4, 4 x 2
        (3, 7, [3, 3, 1]),
        (2, 5, [3, 2]),
        (1, 5, [5]),
    ],
)
def test_sequential_halving_visits_by_hand(m, simulations, visits):
    """All moves are alike, so that of equals the first ones stay. A width of w gets n // (ceil(log2 m) w) sweeps."""
    search, slots = gumbel(WIDE, UniformEvaluator(WIDE), WIDE.initial(1), simulations=simulations, gumbel_actions=m)
    search.run(slots)
    assert visits_of(search, slots)[0].tolist() == visits + [0] * (16 - len(visits))


# Root: priors 3/4 and 1/4, value 0.2; the state after the left move is worth 0.6 to the other player.
BY_HAND = {(0, 0): ([0.75, 0.25], 0.2), (1, 0): ([0.5, 0.5], 0.6), (1, 1): ([0.5, 0.5], -0.4)}
SIGMA = {"gumbel_c_visit": 3.0, "gumbel_c_scale": 0.5}


def test_improved_policy_and_value_by_hand():
    """One simulation, to the left: q = -0.6. The right one has v_mix = (0.2 + 1 * -0.6) / 2 = -0.2. sigma = (3 + 1) 0.5
    (q + 1) / 2 is 0.4 and 0.8, so that pi' is 3/4 e^0.4 to 1/4 e^0.8."""
    search, slots = gumbel(Ways(4), Table(Ways(4), BY_HAND), Ways(4).initial(1), simulations=1, **SIGMA)
    search.run(slots)
    left, right = 0.75 * math.exp(0.4), 0.25 * math.exp(0.8)
    share = left / (left + right)
    assert policy_of(search, slots)[0] == pytest.approx([share, 1 - share], rel=1e-5)
    assert search.value(slots)[0] == pytest.approx(share * -0.6 + (1 - share) * -0.2, rel=1e-5)
    assert search.choose(slots, np.ones(1)).tolist() == [0]  # the only one that was visited


def test_two_simulations_already_improve_the_policy():
    """Left -0.6, right 0.4: sigma = (3 + 1) 0.5 (q + 1) / 2 is 0.4 and 1.4."""
    search, slots = gumbel(Ways(4), Table(Ways(4), BY_HAND), Ways(4).initial(1), simulations=2, **SIGMA)
    search.run(slots)
    right = 0.25 * math.exp(1.4) / (0.25 * math.exp(1.4) + 0.75 * math.exp(0.4))
    assert policy_of(search, slots)[0] == pytest.approx([1 - right, right], rel=1e-5) and right > 0.25
    # The choice takes the larger of log 3/4 + 0.4 and log 1/4 + 1.4.
    assert search.choose(slots, np.zeros(1)).tolist() == [int(math.log(0.25) + 1.4 > math.log(0.75) + 0.4)]


# a second search, on objects


class Node:
    def __init__(self, state):
        self.state, self.children, self.priors, self.n, self.w = state, {}, None, 0, 0.0
        self.own = self.exact = None  # the evaluator's value; the result for the player to move, where it is known


class Reference:
    """The same search by recursion; values are for the player to move at each node."""

    def __init__(self, game, evaluate, m, c_visit, c_scale, word=None):
        self.game, self.evaluate, self.m, self.c_visit, self.c_scale = game, evaluate, m, c_visit, c_scale
        self.stream = None if word is None else np.array([word], np.uint64)

    def sign(self, node, child):
        return 1 if self.game.to_play(child.state)[0] == self.game.to_play(node.state)[0] else -1

    def q(self, node, action):
        child = node.children[action]
        return self.sign(node, child) * (child.w / child.n if child.exact is None else child.exact)

    def scores(self, node):
        """Return {action: log P + sigma(q)} of the actions that are no proven losses."""
        tried = {a: self.q(node, a) for a in node.children}
        visits = sum(child.n for child in node.children.values())
        value = node.own
        if tried:
            mean = sum(node.priors[a] * q for a, q in tried.items()) / sum(node.priors[a] for a in tried)
            value = (node.own + visits * mean) / (1 + visits)
        scale = (self.c_visit + max((child.n for child in node.children.values()), default=0)) * self.c_scale
        return {
            a: math.log(p) + scale * (tried.get(a, value) + 1) / 2
            for a, p in node.priors.items()
            if not (a in tried and node.children[a].exact is not None and tried[a] == -1)
        }

    def policy(self, node):
        scores = self.scores(node)
        weights = {a: math.exp(score - max(scores.values())) for a, score in scores.items()}
        return {a: weight / sum(weights.values()) for a, weight in weights.items()}

    def inner(self, node):
        visits = {a: node.children[a].n if a in node.children else 0 for a in node.priors}
        policy = self.policy(node)
        return max(policy, key=lambda a: policy[a] - visits[a] / (1 + sum(visits.values())))

    def begin_round(self, node, simulations):
        """Draw the actions and write down which visit count is due in each simulation."""
        self.gumbel = {
            a: 0.0 if self.stream is None else -math.log(-math.log(streams.uniform(self.stream, 0)))
            for a in node.priors
        }
        score = {a: self.gumbel[a] + s for a, s in self.scores(node).items()}
        self.considered = dict.fromkeys(sorted(sorted(score, key=score.get, reverse=True)[: self.m]), 0)
        width = num = len(self.considered)
        self.due, level = [], 0
        while len(self.due) < simulations:
            for _ in range(max(1, simulations // (max(1, math.ceil(math.log2(num))) * width))):
                self.due += [level] * width
                level += 1
            width = max(width // 2, min(width, 2))
        self.due = self.due[:simulations]

    def root(self, node, left):
        while True:
            if not self.due:
                self.begin_round(node, left)
            score = {a: self.gumbel[a] + s for a, s in self.scores(node).items() if a in self.considered}
            due, self.due = (self.due[0], self.due[1:]) if score else (0, [])
            if score:
                action = max(score, key=lambda a: (self.considered[a] == due, score[a]))
                self.considered[action] += 1
                return action

    def simulate(self, node, left=0):
        game = self.game
        ended, value = (part[0] for part in game.terminal(node.state))
        if ended:
            node.exact = float(value)
        if node.exact is not None:
            value = node.exact
        elif node.priors is None:
            logits, value = (part[0] for part in self.evaluate(node.state))
            legal = np.flatnonzero(game.legal(node.state)[0])
            weights = np.exp(logits[legal].astype(float))
            node.priors, node.own = dict(zip(legal.tolist(), weights / weights.sum())), float(value)
        else:
            action = self.root(node, left) if left else self.inner(node)
            child = node.children.setdefault(action, Node(game.play(node.state, np.array([action]))))
            value = self.simulate(child) * self.sign(node, child)
            known = [self.q(node, a) for a, c in node.children.items() if c.exact is not None]
            if 1 in known or len(known) == len(node.priors):
                node.exact = max(known)
        node.n += 1
        node.w += float(value)
        return value

    def run(self, state, simulations):
        root, self.due = Node(state), []
        for done in range(simulations + 1):
            if root.exact is None:
                self.simulate(root, simulations + 1 - done)
        return root

    def choice(self, root):
        score = {a: self.gumbel[a] + s for a, s in self.scores(root).items() if a in self.considered}
        return max(score, key=lambda a: (self.considered[a], score[a]))


def assert_same_tree(found, node):
    """`found`: as `tree_as_dict` gives it."""
    assert found["state"] == tuple(node.state[0].tolist()) and found["visits"] == node.n
    assert found["value_sum"] == pytest.approx(node.w, abs=1e-9)
    assert found["exact"] == pytest.approx(node.exact, abs=1e-7)
    assert {a for a, edge in found["edges"].items() if edge[3]} == set(node.children)
    for action, child in node.children.items():
        assert_same_tree(found["edges"][action][3], child)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize(
    "game, moves, m, simulations",
    [
        (TICTACTOE, [], 16, 150),
        (TICTACTOE, [4, 0, 8], 4, 60),
        (CONNECT4, [3, 3, 3, 3, 3], 4, 100),
        (CONNECT4, [], 16, 2),
        (WIDE, [], 8, 80),
        (Ways(5), [], 2, 30),
        (Ways(7, twice=True), [1], 2, 100),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_whole_tree_equals_that_of_a_search_on_objects(game, moves, m, simulations, noise):
    """Priors and values that look random: every node, visit count and value sum, then the policy and the choice."""
    state, word = after(game, moves), np.array([77], np.uint64)
    search, slots = gumbel(
        game,
        Hashed(game),
        state,
        noise,
        word.copy(),
        simulations=simulations,
        gumbel_actions=m,
        gumbel_c_visit=20.0,
        gumbel_c_scale=0.3,
    )
    search.run(slots)
    reference = Reference(game, Hashed(game), m, 20.0, 0.3, word[0] if noise else None)
    root = reference.run(state, simulations)
    assert_same_tree(tree_as_dict(search.trees, 0), root)
    if root.exact is None:
        policy, mine = reference.policy(root), policy_of(search, slots)[0]
        assert mine == pytest.approx([policy.get(a, 0.0) for a in range(game.num_actions)], abs=1e-5)
        assert search.choose(slots, np.ones(1)).tolist() == [reference.choice(root)]


MCTX = json.loads(mctx_cases.FILE.read_text())["cases"]


@pytest.mark.parametrize("case, theirs", list(zip(mctx_cases.CASES, MCTX, strict=True)))
def test_mctx_searches_alike(case, theirs):
    """The program of the paper's authors: its visits of the root's actions and of theirs, its target and its choice."""
    name, moves, simulations, considered, c_visit, c_scale = case
    game = games.make(name)
    search, slots = gumbel(
        game,
        mctx_cases.Waves(game),
        after(game, moves),
        simulations=simulations,
        gumbel_actions=considered,
        gumbel_c_visit=c_visit,
        gumbel_c_scale=c_scale,
    )
    search.run(slots)
    assert visits_of(search, slots)[0].tolist() == theirs["visits"]
    below = np.zeros((game.num_actions, game.num_actions), int)
    for action, (*_, child) in tree_as_dict(search.trees, 0)["edges"].items():
        for reply, (_, visits, *_) in (child or {"edges": {}})["edges"].items():
            below[action, reply] = visits
    assert below.tolist() == theirs["below"]
    assert policy_of(search, slots)[0] == pytest.approx(theirs["policy"], abs=1e-5)
    assert search.choose(slots, np.ones(1)).tolist() == [theirs["action"]]


# chances


def test_actions_are_drawn_without_replacement_as_the_priors_say():
    """Priors 1/2, 1/4, 1/4: the first of two drawn is so, and the pairs follow: P(0 and 1) = 1/2 1/2 + 1/4 2/3 = 5/12,
    P(1 and 2) = 1/4 1/3 twice = 1/6. Chi-square with 2 degrees of freedom: above 20 once in 20,000."""
    priors = [0.5, 0.25, 0.25, *[1e-9] * 6]
    evaluate, words = Table(TICTACTOE, {(0, 0): (priors, 0.0)}), streams.keyed(5, np.arange(6000, dtype=np.uint64))
    for m, expected in ((1, [1 / 2, 1 / 4, 1 / 4]), (2, [5 / 12, 5 / 12, 1 / 6])):
        search, slots = gumbel(
            TICTACTOE, evaluate, TICTACTOE.initial(6000), True, words.copy(), simulations=m, gumbel_actions=m
        )
        search.run(slots)
        visits = visits_of(search, slots)[:, :3]
        assert (visits.sum(axis=1) == m).all() and visits.max() == 1
        drawn = (
            visits.sum(axis=0)
            if m == 1
            else [(visits[:, [a, b]].all(axis=1)).sum() for a, b in ((0, 1), (0, 2), (1, 2))]
        )
        assert ((drawn - np.array(expected) * 6000) ** 2 / (np.array(expected) * 6000)).sum() < 20


@pytest.mark.parametrize("temperature", [0.0, 0.25, 0.5])
def test_moves_are_drawn_by_the_improved_policy_and_the_temperature(temperature):
    """All moves are considered, and all values are 0, so that pi' is the prior. The largest of T g(a) + log P(a) is a
    sample of P^(1/T), whatever sequential halving visited. Chi-square, 2 degrees: above 20 once in 20,000."""
    priors = np.array([0.5, 0.3, 0.2])
    evaluate = Table(TICTACTOE, {(0, 0): ([*priors, *[1e-9] * 6], 0.0)})
    words = streams.keyed(7, np.arange(6000, dtype=np.uint64))
    search, slots = gumbel(TICTACTOE, evaluate, TICTACTOE.initial(6000), True, words, simulations=3)
    search.run(slots)
    drawn = np.bincount(search.choose(slots, np.full(6000, temperature)), minlength=9)
    if temperature == 0:
        assert drawn.tolist() == [6000, *[0] * 8]
        return
    expected = 6000 * priors ** (1 / temperature) / (priors ** (1 / temperature)).sum()
    assert ((drawn[:3] - expected) ** 2 / expected).sum() < 20 and drawn.sum() == 6000


def test_without_noise_nothing_is_drawn():
    search, slots = gumbel(CONNECT4, Hashed(CONNECT4), CONNECT4.initial(2), simulations=40)
    search.run(slots)
    assert search.streams.tolist() == [0, 1] and tree_as_dict(search.trees, 0) == tree_as_dict(search.trees, 1)


# what always holds


@pytest.mark.parametrize("game, simulations", [(TICTACTOE, 40), (CONNECT4, 12)])
def test_trees_stay_sound_through_whole_games_with_reuse_whatever_else_is_searched(game, simulations):
    states, words = game.initial(8), streams.keyed(9, np.arange(8, dtype=np.uint64))
    search, slots = gumbel(game, Hashed(game), states, True, words, simulations=simulations)
    alone, one = gumbel(game, Hashed(game), states[:1], True, words[3:4], simulations=simulations)
    live = slots
    while len(live):
        search.run(live)
        known = search.trees.exact[live, 0]
        assert (known | (visits_of(search, live).sum(axis=1) == simulations)).all()
        actions, policy = search.choose(live, np.ones(len(live))), policy_of(search, live)
        assert (game.legal(states[live])[np.arange(len(live)), actions]).all()
        assert policy.sum(axis=1) == pytest.approx(1, abs=1e-5) and not policy[~game.legal(states[live])].any()
        if 3 in live:
            alone.run(one)
            assert tree_as_dict(alone.trees, 0) == tree_as_dict(search.trees, 3)
            alone.advance(one, actions[live == 3])
        states[live] = game.play(states[live], actions)
        search.advance(live, actions)
        for b in live:
            check_tree(game, search.trees, b, states[b])
        live = live[~game.terminal(states[live])[0]]


# proofs


def test_proven_results_are_the_exact_ones():
    """Every 19th position of tic-tac-toe: each as minimax has it; the policy keeps only best actions and plays one."""
    whole = solver.enumerate_all(TICTACTOE)
    states, action_values = whole.states[::19], whole.action_values[::19]
    search, slots = gumbel(TICTACTOE, Hashed(TICTACTOE), states, simulations=4000, gumbel_actions=4)
    search.run(slots)
    known, best = search.trees.exact[:, 0], np.nanmax(action_values, axis=1)
    assert known.mean() > 0.7 and (search.value(slots)[known] == best[known]).all()
    policy, actions = policy_of(search, slots), search.choose(slots, np.zeros(len(slots)))
    assert (action_values[known][policy[known] > 0] == np.repeat(best[known], (policy[known] > 0).sum(axis=1))).all()
    assert (action_values[slots, actions] == best)[known].all()


def test_a_move_proven_to_lose_is_tried_no_more_though_the_round_considers_it():
    """O must take the lower left corner at once. Two moves are considered at a time, then others."""
    state = board(
        TICTACTOE,
        """
        X . .
        X O .
        . . .""",
    )
    search, slots = gumbel(TICTACTOE, UniformEvaluator(TICTACTOE), state, simulations=200, gumbel_actions=2)
    steps(search, slots, 120)
    tree = tree_as_dict(search.trees, 0)
    lost = [k for k, edge in enumerate(tree["edges"].values()) if edge[3] and edge[3]["exact"] == 1]
    before = edges_of_root(search)[1].copy()
    assert len(lost) >= 3 and not search.trees.exact[0, 0]
    steps(search, slots, 10)
    visits = edges_of_root(search)[1]
    assert (visits[lost] == before[lost]).all() and visits.sum() == before.sum() + 10
    assert not policy_of(search, slots)[0, np.array(list(tree["edges"]))[lost]].any()
    assert search.choose(slots, np.zeros(1)).tolist() == [6]


def test_an_immediate_win_ends_the_search():
    state = board(
        TICTACTOE,
        """
        X X .
        O O .
        . . .""",
    )
    search, slots = gumbel(TICTACTOE, UniformEvaluator(TICTACTOE), state, simulations=400)
    search.run(slots)
    assert search.value(slots).tolist() == [1] and policy_of(search, slots).tolist() == [[0, 0, 1, 0, 0, 0, 0, 0, 0]]
    assert search.choose(slots, np.ones(1)).tolist() == [2] and search.trees.visits[0, 0] < 10


def test_a_search_beyond_its_target_begins_rounds_as_long_as_all_before():
    """Four moves that are alike, 8 simulations: 3, 3, 1, 1. Eight more do the same again."""
    search, slots = gumbel(WIDE, UniformEvaluator(WIDE), WIDE.initial(1), simulations=16, gumbel_actions=4)
    search.target[:] = 8
    search.run(slots)
    assert visits_of(search, slots)[0, :5].tolist() == [3, 3, 1, 1, 0]
    steps(search, slots, 8)
    assert visits_of(search, slots).sum() == 16 and np.sort(visits_of(search, slots)[0])[-4:].sum() >= 12
