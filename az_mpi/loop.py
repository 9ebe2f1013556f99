"""The main loop: play, exchange, train, publish, save, report, evaluate, until the configured number of iterations.

Every function here but `show` is collective: every rank calls it, and every rank runs every line of it.
"""

import resource

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.mpi.control_channel import Lockstep
from az_mpi.mpi.peers import PeerLost
from az_mpi.report import curve, page
from az_mpi.report.console import ProgressBar
from az_mpi.report.summary import iteration_line, losses_text
from az_mpi.run import bad_steps, evaluations, exchange, recovery, resume
from az_mpi.selfplay import quota
from az_mpi.selfplay.record import Record


def train(run):
    """Train until the run is finished; say so if it already is. Raises Stopped where a signal asked for it."""
    resumed = resume.restore(run, set_aside=True)
    resume.mark(run)
    if resumed:
        if finished(run) and evaluations.judged(run):
            run.say("%s is complete: %s. Nothing to do.", run.folder, resume.how_far(run))
            if run.world.is_root and not (run.folder / page.NAME).exists():
                show(run)
            return
        resume.resume(run)
    while True:
        try:
            if evaluation_due(run) and not evaluations.judged(run):
                resume.settle(run)  # no judgement could be kept: it would be asked for again and again
                evaluations.evaluate(run)
            elif not finished(run):
                iteration(run)
            else:
                resume.settle(run)
                complete(run)
                break
        except PeerLost:
            recovery.recover(run)
            if save_due(run):  # root may have died before it did
                resume.save(run)


def complete(run):
    """Let root write the report and say that the run is complete; where it dies meanwhile, another rank does."""
    if run.world.is_root:
        show(run)
    run.say("complete: %s; report in %s", resume.how_far(run), run.folder / page.NAME)
    run.world.barrier()


def show(run):
    """Draw the learning curve and write the report. A run is no less complete where that fails."""
    try:
        curve.draw(run.folder)
        page.write(run.folder)
    except Exception as error:
        expected = isinstance(error, (OSError, Refusal))
        run.logger.warning("the report could not be written: %s; python -m az_mpi report %s tries again", error,
                           run.folder, exc_info=not expected)


def iteration(run):
    """One round: self-play with its exchanges, training, and what keeps and judges their result."""
    progress, timers = run.progress, run.timers
    run.say("iteration %d of %d", progress.iteration + 1, run.config.iterations)
    new_positions = 0
    if progress.phase == "play":
        new_positions = play(run)
        progress.phase = "train"
    with timers("train"):
        steps = learn(run)
    with timers("publish"):
        resume.publish(run)
    progress.iteration, progress.phase = progress.iteration + 1, "play"
    resume.mark(run)
    if save_due(run):
        with timers("save"):
            resume.save(run)
    with timers("report"):  # told by the next iteration
        report(run, new_positions, steps)


def save_due(run):
    """Return whether the run stands at the end of an iteration that is to have a checkpoint."""
    done = run.progress.iteration
    return run.progress.phase == "play" and done > 0 and (finished(run) or done % run.config.checkpoint.every == 0)


def finished(run):
    """Return whether the run has done what its configuration asks for."""
    limit = run.config.train.max_steps
    return run.progress.iteration >= run.config.iterations or bool(limit and run.progress.step >= limit)


def evaluation_due(run):
    """Return whether the network is to be judged as it is now."""
    every, done = run.config.evaluate.every, run.progress.iteration
    return done > 0 and (finished(run) or bool(every and done % every == 0))


