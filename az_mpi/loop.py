"""The main loop: play, exchange, train, publish, save, report, evaluate, until the configured number of iterations.

Every function here is collective: every rank calls it, and every rank runs every line of it.
"""

import resource

import numpy as np

from az_mpi import checkpoint, exchange, judge
from az_mpi.checkpoint import Checkpoint
from az_mpi.network import resnet
from az_mpi.report import curve, page
from az_mpi.report.console import ProgressBar
from az_mpi.report.summary import iteration_line
from az_mpi.selfplay import quota


class WeightsDiffer(Exception):
    """After training some ranks hold other weights than root: the run cannot be trusted to go on."""


def train(run):
    """Train until the run is finished; say so if it already is."""
    if restore(run, set_aside=True):
        if finished(run) and judge.judged(run):
            run.say("%s is complete: %s. Nothing to do.", run.folder, _how_far(run))
            if run.world.is_root and not (run.folder / curve.NAME).exists():
                curve.draw(run.folder)
                page.write(run.folder)
            return
        resume(run)
    if evaluation_due(run) and not judge.judged(run):
        judge.evaluate(run)
    while not finished(run):
        iteration(run)
    if run.world.is_root:
        curve.draw(run.folder)
        page.write(run.folder)
    run.say("complete: %s; report in %s", _how_far(run), run.folder / page.NAME)


def iteration(run):
    """One round: self-play, exchange, training, and what keeps and judges their result."""
    run.say("iteration %d of %d", run.progress.iteration + 1, run.config.iterations)
    timers = run.timers
    with timers("play"):
        committed, record = play(run)
    with timers("exchange"):
        new_positions = exchange.exchange(run, committed, record)
    with timers("train"):
        steps = learn(run, new_positions)
    with timers("publish"):
        publish(run)
    run.progress.iteration += 1
    if finished(run) or run.progress.iteration % run.config.checkpoint.every == 0:
        with timers("save"):
            save(run)
    with timers("report"):  # told by the next iteration
        report(run, record, new_positions, steps)
    if evaluation_due(run):
        judge.evaluate(run)


def finished(run):
    """Return whether the run has done what its configuration asks for."""
    limit = run.config.train.max_steps
    return run.progress.iteration >= run.config.iterations or bool(limit and run.progress.step >= limit)


def evaluation_due(run):
    """Return whether the network is to be judged as it is now."""
    every, done = run.config.evaluate.every, run.progress.iteration
    return done > 0 and (finished(run) or bool(every and done % every == 0))


def resume(run):
    """Refill the window from the segments before the checkpoint that was restored, and say where the run stands."""
    exchange.refill(run)
    run.say("resumed after %s (attempt %d)", _how_far(run), run.attempt)
    if run.progress.unfinished_games:
        run.say("  lost: %d games that were under way then, and what was played after it and not yet stored",
                run.progress.unfinished_games)


def restore(run, set_aside):
    """Load the newest whole checkpoint and return whether there is one. set_aside: see `checkpoint.load_newest`."""
    newest = None
    if run.world.is_root:
        newest, lines = checkpoint.load_newest(run.folder / "checkpoints", set_aside)
        for line in lines:
            run.logger.warning(line)
    if not run.world.share(newest is not None):
        return False
    run.progress = checkpoint.Progress(**run.world.share(vars(newest.progress) if newest else None))
    run.network.load_state_dict(checkpoint.broadcast(run.world, newest and newest.model))
    optimizer = checkpoint.broadcast(run.world, newest and newest.optimizer)
    if run.learner:
        run.learner.load_optimizer(optimizer)
        run.learner.step_index, run.learner.samples_due = run.progress.step, run.progress.samples_due
    publish(run)
    return True


def play(run):
    """Play what this iteration lacks. Return (root's games that a broken-off attempt left, this rank's new games)."""
    config, world, player, index = run.config, run.world, run.player, run.progress.iteration
    committed = exchange.committed(run)
    done = world.share(committed.games["id"].tolist() if world.is_root else None)
    run.restart_evaluator()
    shown = ProgressBar(run.logger, world.is_root, "self-play", "games", run.status)
    if config.selfplay.deterministic:
        ids = quota.game_ids(index, 0, np.arange(config.selfplay.games_num))
        quota.play_share(player, world, index, np.flatnonzero(~np.isin(ids, np.array(done, np.uint64))), shown.update)
    elif len(done) < config.selfplay.games_num:
        quota.play_until(player, world, index, run.attempt, config.selfplay.games_num - len(done), shown.update)
    shown.close()
    return committed, player.take()


