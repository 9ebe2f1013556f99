"""Restoring and saving the state of a run, and the ways to leave it."""

from typing import NoReturn

from az_mpi.core.printing import counted
from az_mpi.core.signals import Stopped, TrainingFailed
from az_mpi.run import archive, exchange, ranking, weights
from az_mpi.run.state import Run
from az_mpi.storage import checkpoint
from az_mpi.storage.checkpoint import Checkpoint
from az_mpi.train import replay


def restore(run: Run, set_aside: bool) -> bool:
    """Load the newest whole checkpoint, not yet into the engines; return whether there is one. Collective.

    set_aside: see `checkpoint.load_newest`. Raises Refusal if the checkpoint is of another network, or if a run that is
    only looked at cannot be read; Stopped if the writer has given up reading.
    """
    newest, was_read = run.world.on_root(lambda: _read_newest(run, set_aside)) or (None, False)
    there, was_read = run.world.share([newest is not None, was_read])
    if not was_read:  # the writer has logged why. A run must not start again since its checkpoints cannot be read now.
        run.report.status.end("stopped")
        run.world.settle()
        raise Stopped
    if set_aside and run.world.is_root:
        run.files.finish_removal(forget=not there)
    if not there:
        return False
    state = checkpoint.share(run.world, newest)
    if added := checkpoint.added_blocks(state.model, run.training.network.state_dict()):
        blocks = run.setup.config.network.blocks
        before = blocks - len({name.split(".")[1] for name in added})
        run.report.say("the tower grows from %d to %d blocks: the new ones begin as the identity", before, blocks)
    take_over(run, state)
    return True


def _read_newest(run, set_aside):
    """Return (the newest whole `Checkpoint` or None, whether the folder could be read). Not collective."""
    folder, ours = run.files.folder / "checkpoints", run.training.network.state_dict()
    found = run.files.read(folder, lambda: checkpoint.load_newest(folder, set_aside, ours))
    if found is None:
        return None, False
    newest, lines = found
    if newest and run.setup.config.train.hours:
        # A stop in self-play writes no checkpoint if there is one of this iteration, but the hours count.
        newest.progress.hours = checkpoint.hours_told(folder, newest.progress)
    for line in lines:
        run.report.warn(line)
    return newest, True


def take_over(run: Run, state: Checkpoint) -> None:
    """Continue from a state that every rank has. Collective over the trainers."""
    training, run.progress = run.training, state.progress.copy()
    training.network.load_state_dict(weights.grown(run, state.model))
    if training.learner:
        training.learner.load(run.progress, state.optimizer)
    elif training.partner:
        training.partner.keep(state)


def resume(run: Run) -> None:
    """Fill the window from the segments before the restored checkpoint, load its weights into the engines, and log how
    far the run has come. Collective."""
    run.hours_before = run.progress.hours
    exchange.refill(run)
    weights.broadcast_weights(run)  # after the window is there: engines may measure ranges on its positions
    archive.renew(run)
    ranking.renew(run)
    leave_if_unwritable(run)
    run.report.say("resumed after %s (start %d)", run.how_far(), run.start)
    if run.world.is_root and run.progress.unfinished_games:
        run.report.say(
            "  lost: %s under way when this checkpoint was written, and later games that were not stored yet",
            counted(run.progress.unfinished_games, "game"),
        )


def save(run: Run, state: Checkpoint | None = None, hours: float | None = None) -> bool:
    """Let root write a checkpoint of its own state, or of `state`; return whether it is on disk. Not collective.

    The segments with the positions that it counts are written first. Weights that are not finite are not saved: the
    newest checkpoint stays the one before. hours: of the run until then; by default all until now.
    """
    if not run.world.is_root:
        return False
    files, progress, training = run.files, run.progress, run.training
    if progress.phase == "play":  # games of the iteration under way are found again as segments
        progress = run.before_play.copy(unfinished_games=progress.unfinished_games)
    model, optimizer = (
        (state.model, state.optimizer)
        if state
        else (training.network.state_dict(), training.learner.optimizer_tensors())
    )
    progress = progress.copy(hours=run.hours() if hours is None else hours)
    content, folder = Checkpoint(progress, model, optimizer), files.folder / "checkpoints"
    keep = run.setup.config.checkpoint.keep
    try:
        files.writer.do(
            checkpoint.path_of(folder, progress), lambda check: checkpoint.save(folder, content, keep, check)
        )
    except checkpoint.NotFinite as error:
        run.report.warn("no checkpoint after step %d: %s; the one before it stays the newest", progress.step, error)
        return False
    if files.writes_no_more:
        return False
    # This record tells a start that finds no checkpoint that there was one, and the hours: see `checkpoint.records`.
    values = {"iteration": progress.iteration} | ({"hours": progress.hours} if progress.hours else {})
    run.report.metrics.write("checkpoint", progress.step, values)
    if windows := run.setup.config.storage.keep_windows:
        window = replay.window_size(run.setup.config.replay, progress.num_positions)
        settings = run.setup.config.selfplay
        num_games = settings.ranked_games if settings.ranked_reward else 0  # they set the thresholds of those that stay
        files.thin_games(windows * window, progress.num_positions, progress.iteration - 1, num_games)
    return True


def leave(run: Run, failure: str | None = None) -> NoReturn:
    """Store everything that is finished and raise Stopped, or TrainingFailed if the same command could not continue.
    Collective.

    failure: why training cannot continue. Then no checkpoint is saved, since the state after the newest one cannot be
    trusted.
    """
    exchange.store_all(run)
    if exchange.settle(run) and failure is None:
        save(run)
    run.files.flush()
    ends = run.world.collect(run.files.end)  # if a writer dies before all is stored, the others store it, then leave
    ended = [end for end in ends if end]
    if ended:
        run.report.say_error(
            "stopped after %s; what came last is not on disk, %s among it: %s",
            run.how_far(),
            counted(sum(num for _, num, _ in ended), "game"),
            ended[0][0],
        )
    elif failure is None:
        why = ": max_hours is nearly over" if run.control.requests.time_is_up() else ""
        run.report.say("stopped after %s%s; start the same command again to continue", run.how_far(), why)
    if failure and run.world.is_root:
        run.report.logger.error(failure)
    resumable = failure is None and all(resumable for *_, resumable in ended)
    run.report.status.end("stopped" if resumable else "failed", failure if run.world.is_root else None)
    run.world.settle()  # mpirun ends all ranks when the first one leaves
    raise Stopped if resumable else TrainingFailed


def leave_if_unwritable(run: Run) -> None:
    """Leave if a writer has ended, since nothing more of it reaches the disk. Collective."""
    ended = run.files.end is not None
    if any(run.world.collect(ended)) if run.writers.are_several else run.world.share(ended):
        leave(run)