def play(run):
    """Play and exchange what this iteration lacks, until all of it is there; return the number of new positions."""
    config, world, player, index = run.config, run.world, run.player, run.progress.iteration
    old = exchange.committed(run)
    done = world.share(old.games["id"].tolist() if world.is_root else None)
    ids = quota.game_ids(index, 0, np.arange(config.selfplay.games_num))
    missing = np.flatnonzero(~np.isin(ids, np.array(done, np.uint64)))  # of a deterministic quota
    missing_num = config.selfplay.games_num - len(done)
    weights = [config.selfplay.weights.get(host, 1.0) for host in world.hosts]
    finished_before = player.finished_num - len(player.finished)  # those were finished while others trained
    run.restart_evaluator()
    shown = ProgressBar(run.logger, world.is_root, "self-play", "games", run.status)
    new_positions, total = 0, None
    while True:
        before = player.simulations_num
        with run.timers("play"), run.counters.playing(world):
            if config.selfplay.deterministic:
                total = quota.play_share(player, run.control, index, missing, weights, shown.update)
            elif missing_num > 0:
                total = quota.play_until(player, run.control, index, run.attempt, finished_before, missing_num,
                                         shown.update, config.exchange.every_s)
        run.counters.played_num += player.simulations_num - before
        with run.timers("exchange"):
            new_positions += exchange.exchange(run, old)
        old = Record.empty(run.game)
        if total and total.save:
            resume.answer_save(run)
        if total and total.stop:
            resume.leave(run)
        if config.selfplay.deterministic or not total or total.finished >= missing_num:
            break
    shown.close()
    _make_due(run, new_positions)
    return new_positions


def _make_due(run, new_positions):
    """Add what the replay ratio asks of the new positions to the samples to be trained on."""
    progress, asked = run.progress, run.config.selfplay.games_num
    games_num = progress.games_num - run.before_play.games_num
    # Ranks that play while others train can make more games than were asked for. Games beyond the quota wait in the
    # window, and the ratio falls. Training on all would take longer each time, and yield still more of them.
    new_positions *= min(1.0, asked / max(games_num, 1))
    progress.samples_due += new_positions * run.config.train.replay_ratio


def learn(run):
    """Train the network on the window, while ranks that do not train play on; return the number of steps."""
    world, progress, player = run.world, run.progress, run.player
    steps, everyone_trains, watch = 0, run.trainers_num == world.size, StepWatch(run)
    if run.partner and not run.learner:
        run.partner.begin()
    if run.learner:
        run.learner.samples_due = progress.samples_due
        steps = run.learner.train(run.replay, progress.iteration, lambda *what: _summary(run, *what), watch)
        if not run.learner.failure:
            bad_steps.check_weights(run)
        if run.partner:
            run.partner.finish(progress, run.learner)
    if run.learner or run.config.selfplay.deterministic:
        if not everyone_trains:
            saves = []

            def all_done(total):
                saves.append(total.save)
                return total.done == run.trainers_num

            run.control.wait(all_done, done=run.learner is not None)
            if any(saves) and run.learner and not run.learner.failure:
                resume.answer_save(run)
    else:
        before = player.simulations_num
        run.status.enter("play")
        with run.counters.playing(world):
            quota.play_meanwhile(player, run.control, progress.iteration, run.attempt, run.trainers_num)
        run.counters.meanwhile_num += player.simulations_num - before
    if run.partner and not run.learner:
        run.partner.settle()
    failure = run.learner and run.learner.failure
    told = [steps, progress.step, progress.samples_due, progress.bad_steps, progress.rollbacks, watch.stopped, failure]
    steps, progress.step, progress.samples_due, progress.bad_steps, progress.rollbacks, stopped, failure = (
        world.share(told))
    if failure:
        resume.give_up(run, failure)
    if stopped:
        resume.leave(run)
    return steps


class StepWatch:
    """What a trainer looks at around each step: whether one of them was asked to save or to stop."""

    def __init__(self, run):
        self.run, self.stopped = run, False
        self.lockstep = run.learner and Lockstep(run.learner.world, run.control.requests)

    def begin(self):
        self.lockstep.begin()

    def bad_step(self, batch, figures):
        run, learner = self.run, self.run.learner
        run.progress.step, run.progress.samples_due = learner.step_index, learner.samples_due
        bad_steps.skipped(run, batch, figures)

    def short_of_memory(self, ranks):
        text = "out of memory on trainer %s in step %d: from now on all trainers take at most %d samples at once"
        self.run.say(text, ranks, self.run.learner.step_index + 1, self.run.learner.micro_batch)

    def before_change(self):
        if self.run.partner:
            self.run.partner.settle()

    def end(self):
        """Return whether to stop here. The same on all trainers."""
        run, learner, total = self.run, self.run.learner, self.lockstep.end()
        run.progress.step, run.progress.samples_due = learner.step_index, learner.samples_due
        run.progress.bad_steps = learner.bad_steps
        if run.partner and learner.step_index % run.config.fault.copy_every == 0:
            run.partner.send(run.progress, learner)
        if run.trainers_num < run.world.size:
            heard = run.control.look()
            run.control.requests.save |= bool(heard and heard.save)
        if total.save:
            resume.answer_save(run)
        self.stopped = total.stop > 0
        return self.stopped


