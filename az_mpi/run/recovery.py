"""Recovery from the loss of ranks. The survivors agree on which ranks are left and on the newest state that one of them
has, write finished games that are missing on disk, and continue. Every function here is collective over the survivors.
"""

import dataclasses
import functools
import sys
import time

import numpy as np

from az_mpi.core import files
from az_mpi.core.earlier_names import starts_folder
from az_mpi.core.problems import Refusal, is_on_every_rank
from az_mpi.core.signals import Stopped
from az_mpi.mpi import placement
from az_mpi.mpi.control_channel import ControlChannel
from az_mpi.mpi.peers import PeerLost
from az_mpi.mpi.world import World
from az_mpi.network import resnet
from az_mpi.run import archive, exchange, resume, weights
from az_mpi.run.setup import make_backend, make_report, make_writers, say_ranks
from az_mpi.run.state import Run, Training
from az_mpi.selfplay.record import Record
from az_mpi.storage import checkpoint, lock, run_folder
from az_mpi.storage.checkpoint import Checkpoint, Progress
from az_mpi.telemetry import console
from az_mpi.telemetry.metrics import Metrics


def recover(run: Run) -> None:
    """Rebuild `run` for the ranks that are left, after PeerLost was raised. Raises Stopped if they cannot continue."""
    begun = time.monotonic()
    before = run.world.size
    run.world.revoke()  # first: a rank whose sums broke off asks MPI whether the reason is a loss
    run.report.monitor.settle()
    _close(run)
    try:
        run.adopt(run.world.recover(Recovery(run).try_with))
    except Refusal as error:
        if is_on_every_rank(error):
            raise Stopped from error
        raise
    run.report.say(
        "continuing after the loss of %d of %d ranks, %.1f s after it was noticed: %s",
        before - run.world.size,
        before,
        time.monotonic() - begun,
        run.how_far(),
    )


class Recovery:
    """One recovery of the run `old`. A try that loses one more rank is followed by another, with the ranks that are
    left. Tries change `old` only in what it shares with the run that replaces it: the files and the self-play."""

    def __init__(self, old: Run):
        self.old = old
        self.rescued: Checkpoint | None = None  # the newest state that a survivor had, once they have shared it
        self.new: Run | None = None  # made by the newest try, if that has succeeded on this rank

    def try_with(self, world: World) -> Run:
        """Return a run over `world`, the survivors. Collective over them. Raises PeerLost; Refusal or Stopped, on every
        rank, if they cannot continue."""
        if self.new:  # one more rank died before all agreed that the try had succeeded
            _close(self.new)
            self.new = None
        self.rescued = _rescue(self.old, world, self.rescued)
        world, num_trainers, backend = self._prepare(world)
        new = _over(self.old, world)
        try:
            self._rebuild(new, num_trainers, backend)
        except BaseException as error:
            if isinstance(error, PeerLost):
                new.report.monitor.settle()
            _close(new)
            raise
        self.new = new
        return new

    def _prepare(self, world):
        """Return (the world with the trainers first, their number, this rank's backend), and let the new root write.
        Raises Refusal, on every rank, once what the survivors have is stored."""
        run, setup = self.old, self.old.setup
        try:
            world, num_trainers = placement.place(setup.config, world, setup.device)
            backend = make_backend(setup.config, world, setup.device, num_trainers)
            _take_over(run, world)
            if self.rescued is None:
                _look_for_checkpoints(run, world)
        except Refusal as error:  # such as: train.ranks is "gpu", and no rank with a GPU is left
            _leave(run, world, self.rescued, error)
            raise
        return world, num_trainers, backend

    def _rebuild(self, new, num_trainers, backend):
        """Bring `new` to the state that was rescued, and store finished games that are missing on disk."""
        setup = new.setup
        _keep_games(new)
        # Not the old network: its parameters have hooks that begin reductions over lost ranks.
        network = resnet.build(setup.game, setup.config.network, setup.config.seed)
        new.training = Training.make(setup, new.world, backend, num_trainers, network)
        _restate(new, self.rescued)
        _store_what_is_missing(new)
        _recount(new)
        new.mark()
        exchange.refill(new)
        weights.broadcast_weights(new)
        archive.renew(new)
        say_ranks(new)


def _close(run):
    """End the heartbeats, the partner checkpoints and the trainers' connections of a world that has lost ranks."""
    run.report.status.close()
    run.training.close()


def _over(run, world):
    """Return `run` over another world, as a new start of it, with a new report and a new `Progress`. Collective."""
    start = world.from_root(lambda: _note_start(run, world))
    writers = make_writers(run.setup.config, world, run.files, run.control.requests)
    logger = console.start(world.is_root, run.setup.log_name, run.setup.folder, writers.is_one)
    metrics = run.report.metrics
    if world.is_root and metrics.dropped:
        metrics = run.report.metrics = Metrics(run.setup.folder, start, run.setup.config.report, shown=True)
    report = make_report(run.setup, world, start, logger, metrics, run.files.writer)
    control = ControlChannel(world, run.control.requests)
    return dataclasses.replace(
        run, world=world, start=start, control=control, report=report, writers=writers, progress=Progress()
    )


def _leave(run, world, rescued, error):
    """Store what the survivors have, since they cannot continue, and log why."""
    _take_over(run, world)
    logger = console.start(world.is_root, run.setup.log_name, run.setup.folder)
    report = dataclasses.replace(run.report, world=world, logger=logger)
    writers = make_writers(run.setup.config, world, run.files, run.control.requests)
    last = dataclasses.replace(run, world=world, report=report, writers=writers)
    report.say("stopped after a loss: the ranks that are left cannot continue: %s", error)
    exchange.store_all(last)
    _store_what_is_missing(last)
    if rescued is not None:
        last.progress = rescued.progress.copy()
        _recount(last)
        last.mark()
        if resume.save(last, rescued):
            report.say("saved: %s", last.how_far())
        world.barrier()  # mpirun ends all ranks when the first one leaves


