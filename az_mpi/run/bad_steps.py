"""Optimiser steps whose loss or gradient is not finite. Their batches are kept; after several in a row the weights go
back to a checkpoint.

Every function here is collective over the trainers, root among them.
"""

import functools
import shutil

import torch

from az_mpi.core.files import write_bytes
from az_mpi.core.problems import Refusal
from az_mpi.network import resnet
from az_mpi.run.state import Run
from az_mpi.storage import checkpoint
from az_mpi.storage.checkpoint import Checkpoint, NotFinite, Progress
from az_mpi.train.loss import HEADS

FOLDER = "bad_batches"
KEPT_MAX = 16  # batches, the newest ones
ROLLBACKS_MAX = 3  # in a run: more would halve the learning rate to nothing


def skipped(run: Run, batch, figures):
    """Say that the newest step was skipped and keep its batch; roll back where too many were skipped in a row.

    batch, figures: this trainer's part, and its losses and gradient norm, as `Learner.train` tells its watch.
    """
    learner, progress = run.training.learner, run.progress
    run.report.counters.bad_steps_num += 1
    place = run.setup.folder / FOLDER / f"{progress.step:08d}"
    problems = list(filter(None, learner.world.collect(_keep(learner, progress.step, batch, figures, place))))
    kept = f"its batch could not be kept ({problems[0]})" if problems else f"its batch is kept in {place}"
    finite = learner.world.collect(bool(torch.tensor(figures[: len(HEADS)]).isfinite().all()))
    where = [rank for rank, mine in enumerate(finite) if not mine]
    cause = f"the loss on trainer {where} is not finite" if where else "the gradient is not finite"
    run.report.warn("step %d is skipped: %s (%d in a row); %s", progress.step, cause, progress.bad_steps, kept)
    if progress.bad_steps >= run.setup.config.train.bad_steps_max:
        roll_back(run, f"{progress.bad_steps} steps in a row were not finite")


def check_weights(run: Run):
    """Roll back where the weights are not finite: the last step of a training may have made them so."""
    found = None
    if run.world.is_root:
        try:
            checkpoint.check_finite(run.training.network.state_dict())
        except NotFinite as error:
            found = str(error)
    if found := run.training.learner.world.share(found):
        roll_back(run, f"after step {run.progress.step} {found}")


def roll_back(run: Run, why: str):
    """Go back to the weights and optimiser of the last good checkpoint, and halve the learning rate. A run without a
    checkpoint goes back to its first weights. Steps and games are counted on.

    Sets the learner's `failure` where this was done too often or no such checkpoint is left. Does nothing where root
    can read no more: the run is about to stop."""
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
    learner.network.load_state_dict(good.model)
    learner.load(good.progress, good.optimizer)
    progress.rollbacks += 1
    progress.bad_steps = 0
    text = "%s: back to the weights of %s; from now on the learning rate is %g of what is configured (%d of %d)"
    run.report.warn(text, why, place, 0.5**progress.rollbacks, progress.rollbacks, ROLLBACKS_MAX)


def _keep(learner, step, batch, figures, place):
    """Write this trainer's part of a batch; return what went wrong, in words, or None."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        if learner.world.is_root:
            for old in sorted(place.parent.iterdir())[:-KEPT_MAX]:
                shutil.rmtree(old)
        tensors = dict(zip(("planes", "policy", "value", "weight"), map(torch.as_tensor, batch), strict=True))
        about = {"step": step} | {f"{head}_loss": loss for head, loss in zip(HEADS, figures)}
        tensors, about = {name: tensor.cpu() for name, tensor in tensors.items()}, {k: str(about[k]) for k in about}
        write_bytes(place / f"rank-{learner.world.rank:03d}.safetensors", checkpoint.to_bytes(tensors, about))
    except OSError as error:  # training does not depend on it
        return str(error)
    return None


def _last_good(run):
    """Return (checkpoint, its name) to go back to, or (None, None). Good steps were made from it. On root."""
    good_until, folder, setup = run.training.learner.good_until, run.files.folder / "checkpoints", run.setup
    ours = run.training.network.state_dict()
    look = functools.partial(checkpoint.load_newest, folder, set_aside=False, ours=ours, before_step=good_until)
    try:
        found, lines = run.files.read(folder, look) or (None, [])
    except Refusal as error:  # another network's has been put there
        run.report.warn(error)
        return None, None
    for line in lines:
        run.report.warn(line)
    if found:
        return found, f"checkpoint {checkpoint.path_of(folder, found.progress).name}"
    # A run that has come far does not start from nothing without being told to.
    if good_until and not run.files.writes_no_more and not checkpoint.traces(folder):
        begun = resnet.build(setup.game, setup.config.network, setup.config.seed)
        return Checkpoint(Progress(), begun.state_dict(), {}), "the run's beginning"
    return None, None


def _failure(run, text):
    return (f"training cannot go on: {text}\n"
            f"  the batches are in {run.setup.folder / FOLDER}; start again with a lower --learning_rate, or with\n"
            "  --mixed_precision false")
