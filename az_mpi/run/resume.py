"""How the state of a run reaches the disk and comes back: restore, resume, keep, leave."""

from dataclasses import replace

import torch

from az_mpi.core.signals import Stopped, TrainingFailed
from az_mpi.network import resnet
from az_mpi.run import bad_steps, exchange
from az_mpi.storage import checkpoint, run_folder
from az_mpi.storage.checkpoint import Checkpoint
from az_mpi.storage.writer import insist


class WeightsDiffer(Exception):
    """After training some ranks hold other weights than root: the run cannot be trusted to go on."""


def restore(run, set_aside):
    """Load the newest whole checkpoint and return whether there is one. Collective.

    set_aside: see `checkpoint.load_newest`. Raises Refusal where that one is another network's, and in a run that is
    only looked at and cannot be read.
    """
    newest = None

    def look():
        nonlocal newest
        folder = run.folder / "checkpoints"
        found = insist(run.writer, folder, lambda: checkpoint.load_newest(
            folder, set_aside, run.network.state_dict()))
        newest, lines = found or (None, [])
        for line in lines:
            run.logger.warning(line)
        return [newest is not None, found is not None]

    there, looked = run.world.from_root(look)
    if not looked:  # the writer has said why; a run must not begin anew because its checkpoints cannot be read now
        run.status.end("stopped")
        run.world.settle()
        raise Stopped
    if not there:
        return False
    take_over(run, checkpoint.share(run.world, newest))
    publish(run)
    return True


def take_over(run, state):
    """Go on from a state, a `Checkpoint`."""
    run.progress = replace(state.progress)
    run.network.load_state_dict(state.model)
    if run.learner:
        run.learner.load_optimizer(state.optimizer)
        bad_steps.take_over(run.learner, run.progress)
    elif run.partner:
        run.partner.keep(state)


def resume(run):
    """Refill the window from the segments before the checkpoint that was restored, and say where the run stands.
    Collective."""
    exchange.refill(run)
    settle(run)
    run.say("resumed after %s (attempt %d)", how_far(run), run.attempt)
    if run.world.is_root and run.progress.unfinished_games and not _went_on_before(run):
        run.say("  lost: %d games that were under way then, and what was played after it and not yet stored",
                run.progress.unfinished_games)


def _went_on_before(run):
    """Return whether another start has gone on from this checkpoint, and has said what was lost. Not collective."""
    name = checkpoint.path_of(run.folder / "checkpoints", run.progress).name
    return insist(run.writer, run.folder / "attempts", lambda: run_folder.went_on_before(run.folder, name))


def publish(run):
    """Give root's weights to the ranks that only play, and every rank's to its engine. Collective.

    Raises WeightsDiffer where ranks disagree, NotFinite where the weights are not finite."""
    digests = run.world.collect(resnet.weights_hash(run.network) if run.learner or run.world.is_root else None)
    if differing := [rank for rank in range(run.trainers_num) if digests[rank] != digests[0]]:
        raise WeightsDiffer(f"after step {run.progress.step} the weights of rank {differing} differ from rank 0's")
    if run.players:
        sent_before = run.world.sent_bytes
        _give_weights(run.players, run.network)
        run.counters.publish_bytes += run.world.sent_bytes - sent_before
    checkpoint.check_finite(run.network.state_dict())
    run.load_weights(digests[0])


def _give_weights(world, network):
    """Let the network of every rank have root's weights, to the bit. Collective over `world`.

    They travel as they are: exact compression spares a fifth of the bytes and takes longer than sending these on any
    network above 0.3 Gbit/s (benchmarks/weights.py). bf16 would spare half, but a rank that evaluates in fp32 would
    then play with another network than root."""
    tensors = list(network.state_dict().values())
    whole = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu().numpy() if world.is_root else None
    whole = torch.from_numpy(world.broadcast(whole))
    if not world.is_root:
        for tensor, part in zip(tensors, whole.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view_as(tensor))


def mark(run):
    """Remember how far the run has come as where a checkpoint before the next training resumes."""
    run.before_play = replace(run.progress)


def save(run, state=None):
    """Write a checkpoint, by root, once the segments hold the positions that it counts; return whether there is one.
    It is of what root has trained, or of another rank's `state`, a `Checkpoint`.

    Weights that are not finite leave the newest one what it was, as does a writer that has ended. Not collective."""
    if not run.world.is_root:
        return False
    progress, folder = run.progress, run.folder / "checkpoints"
    if progress.phase == "play":  # games of the iteration under way are found again as segments
        progress = replace(run.before_play, unfinished_games=progress.unfinished_games)
    content = Checkpoint(progress, state.model, state.optimizer) if state else Checkpoint(
        progress, run.network.state_dict(), run.learner.optimizer_tensors())
    try:
        run.writer.do(checkpoint.path_of(folder, progress),
                      lambda check: checkpoint.save(folder, content, run.config.checkpoint.keep, check))
    except checkpoint.NotFinite as error:
        run.logger.warning("no checkpoint after step %d: %s; the one before it stays the newest", progress.step, error)
        return False
    if run.writer.ended is not None:
        return False
    # A start that finds no checkpoint knows by this that there was one, see `checkpoint.traces`.
    run.metrics.write("checkpoint", progress.step, {"iteration": progress.iteration})
    return True


def answer_save(run):
    """Do what a signal asked for: make durable what there is. Not collective: root does it."""
    if save(run):
        run.say("saved, as a signal asked: %s", how_far(run))


def leave(run):
    """Store everything that is finished, and raise Stopped; TrainingFailed where the same command would not go on.
    Collective."""
    exchange.store_all(run)
    save(run)
    run.world.barrier()  # where root dies before it is all stored, the others recover, store it, and leave then
    if run.writer and run.writer.ended:
        run.logger.error("stopped after %s; what came last is not on disk, %d games among it: %s", how_far(run),
                         run.writer.lost_games_num, run.writer.ended)
    else:
        why = ": max_hours is nearly over" if run.control.requests.time_is_up() else ""
        run.say("stopped after %s%s; start the same command again to go on", how_far(run), why)
    resumable = run.world.share(run.writer is None or run.writer.resumable)
    run.status.end("stopped" if resumable else "failed")
    run.world.settle()  # mpirun ends all ranks when the first one leaves
    raise Stopped if resumable else TrainingFailed


def give_up(run, reason):
    """Store the games that are finished, say why training cannot go on, and raise TrainingFailed. Collective.

    The newest checkpoint stays what it was: what came after it is not to be trusted."""
    exchange.store_all(run)
    if run.world.is_root:
        run.writer.flush()
        run.logger.error(reason)
    run.status.end("failed", reason if run.world.is_root else None)  # nobody's last words: it is said
    run.world.barrier()  # mpirun ends all ranks when the first one leaves
    raise TrainingFailed(reason)


def settle(run):
    """Leave where root can write no more: what it has done since is not on disk. Collective."""
    if run.world.share(bool(run.writer and run.writer.ended)):
        leave(run)


def how_far(run):
    """Return in words how far the run has come."""
    progress = run.progress
    return (f"iteration {progress.iteration} of {run.config.iterations}, {progress.games_num:,} games, "
            f"{progress.positions_num:,} positions, {progress.step:,} steps")