def learn(run, new_positions):
    """Train the network on the window; return the number of optimiser steps."""
    steps = 0
    if run.learner:
        steps = run.learner.train(run.replay, new_positions, run.progress.iteration, lambda *what: _summary(run, *what))
        run.progress.step, run.progress.samples_due = run.learner.step_index, run.learner.samples_due
    progress = run.progress
    steps, progress.step, progress.samples_due = run.world.share([steps, progress.step, progress.samples_due])
    return steps


def publish(run):
    """Give the trainers' weights to every rank's engine. Raises WeightsDiffer where ranks disagree."""
    differing = run.world.agree(resnet.weights_hash(run.network) if run.learner else None)
    if differing := [rank for rank in differing if rank < run.trainers_num]:
        raise WeightsDiffer(f"after step {run.progress.step} the weights of rank {differing} differ from rank 0's")
    if run.trainers_num < run.world.size:
        run.network.load_state_dict(checkpoint.broadcast(run.world, run.network.state_dict()))
    run.load_weights()


def save(run):
    """Write a checkpoint, by root, once the segments hold the positions that it counts."""
    run.progress.unfinished_games = int(run.world.sum(np.array([run.player.live.sum()], np.int64))[0])
    if run.world.is_root:
        run.writer.flush()
        content = Checkpoint(run.progress, run.network.state_dict(), run.learner.optimizer_tensors())
        checkpoint.save(run.folder / "checkpoints", content, run.config.checkpoint.keep)


def report(run, record, new_positions, steps):
    """Say and record what the iteration did."""
    games, player = record.games, run.player
    mine = [len(games), int(games["length"].sum()), float(games["outcome"].sum()), player.simulations_num]
    mine += [*run.take_cache_counts(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]  # from KiB
    player.simulations_num = 0
    run.status.staleness = float((run.progress.iteration - 1 - games["iteration"]).mean()) if len(games) else None
    by_rank = np.array(run.world.collect(mine))
    games_num, moves_num, outcome, simulations_num, asked_num, evaluated_num, _ = by_rank.sum(axis=0)
    values = {"iteration": run.progress.iteration, "games_num": int(games_num), "positions_num": new_positions}
    values |= {"steps_num": steps, "mean_length": moves_num / max(games_num, 1)}
    spent = run.timers.take()
    values |= {"first_player_score": 0.5 + 0.5 * outcome / max(games_num, 1), **spent}
    whole = sum(value for name, value in spent.items() if "_idle_" not in name)
    values |= {"overhead_share": 1 - (spent["play_s"] + spent["train_s"]) / whole}
    values |= {"games_per_s": games_num / values["play_s"], "simulations_per_s": simulations_num / values["play_s"]}
    if asked_num:
        values["evaluations_per_s"] = evaluated_num / values["play_s"]
        values["cache_hit_rate"] = 1 - evaluated_num / asked_num
    values |= {"peak_resident_bytes": int(by_rank[:, 6].max())}  # of the largest rank since it started
    values |= {"games_by_rank": by_rank[:, 0].astype(int).tolist()}
    values |= {"positions_by_rank": by_rank[:, 1].astype(int).tolist()}
    run.metrics.write("iteration", run.progress.step, values)
    if run.world.is_root:
        run.logger.info(iteration_line(values))
    else:
        text = "iteration %d: this rank finished %d games, %d positions, outcomes %.0f in sum, %d simulations"
        run.logger.info(text, values["iteration"], *mine[:4])


def _summary(run, step, values):
    run.metrics.write("train", step, values)
    run.say("  step %d: policy loss %.3f, value loss %.3f, gradient norm %.2f, learning rate %.2g", step,
            *(values[name] for name in ("policy_loss", "value_loss", "gradient_norm", "learning_rate")))


def _how_far(run):
    progress = run.progress
    return (f"iteration {progress.iteration} of {run.config.iterations}, {progress.games_num:,} games, "
            f"{progress.positions_num:,} positions, {progress.step:,} steps")
