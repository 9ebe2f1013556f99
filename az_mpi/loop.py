"""The main loop: play, exchange, train, save, evaluate, report, until the configured number of iterations.

Every function here is collective: every rank calls it, and every rank runs every line of it.
"""

import json

import numpy as np
import safetensors.torch

from az_mpi import __version__, checkpoint
from az_mpi.checkpoint import Checkpoint
from az_mpi.data import replay, segment
from az_mpi.evaluate import evaluation
from az_mpi.files import whole_file, write_text
from az_mpi.network import resnet
from az_mpi.network.evaluators import NetworkEvaluator
from az_mpi.network.torch_engine import TorchEngine
from az_mpi.report import curve
from az_mpi.report.console import Progress
from az_mpi.report.summary import evaluation_lines, iteration_line
from az_mpi.selfplay import quota
from az_mpi.selfplay.record import Record


class WeightsDiffer(Exception):
    """After training some ranks hold other weights than root: the run cannot be trusted to go on."""


def train(run):
    """Train until the run is finished; say so if it already is."""
    resume(run)
    if finished(run) and evaluated(run):
        run.say("%s is complete: %s. Nothing to do.", run.folder, _how_far(run))
        return
    if evaluation_due(run) and not evaluated(run):
        evaluate(run)
    while not finished(run):
        iteration(run)
    if run.world.is_root:
        curve.draw(run.folder)
    run.say("complete: %s; learning curve in %s", _how_far(run), run.folder / curve.NAME)


def iteration(run):
    """One round: self-play, exchange, training, and what keeps and judges their result."""
    run.say("iteration %d of %d", run.progress.iteration + 1, run.config.iterations)
    timers = run.timers
    with timers("play"):
        committed, record = play(run)
    with timers("exchange"):
        new_positions = exchange(run, committed, record)
    with timers("train"):
        steps = learn(run, new_positions)
    with timers("publish"):
        publish(run)
    run.progress.iteration += 1
    if finished(run) or run.progress.iteration % run.config.checkpoint.every == 0:
        with timers("save"):
            save(run)
    report(run, record, new_positions, steps)
    if evaluation_due(run):
        evaluate(run)


def finished(run):
    """Return whether the run has done what its configuration asks for."""
    limit = run.config.train.max_steps
    return run.progress.iteration >= run.config.iterations or bool(limit and run.progress.step >= limit)


def resume(run):
    """Take up the newest whole checkpoint, if there is one, and refill the window from the segments before it."""
    if not restore(run):
        return
    _refill(run)
    run.say("resumed after %s (attempt %d)", _how_far(run), run.attempt)
    if run.progress.unfinished_games:
        run.say("  %d games that were under way are lost", run.progress.unfinished_games)


def restore(run):
    """Load the newest whole checkpoint and return whether there is one."""
    newest = None
    if run.world.is_root:
        newest, lines = checkpoint.load_newest(run.folder / "checkpoints")
        for line in lines:
            run.logger.warning(line)
    if not run.world.share(newest is not None):
        return False
    run.progress = checkpoint.Progress(**run.world.share(vars(newest.progress) if newest else None))
    run.network.load_state_dict(_broadcast_tensors(run.world, newest and newest.model))
    optimizer = _broadcast_tensors(run.world, newest and newest.optimizer)
    if run.learner:
        run.learner.load_optimizer(optimizer)
        run.learner.step_index, run.learner.samples_due = run.progress.step, run.progress.samples_due
    publish(run)
    return True


def play(run):
    """Play what this iteration lacks. Return (root's games that a broken-off attempt left, this rank's new games)."""
    config, world, player, index = run.config, run.world, run.player, run.progress.iteration
    committed = Record.empty(run.game)
    if world.is_root:
        old = segment.find(run.folder / "games", index)
        committed = Record.join(run.game, [segment.read(s.path, run.game) for s in old])
    done = world.share(committed.games["id"].tolist() if world.is_root else None)
    shown = Progress(run.logger, world.is_root, "self-play", "games")
    if config.selfplay.deterministic:
        ids = quota.game_ids(index, 0, np.arange(config.selfplay.games_num))
        quota.play_share(player, world, index, np.flatnonzero(~np.isin(ids, done)), shown.update)
    elif len(done) < config.selfplay.games_num:
        quota.play_until(player, world, index, run.attempt, config.selfplay.games_num - len(done), shown.update)
    shown.close()
    return committed, player.take()