def report(run, new_positions, steps):
    """Say and record what the iteration did."""
    world, counters = run.world, run.counters.take(run.world)
    losses = run.learner.iteration_losses() if run.learner else {}  # this rank's part
    mine = [*run.take_cache_counts(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, losses]  # from KiB
    *counts, losses = zip(*world.collect(mine))
    asked, evaluated, peak = map(np.array, counts)
    games_num = counters["games_num"].sum()
    values = {"iteration": run.progress.iteration, "games_num": int(games_num), "positions_num": new_positions}
    values |= {"games_asked_num": run.config.selfplay.games_num}
    values |= {"steps_num": steps} | {name: sum(part.get(name, 0.0) for part in losses) for name in losses[0]}
    values |= {"mean_length": counters["positions_num"].sum() / max(games_num, 1)}
    values |= {"first_player_score": 0.5 + 0.5 * counters["outcome"].sum() / max(games_num, 1)}
    values |= {"mean_staleness": counters["staleness"].sum() / max(games_num, 1)}
    run.status.staleness = values["mean_staleness"]
    values |= (spent := run.timers.take())
    play_s = spent.get("play_s", 0.0)
    whole = sum(value for name, value in spent.items() if "_idle_" not in name)
    values |= {"overhead_share": 1 - (play_s + spent["train_s"]) / whole}
    # Of ranks that play while others train, and of the same ranks while all play.
    meanwhile, alone = counters["meanwhile_num"].sum(), counters["played_num"][run.trainers_num :].sum()
    searching_s = play_s + (spent["train_s"] if meanwhile else 0.0)
    if play_s:  # not an iteration that was resumed in its training
        values |= {"games_per_s": games_num / searching_s, "simulations_per_s": counters["played_num"].sum() / play_s}
    if meanwhile:
        values["meanwhile_simulations_per_s"] = meanwhile / spent["train_s"]
    if meanwhile and alone:
        values["meanwhile_share"] = meanwhile / spent["train_s"] / (alone / play_s)
    if asked.any():
        values["cache_hit_rate"] = 1 - evaluated.sum() / asked.sum()
    if asked.any() and searching_s:
        values["evaluations_per_s"] = evaluated.sum() / searching_s
    values |= {"bad_steps_num": int(counters["bad_steps_num"][0]), "rollbacks_num": run.progress.rollbacks}
    values |= {"exchanges_num": int(counters["exchanges_num"][0])}
    values |= {f"{name}_bytes": int(counters[f"{name}_bytes"].sum()) for name in ("exchange", "publish")}
    values |= {"peak_resident_bytes": int(peak.max())}  # of the largest rank since it started
    values |= {f"{name}_by_rank": counters[f"{name}_num"].astype(int).tolist() for name in ("games", "positions")}
    values["playing_s_by_rank"] = counters["playing_s"].round(4).tolist()
    if not (run.writer and run.writer.ended):  # else it is not on disk, and will be done again
        run.metrics.write("iteration", run.progress.step, values)
    if world.is_root:
        run.logger.info(iteration_line(values))
    else:
        text = "iteration %d: this rank gave %d games, %d positions; %d simulations, %d of them while others trained"
        counts = [counters[f"{name}_num"][world.rank] for name in ("games", "positions", "played", "meanwhile")]
        text = "; ".join([text, *filter(None, [losses_text(values)])])
        run.logger.info(text, values["iteration"], *counts[:2], counts[2] + counts[3], counts[3])


def _summary(run, step, values):
    run.metrics.write("train", step, values)
    run.say("  step %d: %s, gradient norm %.2f, learning rate %.2g", step, losses_text(values), values["gradient_norm"],
            values["learning_rate"])
