"""The main loop: play, exchange, train, broadcast the weights, save, report, evaluate, for the configured iterations.

Every function here is collective, which means that every rank calls it and runs every line of it, except for `show`,
`save_now` and `save_in_training`, which root does alone, and those that only look at the run. In training, only this
module acts on a request to stop or to save, and on the loss of a rank; what it calls reports them.
"""

import functools
import shlex

from az_mpi.core.problems import Refusal
from az_mpi.mpi.control_channel import Total
from az_mpi.mpi.peers import PeerLost
from az_mpi.report import html_report
from az_mpi.run import (
    archive,
    evaluation_phase,
    exchange,
    imported,
    iteration_report,
    ranking,
    recovery,
    resume,
    training_phase,
    weights,
)
from az_mpi.run.state import Run
from az_mpi.selfplay import quota
from az_mpi.selfplay.record import Record
from az_mpi.telemetry.progress_bar import ProgressBar


def train(run: Run) -> None:
    """Train until the run is complete; if it already is, say so. Raises Stopped if a signal asked to stop."""
    resumed = resume.restore(run, set_aside=True)
    has_new = imported.take_up(run)
    run.mark()
    if resumed and finished(run) and evaluation_phase.is_done(run):
        return already_complete(run)
    if resumed or has_new:
        resume.resume(run)
    if has_new:
        resume.save(run)  # otherwise a recovery would count them among the games of an iteration under way
    while True:
        try:
            if evaluation_due(run) and not evaluation_phase.is_done(run):
                resume.leave_if_unwritable(run)  # an evaluation that is not stored would be due for ever
                evaluation_phase.evaluate(run, functools.partial(answer, run))
            elif not finished(run):
                iteration(run)
            else:
                resume.leave_if_unwritable(run)
                return complete(run)
        except PeerLost:
            recovery.recover(run)
            if save_due(run):  # root may have died before it saved
                resume.save(run)


def iteration(run: Run) -> None:
    """Do one iteration: self-play with its exchanges, training, broadcasting and saving the weights, reporting."""
    progress, timers = run.progress, run.report.timers
    run.report.say("iteration %d of %d", progress.iteration + 1, run.setup.config.iterations)
    if progress.phase == "play":
        play(run)
        progress.phase = "train"
    with timers("train"):
        outcome = training_phase.learn(run, functools.partial(save_in_training, run))
    if outcome.stop or outcome.failure:
        resume.leave(run, outcome.failure)
    with timers("broadcast"):
        weights.broadcast_weights(run)
        archive.renew(run)
    progress.iteration, progress.phase = progress.iteration + 1, "play"
    run.mark()
    if save_due(run) or run.writers.are_several:
        with timers("save"):
            whole = exchange.settle(run)
            if whole and save_due(run):
                resume.save(run)
            elif whole and run.saves_later:
                save_now(run)
            run.saves_later = False
        if not whole:
            resume.leave(run)
    with timers("report"):  # its seconds are in the next iteration's record
        iteration_report.report(run, outcome.num_steps)


def play(run: Run) -> None:
    """Play the games that this iteration still lacks and exchange them."""
    ranking.renew(run)
    old = exchange.committed(run)
    training_phase.abandon_stale(run, run.progress.iteration)
    games = quota.Quota(run.setup.config.selfplay, run.world, run.progress.iteration, old.games["id"])
    finished_before = run.playing.player.num_finished - len(run.playing.player.finished)  # while others trained
    run.restart_evaluator()
    shown = ProgressBar(run.report.logger, run.world.is_root, "self-play", "games", run.report.status)
    new_positions, done = 0, False
    while not done:
        total = play_on(run, games, finished_before, shown)
        with run.report.timers("exchange"):
            new_positions += exchange.exchange(run, old)
        old = Record.empty(run.setup.game)
        answer(run, total)
        done = games.reached(total)
    shown.close()
    make_due(run, new_positions)


