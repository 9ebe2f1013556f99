"""The learning rate over a run."""

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
        done = iteration / max(iterations - 1, 1)
        floor = settings.final_learning_rate
        rate *= floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return rate * warmup
