"""The score of a match, its 95 % interval, and the difference in Elo.

A draw counts as half a win: score = (wins + draws / 2) / games.
"""

import math
from typing import Any

from az_mpi.evaluate.arena import MatchResult

Z_95 = 1.959963984540054  # the standard normal distribution lies within +- this with probability 0.95


def score_interval(score: float, games_num: int) -> tuple[float, float]:
    """Return the 95 % interval of the true score (Wilson 1927), from the mean score of `games_num` independent games.

    The score is treated as a proportion of wins. With draws it varies less than that, so the interval is rather too
    wide than too narrow.
    """
    square = Z_95**2 / games_num
    middle = (score + square / 2) / (1 + square)
    half = Z_95 / (1 + square) * math.sqrt(score * (1 - score) / games_num + square / (4 * games_num))
    # At the ends the bound is exactly 0 or 1; rounding must not hide it.
    return 0.0 if score == 0 else middle - half, 1.0 if score == 1 else middle + half


def elo(score: float) -> float | None:
    """Return the difference in Elo for a score s, 400 log10(s / (1 - s)); None for 0 and 1, where it is infinite (JSON
    has no infinity). Bradley and Terry (1952), on Elo's scale: 400 points are odds of ten to one."""
    return 400 * math.log10(score / (1 - score)) if 0 < score < 1 else None


def summary(result: MatchResult) -> dict[str, Any]:
    """Return a `MatchResult` with its score and Elo as a dict of plain numbers; an infinite Elo is None."""
    n = result.games_num
    score = (result.wins + result.draws / 2) / n
    low, high = score_interval(score, n)
    win_low, win_high = score_interval(result.wins / n, n)
    return {
        "wins": result.wins,
        "draws": result.draws,
        "losses": result.losses,
        "games_num": n,
        "as_first": list(result.as_first),
        "as_second": list(result.as_second),
        "win_rate": result.wins / n,
        "win_rate_low": win_low,
        "win_rate_high": win_high,
        "score": score,
        "score_low": low,
        "score_high": high,
        "elo": elo(score),
        "elo_low": elo(low),
        "elo_high": elo(high),
    }
