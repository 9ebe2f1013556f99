"""Evaluations of games of one player, with dice, and of three players: what they report, and how that is shown."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import make_config
from races import Race
from stand_ins import Shown

from az_mpi.core.problems import Refusal
from az_mpi.evaluate import evaluation, ladder, rating, solver, tally
from az_mpi.evaluate.opponents import GreedyPlayer
from az_mpi.report import strength
from az_mpi.report.run_data import RunData
from az_mpi.telemetry.sinks import flat
from az_mpi.telemetry.summary import evaluation_lines


class Network(GreedyPlayer):
    """Takes the place of a network with its search: greedy play, in three of four games if `good`."""

    def __init__(self, good, search=None):
        super().__init__((5,))
        object.__setattr__(self, "good", good)

    def choose(self, seat, slots):
        greedy, plain = super().choose(seat, slots), np.zeros(len(slots), np.int64)
        return np.where(self.good | (seat.indices[slots] % 2 == 0), greedy, plain)

    def actions(self, game, states, plies):
        return (
            GreedyPlayer((5,))
            .seat(game, states, np.arange(len(states)), [[]] * len(states))
            .choose(np.arange(len(states)))
        )

    def evaluate(self, states):
        return np.zeros((len(states), 2)), np.zeros(len(states))


@pytest.fixture
def evaluate(monkeypatch, world):
    """Return a function that evaluates a `Network` in a race."""
    monkeypatch.setattr(evaluation, "SearchPlayer", Network)
    monkeypatch.setattr("az_mpi.evaluate.opponents.SearchPlayer", Network)

    def run(game, good=True, best=None, iteration=3, once=lambda title, play: play(), **keys):
        config = make_config(evaluate={"num_games": 20, "solver_positions": 0} | keys)
        report = evaluation.evaluate(world, config, game, good, best, iteration, Shown(), once)
        assert json.loads(json.dumps(report, allow_nan=False)) == report
        return report

    return run


# one player


def test_one_player_is_evaluated_by_scores(evaluate):
    report = evaluate(Race(1), best=False)
    assert list(report["matches"]) == ["best", "random", "greedy"] and report["score_name"] == "cells"
    assert report["matches"]["greedy"]["difference"] == 0 and report["matches"]["greedy"]["same"] == 20
    assert report["matches"]["best"]["difference"] >= 0 and report["matches"]["best"]["same"] >= 10
    assert report["matches"]["random"]["difference_low"] > 0
    assert report["score_mean"] == np.mean(report["scores"]) and report["score_best"] == max(report["scores"])
    assert not any("elo" in name for name in (*report, *report["matches"]["best"]))


def test_the_seeds_of_one_player_are_the_same_in_every_iteration(evaluate):
    reports = [evaluate(Race(1), iteration=iteration) for iteration in (1, 2)]
    assert reports[0].pop("iteration") == 1 and reports[1].pop("iteration") == 2 and reports[0] == reports[1]


@pytest.mark.parametrize("num_players", [1, 3])
def test_results_that_are_known_are_taken_in_place_of_matches(num_players, evaluate):
    known, played = {}, []

    def once(title, play):
        if title not in known:
            played.append(title)
            known[title] = json.loads(json.dumps(play()))
        return known[title]

    given = {"best": False, "opponents": ["best", "random", "greedy"]}
    reports = [evaluate(Race(num_players), once=once, **given) for _ in range(2)]
    assert reports[0] == reports[1] == evaluate(Race(num_players), **given)
    assert len(played) == len(set(played)) == len(reports[0]["matches"]) + (num_players == 1)


def test_opponents_of_one_player_that_are_named_are_the_ones_that_play(evaluate):
    assert list(evaluate(Race(1), opponents=["random"])["matches"]) == ["random"]


def test_the_optimum_of_one_player_is_the_mean_of_the_larger_numbers(evaluate):
    """A throw's larger number is 4, 5 or 6, so its mean is 5; the first throw of each game is known."""
    game = Race(1, turns=2)
    game.solver = "enumerate"
    report = evaluate(game, solver_positions=10)
    states = evaluation._starts(make_config(evaluate={"num_games": 20}), game).states
    first = np.maximum(states[:, 1], 7 - states[:, 1])
    assert report["optimum"]["scores"] == pytest.approx((first + 5).tolist())
    assert report["solver"]["overall"] == 1.0 and report["solver"]["random_overall"] == 0.5
    assert "the best possible: " in "\n".join(evaluation_lines(report))


def test_the_optimum_is_that_of_the_starts_of_the_games(evaluate):
    """Without chance after the first throw the greedy player reaches it in every game."""
    game = Race(1, turns=1)
    game.solver = "enumerate"
    report = evaluate(game, solver_positions=10)
    assert report["optimum"]["difference"] == 0 and report["optimum"]["scores"] == report["scores"]


