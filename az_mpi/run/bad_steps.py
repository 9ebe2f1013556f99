"""Optimiser steps whose loss or gradient is not finite: their batches are kept, and after several in a row the weights
go back to a checkpoint.

Every function here is collective over the trainers, root among them.
"""

import functools
import shutil

import torch

from az_mpi.core.files import write_bytes
from az_mpi.core.problems import Refusal
from az_mpi.network import resnet
from az_mpi.storage import checkpoint
from az_mpi.storage.checkpoint import Checkpoint, NotFinite, Progress
from az_mpi.storage.writer import insist
from az_mpi.train.loss import HEADS

FOLDER = "bad_batches"
KEPT_MAX = 16  # batches, the newest ones
ROLLBACKS_MAX = 3  # in a run: more of them would halve the learning rate to nothing


def skipped(run, batch, figures):
    """Say that the learner's newest step was skipped and keep its batch; roll back where it was one too many.

    batch, figures: this trainer's part, and of that the losses and the norm, as the learner tells its watch.
    """
    learner = run.learner
    run.counters.bad_steps_num += 1
    place = run.folder / FOLDER / f"{learner.step_index:08d}"
    problems = [problem for problem in learner.world.collect(_keep(learner, batch, figures, place)) if problem]
    kept = f"its batch could not be kept ({problems[0]})" if problems else f"its batch is kept in {place}"
    own = learner.world.collect(bool(torch.tensor(figures[: len(HEADS)]).isfinite().all()))
    where = [rank for rank, finite in enumerate(own) if not finite]
    cause = f"the loss on trainer {where} is not finite" if where else "the gradient is not finite"
    _warn(run, "step %d is skipped: %s (%d in a row); %s", learner.step_index, cause, learner.bad_steps, kept)
    if learner.bad_steps >= run.config.train.bad_steps_max:
        roll_back(run, f"{learner.bad_steps} steps in a row were not finite")


def check_weights(run):
    """Roll back where the weights themselves are not finite, which the last step of a training may leave."""
    found = None
    if run.world.is_root:
        try:
            checkpoint.check_finite(run.network.state_dict())
        except NotFinite as error:
            found = str(error)
    if found := run.learner.world.share(found):
        roll_back(run, f"after step {run.learner.step_index} {found}")


def roll_back(run, why):
    """Take weights and optimiser of the last good checkpoint, or in a run without any those that it began with, and
    halve the learning rate; steps and games go on being counted. Where that was done too often, or no such checkpoint
    is left, the learner has a `failure` instead. Nothing is done where root can read no more: the run is about to
    stop."""
    learner, progress = run.learner, run.progress
    if progress.rollbacks >= ROLLBACKS_MAX:
        learner.failure = _failure(run, f"{why}, also after {ROLLBACKS_MAX} times going back to a checkpoint")
        return
    found, place = _last_good(run) if run.world.is_root else (None, None)
    ended = bool(run.world.is_root and run.writer.ended)
    place, ended = learner.world.share([place, ended])
    if ended:
        return
    if place is None:
        learner.failure = _failure(run, f"{why}, and there is nothing from before them to go back to")
        return
    good = checkpoint.share(learner.world, found)
    learner.network.load_state_dict(good.model)
    learner.load_optimizer(good.optimizer)
    progress.rollbacks += 1
    progress.bad_steps = 0
    take_over(learner, progress)
    learner.good_until = good.progress.step - good.progress.bad_steps
    _warn(run, "%s: back to the weights of %s; from now on the learning rate is %g of what is configured (%d of %d)",
          why, place, learner.rate_factor, progress.rollbacks, ROLLBACKS_MAX)


def take_over(learner, progress):
    """Let the learner go on where `progress` is."""
    learner.step_index, learner.samples_due = progress.step, progress.samples_due
    learner.bad_steps, learner.rate_factor = progress.bad_steps, 0.5**progress.rollbacks
    learner.good_until = progress.step - progress.bad_steps


def _keep(learner, batch, figures, place):
    """Write this trainer's part of a batch and return what went wrong, in words, or None."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        if learner.world.is_root:
            for old in sorted(place.parent.iterdir())[:-KEPT_MAX]:
                shutil.rmtree(old)
        tensors = dict(zip(("planes", "policy", "value", "weight"), map(torch.as_tensor, batch), strict=True))
        about = {"step": learner.step_index} | {f"{head}_loss": loss for head, loss in zip(HEADS, figures)}
        tensors, about = {name: tensor.cpu() for name, tensor in tensors.items()}, {k: str(about[k]) for k in about}
        write_bytes(place / f"rank-{learner.world.rank:03d}.safetensors", checkpoint.to_bytes(tensors, about))
    except OSError as error:  # training does not depend on it
        return str(error)
    return None


def _last_good(run):
    """Return (checkpoint, its name) to go back to, or (None, None): one from which good steps were made."""
    good_until, folder = run.learner.good_until, run.folder / "checkpoints"
    ours = run.network.state_dict()
    look = functools.partial(checkpoint.load_newest, folder, set_aside=False, ours=ours, before_step=good_until)
    try:
        found, lines = insist(run.writer, folder, look) or (None, [])
    except Refusal as error:  # another network's has been put there
        run.logger.warning(error)
        return None, None
    for line in lines:
        run.logger.warning(line)
    if found:
        return found, f"checkpoint {checkpoint.path_of(folder, found.progress).name}"
    # A run that has come far does not start from nothing without being told to.
    if good_until and run.writer.ended is None and not checkpoint.traces(folder):
        begun = resnet.build(run.game, run.config.network, run.config.seed)
        return Checkpoint(Progress(), begun.state_dict(), {}), "the run's beginning"
    return None, None


def _failure(run, text):
    return (f"training cannot go on: {text}\n"
            f"  the batches are in {run.folder / FOLDER}; start again with a lower --learning_rate, or with\n"
            "  --mixed_precision false")


def _warn(run, text, *values):
    if run.world.is_root:
        run.logger.warning(text, *values)
