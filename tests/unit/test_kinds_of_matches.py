"""Matches of games of one player, with dice, and of three players: seats, dice, shares and scores, by hand."""

import json

import numpy as np
import pytest
from kinds import Again
from races import Race
from stand_ins import Part

from az_mpi import games
from az_mpi.__main__ import main
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import OPPONENTS
from az_mpi.evaluate import arena, rating, tally
from az_mpi.evaluate.arena import play_match
from az_mpi.evaluate.dice import Dice
from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import RESIGNS, Opponent, greedy_moves, random_moves
from az_mpi.evaluate.tally import Played
from az_mpi.games import base

PAIR, SINGLE, THREE = Race(2), Race(1), Race(3)


class Always(Opponent):
    """Plays the same action everywhere."""

    def __init__(self, action):
        self.action = action

    def actions(self, game, states):
        return np.full(len(states), self.action)


def games_of(game, num, *players, seed=(1,), plies=0):
    """Return all games of a match on one rank."""
    kept = []
    rivals = players if len(players) == 2 else (*players, None)
    starts = openings(game, num, plies, seed)
    indices = arena.games_of(Part(0, 1), num, 0, game.num_players)
    arena.play_games(game, *rivals, starts, indices, on_game=kept.append, dice=Dice(seed))
    return sorted(kept)


def throws(game, played):
    """Return the outcomes of chance in a game, in order."""
    before = base.positions(game, game.initial(1)[0], played.moves)
    return [move for state, move in zip(before, played.moves) if game.to_play(state[None])[0] == base.CHANCE]


# dice and seats


def test_the_games_of_a_pair_have_the_same_dice_and_other_pairs_have_others():
    played = games_of(PAIR, 8, Always(0), random_moves((1,)))
    thrown = [throws(PAIR, one) for one in played]
    for first, second in zip(thrown[::2], thrown[1::2]):
        shared = min(len(first), len(second))
        assert shared >= 2 and first[:shared] == second[:shared]
    assert len({tuple(of_game[:2]) for of_game in thrown[::2]}) > 4


def test_a_player_against_itself_wins_one_game_of_each_pair():
    """Both always move by the throw: with the same dice the same seat wins, so that each pair scores one half."""
    result = tally.tally(PAIR, games_of(PAIR, 10, Always(0), Always(0)))
    assert result.pairs == (0.5,) * 10 and result.results == (0.0,) * 10
    assert result.as_first == result.as_second[::-1] and result.wins == 10


def test_the_dice_depend_on_the_seed_and_the_pair_alone():
    numbers = [[Dice((1, 2)).number(pair, k) for k in (0, 1, 70)] for pair in (0, 1)]
    dice = Dice((1, 2))
    assert [[dice.number(pair, k) for k in (70, 0, 1)] for pair in (1, 0)] == [
        [row[2], row[0], row[1]] for row in reversed(numbers)
    ]
    assert Dice((1, 3)).number(0, 0) != numbers[0][0] != numbers[1][0]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("game", [PAIR, THREE, SINGLE], ids=lambda game: game.name)
def test_the_ranks_play_the_games_of_one_rank(game, ranks):
    sides = (greedy_moves((3,)), random_moves((3,)) if game.num_players > 1 else None)
    shares = []
    for rank in range(ranks):
        kept = []

        class Kept(Part):
            def collect(self, item, kept=kept):
                kept.append(item)
                return [item]

        play_match(Kept(rank, ranks), game, *sides, 12, 1, (4,))
        shares += kept[0]
    whole = []

    class Whole(Part):
        def collect(self, item):
            whole.extend(item)
            return [item]

    play_match(Whole(0, 1), game, *sides, 12, 1, (4,))
    assert sorted(shares) == sorted(whole) and len(whole) == 12


@pytest.mark.parametrize("game", [PAIR, THREE], ids=lambda game: game.name)
def test_resigned_games_are_counted_for_any_number_of_players(game):
    assert play_match(Part(0, 1), game, Always(RESIGNS), Always(0), 12, 0, (1,)).num_forfeits == 12
    assert play_match(Part(0, 1), game, Always(0), Always(0), 12, 0, (1,)).num_forfeits == 0


