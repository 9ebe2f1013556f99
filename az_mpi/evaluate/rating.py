"""The score of a match with its 95 % interval, the difference in Elo, and scores of games of one player.

Of two players a draw counts as half a win: score = (wins + draws / 2) / games. Of more it is the share of the points,
see `tally.share_of`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from az_mpi.evaluate.tally import MatchResult, Scores, Shares

Z_95 = 1.959963984540054  # the standard normal distribution lies within +- this with probability 0.95
# Student's t for 95 % and 1, 2, ... degrees of freedom, see `student`.
STUDENT = [
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
]


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


def interval_of_sets(sets: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the true mean score, from the scores of n independent sets of games, in [0, 1].

    The games of a set, which have the same dice, are not independent of each other; sets are. Two sets are added, one
    that scored 0 and one that scored 1, so that the interval is of use with few sets too, and with sets that are all
    alike: what Agresti and Coull (1998, "Approximate is better than exact") propose for proportions."""
    num = len(sets) + 2
    mean = (sum(sets) + 1) / num
    half = Z_95 * math.sqrt(variance_of_sets(sets) / num)
    return max(0.0, mean - half), min(1.0, mean + half)


def variance_of_sets(sets: Sequence[float]) -> float:
    """Return the variance of the scores of sets, with the two sets that `interval_of_sets` adds."""
    return float(np.var([*sets, 0.0, 1.0]))


def student(degrees: int) -> float:
    """Return the quantile of Student's t that bounds a 95 % interval, for so many degrees of freedom, at least 1.

    Beyond the table it is the expansion around the normal one (Abramowitz and Stegun, 26.7.5), exact to six digits."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    z, v = Z_95, degrees
    t = z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
    return t + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)


def interval_of_mean(mean: float, deviation: float, num: int) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the true mean of a number without bounds: Student's t. deviation: of the `num`
    numbers, with num - 1 in its denominator. (None, None) for a single number."""
    if num < 2:
        return None, None
    half = student(num - 1) * deviation / math.sqrt(num)
    return mean - half, mean + half


def elo(score: float) -> float | None:
    """Return the difference in Elo for a score s, 400 log10(s / (1 - s)); None for 0 and 1, where it is infinite (JSON
    has no infinity). Bradley and Terry (1952), on Elo's scale: 400 points are odds of ten to one."""
    return 400 * math.log10(score / (1 - score)) if 0 < score < 1 else None


def summary(result: MatchResult | Shares | Scores) -> dict[str, Any]:
    """Return the result of a match with its score as a dict of plain numbers. Of two players it has the Elo too; an
    infinite Elo is None. Where the games come in sets with the same dice, "sets" has the score of each. Games that
    were given up are counted in "num_forfeits", if there are any. Of one player: see `score_summary`."""
    if isinstance(result, Scores):
        return score_summary(result)
    found = _of_two(result) if isinstance(result, MatchResult) else _of_several(result)
    return found | ({"num_forfeits": result.num_forfeits} if result.num_forfeits else {})


def _of_two(result):
    n = result.num_games
    found = {name: getattr(result, name) for name in ("wins", "draws", "losses", "num_games")}
    found |= {"as_first": list(result.as_first), "as_second": list(result.as_second)}
    for name, share in (("win_rate", result.wins / n), ("score", (result.wins + result.draws / 2) / n)):
        low, high = score_interval(share, n)
        found |= {name: share, f"{name}_low": low, f"{name}_high": high}
    if result.pairs:
        found |= _of_sets(result.pairs, result.results)
    return found | {f"elo{end}": elo(found[f"score{end}"]) for end in ("", "_low", "_high")}


def _of_several(result):
    num_sets, num_players = result.share.shape
    sets, results = result.share.mean(axis=1).tolist(), result.result.mean(axis=1).tolist()
    return {
        "num_games": result.num_games,
        "num_players": num_players,
        "score": float(np.mean(sets)),
        "score_by_seat": result.share.mean(axis=0).tolist(),
        "wins": int((result.ahead == 1).sum()),
        **_of_sets(sets, results),
    }


def _of_sets(sets, results):
    """Return what is known of sets of games by their scores and mean results."""
    low, high = interval_of_sets(sets)
    result_low, result_high = (2 * end - 1 for end in interval_of_sets([(1 + result) / 2 for result in results]))
    found = {"score_low": low, "score_high": high, "sets": list(sets), "mean_result": float(np.mean(results))}
    return found | {"mean_result_low": result_low, "mean_result_high": result_high}


QUANTILES = {"q10": 0.1, "median": 0.5, "q90": 0.9}


def score_summary(result: Scores) -> dict[str, Any]:
    """Return the scores of one player as a dict of plain numbers: their mean with its 95 % interval, the best, the
    worst and quantiles, and "scores", the score of each game."""
    scores = result.scores
    mean = float(scores.mean())
    low, high = interval_of_mean(mean, float(scores.std(ddof=1)) if len(scores) > 1 else 0.0, len(scores))
    found = {"num_games": len(scores), "score_mean": mean, "score_mean_low": low, "score_mean_high": high}
    found |= {"score_best": float(scores.max()), "score_worst": float(scores.min())}
    found |= {f"score_{name}": float(np.quantile(scores, share)) for name, share in QUANTILES.items()}
    return found | {"scores": scores.tolist()}


def versus(ours: Scores, theirs: Scores) -> dict[str, Any]:
    """Return the `score_summary` of `theirs`, and how much more `ours` has: the mean difference of games with the same
    seed with its 95 % interval, and how many of them are better, the same and worse."""
    differences = ours.scores - theirs.scores
    return score_summary(theirs) | difference(differences.tolist())


def difference(differences: Sequence[float]) -> dict[str, Any]:
    """Return what is known of differences between the scores of games with the same seed, as plain numbers."""
    values = np.asarray(differences, float)
    mean = float(values.mean())
    low, high = interval_of_mean(mean, float(values.std(ddof=1)) if len(values) > 1 else 0.0, len(values))
    counts = {"better": (values > 0).sum(), "same": (values == 0).sum(), "worse": (values < 0).sum()}
    return {"difference": mean, "difference_low": low, "difference_high": high} | {k: int(n) for k, n in counts.items()}


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


def bradley_terry(points: np.ndarray, spread: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return (Elo float64 [n], its standard error float64 [n]) of n players; the first one has 0, without error.

    points: float64 [n, n], what player i scored against j, a draw as 0.5 for both. All players must be linked by
    matches. Each match counts one drawn game more than was played, so that no rating is infinite. The maximum of the
    likelihood by Newton's method (Bradley and Terry 1952); the errors are from its curvature there.

    spread: float64 [n, n], the variance of what i scored against j, where it is known because their games come in sets
    that are not independent; nan elsewhere. The errors are then those of a "sandwich" (Huber 1967).
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
    inverse = np.linalg.inv(curvature[1:, 1:])
    varied = weights if spread is None else np.where(np.isnan(spread), weights, spread)
    scatter = np.diag(varied.sum(axis=1)) - varied
    errors = np.sqrt(np.concatenate([[0], np.diag(inverse @ scatter[1:, 1:] @ inverse)]))
    scale = 400 / math.log(10)
    return scale * strength, scale * errors
