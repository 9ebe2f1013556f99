"""The modes of run_dist.py: --mode train, fit, eval, selfplay. Collective: every rank calls the same function."""

import contextlib
import functools
import itertools
import json
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np
import torch

from az_mpi import loop
from az_mpi.config import load as configuration
from az_mpi.config.command_line import Arguments
from az_mpi.config.schema import Config
from az_mpi.core import files
from az_mpi.core.printing import counted, print_result
from az_mpi.core.problems import NotHere, NotNow
from az_mpi.core.signals import Requests, Stopped, TrainingFailed, deadline
from az_mpi.liveness import watchdog
from az_mpi.mpi import agreement, named_hosts, placement
from az_mpi.mpi.alone import Alone
from az_mpi.mpi.frame import Frame
from az_mpi.mpi.world import World
from az_mpi.player import trained_network
from az_mpi.run import beginning, evaluation_phase, exchange, kernels, ranking, resume, weights
from az_mpi.run import fit as fitting
from az_mpi.run.setup import assemble, check_room, prepare_play
from az_mpi.selfplay import quota
from az_mpi.storage import checkpoint, imports, lock, run_folder, segment
from az_mpi.storage.run_folder import RunFolderError
from az_mpi.telemetry.progress_bar import ProgressBar

FIRST_CALL = 0x800  # of --mode selfplay, in ids of games, where training has the numbers of its starts, from 1


def train(arguments: Arguments, config: Config, frame: Frame, requests: Requests) -> None:
    """Start the run in --logdir, or resume it if it is there."""
    _start(arguments, config, frame, requests, loop.train)


def fit(arguments: Arguments, config: Config, frame: Frame, requests: Requests) -> None:
    """Train the run in --logdir, which may be new, on the games that are in it."""
    frame.world.from_root(lambda: fitting.check(arguments.logdir))
    task = fitting.Task(arguments.epochs, arguments.minutes, arguments.held_out)

    def do(run):
        fitting.fit(run, task)
        loop.fitted(run)

    _start(arguments, config, frame, requests, do)


def _start(arguments, config, frame, requests, do):
    """Start or resume the run in --logdir, and do(run). Collective."""
    folder, world = arguments.logdir, frame.world
    requests.deadline = deadline(config.max_hours)
    named_hosts.check_weights(config.selfplay, world)
    world, num_trainers = placement.place(config, world, placement.choose_device(world))
    frame.world = world  # as the logs number the ranks
    watchdog.expect(config.fault.hang_s, world.rank)
    ranks = world.collect(lock.me())
    wait = functools.partial(_wait, requests)
    dead = world.from_root(lambda: run_folder.look(folder, config, arguments.fresh, _say, wait))
    origin = world.on_root(lambda: read_origin(arguments.begin_from, folder))

    def take(setup, network, files):
        check_room(setup, network, folder)
        check_network(arguments, config, network)
        imports.check_game(folder, setup.game.name)
        if origin:
            origin.check(config, setup.game, network)
        start, files.lock = run_folder.start(folder, config, world.hosts, arguments.fresh, ranks, dead, _say)
        return start

    run = assemble(config, world, folder, take, num_trainers, requests)
    try:
        run.files.ranks = ranks
        run.files.token = world.share(run.files.lock and run.files.lock.token)
        kernels.compile_missing(world, config, run.setup.game, run.setup.cores, run.report.say)
        if arguments.begin_from:
            beginning.begin(run, arguments.begin_from, origin)
        _train(run, do)
    finally:
        run.files.release()  # of the lock, which this rank may have taken over from a root that was lost


def read_origin(text: str, folder: Path) -> beginning.Origin | None:
    """Return the network that the user has named as `text`, for a run in `folder` that is to begin with it; None for ""
    and for a run that has a checkpoint. A start that resumes does not read it, since it may be gone by then. Raises
    Refusal. Not collective: for root."""
    with run_folder.usable(folder):
        if not text or checkpoint.find(folder / "checkpoints"):
            return None
    found = trained_network.read(text)
    return beginning.Origin(text, found.config.game, found.game, found.network)


def _wait(requests):
    """Give a sign of life while root waits for another job to end. Raises NotNow if a signal has asked for a stop."""
    watchdog.tick()
    if requests.stop:
        raise NotNow("stopped, as a signal asked, before the run began; start the same command again to continue")


def check(config: Config) -> list[str]:
    """Raise Refusal if a start would refuse the configuration, as far as that is known without MPI: every plug-in must
    load and take its arguments, and game, network, engine, evaluator, search, optimiser, opponents and solver must fit
    together. This runs the functions of a start, but makes no callbacks, which may do anything. Writes nothing; not
    collective.

    Return remarks on what this host lacks, such as a processor's instructions or a program; hosts of the job may have
    it."""
    world, remarks = cast(World, Alone()), []
    named_hosts.refuse_weights_without_quota(config.selfplay)
    agreement.same_plugins(world, configuration.plugins(config))
    anywhere = config.network.model_copy(update={"engine": "auto", "precision": "auto"})
    for network in (config.network, anywhere):  # the second one for what the first one did not reach
        try:
            prepare_play(config.model_copy(update={"network": network, "callbacks": ()}), world, Path())
            break
        except NotHere as error:
            remarks += [str(error)] if str(error) not in remarks else []
    return remarks