def test_openings_of_a_game_with_dice_end_where_a_player_is_to_move():
    found = openings(PAIR, 20, 1, seed=2)
    assert (PAIR.to_play(found.states) == 1).all() and {len(moves) for moves in found.moves} == {3}
    for state, moves in zip(found.states, found.moves):
        assert (base.after(PAIR, moves) == state).all()


# three players


def test_each_seat_is_taken_once_in_a_set():
    """The winner takes all, so that the share of a game is 1 where ours has won it."""
    played = games_of(THREE, 6, greedy_moves((1,)), Always(0))
    assert [one.game_index for one in played] == list(range(18))
    starts = [throws(THREE, one)[:3] for one in played]
    assert all(starts[3 * k] == starts[3 * k + 1] == starts[3 * k + 2] for k in range(6))
    result = tally.tally(THREE, played)
    assert result.share.shape == (6, 3)
    wins = [one.results[one.game_index % 3] == 1 for one in played]
    assert result.share.reshape(-1).tolist() == [float(won) for won in wins]
    assert 0 < sum(wins) < 18


def test_equal_players_have_a_third_of_the_points_in_every_set():
    result = tally.tally(THREE, games_of(THREE, 5, Always(0), Always(0)))
    assert result.share.mean(axis=1) == pytest.approx([1 / 3] * 5)


def test_shares_and_comparisons_by_hand():
    for results, shares in (
        ((1, -0.5, -0.5), (1, 0, 0)),
        ((1, -1, -1), (1, 0, 0)),
        ((1, 0, -1), (2 / 3, 1 / 3, 0)),
        ((0, 0, 0), (1 / 3, 1 / 3, 1 / 3)),
        ((0.5, 0.5, -1), (1 / 2, 1 / 2, 0)),
    ):
        assert [tally.share_of(results, k) for k in range(3)] == pytest.approx(shares)
    assert [tally.ahead_of((1, 0, 0, -1), k) for k in range(4)] == pytest.approx([1, 0.5, 0.5, 0])


def test_a_set_that_is_not_whole_counts_for_nothing():
    rows = [Played(k, [], [1.0, -0.5, -0.5], "") for k in (0, 1, 2, 4, 5)]
    assert tally.tally(THREE, rows).share.tolist() == [[1, 0, 0]]


# one player


def test_one_player_has_a_score_for_each_seed():
    """Who always moves by the throw has the sum of four throws; the greedy player has of each the larger number."""
    ours, theirs = (games_of(SINGLE, 7, player) for player in (Always(0), greedy_moves((1,))))
    for one, other in zip(ours, theirs):
        thrown = np.array(throws(SINGLE, one)) + 1
        assert throws(SINGLE, other) == throws(SINGLE, one)
        assert one.score == thrown.sum() and other.score == np.maximum(thrown, 7 - thrown).sum()
        assert one.results == [pytest.approx(one.score / 12 - 1)]


def test_no_random_moves_begin_a_game_of_one_player_whose_dice_differ(world):
    assert arena.plies_of(SINGLE, 2) == 0 and arena.plies_of(PAIR, 2) == 2
    best = play_match(world, SINGLE, greedy_moves((1,)), None, 6, 2, (1,))
    assert (best.scores >= 16).all() and len(set(best.scores.tolist())) > 1


def test_the_greedy_player_looks_at_the_mean_over_the_outcomes():
    """Left has now what it has; right gets 0 or 9 with probabilities 2/3 and 1/3, whose mean is 3."""

    class Lottery(Race):
        def play(self, states, actions):
            states = states.copy()
            drawn = states[:, 1] == 9
            states[:, 3] = np.where(drawn, 9 * np.asarray(actions), np.where(np.asarray(actions) == 0, self.sure, 0))
            states[:, 1] = np.where(drawn, 8, np.where(np.asarray(actions) == 0, 8, 9))
            return states

        def terminal(self, states):
            return states[:, 1] == 8, (states[:, 3] / 10).astype(np.float32)

        def to_play(self, states):
            return np.where(states[:, 1] == 9, base.CHANCE, 0).astype(np.int8)

        def chances(self, states):
            return np.tile(np.array([2 / 3, 1 / 3, 0, 0, 0, 0], np.float32), (len(states), 1))

    for sure, chosen in ((2, 1), (4, 0)):
        game = Lottery(1)
        game.sure = sure
        states = np.zeros((3, 4), np.int16)
        states[:, 1] = 1
        seat = greedy_moves((1,)).seat(game, states, np.arange(3), [[], [], []])
        assert seat.choose(np.arange(3)).tolist() == [chosen] * 3


