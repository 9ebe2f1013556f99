"""One iteration's training. Each rank has a role: it trains, or plays meanwhile, or waits; one may also be the partner,
which keeps a copy of the only trainer's state."""

from collections.abc import Callable
from typing import NamedTuple

from az_mpi.mpi.control_channel import ControlChannel
from az_mpi.run import bad_steps
from az_mpi.run.state import Run
from az_mpi.selfplay import quota
from az_mpi.telemetry.summary import losses_text
from az_mpi.train.learner import Watch


class Outcome(NamedTuple):
    """How a training ended, the same on every rank."""

    num_steps: int
    stop: bool  # it ended early, since a rank was asked to stop
    failure: str | None  # why training cannot continue


def learn(run: Run, save: Callable[[], None], share: float | None = None) -> Outcome:
    """Train on the window, every rank in its role. Collective.

    save(): called on root if a signal asks for a checkpoint meanwhile. Not collective. share: how much of a training on
    given games is done, see `Learner.train`; then nobody plays meanwhile. None: in a run that plays.
    """
    training, progress = run.training, run.progress
    progress.hours = run.world.share(run.hours())  # rate and batch follow this clock
    outcome = Outcome(0, False, None)
    if training.partner and not training.learner:
        training.partner.begin()
    if training.learner:
        outcome = _train(run, save, share)
    elif run.setup.config.selfplay.deterministic or share is not None:
        run.control.wait(lambda total: total.done == training.num_trainers)
    else:
        _play_meanwhile(run)
    if training.partner and not training.learner:
        training.partner.settle()
    progress.hours = run.hours()
    outcome, reached = run.world.share([outcome, vars(progress)])
    for name in ("step", "samples_due", "bad_steps", "rollbacks", "hours"):
        setattr(progress, name, reached[name])
    return Outcome(*outcome)


def _train(run, save, share):
    """Take optimiser steps until no samples are due or a stop is requested. Collective over the trainers."""
    training, learner, saves = run.training, run.training.learner, []
    watch = _Watch(run, save)

    def everyone_is_done(total):
        saves.append(total.save)
        return total.done == training.num_trainers

    num_steps = learner.train(training.replay, run.progress, lambda *what: _summary(run, *what), watch, share)
    if not learner.failure:
        bad_steps.check_weights(run)
    if training.partner:
        training.partner.finish(run.progress, learner)
    if training.num_trainers < run.world.size:
        run.control.wait(everyone_is_done, done=True)
        if any(saves) and not learner.failure:
            save()
    return Outcome(num_steps, watch.stop, learner.failure)


def _play_meanwhile(run):
    """Play for the next iteration until every trainer is done. On the ranks that do not train."""
    player, counters = run.playing.player, run.report.counters
    before = player.num_simulations
    run.report.status.enter("play")
    abandon_stale(run, run.progress.iteration + 1)  # in which the games that end now are exchanged
    with counters.playing(run.world):
        quota.play_meanwhile(player, run.control, run.progress.iteration, run.start, run.training.num_trainers)
    counters.num_meanwhile += player.num_simulations - before


def abandon_stale(run: Run, iteration: int) -> None:
    """Give up games under way that would be older than `selfplay.max_staleness` when `iteration` exchanges them. Not
    collective."""
    if most := run.setup.config.selfplay.max_staleness:
        run.report.counters.num_abandoned += run.playing.player.abandon(iteration - most)


def _summary(run, step, values):
    run.report.metrics.write("train", step, values)
    run.report.say(
        "  step %d: %s, gradient norm %.2f, learning rate %.2g",
        step,
        losses_text(values),
        values["gradient_norm"],
        values["learning_rate"],
    )


class _Watch(Watch):
    """What a trainer of a run does around each optimiser step."""

    def __init__(self, run: Run, save: Callable[[], None]):
        self.run, self.save, self.stop = run, save, False
        self.trainers = ControlChannel(run.training.learner.world, run.control.requests, every_s=0.0)

    def begin(self):
        self.trainers.poll()  # starts a sum of requests beside the step

    def bad_step(self, batch, figures):
        bad_steps.skipped(self.run, batch, figures)

    def short_of_memory(self, ranks):
        text = "out of memory on trainer %s in step %d: from now on all trainers take at most %d samples at once"
        self.run.report.say(text, ranks, self.run.progress.step + 1, self.run.training.learner.micro_batch)

    def before_change(self):
        """Wait until the copy under way has arrived: it is made of the weights that are about to change."""
        if self.run.training.partner:
            self.run.training.partner.settle()

    def end(self):
        run, training = self.run, self.run.training
        total = self.trainers.wait(lambda total: True)
        if training.partner and run.progress.step % run.setup.config.fault.copy_every == 0:
            training.partner.send(run.progress, training.learner)
        if training.num_trainers < run.world.size:  # a rank that does not train may have been asked to save
            heard = run.control.poll()
            run.control.requests.save |= bool(heard and heard.save)
        if total.save:
            self.save()
        self.stop = total.stop > 0
        return self.stop