# several players and dice


def test_three_players_are_evaluated_by_their_share(evaluate):
    report = evaluate(Race(3), opponents=["random", "greedy"], num_games=30)
    for match in report["matches"].values():
        assert match["num_games"] == 30 and len(match["sets"]) == 10 and len(match["score_by_seat"]) == 3
        assert match["score"] == pytest.approx(np.mean(match["score_by_seat"])) and "elo" not in match
    assert any("share of the points" in line and "Elo" not in line for line in evaluation_lines(report))


def test_two_players_with_dice_are_evaluated_by_pairs(evaluate):
    match = evaluate(Race(2), opponents=["random"])["matches"]["random"]
    assert len(match["sets"]) == 10 and match["score"] == pytest.approx(np.mean(match["sets"]))
    assert match["mean_result"] == pytest.approx(2 * match["score"] - 1)  # nobody can draw


@pytest.mark.parametrize(
    "match,keeps",
    [
        ({"score": 0.5}, True),
        ({"score": 0.49}, False),
        ({"score": 1 / 3, "num_players": 3}, True),
        ({"score": 0.3, "num_players": 3}, False),
        ({"difference": 0.0}, True),
        ({"difference": -0.5}, False),
    ],
)
def test_a_network_is_the_best_if_it_is_no_worse_than_the_best_before(match, keeps):
    assert evaluation.equals_or_beats(match) == keeps


@pytest.mark.parametrize("players", [3, 5, 6, 7])
def test_a_network_that_equals_the_best_before_is_promoted_after_any_number_of_sets(players):
    """Every game is drawn. Means of many shares are a little above or below the exact one."""
    for num_sets in range(1, 101):
        match = rating.summary(tally.Shares(*[np.full((num_sets, players), 1 / players)] * 3))
        assert evaluation.equals_or_beats(match), num_sets


def test_a_network_whose_score_is_as_much_below_as_above_that_of_the_best_before_is_promoted():
    """The differences on the three seeds are 0.1, 0.2 and -0.3."""
    ours, theirs = tally.Scores(np.array([0.1, 0.2, 0.0])), tally.Scores(np.array([0.0, 0.0, 0.3]))
    for match in (rating.versus(ours, theirs), rating.versus(theirs, ours)):
        assert evaluation.equals_or_beats(match)


# exact values


def test_a_race_of_two_is_solved_as_by_hand():
    """The first to reach three cells wins. Every throw lets its player move at least 4, so the first one wins."""
    game = Race(2, goal=3)
    solved = solver.enumerate_all(game)
    start = solved.states[solved.states[:, 2] == 1]
    assert len(start) == 6 and (start[:, 0] == 0).all()
    values = solved.action_values[solved.states[:, 2] == 1]
    small = np.array([[1, 6], [2, 5], [3, 4], [4, 3], [5, 2], [6, 1]])
    assert ((values == 1) == (small >= 3)).all()
    # After a move of 1 or 2 the other player wins at once, whatever is thrown.
    assert (values[small < 3] == -1).all()


def test_values_with_dice_are_expectations():
    """One throw is left: 4, 5 or 6 cells, 5 in the mean. The values are those of the cells: cells / 6 - 1."""
    game = Race(1, turns=2)
    solved = solver.enumerate_all(game)
    for state, values in zip(solved.states, solved.action_values):
        cells = state[3] + np.array([state[1], 7 - state[1]]) + (5 if state[2] == 1 else 0)
        assert values == pytest.approx(cells / 6 - 1, abs=1e-6)
    assert {int(throws) for throws in solved.states[:, 2]} == {1, 2}


def test_what_does_not_fit_a_kind_of_game_is_refused():
    three, single, plain = Race(3), Race(1), make_config()
    for game, config, why in (
        (three, make_config(evaluate={"opponents": ["gtp(command='gnugo')"]}), "race(3) is a game of 3 players with"),
        (single, make_config(evaluate={"opponents": ["uci(command='x')"]}), "race(1) is a game of one player with"),
        (three, make_config(evaluate={"solver": "enumerate"}), "games of one or two players"),
        (three, make_config(evaluate={"solver": "bitbully"}), "solves Connect Four"),
        (single, make_config(evaluate={"opening_plies": 5}), "allowed: 0; 2, the default, counts as 0"),
        (single, make_config(selfplay={"resign_threshold": 0.9}), "only one of two players can resign"),
    ):
        with pytest.raises(Refusal) as refused:
            evaluation.check_opponents(config, game)
        assert why in str(refused.value) and str(refused.value).startswith(("evaluate.", "selfplay."))
    for game in (three, single, Race(2)):
        evaluation.check_opponents(plain, game)


# ladders


