"""Everything one rank holds while it trains, put together from the configuration."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from az_mpi import games
from az_mpi.checkpoint import Progress
from az_mpi.data.replay import Replay
from az_mpi.network import resnet
from az_mpi.network.evaluators import NetworkEvaluator, RolloutEvaluator, UniformEvaluator
from az_mpi.network.torch_engine import TorchEngine
from az_mpi.report import console
from az_mpi.report.metrics import Metrics, Timers
from az_mpi.search.tree import bytes_per_tree
from az_mpi.selfplay.player import Player
from az_mpi.train.horovod_backend import HorovodBackend
from az_mpi.train.learner import Learner


@dataclass
class Run:
    """One rank's part of a run. `learner` and `replay` are None on ranks that do not train."""

    config: object
    world: object
    folder: Path
    attempt: int
    game: object
    network: torch.nn.Module
    engine: TorchEngine
    evaluate: object  # what self-play searches with
    player: Player
    trainers_num: int
    learner: Learner | None
    replay: Replay | None
    logger: object
    metrics: Metrics
    progress: Progress = field(default_factory=Progress)
    timers: Timers = field(default_factory=Timers)

    def say(self, text, *values):
        """Log a line on root."""
        if self.world.is_root:
            self.logger.info(text, *values)


def assemble(config, world, folder, attempt):
    """Return this rank's `Run`, with new weights; the start-up table is printed. Collective.

    attempt: None for a run that is only looked at: no metrics are written, and standard output is left alone.
    """
    cores = world.cores()
    torch.set_num_threads(cores)
    torch.use_deterministic_algorithms(config.selfplay.deterministic)
    logger = console.start(world.rank, folder, to_stdout=attempt is not None)
    device = choose_device(world)
    game = games.make(config.game)
    network = resnet.build(game, config.network, config.seed)
    engine = TorchEngine(network, device)
    evaluate, reason = choose_evaluator(config, game, engine, world.rank)
    trainers_num = world.size if config.train.ranks == "all" else min(config.train.ranks, world.size)
    trainers = world.split(world.rank < trainers_num)
    learner = trainers and Learner(config, game, network, HorovodBackend(trainers), device)
    run = Run(
        config=config,
        world=world,
        folder=folder,
        attempt=attempt,
        game=game,
        network=network,
        engine=engine,
        evaluate=evaluate,
        player=Player(config, game, evaluate, world.rank),
        trainers_num=trainers_num,
        learner=learner,
        replay=trainers and Replay(game),
        logger=logger,
        metrics=Metrics(folder, attempt, config.report.tensorboard, shown=world.is_root and attempt is not None),
    )
    _say_start(run, device, cores, reason)
    return run


def choose_device(world):
    """Return the torch device of this rank: a GPU of its host where there is one, shared out by local rank."""
    return f"cuda:{world.local_rank % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def choose_evaluator(config, game, engine, rank):
    """Return (what self-play searches with, the choice and its reason in words) for `network.engine`."""
    name = config.network.engine
    if name == "uniform":
        return UniformEvaluator(game), "uniform (as configured)"
    if name == "rollout":
        return RolloutEvaluator(game, [config.seed, rank]), "rollout (as configured)"
    return NetworkEvaluator(game, engine), f"{engine.describe} ({'as configured' if name == 'torch' else 'auto'})"


def _say_start(run, device, cores, engine):
    """Print the table of ranks and what they run on. Collective."""
    world, config = run.world, run.config
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    roles = "play, train" if run.learner else "play"
    rows = world.collect([world.rank, world.host, cores, f"{device} {name}".removesuffix(" cpu"), engine, roles])
    run.say("az_mpi on %s, %s; game %s, seed %d, %s", world.library(), HorovodBackend.describe(), config.game,
            config.seed, run.folder)
    for line in console.table([("rank", "host", "cores", "device", "engine", "roles"), *rows]):
        run.say("  %s", line)
    trees = config.selfplay.parallel_games
    one = bytes_per_tree(run.game, config.search.simulations + 1, run.game.num_actions)
    parameters = sum(p.numel() for p in run.network.parameters())
    run.say("  network %d x %d, %s parameters; %d games at once a rank, %.1f KiB of search tree each, %.1f MiB in all",
            config.network.blocks, config.network.channels, f"{parameters:,}", trees, one / 1024, one * trees / 2**20)