def exchange(run, committed, record):
    """Store new games as a segment and deal all positions of the iteration to the trainers; return their number."""
    world, progress = run.world, run.progress
    new = record.gather(world)
    if world.is_root and len(new.games):
        segment.write(run.folder / "games", progress.iteration, run.game, new, provenance(run))
        segment.link_all(run.folder / "games", run.folder / "games.h5")
    counts = world.collect([len(committed.positions), len(record.positions), len(record.games)])
    old, before = counts[0][0], sum(count[1] for count in counts[: world.rank])
    _deal(run, committed, progress.positions_num)
    _deal(run, record, progress.positions_num + old + before)
    made = old + sum(count[1] for count in counts)
    progress.positions_num += made
    progress.games_num += world.share(len(committed.games)) + sum(count[2] for count in counts)
    if run.replay:
        run.replay.forget(progress.positions_num - replay.window_size(run.config.replay, progress.positions_num))
    return made


def learn(run, new_positions):
    """Train the network on the window; return the number of optimiser steps."""
    steps = 0
    if run.learner:
        steps = run.learner.train(run.replay, new_positions, run.progress.iteration, lambda *what: _summary(run, *what))
        run.progress.step, run.progress.samples_due = run.learner.step_index, run.learner.samples_due
    run.progress.step, run.progress.samples_due = run.world.share([run.progress.step, run.progress.samples_due])
    return run.world.share(steps)


def publish(run):
    """Give the trainers' weights to every rank's engine. Raises WeightsDiffer where ranks disagree."""
    differing = run.world.agree(resnet.weights_hash(run.network) if run.learner else None)
    if differing := [rank for rank in differing if rank < run.trainers_num]:
        raise WeightsDiffer(f"after step {run.progress.step} the weights of rank {differing} differ from rank 0's")
    if run.trainers_num < run.world.size:
        run.network.load_state_dict(_broadcast_tensors(run.world, run.network.state_dict()))
    run.engine.load(run.network)


def save(run):
    """Write a checkpoint, by root."""
    run.progress.unfinished_games = int(run.world.sum(np.array([run.player.live.sum()], np.int64))[0])
    if run.world.is_root:
        content = Checkpoint(run.progress, run.network.state_dict(), run.learner.optimizer_tensors())
        checkpoint.save(run.folder / "checkpoints", content, run.config.checkpoint.keep)


def evaluation_due(run):
    """Return whether the network is to be judged as it is now."""
    every, done = run.config.evaluate.every, run.progress.iteration
    return done > 0 and (finished(run) or bool(every and done % every == 0))


def evaluated(run):
    """Return whether the network as it is now has been judged already, perhaps before a restart."""
    return run.world.share(_evaluation_file(run).exists())


def evaluate(run):
    """Play the configured matches, write their result, and keep the network if it is the best so far."""
    world, iteration_index = run.world, run.progress.iteration
    best = load_best(run, before=iteration_index)
    with run.timers("evaluate"):
        result = judge(run, best)
    if world.is_root:
        match = result["matches"].get("best")
        result["promoted"] = match is None or match["score"] >= 0.5
        if result["promoted"]:
            with whole_file(run.folder / "best" / f"{iteration_index:06d}.safetensors") as temporary:
                safetensors.torch.save_file(checkpoint.contiguous(run.network.state_dict()), temporary)
        # The file's appearance commits the evaluation: it comes last.
        write_text(_evaluation_file(run), json.dumps(result, indent=1) + "\n")
        run.metrics.write("evaluation", run.progress.step, result)
    return result


def judge(run, best):
    """Return what the configured matches and the exact solver say of the network as it is now."""
    ours = NetworkEvaluator(run.game, run.engine)
    result = evaluation.evaluate(run.world, run.config, run.game, ours, best, run.progress.iteration,
                                 lambda name: Progress(run.logger, run.world.is_root, name, "games"))
    for line in evaluation_lines(result):
        run.say(line)
    return result


