"""A model of an iteration's seconds by the number of ranks, fitted to measured sizes, and what follows from it.

T(N) = w / N + a + b log2 N + c N with no negative coefficient. w: work that all ranks share (strong scaling alone; in
weak scaling the work of each rank is in a). b: what grows with the depth of a tree of messages. c: what root or one
file system does for one rank after the other. Errors are relative, so that a short iteration counts like a long one.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from az_mpi.plan.scaling_figures import TERMS, Size

DRAWS = 400  # fits to sizes as they might have been measured, for intervals
FAR = 4  # times the largest measured size: nothing is said of larger ones
CURVES = ("w", "a", "b", "c")
# What lowers each term, by its name, for the last measured size and beyond.
CURES = {
    "tail": "ranks wait for the last games: raise selfplay.num_games, or lower selfplay.parallel_games to at most half "
    "of a rank's games of an iteration",
    "exchange": "exchanges of games: raise exchange.every_s, or selfplay.num_games with fewer iterations",
    "training": "training does not divide further: raise train.batch_size (each rank then computes more samples at "
    "once), lower train.replay_ratio, or let fewer ranks train (train.ranks) while the others play",
    "sums": "sums of gradients: raise train.batch_size, so that an iteration has fewer steps, or let fewer ranks train "
    "(train.ranks)",
    "broadcast": "sending new weights: raise selfplay.num_games, so that there are fewer iterations",
    "write": "root writes checkpoints: raise checkpoint.every, or use a faster file system",
    "rest": "reports and waiting between phases: raise report.summary_frequency, set report.tensorboard=false, or "
    "raise selfplay.num_games, so that there are fewer iterations",
    "play": "self-play does not divide further: raise selfplay.num_games, so that each rank has enough games at once "
    "for its engine",
}


class Useful(NamedTuple):
    """How many ranks are useful: the most whose efficiency is at least the wanted one; low, high: its interval.

    is_beyond: the answer is larger than FAR times the largest measured size, which is given in its place."""

    num_ranks: int
    low: int
    high: int
    is_beyond: bool


class Model(NamedTuple):
    """coefficients: of CURVES. draws: the same of DRAWS fits, [DRAWS, 4]. first: the smallest number of ranks."""

    kind: str
    coefficients: np.ndarray
    draws: np.ndarray
    first: int
    largest: int
    num_sizes: int

    def seconds(self, num_ranks: float) -> tuple[float, float, float]:
        """Return the seconds of an iteration on some ranks with the ends of their 95 % interval."""
        return self._with_ends(basis(num_ranks))

    def efficiency(self, num_ranks: float) -> tuple[float, float, float]:
        """Return games/s of a rank among `num_ranks` divided by that among the smallest measured number, with the ends
        of the 95 % interval."""
        values = self._efficiencies(num_ranks)
        return values[0], *_ends(values[1:])

    def useful(self, least: float) -> Useful:
        """Return how many ranks are useful. least: the efficiency that is wanted, from 0 to 1."""
        candidates = sorted({round(self.first * 2 ** (k / 8)) for k in range(8 * 40)} | {self.largest})
        candidates = [n for n in candidates if self.first <= n <= FAR * self.largest]
        table = np.array([self._efficiencies(n) for n in candidates])  # [sizes, 1 + draws]
        # The efficiency falls with every further rank, apart from a bend of the fit: the first size below ends it.
        found = [
            next((k for k, good in enumerate(column) if not good), len(candidates)) for column in (table >= least).T
        ]
        best, *drawn = [candidates[max(k - 1, 0)] for k in found]
        low, high = _ends(drawn)
        return Useful(best, int(low), int(high), found[0] == len(candidates))

    def _efficiencies(self, num_ranks):
        """Return the efficiency by the fit and by each draw, [1 + draws]."""
        every = np.vstack([self.coefficients, self.draws])
        alone, here = every @ basis(self.first), every @ basis(num_ranks)
        return alone / here * (self.first / num_ranks if self.kind == "strong" else 1.0)

    def _with_ends(self, values):
        return float(self.coefficients @ values), *_ends(self.draws @ values)


def _ends(values):
    return tuple(float(end) for end in np.quantile(values, (0.025, 0.975)))


def basis(num_ranks: float) -> np.ndarray:
    """Return the values of CURVES without their coefficients for a number of ranks, float64 [4]."""
    return np.array([1 / num_ranks, 1.0, math.log2(num_ranks), num_ranks])


def fit(num_ranks: Sequence[int], seconds: Sequence[float] | np.ndarray, curves: str = "abc") -> np.ndarray:
    """Return the coefficients of CURVES, float64 [4], none of them negative, with the least sum of squared relative
    errors; 0 for the curves that are not in `curves`. Every choice of curves is tried, so the result is exact."""
    columns = np.array([basis(n) for n in num_ranks])
    target = np.array(seconds, np.float64)
    scale = np.maximum(np.abs(target), 1e-12)[:, None]
    allowed = [CURVES.index(curve) for curve in curves]
    best, least = np.zeros(4), np.inf
    for chosen in itertools.chain.from_iterable(itertools.combinations(allowed, k) for k in range(1, len(allowed) + 1)):
        if len(chosen) > len(target):
            continue
        found = np.zeros(4)
        found[list(chosen)] = np.linalg.lstsq(columns[:, chosen] / scale, target / scale[:, 0], rcond=None)[0]
        error = float((((columns @ found - target) / scale[:, 0]) ** 2).sum())
        if (found >= 0).all() and error < least - 1e-12:  # of equally good ones that with fewer curves
            best, least = found, error
    return best


def curves_of(kind: str) -> str:
    """Return the curves of a kind of scaling."""
    return "wabc" if kind == "strong" else "abc"


def model(sizes: Sequence[Size]) -> Model | None:
    """Return the model of some sizes of one kind; None if fewer than two of them have cores of their own."""
    chosen = [one for one in sizes if not one.is_crowded]
    if len(chosen) < 2:
        return None
    kind, num_ranks = chosen[0].kind, [one.num_ranks for one in chosen]
    curves = curves_of(kind)
    seconds = np.array([one.iteration_s.value for one in chosen])
    errors = np.array([one.iteration_s.error or 0.0 for one in chosen])
    rng = np.random.default_rng(1)
    drawn = seconds * np.exp(errors * rng.standard_normal((DRAWS, len(chosen))))
    return Model(
        kind=kind,
        coefficients=fit(num_ranks, seconds, curves),
        draws=np.array([fit(num_ranks, row, curves) for row in drawn]),
        first=num_ranks[0],
        largest=num_ranks[-1],
        num_sizes=len(chosen),
    )


def losses(sizes: Sequence[Size]) -> list[tuple[str, float]]:
    """Return (term, share of the largest size's time that is lost to it), the largest first.

    A term loses what it takes beyond its share of the smallest size's time: in strong scaling its seconds there divided
    by the ranks, in weak scaling the same seconds."""
    first, last = sizes[0], [one for one in sizes if not one.is_crowded][-1]
    divided = first.num_ranks / last.num_ranks if first.kind == "strong" else 1.0
    lost = {term: (last.terms[term] - first.terms[term] * divided) / last.iteration_s.value for term in TERMS}
    return sorted(((term, share) for term, share in lost.items() if share > 0), key=lambda row: -row[1])
