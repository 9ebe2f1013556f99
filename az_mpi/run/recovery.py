"""What the survivors do when a rank has died: they agree on who is left and on the newest state that one of them holds,
see to it that no finished game of theirs is missing on disk, and go on. Every function here is collective over them.
"""

import functools
import sys
import time
from dataclasses import replace

import numpy as np

from az_mpi.core import files
from az_mpi.core.problems import Refusal
from az_mpi.core.signals import Stopped
from az_mpi.liveness import watchdog
from az_mpi.mpi import placement
from az_mpi.mpi.control_channel import ControlChannel
from az_mpi.mpi.peers import PeerLost
from az_mpi.network import resnet
from az_mpi.report import console
from az_mpi.report.counters import Counters
from az_mpi.report.metrics import Metrics, Timers
from az_mpi.report.status import Status
from az_mpi.run import exchange, partner_checkpoint, resume
from az_mpi.run.setup import make_backend, make_players, make_writer, say_ranks
from az_mpi.selfplay.record import Record
from az_mpi.storage import checkpoint, lock, run_folder
from az_mpi.storage.checkpoint import Checkpoint, Progress
from az_mpi.storage.writer import insist
from az_mpi.train.learner import Learner
from az_mpi.train.replay import Replay


def recover(run):
    """Change `run` to what it is for the ranks that are left. Called where PeerLost was raised."""
    begun, before, rebuilt = time.monotonic(), run.world.size, []
    run.world.revoke()  # before what takes time: a rank whose sums have broken off asks MPI whether that is a loss
    run.status.settle()
    _drop(run)

    def rebuild(world):
        while rebuilt:  # one more died before all had agreed on it
            _drop(rebuilt.pop())
        rebuilt.append(_rebuild(run, world))
        return rebuilt[-1]

    try:
        changed = run.world.recover(rebuild)
    except Refusal as error:
        raise Stopped from error
    vars(run).update(vars(changed))
    lost = before - run.world.size
    run.say("going on after the loss of %d of %d ranks, %.1f s after it was noticed: %s", lost, before,
            time.monotonic() - begun, resume.how_far(run))


def _drop(run):
    """End what speaks to ranks that were lost with a world: heartbeats, copies, and the trainers' connections."""
    run.status.close()
    if run.partner:
        run.partner.close()
    if run.learner:
        run.learner.backend.close()


def _rebuild(run, world):
    """Return a `Run` over `world`, the survivors. Leaves `run` as it is: it may be called again with fewer of them."""
    config = run.config
    _rescue(run, world)
    try:
        world, trainers_num = placement.place(config, world, run.device)
        backend = make_backend(config, world, run.device, trainers_num)
        _take_over(run, world)
        if run.rescued is None:
            _look_for_checkpoints(run, world)
    except Refusal as error:  # such as one of train.ranks where no rank with a GPU is left
        _leave(run, world, error)
        raise
    attempt = world.from_root(lambda: _note_attempt(run, world))
    new = replace(run, world=world, trainers_num=trainers_num, attempt=attempt, progress=Progress(),
                  counters=Counters(), rescued=None)
    new.logger = console.start(world.is_root, run.log_name, run.folder)
    new.status = Status(world, run.folder, config, attempt, new.logger, run.writer)
    try:
        new.timers, new.control = Timers(world, new.status.enter), ControlChannel(world, run.control.requests)
        if world.is_root and run.metrics.dropped:
            run.metrics = new.metrics = Metrics(run.folder, attempt, config.report.tensorboard, shown=True)
        _keep_games(new)
        # The old ones' parameters have hooks that begin reductions over ranks of which some are gone.
        new.network = resnet.build(run.game, config.network, config.seed)
        new.learner = backend and Learner(config, run.game, new.network, backend, run.device)
        new.replay = backend and Replay(run.game)
        new.partner = partner_checkpoint.make(config, world, trainers_num)
        new.players = make_players(world, trainers_num)
        _restate(run, new)
        _store_what_is_missing(run, new)
        _recount(new)
        resume.mark(new)
        exchange.refill(new)
        resume.publish(new)
        say_ranks(new)
    except BaseException as error:
        if isinstance(error, PeerLost):
            new.status.settle()
        _drop(new)
        raise
    return new


def _leave(run, world, error):
    """Store what survivors have who cannot go on, and say why."""
    _take_over(run, world)
    last = replace(run, world=world, logger=console.start(world.is_root, run.log_name, run.folder))
    last.say("stopped after a loss: the ranks that are left cannot go on: %s", error)
    exchange.store_all(last)
    _store_what_is_missing(run, last)
    if run.rescued is not None:
        last.progress = replace(run.rescued.progress)
        _recount(last)
        resume.mark(last)
        if resume.save(last, run.rescued):
            last.say("saved: %s", resume.how_far(last))
        world.barrier()  # mpirun ends all ranks when the first one leaves


