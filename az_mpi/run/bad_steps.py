"""Optimiser steps whose loss or gradient is not finite: their batches are kept, and after several in a row training
goes back to a checkpoint.

Every public function here is collective over the trainers, which include root.
"""

import functools
import shutil
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from az_mpi.core.files import write_bytes
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.network import resnet
from az_mpi.run import weights
from az_mpi.run.state import Run
from az_mpi.storage import checkpoint
from az_mpi.storage.checkpoint import Checkpoint, NotFinite, Progress

FOLDER = "bad_batches"
KEPT_MAX = 16  # batches; older ones are removed
ROLLBACKS_MAX = 3  # in a run; each halves the learning rate


def skipped(run: Run, batch: Mapping[str, torch.Tensor | np.ndarray], figures: Sequence[float]) -> None:
    """Log that the newest step was skipped and keep its batch; roll back if too many were skipped in a row.

    batch: this trainer's part. figures: its losses and gradient norm. See `Learner.train`.
    """
    learner, progress = run.training.learner, run.progress
    run.report.counters.num_bad_steps += 1
    place = run.setup.folder / FOLDER / f"{progress.step:08d}"
    problems = list(filter(None, learner.world.collect(_keep(learner, progress.step, batch, figures, place))))
    kept = f"its batch could not be kept ({problems[0]})" if problems else f"its batch is kept in {place}"
    finite = learner.world.collect(bool(torch.tensor(figures[:-1]).isfinite().all()))
    where = [rank for rank, mine in enumerate(finite) if not mine]
    cause = f"the loss on trainer {where} is not finite" if where else "the gradient is not finite"
    run.report.warn("step %d is skipped: %s (%d in a row); %s", progress.step, cause, progress.bad_steps, kept)
    if progress.bad_steps >= run.setup.config.train.bad_steps_max:
        roll_back(
            run,
            f"{counted(progress.bad_steps, 'step')} in a row {'was' if progress.bad_steps == 1 else 'were'} not finite",
        )


def check_weights(run: Run) -> None:
    """Roll back if the weights are not finite, which the last step of a training may have caused."""
    found = None
    if run.world.is_root:
        try:
            checkpoint.check_finite(run.training.network.state_dict())
        except NotFinite as error:
            found = str(error)
    if found := run.training.learner.world.share(found):
        roll_back(run, f"after step {run.progress.step} {found}")


def roll_back(run: Run, why: str) -> None:
    """Go back to the weights and optimiser of the last good checkpoint, or without a checkpoint to the first weights of
    the run, and halve the learning rate. The counts of steps and games stay.

    Sets the learner's `failure` if this was done too often, or if no such checkpoint is left. Does nothing if root's
    writer has ended: the run is about to stop."""
    learner, progress = run.training.learner, run.progress
    if progress.rollbacks >= ROLLBACKS_MAX:
        learner.failure = _failure(run, f"{why}, also after {ROLLBACKS_MAX} times going back to a checkpoint")
        return
    found, place = _last_good(run) if run.world.is_root else (None, None)
    place, ended = learner.world.share([place, run.files.writes_no_more])
    if ended:
        return
    if place is None:
        learner.failure = _failure(run, f"{why}, and there is nothing from before them to go back to")
        return
    good = checkpoint.share(learner.world, found)
    run.training.network.load_state_dict(weights.grown(run, good.model))
    learner.load(good.progress, good.optimizer)
    progress.rollbacks += 1
    progress.bad_steps = 0
    text = "%s: back to the weights of %s; from now on the learning rate is %g of what is configured (%d of %d)"
    run.report.warn(text, why, place, 0.5**progress.rollbacks, progress.rollbacks, ROLLBACKS_MAX)


def _keep(learner, step, batch, figures, place):
    """Write this trainer's part of a batch; return the error in words, or None."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        if learner.world.is_root:
            for old in sorted(place.parent.iterdir())[:-KEPT_MAX]:
                shutil.rmtree(old)
        tensors = {name: torch.as_tensor(part).cpu() for name, part in batch.items()}
        losses = {f"{head}_loss": str(loss) for head, loss in zip(learner.network.heads, figures)}
        about = {"step": str(step)} | losses
        write_bytes(place / f"rank-{learner.world.rank:03d}.safetensors", checkpoint.to_bytes(tensors, about))
    except OSError as error:  # training does not depend on it
        return str(error)
    return None


def _last_good(run):
    """Return (the newest checkpoint from which a good step was made, its name), or (None, None). On root."""
    good_until, folder, setup = run.training.learner.good_until, run.files.folder / "checkpoints", run.setup
    ours = run.training.network.state_dict()
    look = functools.partial(checkpoint.load_newest, folder, set_aside=False, ours=ours, before_step=good_until)
    try:
        found, lines = run.files.read(folder, look) or (None, [])
    except Refusal as error:  # a checkpoint of another network has been put there
        run.report.warn(error)
        return None, None
    for line in lines:
        run.report.warn(line)
    if found:
        return found, f"checkpoint {checkpoint.path_of(folder, found.progress).name}"
    # A run that has made good steps does not start again from its first weights if it had checkpoints.
    if good_until and not run.files.writes_no_more and not checkpoint.traces(folder):
        begun = resnet.build(setup.game, setup.config.network, setup.config.seed)
        return Checkpoint(Progress(), begun.state_dict(), {}), "the run's beginning"
    return None, None


def _failure(run, text):
    return (
        f"training cannot continue: {text}\n"
        f"  the batches are in {run.setup.folder / FOLDER}; start again with a lower --learning_rate, or with\n"
        "  --mixed_precision false"
    )