def test_the_greedy_player_ends_where_chance_may_lead_to_chance_again():
    game = Again()
    starts = openings(game, 3, 1, seed=0)
    chosen = greedy_moves((1,)).seat(game, starts.states, np.arange(3), starts.moves).choose(np.arange(3))
    assert game.legal(starts.states)[np.arange(3), chosen].all()


def test_the_greedy_player_takes_a_win_of_two_players():
    tictactoe = games.make("tictactoe")
    state = base.after(tictactoe, [0, 3, 1, 4])[None]
    seat = greedy_moves((1,)).seat(tictactoe, state, np.arange(1), [[0, 3, 1, 4]])
    assert seat.choose(np.arange(1)).tolist() == [2]


# intervals


def test_the_interval_of_pairs_is_the_one_by_hand():
    """Scores 1/2, 1, 1/2, with 0 and 1 added: mean 3/5, squares of differences 0.01 + 0.16 + 0.01 + 0.36 + 0.16."""
    half = rating.Z_95 * np.sqrt(0.70 / 5) / np.sqrt(5)
    assert rating.interval_of_sets([0.5, 1, 0.5]) == pytest.approx((0.6 - half, min(1, 0.6 + half)))
    assert rating.interval_of_sets([1.0] * 20)[1] == 1 and rating.interval_of_sets([0.0] * 20)[0] == 0


def test_pairs_that_are_always_shared_leave_little_doubt():
    """Dice that decide every game: 100 games of 50 pairs, one of each pair won. Games alone would give +- 0.096."""
    low, high = rating.interval_of_sets([0.5] * 50)
    assert 0.02 < high - 0.5 == pytest.approx(0.5 - low) and high - 0.5 < 0.03


def test_the_interval_of_pairs_covers_the_truth_as_often_as_it_claims():
    rng, covered = np.random.default_rng(1), 0
    for _ in range(2000):
        sets = rng.choice([0, 0.5, 1], size=20, p=[0.1, 0.5, 0.4])
        low, high = rating.interval_of_sets(sets)
        covered += low <= 0.65 <= high
    assert 0.93 < covered / 2000 < 0.985


# Quantiles by how many numbers there are, from tables; those of 32 and more are not in the program's own.
FEW = {2: 12.706205, 3: 4.302653, 4: 3.182446, 5: 2.776445, 6: 2.570582, 10: 2.262157, 11: 2.228139, 31: 2.042272}
MANY = {32: 2.039513, 61: 2.000298, 1001: 1.962339}


@pytest.mark.parametrize("num, t", (FEW | MANY).items())
def test_the_interval_of_a_mean_is_students(num, t):
    low, high = rating.interval_of_mean(2.0, 3.0, num)
    assert high - 2 == pytest.approx(t * 3 / np.sqrt(num), rel=2e-4) and 2 - low == pytest.approx(high - 2)
    assert rating.interval_of_mean(2.0, 0.0, 1) == (None, None)


def test_scores_are_summed_up_by_hand():
    found = rating.score_summary(tally.Scores(np.array([4.0, 8.0, 6.0, 10.0, 12.0])))
    assert (found["score_mean"], found["score_best"], found["score_worst"], found["score_median"]) == (8, 12, 4, 8)
    assert (found["score_q10"], found["score_q90"]) == pytest.approx((4.8, 11.2))
    assert found["score_mean_high"] - 8 == pytest.approx(2.776445 * np.sqrt(10) / np.sqrt(5), rel=0.01)
    against = rating.versus(tally.Scores(np.array([4.0, 8.0, 6.0])), tally.Scores(np.array([3.0, 8.0, 2.0])))
    assert (against["difference"], against["better"], against["same"], against["worse"]) == (5 / 3, 2, 1, 0)
    assert against["score_mean"] == 13 / 3


