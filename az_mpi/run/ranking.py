"""The threshold that `selfplay.ranked_reward` compares results with: the same on every rank in an iteration."""

import functools
from collections.abc import Callable

import numpy as np

from az_mpi.core import files
from az_mpi.run.state import Run
from az_mpi.selfplay import ranked
from az_mpi.selfplay.ranked import Threshold
from az_mpi.selfplay.record import Record
from az_mpi.storage import thresholds
from az_mpi.telemetry.summary import threshold_text


def renew(run: Run) -> None:
    """Let self-play search by the threshold of the iteration under way, while no evaluations are. Collective."""
    found, playing = of_iteration(run, run.progress.iteration), run.playing
    before, playing.threshold, playing.evaluate.threshold = playing.threshold, found, found.result
    if not np.array_equal(before.result, found.result, equal_nan=True):
        # What the trees have found is on the scale of the threshold before, or was proven without one.
        playing.player.restart_searches()
    values = ranked.figures(found)
    run.report.status.threshold = threshold_text(values, run.setup.game.score_name) if values else None


def of_network(run: Run, iteration: int) -> float:
    """Return the result that a network's values compare with, after so many complete iterations; NaN if they are
    results themselves. Collective."""
    return of_iteration(run, iteration - 1).result


def of_iteration(run: Run, iteration: int) -> Threshold:
    """Return the threshold of the games of an iteration. Collective."""
    if not run.setup.config.selfplay.ranked_reward:
        return Threshold()
    return Threshold(*run.world.from_root(lambda: _look(run, iteration)))


def ranker(run: Run) -> Callable[[Record, int], Record]:
    """Return a function of a record and the iteration that it is stored for, which returns it with what its games count
    in training. For root; the function is not collective."""
    result = functools.cache(lambda iteration: _look(run, iteration).result)
    return lambda record, iteration: ranked.ranked(record, result(iteration), run.setup.config.seed)


def _look(run, iteration):
    setup, folder = run.setup, run.files.folder / "games"
    if not setup.config.selfplay.ranked_reward:
        return Threshold()
    run.files.flush()
    if run.files.are_several:
        files.refresh(folder)
    look = functools.partial(thresholds.of_iteration, folder, setup.config, setup.game, iteration)
    return run.files.read(folder, look) or Threshold()
