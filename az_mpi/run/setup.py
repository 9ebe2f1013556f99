"""Makes a run on one rank from its configuration."""

import functools
import os
from collections.abc import Callable
from logging import Logger
from pathlib import Path
from typing import NamedTuple

import numba
import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config.schema import Config
from az_mpi.core.printing import counted
from az_mpi.core.problems import NotHere
from az_mpi.core.registry import EVALUATORS
from az_mpi.core.signals import Requests
from az_mpi.evaluate import evaluation
from az_mpi.liveness.monitor import Monitor
from az_mpi.mpi import agreement, cores, host_memory, placement
from az_mpi.mpi.control_channel import ControlChannel
from az_mpi.mpi.world import World
from az_mpi.network import engines, resnet
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.run import games_at_once
from az_mpi.run.run_files import RunFiles
from az_mpi.run.state import Playing, Report, Run, Setup, Training
from az_mpi.run.writers import Writers
from az_mpi.selfplay.player import Player, most_plies
from az_mpi.selfplay.record import POLICY, position_dtype
from az_mpi.storage import run_folder
from az_mpi.storage.writer import Writer
from az_mpi.telemetry import console
from az_mpi.telemetry.callbacks import Callbacks
from az_mpi.telemetry.metrics import Metrics, Timers
from az_mpi.telemetry.status import Status
from az_mpi.train import backends, optimizer


def assemble(
    config: Config,
    world: World,
    folder: Path,
    prepare: Callable[[Setup, torch.nn.Module, RunFiles], int] | None = None,
    num_trainers: int = 0,
    requests: Requests | None = None,
) -> Run:
    """Return this rank's `Run`, with new weights; print the start-up table. Collective.

    prepare(setup, network, files): makes `folder` ready, gives `files` the lock on it, and returns the number of this
    start; root calls it once nothing else can be refused. None for a run that is only looked at: it trains and writes
    nothing, and logs nothing to standard output. num_trainers: the first ranks of the world train. requests: of
    signals.
    """
    requests = requests or Requests()
    setup, network, playing = prepare_play(config, world, folder)
    backend = make_backend(config, world, setup.device, num_trainers)
    files = RunFiles(folder, setup.game, config.storage.give_up_s)
    try:
        start = world.from_root(lambda: prepare(setup, network, files)) if prepare else None
        writers = make_writers(config, world, files, requests if prepare else None)
        logger = console.start(world.is_root, setup.log_name, folder if prepare else None, writers.is_one)
        metrics = Metrics(folder, start, config.report, shown=world.is_root and prepare is not None)
        report = make_report(setup, world, start, logger, metrics, files.writer)
        training = Training.make(setup, world, backend, num_trainers, network)
        run = Run(setup, playing, files, world, start, training, ControlChannel(world, requests), report, writers)
        _say_start(run)
    except BaseException:
        files.release()
        raise
    return run


def prepare_play(config: Config, world: World, folder: Path) -> tuple[Setup, torch.nn.Module, Playing]:
    """Return (the `Setup`, a new network, this rank's `Playing` with it). Raises Refusal on every rank if one of them
    lacks what the configuration names. Collective."""
    on_all = functools.partial(agreement.everywhere, world)
    num_cores, device = world.cores(), placement.choose_device(world)
    _use_cores(num_cores, config.selfplay.deterministic)
    on_all(lambda: placement.open_device(device))
    agreement.same_plugins(world, configuration.plugins(config))
    on_all(lambda: optimizer.check(config.train))
    game = on_all(lambda: games.make(config.game))
    network = on_all(lambda: resnet.build(game, config.network, config.seed))
    on_all(lambda: resnet.refuse_statistics(network, game))
    chosen = _choose_engine(config, world, game, network, device, num_cores)
    evaluate = _make_evaluator(config, world, game, chosen.engine)
    callbacks = on_all(lambda: Callbacks(config.callbacks, folder, world.rank, game))
    at_once = _choose_games(config, world, game, chosen.engine, evaluate, device)
    player = on_all(lambda: _make_player(config, world, game, evaluate, num_cores, at_once))
    if not evaluate.describe:  # otherwise self-play uses this evaluator instead of the network
        chosen.engine.prepare(player.batch_max)
    playing = Playing(player, chosen.engine, evaluate)
    playing.weights_used.append((0, resnet.weights_hash(network)))
    on_all(lambda: evaluation.check_opponents(config, game))  # not after hours of play; it may start programs
    setup = Setup(
        config=config,
        folder=folder,
        game=game,
        device=device,
        cores=num_cores,
        make_engine=chosen.make,
        engine_choice=f"{evaluate.describe} (as configured)" if evaluate.describe else chosen.words,
        games_at_once=at_once.words,
        callbacks=callbacks,
        log_name=f"rank-{world.rank:03d}",
    )
    return setup, network, playing


