"""The learning rate and the batch size over a run."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.storage.checkpoint import Progress


def done(config: "schema.Config", progress: "Progress") -> float:
    """Return how much of the run is done: 0 in its first iteration, 1 in its last one.

    With `train.hours` it is the share of these hours, where that is more than the share of the iterations.
    """
    share = progress.iteration / max(config.iterations - 1, 1)
    if config.train.hours:
        share = max(share, progress.hours / config.train.hours)
    return min(share, 1.0)


def learning_rate(settings: "schema.Train", step: int, share: float) -> float:
    """Return the rate for optimiser step `step` (from 0). share: what `done` returns.

    settings: `config.train`. The rate rises linearly over the first `warmup_steps`. With the cosine schedule it also
    falls over the run, from `learning_rate` to `final_learning_rate` times that (Loshchilov and Hutter 2017, equation
    5).
    """
    warmup = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    rate = settings.learning_rate
    if settings.schedule == "cosine":
        floor = settings.final_learning_rate
        rate *= floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))
    return rate * warmup


def batch_size(settings: "schema.Train", share: float) -> int:
    """Return the number of samples in each step. share: what `done` returns.

    It grows from `batch_size` to `batch_growth` times that, by the same factor in each iteration (Smith et al. 2018,
    "Don't decay the learning rate, increase the batch size").
    """
    return round(settings.batch_size * settings.batch_growth**share)