def _take_over(run, world):
    """Let the new root take the folder's lock over and write, and remove unfinished files of lost ranks. Raises Stopped
    if another job has taken the run over."""
    held, ranks = run.files, world.collect(lock.me())
    lost = {rank["pid"] for rank in held.ranks} - {rank["pid"] for rank in ranks}

    def hold():
        if held.lock is None:
            writer, hang_s = held.open_writer(run.control.requests), run.setup.config.fault.hang_s
            try:
                taken = writer.do(
                    held.folder / "lock",
                    lambda check: lock.Lock.take_over(held.folder, ranks, run.start, held.token, hang_s),
                    "taken over",
                )
            except OSError as error:  # that trying again does not fix
                return str(error)
            if taken is None:
                return writer.ended
            held.hold(taken)
        held.writer.do(held.folder, lambda check: files.remove_leftovers(held.folder, lost, besides=["selfplay"]))
        return None

    if problem := world.from_root(hold):
        if world.is_root:
            run.report.logger.error("stopped after the loss of root; what came last is not on disk: %s", problem)
            print(f"rank {world.rank} on {world.host}: stopped after the loss of root: {problem}", file=sys.stderr)
        raise Stopped


def _note_start(run, world):
    """Return the number of the new start; the old one if the writer has ended."""
    folder = run.files.folder
    note = functools.partial(run_folder.note_start, folder, run.setup.config, world.hosts)
    return run.files.writer.do(starts_folder(folder), lambda check: note()) or run.start


def _keep_games(new):
    """Let games under way continue; new games get ids of the new start. Deterministic ones are dealt again."""
    player = new.playing.player
    player.pause()  # the engine may still be evaluating leaves with the old weights
    player.rank, player.begun = new.world.rank, {}
    if new.setup.config.selfplay.deterministic:
        player.live[:], player.finished = False, []


def _rescue(run, world, rescued):
    """Share the newest state that a survivor has, a `Checkpoint`, before that rank dies too; return it on all of them.
    None if neither a rank that trained nor the partner of the only trainer is left.

    rescued: the state that the survivors of an earlier try have shared already, or None."""
    key, state = None, None  # the rank with the largest key has the newest state
    if rescued is not None:
        key, state = [2], rescued
    elif run.training.learner:
        state = _trained(run)
        key = [1, state.progress.iteration, state.progress.phase == "train", state.progress.step, -world.rank]
    elif run.training.partner and (state := _kept(run)):
        key = [0]
    keys = world.collect(key)
    source = max((rank for rank, key in enumerate(keys) if key), key=lambda rank: keys[rank], default=None)
    if source is None or all(key == [2] for key in keys):
        return rescued
    return checkpoint.share(world, state, source)


def _trained(run):
    """Return the state of this rank, which trains."""
    progress = run.progress if run.progress.phase == "train" else run.before_play
    return Checkpoint(progress, run.training.network.state_dict(), run.training.learner.optimizer_tensors())


def _kept(run):
    """Return the copy of the only trainer's state that this rank, its partner, keeps; None if it has none."""
    kept = run.training.partner.kept()
    if kept is None or run.progress.phase == "play":
        return kept and dataclasses.replace(kept, progress=run.before_play)
    if [kept.progress.iteration, kept.progress.phase] == [run.progress.iteration, "train"]:
        return kept
    return dataclasses.replace(kept, progress=run.progress)  # the trainer has not taken a step since it was sent


def _look_for_checkpoints(run, world):
    """Let root read the newest checkpoint. Raises Refusal if the run had checkpoints and none of them can be used."""
    folder, ours = run.files.folder / "checkpoints", run.training.network.state_dict()
    world.from_root(lambda: bool(run.files.read(folder, lambda: checkpoint.refuse_unusable(folder, False, ours))))


def _restate(new, rescued):
    """Give every rank the rescued state, or without one that of the newest checkpoint."""
    if rescued is not None:
        resume.take_over(new, rescued)
    elif not resume.restore(new, set_aside=True):
        new.report.say("no checkpoint, and no rank that trained is left: the run starts again with its games")


def _store_what_is_missing(new):
    """Write the survivors' games that were exchanged but did not reach the disk."""
    world, writer, game, mine = new.world, new.files.writer, new.setup.game, new.playing.unacknowledged
    new.files.flush()  # on each rank that writes, or did before the loss
    world.barrier()
    if world.is_root:  # even if it is the only writer now: another rank may have been one before the loss
        files.refresh(new.files.folder / "games")
    for iteration in sorted(set(sum(world.collect([iteration for iteration, _ in mine]), []))):
        records = Record.join(game, [record for place, record in mine if place == iteration]).gather(world)
        if world.is_root:
            ids = records.games["id"]
            once = np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1])  # two ranks keep root's games
            missing = records.select(once & ~np.isin(ids, new.files.games_of(iteration).games["id"]))
            writer.submit(iteration, missing, exchange.provenance(new, missing))
    if world.is_root:
        writer.flush()
    world.barrier()
    mine.clear()


def _recount(new):
    """Count the positions and games in segments again: counted games of the lost rank may be missing."""
    counts = new.files.totals(new.games_iteration) if new.world.is_root else None
    new.progress.num_games, new.progress.num_positions = new.world.share(counts)