@pytest.fixture
def climb(monkeypatch, world, tmp_path):
    """Return a function that plays a ladder of three networks, of which the first is no good, and returns its data."""

    def player(name, gone):
        if name == gone:
            raise Refusal(f"no network {name}")
        return Network(name != "000001")

    def run(players, num_games=12, data=None, gone=""):
        plan = {"simulations": 1, "opening_plies": 0, "seed": 1, "pairs": [], "ratings": [], "scores": []}
        made = ladder.Ladder.__new__(ladder.Ladder)
        made.world, made.run, made.game, made.names = world, tmp_path, Race(players), ["000001", "000002", "000003"]
        made.data = data or plan | {"networks": made.names}
        made._player = lambda name: player(name, gone)
        if players == 1:
            for name in made.names:
                made.score(name, num_games, name)
        else:
            for i, j in ladder.meetings(3):
                made.meet(i, j, num_games, "")
            made.rate()
        assert json.loads((tmp_path / ladder.NAME).read_text()) == made.data
        return made.data

    return run


def test_a_ladder_of_one_player_has_the_scores_of_each_network(climb):
    data = climb(1)
    scores = [row["scores"] for row in data["scores"]]
    assert data["ratings"] == [] and [row["iteration"] for row in data["scores"]] == [1, 2, 3]
    assert scores[1] == scores[2] and sum(scores[0]) < sum(scores[1]) and len(scores[0]) == 12
    text = ladder.table(data)
    assert "Elo" not in text and "cells, on the same seeds" in text and f"{data['scores'][1]['score_mean']:.5g}" in text
    assert climb(1, data=json.loads(json.dumps(data))) == data


def test_a_ladder_of_one_player_leaves_out_what_a_run_under_way_has_removed(climb, capsys):
    data = climb(1, gone="000002")
    assert [row["name"] for row in data["scores"]] == ["000001", "000003"]
    assert "network 000002: left out: no network 000002" in capsys.readouterr().err


@pytest.mark.parametrize("players", [2, 3])
def test_a_ladder_with_dice_rates_by_sets_of_games(climb, players):
    data = climb(players)
    assert [row["name"] for row in data["ratings"]] == ["000001", "000002", "000003"]
    for row in data["pairs"]:
        assert len(row["sets"]) == (6 if players == 2 else 4) and ladder.played_in(row) == 12
        assert all(0 <= score <= 1 for score in row["sets"])
    assert climb(players, data=json.loads(json.dumps(data))) == data


@pytest.mark.parametrize("players, num_games, played", [(3, 40, 36), (6, 40, 36), (7, 40, 28), (3, 2, 6)])
def test_a_complete_ladder_of_several_plays_no_more_games(climb, players, num_games, played):
    """40 games are no whole number of sets in which each network is alone."""
    data = climb(players, num_games)
    assert {ladder.played_in(row) for row in data["pairs"]} == {played}
    assert climb(players, num_games, json.loads(json.dumps(data))) == data


def test_pairs_that_are_always_shared_make_ratings_sure():
    """In 50 pairs each player wins one game of each: as games, their error is 400 / ln 10 / sqrt(25.25)."""
    points = np.array([[0, 50], [50, 0.0]])
    scale = 400 / np.log(10)
    assert rating.bradley_terry(points)[1][1] == pytest.approx(scale / np.sqrt(101 / 4))
    variance = 50 * 4 * rating.variance_of_sets([0.5] * 50)
    spread = np.array([[np.nan, variance], [variance, np.nan]])
    assert rating.bradley_terry(points, spread)[1][1] == pytest.approx(scale * np.sqrt(variance) / (101 / 4))
    assert variance == pytest.approx(200 * 0.5 / 52)


# how it is shown


def test_the_report_shows_what_a_kind_of_game_has(evaluate):
    for players, shown, missing in (
        (1, ["Score (cells)", "Difference of scores", "same seeds"], ["Elo", "Win rate"]),
        (2, ["Win rate", "Elo", "Mean result", "pairs of games with the same dice"], ["Score (", "Share of"]),
        (3, ["Share of the points", "Mean result", "every seat"], ["Elo", "Win rate"]),
    ):
        game = Race(players)
        records = [evaluate(game, iteration=k, opponents=["random"]) for k in (1, 2)]
        data = SimpleNamespace(evaluations=records, ladder={})
        for name in ("matches", "scores", "solver"):
            setattr(data, name, getattr(RunData, name).__get__(data))
        text = strength.verdict(data) + "".join(strength.charts(data, []))
        assert all(word in text for word in shown) and not any(word in text for word in missing), players


def test_metrics_of_one_player_are_named_by_what_they_are(evaluate):
    names = flat(evaluate(Race(1), opponents=["random"]))
    assert {"score_mean", "score_best", "score_median", "matches.random.difference"} <= names.keys()
    assert not any("elo" in name or "win_rate" in name for name in names)