class ChosenEngine(NamedTuple):
    """The engine of this rank, and how others like it are made."""

    engine: Engine
    words: str  # the choice and its reason
    make: Callable[[torch.nn.Module], tuple[Engine, str]]  # see `Setup.make_engine`


def _choose_engine(config, world, game, network, device, num_cores):
    """Return the `ChosenEngine` that `network.engine` names, or the fastest. Ranks of a host with devices of one kind
    have one precision, that of the first of them: their own timings may differ, and they share evaluations.
    Collective."""
    make = functools.partial(engines.make, config.network.engine, game=game, device=device, threads=num_cores)
    configured = config.network.precision
    timed = not config.selfplay.deterministic
    engine, words = agreement.everywhere(world, lambda: make(network=network, precision=configured, timed=timed))
    precision = _of_first_alike(world, device, engine.precision)

    def adopt():
        if engine.precision == precision:
            return engine, words
        other, _ = make(network=network, precision=precision)
        return other, f"{other.describe} (as the first rank here)"

    engine, words = agreement.everywhere(world, adopt)
    return ChosenEngine(engine, words, functools.partial(make, precision=engine.precision or configured))


def _of_first_alike(world, device, value):
    """Return the JSON-able `value` of the first rank of this host with a device of this kind. Collective."""
    kind = [world.host, torch.device(device).type]
    return next(other for alike, other in world.collect([kind, value]) if alike == kind)


def _choose_games(config, world, game, engine, evaluate, device):
    """Return the `AtOnce` of this rank: that of the first one with such a device here, since timings differ.
    Collective."""
    chosen = agreement.everywhere(world, lambda: games_at_once.choose(config, game, engine, evaluate, world.size))
    return games_at_once.AtOnce(*_of_first_alike(world, device, chosen))


def _make_evaluator(config, world, game, engine):
    """Return what the search of this rank calls. Collective."""
    given = {"game": game, "engine": engine, "seed": [config.seed, 0, world.rank], "settings": config.network}
    evaluate = agreement.everywhere(world, lambda: EVALUATORS.make(config.selfplay.evaluator, **given))
    _share_cache(config, world, evaluate)
    return evaluate


def _make_player(config, world, game, evaluate, num_cores, at_once):
    """Return the player of this rank's self-play. Raises NotHere if there is too little memory for its trees."""
    try:
        return Player(config, game, evaluate, world.rank, num_cores, at_once.num_groups, at_once.num_games)
    except MemoryError as error:
        raise NotHere(
            f"there is not enough memory for the trees of self-play: {error}\n"
            "  lower selfplay.parallel_games or search.simulations"
        ) from error


def _share_cache(config, world, evaluate):
    """Let the ranks of each host use one evaluation cache. Not in deterministic runs: what a rank finds there, and so
    the batches of its engine, would depend on which rank is faster. Collective."""
    cached = isinstance(evaluate, CachedEvaluator) and not config.selfplay.deterministic
    if not all(world.collect(cached)):
        return
    memory = host_memory.share(world, evaluate.bytes_of)
    if memory is not None:
        evaluate.share(memory, world.local_rank, world.hosts.count(world.host))


def _use_cores(num_cores, deterministic):
    """Let torch and numba use only this rank's cores, and torch only deterministic operations if `deterministic`."""
    torch.set_num_threads(num_cores)
    numba.set_num_threads(min(num_cores, numba.config.NUMBA_NUM_THREADS))
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch asks for it, before CUDA starts
    # Unlike use_deterministic_algorithms this does not import torch's compiler, which takes a second.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")


def make_backend(config: Config, world: World, device: str, num_trainers: int) -> backends.Backend | None:
    """Return the backend that sums gradients over the first `num_trainers` ranks; None on the others. Collective."""
    trainers = world.split(world.rank < num_trainers)
    return backends.make(config.train.backend, world, trainers, device)


