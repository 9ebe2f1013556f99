"""Everything one rank holds while it trains, put together from the configuration."""

import functools
import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numba
import numpy as np
import torch

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.core.signals import Requests
from az_mpi.mpi import placement
from az_mpi.mpi.control_channel import ControlChannel
from az_mpi.network import engines, resnet
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines import openvino_engine
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import NetworkEvaluator, RolloutEvaluator, UniformEvaluator
from az_mpi.report import console
from az_mpi.report.counters import Counters
from az_mpi.report.metrics import Metrics, Timers
from az_mpi.report.status import Status
from az_mpi.run import partner_checkpoint
from az_mpi.run.partner_checkpoint import Partner
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import POLICY, position_dtype
from az_mpi.storage import run_folder
from az_mpi.storage.checkpoint import Checkpoint, Progress
from az_mpi.storage.lock import Lock
from az_mpi.storage.writer import Writer
from az_mpi.train import backends
from az_mpi.train.learner import Learner
from az_mpi.train.replay import Replay

LOADED_NUM = 100  # weights whose SHA-256 is remembered, for games that are under way for several iterations


@dataclass
class Run:
    """One rank's part of a run. `learner` and `replay` are None on ranks that do not train, `writer` is root's."""

    config: object
    world: object
    folder: Path
    attempt: int
    game: object
    network: torch.nn.Module
    engine: Engine
    make_engine: object  # network -> (engine, the choice in words), of the same kind
    evaluate: object  # what self-play searches with
    player: Player
    trainers_num: int
    players: object  # the world of root and the ranks that only play, see `make_players`
    device: str
    cores: int
    engine_choice: str  # in words
    learner: Learner | None
    replay: Replay | None
    partner: Partner | None  # of the only trainer, see partner_checkpoint.py
    writer: Writer | None
    log_name: str
    logger: object
    metrics: Metrics
    timers: Timers
    control: ControlChannel
    status: Status
    loaded: deque  # (iteration, SHA-256) of the newest weights that self-play has used, oldest first
    progress: Progress = field(default_factory=Progress)
    before_play: Progress | None = None  # as `progress` was when the iteration began, see `resume.mark`
    counters: Counters = field(default_factory=Counters)
    lock: Lock | None = None  # root's, on the folder
    token: str | None = None  # the lock's, by which another rank takes it over
    best_engine: Engine | None = None  # the best network's, once it was played against
    ranks: list = field(default_factory=list)  # `lock.me()` of all ranks of the job, also of those that were lost
    rescued: Checkpoint | None = None  # in a recovery: the newest state that a survivor held
    given: list = field(default_factory=list)  # (iteration, Record) of this rank's games that may not be on disk yet

    def __enter__(self):
        return self

    def __exit__(self, *error):
        """Let the status say how the run ended."""
        self.status.__exit__(*error)

    def hold(self, lock):
        """Let the writer write as long as this lock on the folder is ours. On root."""
        self.lock, self.writer.may_appear = lock, lock.check

    def restart_evaluator(self):
        """Make the evaluator's random numbers, where it draws any, depend on the iteration alone."""
        if isinstance(self.evaluate, RolloutEvaluator):
            self.evaluate.rng = np.random.default_rng([self.config.seed, self.progress.iteration, self.world.rank])

    def load_weights(self, digest):
        """Take the network's weights, with this SHA-256, into self-play's engine and forget what the old ones said."""
        self.engine.load(self.network)
        self.loaded.append((self.progress.iteration + (self.progress.phase == "train"), digest))
        if isinstance(self.evaluate, CachedEvaluator):
            self.evaluate.clear()

    def played_with(self, iteration):
        """Return the SHA-256 of the weights that self-play has used since games of `iteration` began, oldest first."""
        first = max((i for i, (begun, _) in enumerate(self.loaded) if begun <= iteration), default=0)
        return list(dict.fromkeys(digest for _, digest in list(self.loaded)[first:]))

    def take_cache_counts(self):
        """Return (positions asked for, positions evaluated) by self-play since the last call; 0, 0 if uncounted."""
        return self.evaluate.take_counts() if isinstance(self.evaluate, CachedEvaluator) else (0, 0)

    def say(self, text, *values):
        """Log a line on root."""
        if self.world.is_root:
            self.logger.info(text, *values)


def assemble(config, world, folder, prepare=None, trainers_num=0, requests=None):
    """Return this rank's `Run`, with new weights; the start-up table is printed. Collective.

    prepare: called by root with the network once nothing here can be refused any more, to make `folder` ready; returns
    the number of the attempt. None for a run that is only looked at: nothing is trained or written, and standard output
    left alone.
    trainers_num: the first ranks of the world, which train. requests: what signals ask for.
    """
    cores, requests = world.cores(), requests or Requests()
    torch.set_num_threads(cores)
    numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))
    if config.selfplay.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch asks for it, before CUDA starts
    # Unlike use_deterministic_algorithms it does not import torch's compiler, which takes a second and serves nothing.
    torch.set_deterministic_debug_mode("error" if config.selfplay.deterministic else "default")
    device = placement.choose_device(world)
    placement.open_device(world, device)
    game = games.make(config.game)
    network = resnet.build(game, config.network, config.seed)
    make_engine = engine_maker(config, world, game, device, cores)
    engine, engine_choice = make_engine(network)
    if config.network.engine in ("uniform", "rollout"):  # what self-play searches with instead
        engine_choice = f"{config.network.engine} (as configured)"
    evaluate = choose_evaluator(config, game, engine, world.rank)
    backend = make_backend(config, world, device, trainers_num)
    parameters_num = sum(p.numel() for p in network.parameters())
    attempt = prepare and world.from_root(lambda: _check_room(config, game, folder, parameters_num) or prepare(network))
    log_name = f"rank-{world.rank:03d}"
    logger = console.start(world.is_root, log_name, folder if prepare else None)
    writes = world.is_root and prepare is not None
    writer = make_writer(config, folder, game, requests) if writes else None
    status = Status(world, folder, config, attempt, logger, writer)
    run = Run(
        config=config,
        world=world,
        folder=folder,
        attempt=attempt,
        game=game,
        network=network,
        engine=engine,
        make_engine=make_engine,
        evaluate=evaluate,
        player=Player(config, game, evaluate, world.rank, cores, groups_num=2 if evaluate.in_background else 1),
        trainers_num=trainers_num,
        players=make_players(world, trainers_num),
        device=device,
        cores=cores,
        engine_choice=engine_choice,
        learner=backend and Learner(config, game, network, backend, device),
        replay=backend and Replay(game),
        partner=partner_checkpoint.make(config, world, trainers_num),
        writer=writer,
        log_name=log_name,
        logger=logger,
        metrics=Metrics(folder, attempt, config.report.tensorboard, shown=writes),
        timers=Timers(world, status.enter),
        control=ControlChannel(world, requests),
        status=status,
        loaded=deque([(0, resnet.weights_hash(network))], maxlen=LOADED_NUM),
    )
    _say_start(run)
    return run


