"""The learning rate and the batch size over a run."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from az_mpi.config import schema


def learning_rate(settings: "schema.Train", step: int, iteration: int, iterations: int) -> float:
    """Return the rate for optimiser step `step` (from 0) in `iteration` (from 0) of `iterations`.

    settings: `config.train`. The rate rises linearly over the first `warmup_steps`. With the cosine schedule it also
    falls over the iterations, from `learning_rate` to `final_learning_rate` times that (Loshchilov and Hutter 2017,
    equation 5).
    """
    warmup = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    rate = settings.learning_rate
    if settings.schedule == "cosine":
        floor = settings.final_learning_rate
        rate *= floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * _done(iteration, iterations)))
    return rate * warmup


def batch_size(settings: "schema.Train", iteration: int, iterations: int) -> int:
    """Return the number of samples in each step of `iteration` (from 0) of `iterations`.

    It grows from `batch_size` to `batch_growth` times that, by the same factor in each iteration (Smith et al. 2018,
    "Don't decay the learning rate, increase the batch size").
    """
    return round(settings.batch_size * settings.batch_growth ** _done(iteration, iterations))


def _done(iteration, iterations):
    """Return how much of the run is done, from 0 in its first iteration to 1 in its last."""
    return min(iteration / max(iterations - 1, 1), 1.0)