def make_writers(config: Config, world: World, files: RunFiles, requests: Requests | None) -> Writers:
    """Return the writers of games, and open this rank's if it has none; requests None: of a run that is only looked at.
    Collective."""
    writers = Writers.make(world, config.storage.ranks_per_writer)
    files.are_several = writers.are_several
    if requests and writers.is_one and files.writer is None:
        files.open_writer(requests, world.is_root)
    return writers


def make_report(
    setup: Setup, world: World, start: int | None, logger: Logger, metrics: Metrics, writer: Writer | None
) -> Report:
    """Return this rank's `Report`; it starts the heartbeats unless the run is only looked at. Collective."""
    status = Status(world, setup.folder, setup.config, start, logger, writer if world.is_root else None)
    monitor = None
    if start is not None:
        monitor = Monitor(
            world,
            setup.folder,
            setup.config.fault.hang_s,
            status.facts,
            writer.writing_s if writer else lambda: 0.0,
            status.failed,
            status.stopped,
        )
        status.show(monitor)
    return Report(world, logger, metrics, status, monitor, Timers(world, status.enter))


def check_room(setup: Setup, network: torch.nn.Module, folder: Path) -> None:
    """Refuse a folder without room for what a run may need at first: checkpoints, each of the weights, two moments of
    Adam and perhaps an average of the weights, and the uncompressed segments of an iteration of the longest games."""
    config, game = setup.config, setup.game
    row = position_dtype(game).itemsize + POLICY.itemsize * min(game.num_actions, config.search.simulations)
    numbers = (3 + bool(config.train.ema_decay)) * resnet.num_parameters(network)
    num_positions = config.selfplay.num_games * most_plies(config, game)
    run_folder.check_room(folder, 4 * numbers, config.checkpoint.keep, num_positions * row)


def say_ranks(run: Run) -> None:
    """Print the table of the ranks and their devices. Collective."""
    setup, training, config = run.setup, run.training, run.setup.config
    name = f" {torch.cuda.get_device_name(setup.device)}" if setup.device.startswith("cuda") else ""
    meanwhile = "" if config.selfplay.deterministic or not training.num_trainers else ", also while others train"
    partner = ", holds a copy of the trainer" if training.partner else ""
    roles = "play, train" if training.learner else f"play{meanwhile}{partner}"
    precision = training.learner.precision if training.learner else "-"
    cores_words = cores.in_words(setup.cores, cores.Allowed.here(run.world.host))
    rows = run.world.collect(
        [
            run.world.rank,
            run.world.host,
            cores_words,
            f"{setup.device}{name}",
            setup.engine_choice,
            setup.games_at_once,
            precision,
            roles,
        ]
    )
    run.report.status.begin(run, [(host, place, does) for _, host, _, place, *_, does in rows])
    head = ("rank", "host", "cores", "device", "self-play engine", "games at once", "training", "roles")
    for line in console.table([head, *rows]):
        run.report.say("  %s", line)
    if training.learner and training.learner.backend.remark:
        run.report.say("  note: %s", training.learner.backend.remark)


def _say_start(run):
    """Print what the run is and which ranks take part in it. Collective."""
    world, config, say, game = run.world, run.setup.config, run.report.say, run.setup.game
    gpus = placement.gpus_by_host(world)
    backend = run.training.learner.backend.describe() if run.training.learner else "nothing trained"
    say("az_mpi on %s, %s; game %s, seed %d, %s", world.library(), backend, game.name, config.seed, run.setup.folder)
    say_ranks(run)
    for line in placement.remarks(world.hosts, gpus):
        say("  note: %s", line)
    search = config.search
    if search.full_share < 1 and search.fast_simulations >= search.simulations:
        say(
            "  note: search.fast_simulations is %d, search.simulations %d: fast searches are no shorter than full ones",
            search.fast_simulations,
            search.simulations,
        )
    trees = len(run.playing.player.live)
    one = run.playing.player.search.trees.num_bytes / trees
    parameters = resnet.num_parameters(run.training.network)
    say(
        "  network %d x %d, %s parameters; %.1f KiB of search tree a game, %.1f MiB for the %s of rank 0",
        config.network.blocks,
        config.network.channels,
        f"{parameters:,}",
        one / 1024,
        one * trees / 2**20,
        counted(trees, "game"),
    )
    if limits := world.limits():
        say("  %s", limits)