def check_network(arguments: Arguments, config: Config, network: torch.nn.Module) -> None:
    """Check that the run in --logdir, if there is one, can continue with this network and with the users' own files.
    Writes nothing; raises Refusal. Not collective: for root."""
    folder, ours = arguments.logdir, network.state_dict()
    run_folder.check_sources(folder, config, arguments.allow_other_source)
    with run_folder.usable(folder):
        newest = checkpoint.refuse_unusable(folder / "checkpoints", arguments.without_checkpoint, ours)
    if newest and checkpoint.added_blocks(newest.model, ours):
        weights.check_growth(network, config.network.block)


_say = functools.partial(print, file=sys.stderr, flush=True)  # before there is a logger


def _train(run, do):
    try:
        with run:
            do(run)
        run.world.settle()
    except (Stopped, TrainingFailed):
        run.report.metrics.close()
        raise
    except BaseException:
        _rescue_games(run)
        raise
    run.report.metrics.close()


def eval(arguments: Arguments, config: Config, frame: Frame, requests: Requests) -> None:
    """Evaluate a run's newest network as `evaluate` in its configuration says; print the result as one JSON object."""
    world = frame.world
    run = _open(arguments, config, world, requests)
    best = evaluation_phase.load_best(run, before=run.progress.iteration)
    result = evaluation_phase.measure(run, best)
    if world.is_root:
        print_result(json.dumps(result))


def selfplay(arguments: Arguments, config: Config, frame: Frame, requests: Requests) -> None:
    """Play `selfplay.num_games` games with a run's newest network, store them in RUN/selfplay, and print their numbers
    as one JSON object."""
    world = frame.world
    named_hosts.check_weights(config.selfplay, world)
    run = _open(arguments, config, world, requests)
    folder, index = run.setup.folder / "selfplay", run.progress.iteration
    call = world.from_root(lambda: _prepare(folder))
    begun, player = time.perf_counter(), run.playing.player
    shown = ProgressBar(run.report.logger, world.is_root, "self-play", "games")
    games = quota.Quota(config.selfplay, world, index, np.empty(0, np.uint64))
    games.play(player, run.control, call, 0, shown.update, every_s=0.0)
    shown.close()
    seconds = time.perf_counter() - begun
    record = player.take()
    run.setup.callbacks.games(record)
    record = record.gather(world)
    counts = [player.num_simulations, *run.playing.evaluate.take_counts()]
    simulations, asked, evaluated = world.sum(np.array(counts, np.int64))
    if not world.is_root:
        return
    path = segment.path_of(folder, index, call - FIRST_CALL)  # another such job may be writing there too
    written = segment.write(folder, index, run.setup.game, record, exchange.provenance(run, record), path)
    num_games, num_positions = len(record.games), len(record.positions)
    result = {"segment": str(written.path), "num_games": num_games, "num_positions": num_positions}
    result |= {"games_per_s": num_games / seconds, "simulations_per_s": simulations / seconds}
    result |= {"cache_hit_rate": 1 - evaluated / asked} if asked else {}
    print_result(json.dumps(result))


def _prepare(folder):
    """Make a run's folder for games, unless it is there; return the number of this call, which no other one has and
    ids of games contain. Raises Refusal if nothing can be written."""
    run_folder.check_folders(folder.parent, (folder.name,))
    with run_folder.usable(folder.parent):
        calls = folder / "calls"
        calls.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(max(len(files.names(calls)), len(list(folder.glob("*.h5"))))):
            with contextlib.suppress(FileExistsError):
                (calls / str(number)).touch(exist_ok=False)
                return FIRST_CALL + number


def _rescue_games(run):
    """Give the writer of a failing root a limited time to finish, and log what it could not write. Not collective.

    If another rank fails, MPI ends root at once; games that are not on disk then are played again."""
    if run.files.writer and (num_unwritten := run.files.writer.rescue()):
        run.report.logger.error("not written in time, their games are lost: %s", counted(num_unwritten, "segment"))


def _open(arguments, config, world, requests):
    """Return the run in --logdir with its newest network, only to look at it: nothing is trained."""
    folder = arguments.logdir
    world.from_root(lambda: run_folder.check_there(arguments))
    world.from_root(lambda: run_folder.check_same_run(folder, config))
    world.from_root(lambda: run_folder.check_sources(folder, config, arguments.allow_other_source))
    run = assemble(config, world, folder, requests=requests)
    kernels.compile_missing(world, config, run.setup.game, run.setup.cores, run.report.say)
    if not resume.restore(run, set_aside=False):
        raise RunFolderError(f"--logdir {folder}: holds no whole checkpoint\n  train there first, or name another run")
    weights.broadcast_weights(run)
    ranking.renew(run)
    return run