def test_the_summary_of_pairs_has_what_a_game_brings_and_elo_from_the_interval_of_pairs():
    result = tally.MatchResult((2, 0, 1), (1, 0, 2), (0.5, 1.0, 0.0), (0.0, 0.5, -0.5))
    found = rating.summary(result)
    assert found["score"] == 0.5 and found["mean_result"] == 0 and found["sets"] == [0.5, 1.0, 0.0]
    assert (found["score_low"], found["score_high"]) == rating.interval_of_sets([0.5, 1, 0])
    low, high = rating.interval_of_sets([0.5, 0.75, 0.25])  # results from -1 to 1 are shares from 0 to 1
    assert (found["mean_result_low"], found["mean_result_high"]) == pytest.approx((2 * low - 1, 2 * high - 1))
    assert found["elo_high"] == pytest.approx(rating.elo(found["score_high"]))


def test_the_summary_of_three_players_has_no_elo():
    share = np.array([[1, 0, 0.5], [1, 1, 0]])
    found = rating.summary(tally.Shares(share, 2 * share - 1, share))
    assert found["score"] == pytest.approx(3.5 / 6) and found["score_by_seat"] == [1, 0.5, 0.25]
    assert found["wins"] == 3 and found["num_games"] == 6 and not any("elo" in name for name in found)
    assert (found["score_low"], found["score_high"]) == rating.interval_of_sets([0.5, 2 / 3])


# the command


@pytest.fixture
def match(monkeypatch, capsys):
    """Return a function that runs `az_mpi match` of a race and returns (status, standard output, standard error)."""

    def run(players, *words):
        monkeypatch.setattr(games, "make", lambda name: Race(players))
        status = main(["match", "greedy", "random", "--game", "race", *map(str, words)])
        return status, *capsys.readouterr()

    return run


def test_a_match_with_dice_has_the_interval_of_its_pairs(match):
    status, out, _ = match(2, "--games", 20, "--json")
    result = json.loads(out)
    assert status == 0 and result["num_games"] == 20 and len(result["sets"]) == 10
    assert (result["score_low"], result["score_high"]) == pytest.approx(rating.interval_of_sets(result["sets"]))
    assert "mean result of A" in match(2, "--games", 4)[1]


def test_a_match_of_three_players_shows_the_share_of_the_points(match, tmp_path):
    file = tmp_path / "games.jsonl"
    status, out, _ = match(3, "--games", 20, "--games_file", file)
    assert status == 0 and "18 games" in out and "equal players have 0.333" in out and "Elo" not in out
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["players"].index("greedy") for row in rows] == [0, 1, 2] * 6
    assert all(sorted(row["results"]) == [-0.5, -0.5, 1] for row in rows) and rows[0]["moves"][0].startswith("throw-")


def test_a_match_of_one_player_compares_scores_on_the_same_seeds(match, tmp_path):
    """Greedy play takes the larger number of each throw: no seed is worse, and a throw's mean is 5 instead of 3.5."""
    file = tmp_path / "games.jsonl"
    status, out, _ = match(1, "--games", 40, "--json", "--games_file", file)
    result = json.loads(out)
    assert status == 0 and result["num_games"] == result["other"]["num_games"] == 40 and result["score_name"] == "cells"
    assert result["other"]["worse"] == 0 and not any("elo" in name for name in result)
    assert result["other"]["difference"] == pytest.approx(result["score_mean"] - result["other"]["score_mean"])
    assert result["other"]["difference_low"] < 6 < result["other"]["difference_high"]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["players"] for row in rows] == [["greedy"]] * 40 + [["random"]] * 40
    assert [row["score"] for row in rows[:40]] == result["scores"]
    assert "Elo" not in match(1, "--games", 4)[1]


@pytest.mark.parametrize(
    "players,words,why",
    [
        (1, ["--sprt", "0", "20"], "games of two players have; race(1) is of 1 player"),
        (3, ["--games_file", "x.pgn"], "PGN is of two players"),
    ],
)
def test_what_a_kind_of_game_does_not_have_is_refused(match, players, words, why):
    status, out, error = match(players, *words)
    assert status == 2 and out == "" and why in error and "Traceback" not in error


@pytest.mark.parametrize("players", [1, 2, 3])
@pytest.mark.parametrize("name", ["gtp(command='gnugo')", "uci(command='stockfish')"])
def test_programs_that_speak_gtp_or_uci_do_not_play_these_games(players, name):
    with pytest.raises(Refusal, match=r"(?s)games of two players without chance moves; race.*take this opponent out"):
        OPPONENTS.make(name, game=Race(players), seed=(1,), rank=0, settings=None, search=None, best=None)
