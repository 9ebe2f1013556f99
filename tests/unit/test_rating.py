"""Scores, their intervals and Elo against published and hand-computed numbers."""

import json
from math import comb

import pytest

from az_mpi.evaluate.rating import elo, score_interval, summary
from az_mpi.evaluate.tally import MatchResult


@pytest.mark.parametrize(
    "score, num_games, low, high",
    [
        # R: prop.test(8, 10, correct = FALSE), and so on.
        (0.8, 10, 0.4901625, 0.9433178),
        (0.5, 100, 0.4038315, 0.5961685),
        # By hand: with all or nothing won the open bound is z^2 / (n + z^2) from the end, 3.8415 / 13.8415.
        (0.0, 10, 0.0, 0.2775328),
        (1.0, 10, 0.7224672, 1.0),
    ],
)
def test_wilson_interval(score, num_games, low, high):
    assert score_interval(score, num_games) == pytest.approx((low, high), abs=1e-6)


def test_all_or_nothing_touches_the_end_exactly():
    for n in range(1, 300):
        assert score_interval(0.0, n)[0] == 0.0 and score_interval(1.0, n)[1] == 1.0


def test_interval_is_conservative_with_draws():
    """Of all results of 20 games with P(win, draw, loss) = (0.3, 0.4, 0.3), at least 95 % by weight cover 0.5."""
    n, covered = 20, 0.0
    for wins in range(n + 1):
        for draws in range(n + 1 - wins):
            low, high = score_interval((wins + draws / 2) / n, n)
            weight = comb(n, wins) * comb(n - wins, draws) * 0.3**wins * 0.4**draws * 0.3 ** (n - wins - draws)
            covered += weight * (low <= 0.5 <= high)
    assert covered > 0.98


def test_elo():
    assert elo(0.5) == 0.0
    assert elo(0.75) == pytest.approx(190.8485)  # 400 log10(3)
    assert elo(10 / 11) == pytest.approx(400)  # odds of ten to one
    assert elo(0.25) == pytest.approx(-elo(0.75))
    assert elo(0.0) is None and elo(1.0) is None


def test_summary_counts_a_draw_as_half():
    result = summary(MatchResult(as_first=(4, 1, 0), as_second=(3, 1, 1)))
    assert (result["wins"], result["draws"], result["losses"], result["num_games"]) == (7, 2, 1, 10)
    assert result["win_rate"] == 0.7 and result["score"] == 0.8
    assert (result["score_low"], result["score_high"]) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    # 400 log10(0.8 / 0.2), 400 log10(0.4901625 / 0.5098375), 400 log10(0.9433178 / 0.0566822)
    assert (result["elo"], result["elo_low"], result["elo_high"]) == pytest.approx((240.82, -6.84, 488.49), abs=0.01)


@pytest.mark.parametrize("counts, unbounded", [((5, 0, 0), "elo_high"), ((0, 0, 5), "elo_low")])
def test_one_sided_result_is_json(counts, unbounded):
    result = summary(MatchResult(counts, counts))
    assert result["elo"] is None and result[unbounded] is None
    bounded = {"elo_low", "elo_high"} - {unbounded}
    assert abs(result[bounded.pop()]) == pytest.approx(166.20, abs=0.01)  # 400 log10(0.7224672 / 0.2775328)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