def make_backend(config, world, device, trainers_num):
    """Return what sums gradients over the first `trainers_num` ranks, None on the others. Collective."""
    trainers = world.split(world.rank < trainers_num)
    return backends.make(config.train.backend, world, trainers, device)


def make_players(world, trainers_num):
    """Return the world in which root gives its weights to the ranks that only play; None on ranks that have them from
    training, and on all where all train. Collective."""
    return world.split(world.is_root or world.rank >= trainers_num) if trainers_num < world.size else None


def make_writer(config, folder, game, requests):
    """Return root's writer of a run's folder."""
    return Writer(folder / "games", folder / "games.h5", game, requests, config.storage.give_up_s)


def _check_room(config, game, folder, parameters_num):
    """Refuse a folder without room for what a run needs at least: weights and two moments of Adam a checkpoint, and
    the segments of an iteration, uncompressed."""
    row = position_dtype(game).itemsize + POLICY.itemsize * min(game.num_actions, config.search.simulations)
    run_folder.check_room(folder, 3 * 4 * parameters_num, config.checkpoint.keep,
                          config.selfplay.games_num * game.max_plies * row)


def engine_maker(config, world, game, device, cores):
    """Return a function from a network to (an engine for it on this rank, the choice in words). Collective."""
    name = config.network.engine
    wanted = name if name in ("openvino", "torch") else "auto"
    precision = config.network.precision
    problems = {
        "engine": (openvino_engine.missing() if wanted == "openvino" else None, "install it (make setup does), or "),
        "precision": (engines.lacks(wanted, device, precision), ""),
    }
    for key, (problem, cure) in problems.items():
        found = world.collect(problem)
        if ranks := [rank for rank, reason in enumerate(found) if reason]:
            raise Refusal(f'network.{key}: "{getattr(config.network, key)}" cannot be had on rank {ranks}: '
                          f"{found[ranks[0]]}\n  {cure}let each rank choose with --set network.{key}=auto")
    return functools.partial(engines.make, game=game, wanted=wanted, device=device, threads=cores, precision=precision)


def choose_evaluator(config, game, engine, rank):
    """Return what self-play searches with."""
    if config.network.engine == "uniform":
        return UniformEvaluator(game)
    if config.network.engine == "rollout":
        return RolloutEvaluator(game, [config.seed, 0, rank])
    entries = config.network.cache_entries
    return CachedEvaluator(game, engine, entries) if entries else NetworkEvaluator(game, engine)


def say_ranks(run):
    """Print the table of ranks and what they run on. Collective."""
    world, config, device = run.world, run.config, run.device
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    meanwhile = "" if config.selfplay.deterministic or not run.trainers_num else ", also while others train"
    roles = "play, train" if run.learner else f"play{meanwhile}" + ", holds a copy of the trainer" * bool(run.partner)
    device = f"{device} {name}".removesuffix(" cpu")
    training = run.learner.precision if run.learner else "-"
    rows = world.collect([world.rank, world.host, run.cores, device, run.engine_choice, training, roles])
    run.status.begin(run, [(host, place, does) for _, host, _, place, *_, does in rows])
    for line in console.table([("rank", "host", "cores", "device", "self-play engine", "training", "roles"), *rows]):
        run.say("  %s", line)


def _say_start(run):
    """Print what the run is and who takes part in it. Collective."""
    world, config = run.world, run.config
    gpus = dict(world.collect([world.host, torch.cuda.device_count()]))
    backend = run.learner.backend.describe() if run.learner else "nothing trained"
    run.say("az_mpi on %s, %s; game %s, seed %d, %s", world.library(), backend, config.game, config.seed, run.folder)
    say_ranks(run)
    for line in placement.remarks(world.hosts, gpus):
        run.say("  note: %s", line)
    if unknown := sorted(config.selfplay.weights.keys() - set(world.hosts)):
        run.say("  note: selfplay.weights names %s, but the hosts are %s", ", ".join(unknown), ", ".join(gpus))
    trees = config.selfplay.parallel_games
    one = run.player.search.trees.num_bytes / trees
    parameters = sum(p.numel() for p in run.network.parameters())
    run.say("  network %d x %d, %s parameters; %d games at once a rank, %.1f KiB of search tree each, %.1f MiB in all",
            config.network.blocks, config.network.channels, f"{parameters:,}", trees, one / 1024, one * trees / 2**20)
    if limits := world.limits():
        run.say("  %s", limits)