def load_best(run, before):
    """Return an evaluator of the best network found before an iteration, or None where there is none."""
    world, tensors = run.world, None
    if world.is_root:
        files = [p for p in sorted((run.folder / "best").glob("*.safetensors")) if int(p.stem) < before]
        tensors = safetensors.torch.load_file(files[-1]) if files else None
    if not world.share(tensors is not None):
        return None
    engine = TorchEngine(run.network, run.engine.device)
    engine.network.load_state_dict(_broadcast_tensors(world, tensors))
    return NetworkEvaluator(run.game, engine)


def report(run, record, new_positions, steps):
    """Say and record what the iteration did."""
    games, player = record.games, run.player
    mine = [len(games), int(games["length"].sum()), float(games["outcome"].sum()), player.simulations_num]
    player.simulations_num = 0
    by_rank = np.array(run.world.collect(mine))
    games_num, moves_num, outcome, simulations_num = by_rank.sum(axis=0)
    values = {"iteration": run.progress.iteration, "games_num": int(games_num), "positions_num": new_positions}
    values |= {"steps_num": steps, "mean_length": moves_num / max(games_num, 1)}
    values |= {"first_player_score": 0.5 + 0.5 * outcome / max(games_num, 1), **run.timers.take()}
    values |= {"games_per_s": games_num / values["play_s"], "simulations_per_s": simulations_num / values["play_s"]}
    values |= {"games_by_rank": by_rank[:, 0].astype(int).tolist()}
    values |= {"positions_by_rank": by_rank[:, 1].astype(int).tolist()}
    run.metrics.write("iteration", run.progress.step, values)
    if run.world.is_root:
        run.logger.info(iteration_line(values))
    else:
        run.logger.info("iteration %d: %d games, %d positions, outcomes %.0f, %d simulations here", values["iteration"], *mine)


def _summary(run, step, values):
    run.metrics.write("train", step, values)
    run.say("  step %d: policy loss %.3f, value loss %.3f, gradient norm %.2f, learning rate %.2g", step,
            *(values[name] for name in ("policy_loss", "value_loss", "gradient_norm", "learning_rate")))


def _refill(run):
    """Deal the window's positions anew from the segments of completed iterations, read by root."""
    world, progress = run.world, run.progress
    oldest = progress.positions_num - replay.window_size(run.config.replay, progress.positions_num)
    segments = []
    if world.is_root:
        segments = [s for s in segment.find(run.folder / "games") if s.iteration < progress.iteration]
        held = sum(s.positions_num for s in segments)
        if held != progress.positions_num:
            raise segment.SegmentError(f"{run.folder}/games: the checkpoint counts {progress.positions_num} positions "
                                       f"before iteration {progress.iteration}, the segments hold {held}")
    index = 0
    for num in world.share([s.positions_num for s in segments]):
        record = Record.empty(run.game)
        if index + num > oldest:
            if world.is_root:
                record = segment.read(segments[0].path, run.game)
            _deal(run, record, index)
        segments, index = segments[1:], index + num
    if run.replay:
        run.replay.forget(oldest)


def _deal(run, record, first_index):
    """Give the trainers the positions of every rank's record, the first of this rank's being `first_index`."""
    rows = replay.to_samples(record, run.game, first_index, run.config.train.root_value_share)
    mine = replay.deal(run.world, run.trainers_num, rows)
    if run.replay:
        run.replay.add(mine)


def _broadcast_tensors(world, tensors):
    """Return root's tensors by name on every rank. Collective."""
    content = safetensors.torch.save(checkpoint.contiguous(tensors)) if world.is_root else b""
    return safetensors.torch.load(world.broadcast(np.frombuffer(content, np.uint8)).tobytes())


def provenance(run):
    """Return a segment's attributes: where its games come from."""
    weights = resnet.weights_hash(run.network)
    return {"weights": weights, "host": run.world.host, "ranks": run.world.size, "az_mpi": __version__}


def _evaluation_file(run):
    return run.folder / "evaluations" / f"{run.progress.iteration:06d}.json"


def _how_far(run):
    progress = run.progress
    return (f"iteration {progress.iteration} of {run.config.iterations}, {progress.games_num:,} games, "
            f"{progress.positions_num:,} positions, {progress.step:,} steps")