def _take_over(run, world):
    """Let the new root hold the folder's lock and write, and remove what those that are lost were about to write.
    Raises Stopped where another job has taken the run."""
    ranks = world.collect(lock.me())
    lost = {rank["pid"] for rank in run.ranks} - {rank["pid"] for rank in ranks}

    def hold():
        if run.lock is None:
            try:
                taken = _insist_on_lock(run, ranks)
            except (lock.LockLost, OSError) as error:
                return str(error)
            run.writer = make_writer(run.config, run.folder, run.game, run.control.requests)
            run.hold(taken)
        run.writer.do(run.folder, lambda check: files.remove_leftovers(run.folder, lost))
        return None

    if problem := world.from_root(hold):
        if world.is_root:
            run.logger.error("stopped after the loss of root; what came last is not on disk: %s", problem)
            print(f"rank {world.rank} on {world.host}: stopped after the loss of root: {problem}", file=sys.stderr)
        raise Stopped


def _insist_on_lock(run, ranks):
    """Return the lost root's lock, taken over; the file system may fail for `storage.give_up_s`, as for the writer, but
    not beyond a request to stop."""
    end, told = time.monotonic() + run.config.storage.give_up_s, False
    while True:
        try:
            return lock.Lock.take_over(run.folder, ranks, run.attempt, run.token, run.config.fault.hang_s)
        except OSError as error:
            if not files.unavailable(error) or time.monotonic() > end or run.control.requests.stop:
                raise
            if not told:
                run.logger.warning("paused: the lock of %s cannot be taken over: %s", run.folder, error)
            told = True
        watchdog.tick()
        time.sleep(0.5)


def _note_attempt(run, world):
    """Return the number of the new attempt; the old one where nothing can be written any more."""
    folder = run.folder / "attempts"
    number = run.writer.do(folder, lambda check: run_folder.note_attempt(run.folder, run.config, world.hosts))
    return number or run.attempt


def _keep_games(new):
    """Let games under way go on; new ones get ids of the new attempt. A deterministic share is dealt out anew."""
    player = new.player
    player.pause()  # what was under way was asked of the weights as they were
    player.rank, player.begun = new.world.rank, {}
    if new.config.selfplay.deterministic:
        player.live[:], player.finished = False, []


def _rescue(run, world):
    """Let all have the newest state that one of them holds, before that one dies too: `run.rescued`. It stays None
    where no rank that trained is left, nor the partner of a lone one."""
    key, state = None, None  # the one with the largest key has the newest
    if run.rescued is not None:
        key, state = [2], run.rescued
    elif run.learner:
        state = _trained(run)
        key = [1, state.progress.iteration, state.progress.phase == "train", state.progress.step, -world.rank]
    elif run.partner and (state := _kept(run)):
        key = [0]
    keys = world.collect(key)
    source = max((rank for rank, key in enumerate(keys) if key), key=lambda rank: keys[rank], default=None)
    if source is None or all(key == [2] for key in keys):
        return
    run.rescued = checkpoint.share(world, state, source)


def _trained(run):
    """Return the state of this rank, which trains."""
    progress, learner = run.before_play, run.learner
    if run.progress.phase == "train":
        progress = replace(run.progress, step=learner.step_index, samples_due=learner.samples_due,
                           bad_steps=learner.bad_steps)  # fmt: skip
    return Checkpoint(progress, run.network.state_dict(), learner.optimizer_tensors())


def _kept(run):
    """Return the state of the only rank that trained, of which this one holds a copy; None where that is of no use."""
    kept = run.partner.kept()
    if kept is None or run.progress.phase == "play":
        return kept and replace(kept, progress=run.before_play)
    if [kept.progress.iteration, kept.progress.phase] == [run.progress.iteration, "train"]:
        return kept
    return replace(kept, progress=run.progress)  # no step has been taken since it was sent


def _look_for_checkpoints(run, world):
    """Raise Refusal where the run had checkpoints and cannot go on with one of them."""
    folder = run.folder / "checkpoints"
    look = functools.partial(checkpoint.refuse_unusable, folder, anew=False, ours=run.network.state_dict())
    world.from_root(lambda: insist(run.writer, folder, look))


def _restate(run, new):
    """Give every rank the state that was rescued; without one, that of the newest checkpoint."""
    if run.rescued is not None:
        resume.take_over(new, run.rescued)
    elif not resume.restore(new, set_aside=True):
        new.say("no checkpoint, and no rank that trained is left: the run begins anew with its games")


def _store_what_is_missing(run, new):
    """Write the survivors' games that were given to exchanges and did not reach the disk."""
    world = new.world
    if world.is_root:
        new.writer.flush()
    for iteration in sorted(set(sum(world.collect([iteration for iteration, _ in run.given]), []))):
        mine = Record.join(run.game, [record for place, record in run.given if place == iteration])
        records = mine.gather(world)
        if world.is_root:
            ids = records.games["id"]
            once = np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1])  # two ranks hold root's
            missing = records.select(once & ~np.isin(ids, exchange.stored(new, iteration).games["id"]))
            new.writer.submit(iteration, missing, exchange.provenance(new, missing))
    if world.is_root:
        new.writer.flush()
    world.barrier()
    new.given = []


def _recount(new):
    """Count the positions and games in segments: games of the lost rank may be missing that were counted."""
    counts, end = None, new.progress.iteration + (new.progress.phase == "train")
    if new.world.is_root:
        rows = [s for s in exchange.segments(new) if s.iteration < end]
        counts = [sum(s.positions_num for s in rows), sum(s.games_num for s in rows)]
    new.progress.positions_num, new.progress.games_num = new.world.share(counts)
