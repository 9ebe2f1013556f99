"""Noise at the root and the choice of a move."""

import math

import numpy as np
import pytest
from helpers import Hashed, edges_of_root, searching, steps, visits_of

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import streams
from az_mpi.search.puct import Search

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
FLAT = {"c_puct": 1.0, "c_puct_base": 1e12}  # C(s) = 1


# noise


def noisy(num, alpha=10.0, fraction=0.25, game=CONNECT4):
    words = streams.keyed(1, np.arange(num, dtype=np.uint64))
    return searching(
        game,
        UniformEvaluator(game),
        game.initial(num),
        True,
        words,
        simulations=20,
        dirichlet_alpha=alpha,
        dirichlet_fraction=fraction,
    )


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
        TICTACTOE,
        UniformEvaluator(TICTACTOE),
        TICTACTOE.initial(num),
        simulations=1,
        words=streams.keyed(seed, np.arange(num, dtype=np.uint64)),
    )
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
    assert visits_of(search, slots).tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 3


@pytest.mark.parametrize("alpha", [0.01, 0.03, 0.3, 1.0, 10.0])
def test_the_largest_noise_of_a_root_has_the_share_that_numpy_draws(alpha):
    """Whole noise, 7 actions, 4000 roots; tolerance: 5 standard errors. Priors are equal where there is no noise."""
    search, slots = noisy(4000, alpha, fraction=1.0)
    search.step(slots)
    drawn = search.trees.edge_prior[:, :7].astype(float)
    expected = np.random.default_rng(1).dirichlet(np.full(7, alpha / 7), 40_000).max(axis=1)
    most = drawn.max(axis=1)
    assert abs(most.mean() - expected.mean()) < 5 * expected.std() * math.sqrt(1 / 4000 + 1 / 40_000)
    assert np.abs(drawn.mean(axis=0) - 1 / 7).max() < 5 * math.sqrt(6 / 49 / (alpha + 1) / 4000)
    assert np.ptp(drawn, axis=1).min() > 0.01


@pytest.mark.parametrize("alpha", [1e-6, 1e-40, 1e-300, 5e-324])
def test_noise_of_an_alpha_near_0_is_all_of_one_action_each_as_often(alpha):
    search, slots = noisy(700, alpha, fraction=1.0)
    search.step(slots)
    drawn = search.trees.edge_prior[:, :7]
    assert (drawn.max(axis=1) > 0.999).all()
    assert np.bincount(drawn.argmax(axis=1), minlength=7).min() > 60  # 100 each, with a standard deviation of 9.3


def test_tiny_alpha_keeps_priors_a_distribution():
    search, slots = noisy(200, alpha=0.001)
    search.step(slots)
    assert np.abs(search.trees.edge_prior[:, :7].sum(axis=1) - 1).max() < 1e-6


def test_noise_is_in_the_priors_before_the_first_simulation_of_a_reused_root():
    search = Search(TICTACTOE, Hashed(TICTACTOE), models.Search(simulations=30), 1, True)
    slots = np.arange(1)
    search.reset(slots, TICTACTOE.initial(1), np.ones(1, np.uint64))
    search.run(slots)
    search.advance(slots, np.array([int(visits_of(search, slots).argmax())]))
    priors = search.trees.edge_prior
    before, during, begin = priors[0, :8].copy(), [], search.evaluate.begin
    search.evaluate.begin = lambda states: (during.append(priors[0, :8].copy()), begin(states))[1]
    search.step(slots)
    assert (during[0] != before).any()
