"""What the result of a match says: score, its 95 % interval, and the Elo difference.

A draw counts as half a win: score = (wins + draws / 2) / games.
"""

import math

Z_95 = 1.959963984540054  # the standard normal distribution lies within +- this with probability 0.95


def score_interval(score, games_num):
    """Return the 95 % interval of a true score by Wilson (1927), from the mean score of `games_num` games.

    The score is used as if it were a proportion of wins. A score with draws varies less from game to game than that,
    so the interval is too wide rather than too narrow. It takes the games as independent of each other.
    """
    square = Z_95**2 / games_num
    middle = (score + square / 2) / (1 + square)
    half = Z_95 / (1 + square) * math.sqrt(score * (1 - score) / games_num + square / (4 * games_num))
    # At the ends the bound is exactly 0 or 1; rounding must not hide it.
    return 0.0 if score == 0 else middle - half, 1.0 if score == 1 else middle + half


def elo(score):
    """Return the difference in Elo that a score stands for, 400 log10(s / (1 - s)).

    That is the model of Bradley and Terry (1952) on Elo's scale: 400 points are odds of ten to one. None for 0 and 1,
    for which it is not finite (JSON has no infinity).
    """
    return 400 * math.log10(score / (1 - score)) if 0 < score < 1 else None


def summary(result):
    """Return a `MatchResult` with its score and Elo as a dict of plain numbers; an unbounded Elo is None."""
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
