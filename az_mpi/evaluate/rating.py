"""The score of a match, its 95 % interval, and the difference in Elo.

A draw counts as half a win: score = (wins + draws / 2) / games.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from az_mpi.evaluate.arena import MatchResult

Z_95 = 1.959963984540054  # the standard normal distribution lies within +- this with probability 0.95


def score_interval(score: float, num_games: int) -> tuple[float, float]:
    """Return the 95 % interval of the true score (Wilson 1927), from the mean score of `num_games` independent games.

    The score is treated as a proportion of wins. With draws it varies less than that, so the interval is rather too
    wide than too narrow.
    """
    square = Z_95**2 / num_games
    middle = (score + square / 2) / (1 + square)
    half = Z_95 / (1 + square) * math.sqrt(score * (1 - score) / num_games + square / (4 * num_games))
    # At the ends the bound is exactly 0 or 1; rounding must not hide it.
    return 0.0 if score == 0 else middle - half, 1.0 if score == 1 else middle + half


def elo(score: float) -> float | None:
    """Return the difference in Elo for a score s, 400 log10(s / (1 - s)); None for 0 and 1, where it is infinite (JSON
    has no infinity). Bradley and Terry (1952), on Elo's scale: 400 points are odds of ten to one."""
    return 400 * math.log10(score / (1 - score)) if 0 < score < 1 else None


def summary(result: MatchResult) -> dict[str, Any]:
    """Return a `MatchResult` with its score and Elo as a dict of plain numbers; an infinite Elo is None."""
    n = result.num_games
    found = {name: getattr(result, name) for name in ("wins", "draws", "losses", "num_games")}
    found |= {"as_first": list(result.as_first), "as_second": list(result.as_second)}
    for name, share in (("win_rate", result.wins / n), ("score", (result.wins + result.draws / 2) / n)):
        low, high = score_interval(share, n)
        found |= {name: share, f"{name}_low": low, f"{name}_high": high}
    return found | {f"elo{end}": elo(found[f"score{end}"]) for end in ("", "_low", "_high")}


ERROR_RATE = 0.05  # of either kind in a sequential test
SPRT_BOUND = math.log((1 - ERROR_RATE) / ERROR_RATE)
PAIR_SCORES = np.array([0, 0.25, 0.5, 0.75, 1])


def expected_score(difference: float) -> float:
    """Return the expected score for a difference in Elo: the inverse of `elo`."""
    return 1 / (1 + 10 ** (-difference / 400))


def log_likelihood_ratio(pairs: Sequence[int], elo0: float, elo1: float) -> float:
    """Return the log-likelihood ratio of the hypotheses that the difference is elo1 and that it is elo0.

    pairs: how many pairs of games scored 0, 0.5, 1, 1.5 and 2. The two games of a pair have the same opening, so they
    are not independent of each other; pairs are. The generalised sequential probability ratio test (Van den Bergh, "A
    practical introduction to the GSPRT", 2020): each hypothesis takes, of the distributions of pairs with its expected
    score, the one under which these pairs are most likely. That is share / (1 + t (score - expected score)).
    """
    counts = np.maximum(np.asarray(pairs, float), 1e-3)  # so that every expected score is possible
    distances0, distances1 = (PAIR_SCORES - expected_score(one) for one in (elo0, elo1))
    t0 = _most_likely(counts, distances0)
    t1 = _most_likely(counts, distances1)
    return float(counts @ np.log((1 + t0 * distances0) / (1 + t1 * distances1)))


def _most_likely(counts, distances):
    """Return the t for which the distribution counts / (1 + t distances) has the mean distance 0."""
    low, high = -1 / distances[-1], -1 / distances[0]  # between them all of it is positive
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if counts @ (distances / (1 + middle * distances)) > 0 else (low, middle)
    return (low + high) / 2


def connected(pairs: Sequence[tuple[str, str]], first: str) -> set[str]:
    """Return the players that are linked to `first` by matches, its own or those of others, with `first` itself.
    pairs: the two players of each match."""
    found = new = {first}
    while new:
        new = {player for pair in pairs if new & {*pair} for player in pair} - found
        found = found | new
    return found


def bradley_terry(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (Elo float64 [n], its standard error float64 [n]) of n players; the first one has 0, without error.

    points: float64 [n, n], what player i scored against j, a draw as 0.5 for both. All players must be linked by
    matches. Each match counts one drawn game more than was played, so that no rating is infinite. The maximum of the
    likelihood by Newton's method (Bradley and Terry 1952); the errors are from its curvature there.
    """
    points = points + ((points + points.T) > 0) * 0.5
    games = points + points.T
    strength = np.zeros(len(points))
    for _ in range(100):
        expected = 1 / (1 + np.exp(strength[None] - strength[:, None]))
        weights = games * expected * (1 - expected)
        curvature = np.diag(weights.sum(axis=1)) - weights
        step = np.linalg.solve(curvature[1:, 1:], (points - games * expected).sum(axis=1)[1:])
        strength[1:] += np.clip(step, -1, 1)
        if np.abs(step).max(initial=0) < 1e-9:
            break
    errors = np.sqrt(np.concatenate([[0], np.diag(np.linalg.inv(curvature[1:, 1:]))]))
    scale = 400 / math.log(10)
    return scale * strength, scale * errors
