"""What self-play may explore with beside noise: fast searches, a root temperature, forced visits."""

import math

import numpy as np
import pytest
from helpers import (
    Hashed,
    Table,
    Ways,
    by_id,
    edges_of_root,
    make_config,
    play_games,
    policy_of,
    searching,
    steps,
    visits_of,
)

from az_mpi import games
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import streams
from az_mpi.selfplay.ended import weights_by_surprise
from az_mpi.selfplay.player import Player
from az_mpi.telemetry.counters import resign_tests

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
CAPS = {"simulations": 30, "fast_simulations": 6, "full_share": 0.25}


def searched(num, noise=True, game=CONNECT4, **settings):
    words = streams.keyed(3, np.arange(num, dtype=np.uint64))
    search, slots = searching(game, Hashed(game), game.initial(num), noise, words, **settings)
    search.run(slots)
    return search, slots


# fast searches


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_a_share_of_the_searches_is_full_and_only_these_make_policy_targets(algorithm):
    """800 roots with probability 1/4: 200, 5 standard deviations are 61."""
    search, slots = searched(800, algorithm=algorithm, **CAPS)
    visits = visits_of(search, slots).sum(axis=1)
    full = visits == 30
    assert abs(full.sum() - 200) < 61 and (visits[~full] == 6).all()
    policy = policy_of(search, slots)
    assert policy[full].sum(axis=1) == pytest.approx(1, abs=1e-5) and not policy[~full].any()
    if algorithm == "puct":  # noise in full ones alone
        assert (np.ptp(search.trees.edge_prior[~full, :7], axis=0) == 0).all()
        assert (np.ptp(search.trees.edge_prior[full, :7], axis=0) > 0).all()
    else:  # all fast ones choose alike, without Gumbel numbers
        assert len(set(search.choose(slots[~full], np.ones((~full).sum())))) == 1


def test_matches_have_no_fast_searches():
    search, slots = searched(50, noise=False, **CAPS)
    assert (visits_of(search, slots).sum(axis=1) == 30).all() and (policy_of(search, slots).sum(axis=1) > 0.99).all()


@pytest.mark.parametrize(
    "settings",
    [CAPS, CAPS | {"algorithm": "gumbel"}, {"forced_playouts": 2.0, "root_policy_temperature": 1.3}],
    ids=str,
)
def test_games_do_not_depend_on_the_games_beside_them_and_fast_moves_have_a_value_target(settings):
    found = []
    for parallel_games in (1, 5):
        config = make_config(
            "connect4", search={"simulations": 20, **settings}, selfplay={"parallel_games": parallel_games}
        )
        record = play_games(Player(config, CONNECT4, Hashed(CONNECT4), 0), range(7))
        found.append(by_id(record))
    assert found[0] == found[1]
    counts = record.positions["policy_count"]
    assert ((counts == 0).mean() > 0.4) == ("full_share" in settings) and (counts > 0).any()
    assert (record.positions["weight"] == 1).all() and (np.abs(record.positions["value"]) <= 1).all()


# the root's temperature


def test_root_policy_temperature_by_hand():
    """Priors 3/4 and 1/4 with temperature 2 are as sqrt(3) to 1, before the first simulation descends; once."""
    settings = {"simulations": 20, "dirichlet_fraction": 0.0, "root_policy_temperature": 2.0}
    table = Table(Ways(4), {(0, 0): ([0.75, 0.25], 0.0), (1, 0): ([0.75, 0.25], 0.0)})
    search, slots = searching(Ways(4), table, Ways(4).initial(1), True, **settings)
    steps(search, slots, 9)
    left = math.sqrt(3) / (math.sqrt(3) + 1)
    assert edges_of_root(search)[0] == pytest.approx([left, 1 - left], rel=1e-6)
    below = search.trees.first_edge[0, search.trees.edge_child[0, 0]]
    assert search.trees.edge_prior[0, below : below + 2] == pytest.approx([0.75, 0.25], rel=1e-6)
    match, slots = searching(Ways(4), table, Ways(4).initial(1), False, **settings)
    match.step(slots)
    assert edges_of_root(match)[0] == pytest.approx([0.75, 0.25], rel=1e-6)


# forced visits


def test_each_move_that_was_tried_gets_its_forced_visits():
    """sqrt(2 P(a) N), less the visit that makes the number whole."""
    search, slots = searched(30, simulations=200, forced_playouts=2.0)
    plain, _ = searched(30, simulations=200)
    lacking = 0
    for b in slots:
        priors, visits, _ = edges_of_root(search, b)
        least = np.sqrt(2 * priors * visits.sum())
        assert ((visits >= least - 1) | (visits == 0) | search.trees.edge_exact[b, :7]).all()
        _, visits, _ = edges_of_root(plain, b)
        lacking += ((visits < least - 1) & (visits > 0)).sum()
    assert lacking > 10  # without the key many have fewer