def play_on(run: Run, games: quota.Quota, finished_before: int, shown: ProgressBar) -> Total | None:
    """Play until the quota is reached, an exchange is due, or a rank has a request; return the total that said so."""
    player, counters, config = run.playing.player, run.report.counters, run.setup.config
    before = player.num_simulations
    with run.report.timers("play"), counters.playing(run.world):
        start = 0 if config.selfplay.deterministic else run.start
        total = games.play(player, run.control, start, finished_before, shown.update, config.exchange.every_s)
    counters.num_played += player.num_simulations - before
    return total


def make_due(run: Run, new_positions: int) -> None:
    """Add the samples that the replay ratio asks for new positions to those that are due."""
    progress, config = run.progress, run.setup.config
    num_games = progress.num_games - run.before_play.num_games
    # Ranks that play while others train can make more games than were asked for. Games beyond the quota are in the
    # window but make no samples due: training would take longer, and meanwhile still more games would be played.
    share = min(1.0, config.selfplay.num_games / max(num_games, 1))
    progress.samples_due += new_positions * share * config.train.replay_ratio


def answer(run: Run, total: Total | None) -> None:
    """Do what a signal asked a rank for: save, stop. Raises Stopped. Saving is not collective, stopping is."""
    if total and total.save:
        save_now(run)
    if total and total.stop:
        resume.leave(run)


def save_now(run: Run) -> None:
    """Save a checkpoint, as a signal asked. Not collective: root does it."""
    if resume.save(run):
        run.report.say("saved, as a signal asked: %s", run.how_far())


def save_in_training(run: Run) -> None:
    """Save a checkpoint, as a signal asked in training; behind it where root does not know whether the other writers
    have written all games that the checkpoint counts. Not collective: root does it."""
    if run.writers.are_several:
        run.saves_later = True
    else:
        save_now(run)


def save_due(run: Run) -> bool:
    """Return whether the run is at the end of an iteration that gets a checkpoint."""
    done, every = run.progress.iteration, run.setup.config.checkpoint.every
    return run.progress.phase == "play" and done > 0 and (finished(run) or done % every == 0)


def finished(run: Run) -> bool:
    """Return whether the run has done its iterations, `train.max_steps` or `train.hours`."""
    progress, config = run.progress, run.setup.config
    if progress.phase != "play":
        return False  # an iteration is trained to its end
    steps, hours = config.train.max_steps, config.train.hours
    return bool(
        progress.iteration >= config.iterations or steps and progress.step >= steps or hours and progress.hours >= hours
    )


def evaluation_due(run: Run) -> bool:
    """Return whether the run is at the end of an iteration that gets an evaluation."""
    every, done = run.setup.config.evaluate.every, run.progress.iteration
    is_over = run.progress.phase == "play" and bool(every) and done % every == 0  # not while the next one is trained
    return done > 0 and (finished(run) or is_over)


def already_complete(run: Run) -> None:
    """Log that there is nothing to do; let root write the report if it is missing."""
    run.report.say("%s is complete: %s. Nothing to do.", run.setup.folder, run.how_far())
    if run.world.is_root and not (run.setup.folder / html_report.NAME).exists():
        show(run)


def complete(run: Run) -> None:
    """Let root write the report and log that the run is complete. If root dies meanwhile, the next root does."""
    if run.world.is_root:
        show(run)
    run.report.say("complete: %s; report in %s", run.how_far(), run.setup.folder / html_report.NAME)
    run.report.say("to play against it: python -m az_mpi play %s", shlex.quote(str(run.setup.folder)))
    run.world.barrier()


def fitted(run: Run) -> None:
    """Let root write the report of a run that a fit has trained, and log where it is."""
    if run.world.is_root:
        show(run, complete=False)
    run.report.say("report in %s", run.setup.folder / html_report.NAME)


def show(run: Run, complete: bool = True) -> None:
    """Write the report. If that fails, the run is as it is all the same. complete: whether it is complete."""
    try:
        html_report.write(run.setup.folder, complete)
    except Exception as error:
        expected = isinstance(error, (OSError, Refusal))
        run.report.logger.warning(
            "the report could not be written: %s; python -m az_mpi report %s tries again",
            error,
            run.setup.folder,
            exc_info=not expected,
        )