def test_forced_visits_are_taken_off_the_target_by_hand():
    """Four moves, k = 2, C = 1, priors 1/2, 1/4, 1/8, 1/8 of all; visits 60, 25, 13, 2; N = 100; all Q = 0 but the
    third's, -0.1. The first scores 0.5 sqrt(101) / 61 = 0.08238.
    Second: forced sqrt(50) = 7.07 leaves 17.9; its score stays below from 0.25 sqrt(101) / 0.08238 - 1 = 29.5 on: it
    keeps all 25. Third: forced 5 leaves 8; from 0.125 sqrt(101) / 0.18238 - 1 = 5.9 on: 8. Fourth: forced 5 leaves 0;
    from 14.2 on: it keeps both, as it scores more than the first."""
    search, slots = forced_example([0.5, 0.25, 0.125, 0.125], [60, 25, 13, 2], [0, 0, -1.3, 0])
    assert policy_of(search, slots)[0, :4] * 95 == pytest.approx([60, 25, 8, 2], rel=1e-5)
    # With Q = -1 each of the others loses all that was forced, 7.07, 5 and 5; what has one visit left has none.
    search, slots = forced_example([0.5, 0.25, 0.125, 0.125], [60, 25, 13, 6], [0, -25, -13, -6])
    assert policy_of(search, slots)[0, :4] * 86 == pytest.approx([60, 18, 8, 0], rel=1e-5)


def forced_example(priors, visits, sums):
    search, slots = searching(
        TICTACTOE,
        UniformEvaluator(TICTACTOE),
        TICTACTOE.initial(1),
        True,
        simulations=200,
        forced_playouts=2.0,
        c_puct=1.0,
        c_puct_base=1e12,
    )
    search.step(slots)
    trees = search.trees
    trees.node["visits"][0, 0] = 1 + sum(visits)
    for name, values in (("edge_prior", priors), ("edge_visits", visits), ("edge_value_sum", sums)):
        trees.edge[name][0, :9] = 0
        trees.edge[name][0, : len(values)] = values
    return search, slots


# weights by surprise


def test_surprise_is_the_divergence_from_the_networks_policy_before_noise():
    """Full noise and a root temperature change the priors that the search uses, not the ones that are compared."""
    settings = {"simulations": 40, "dirichlet_fraction": 1.0, "root_policy_temperature": 2.0}
    search, slots = searching(CONNECT4, Hashed(CONNECT4), CONNECT4.initial(3), True, **settings)
    search.keep_priors()
    search.run(slots)
    policy, (logits, _) = policy_of(search, slots).astype(float), Hashed(CONNECT4)(CONNECT4.initial(3))
    priors = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = np.where(policy > 0, policy * np.log(np.maximum(policy, 1e-30) / priors), 0).sum(axis=1)
    assert search.surprise(slots, search.policy(slots)) == pytest.approx(expected, abs=1e-5) and expected.min() > 0.01


def test_weights_by_surprise_by_hand():
    """Three positions, half of the weight even: 1/2 + 3/2 times the share of the surprise."""
    assert weights_by_surprise(np.array([0.0, 1.0, 3.0]), 0.5).tolist() == [0.5, 0.875, 1.625]
    assert weights_by_surprise(np.zeros(3), 0.5).tolist() == weights_by_surprise(np.ones(3), 0.0).tolist() == [1, 1, 1]


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_positions_of_a_game_are_weighted_by_surprise(algorithm):
    config = make_config("connect4", search={"algorithm": algorithm, **CAPS}, selfplay={"surprise_share": 0.5})
    record = play_games(Player(config, CONNECT4, Hashed(CONNECT4), 0), range(6))
    for game in record.games["id"]:
        rows = record.positions[record.positions["game"] == game]
        full = rows["policy_count"] > 0
        assert rows["weight"].sum() == pytest.approx(len(rows), abs=1e-4)
        assert (rows["weight"][~full] == 0.5).all() or not full.any()
        assert len(np.unique(rows["weight"][full])) == full.sum()


def test_positions_that_are_proven_before_they_are_searched_are_weighted_by_their_own_priors():
    """Such a root gets no noise, so nothing keeps its priors: those of an earlier root in its slot must not count."""
    search, found = {"simulations": 100, "fast_simulations": 99, "full_share": 0.15}, []
    for parallel_games in (1, 5):
        selfplay = {"parallel_games": parallel_games, "surprise_share": 0.5}
        config = make_config("tictactoe", search=search, selfplay=selfplay)
        found.append(by_id(play_games(Player(config, TICTACTOE, Hashed(TICTACTOE), 0), range(40))))
    assert found[0] == found[1]


# resignation


def resigning(play_on):
    selfplay = {"resign_threshold": 0.3, "resign_play_on": play_on}
    config = make_config("connect4", search={"simulations": 20}, selfplay=selfplay)
    return play_games(Player(config, CONNECT4, Hashed(CONNECT4), 0), range(60))


def test_who_is_below_the_threshold_resigns_and_loses():
    record = resigning(1e-9)
    resigned = 0
    for game in record.games["id"]:
        rows = record.positions[record.positions["game"] == game]
        assert (rows["root_value"][:-1] >= -0.3).all()
        over = CONNECT4.terminal(CONNECT4.play(rows["state"][-1:], rows["action"][-1:]))[0][0]
        assert over or rows["root_value"][-1] < -0.3 and rows["value"][-1] == -1
        assert not record.games["truncated"][record.games["id"] == game][0]
        resigned += not over
    assert resigned > 10 and resign_tests(record, 0.3) == (0, 0)


def test_games_that_are_played_on_tell_how_often_resigning_is_wrong():
    record = resigning(1.0)
    tested = false = 0
    for game in record.games["id"]:
        rows = record.positions[record.positions["game"] == game]
        below = np.flatnonzero(rows["root_value"][:-1] < -0.3)
        tested += len(below) > 0
        false += len(below) > 0 and rows["value"][below[0]] >= 0
    assert tested > 10 and 0 < false < tested and resign_tests(record, 0.3) == (tested, false)
    assert resign_tests(record, 1.0) == (0, 0)
