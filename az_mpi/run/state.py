"""The state of a run on one rank: what is fixed, what is this rank's own, and what is new after a loss of ranks."""

import hashlib
import inspect
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import torch

from az_mpi.config.schema import Config
from az_mpi.core import signals
from az_mpi.core.printing import counted
from az_mpi.games.base import Game
from az_mpi.liveness.monitor import Monitor
from az_mpi.mpi.control_channel import ControlChannel
from az_mpi.mpi.world import World
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import Evaluator
from az_mpi.run import partner_checkpoint
from az_mpi.run.partner_checkpoint import PartnerCheckpoint
from az_mpi.run.run_files import RunFiles
from az_mpi.run.writers import Writers
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.ranked import Threshold
from az_mpi.selfplay.record import Record
from az_mpi.storage.checkpoint import Progress
from az_mpi.telemetry.callbacks import Callbacks
from az_mpi.telemetry.counters import Counters
from az_mpi.telemetry.metrics import Metrics, Timers
from az_mpi.telemetry.status import Status
from az_mpi.train.backends import Backend
from az_mpi.train.learner import Learner
from az_mpi.train.replay import Replay

NUM_WEIGHTS = 100  # weights whose SHA-256 is remembered: a game can be under way for several iterations


@dataclass(frozen=True)
class Setup:
    """What stays the same on this rank from the start of a job to its end."""

    config: Config
    folder: Path
    game: Game
    device: str  # of torch
    cores: int
    make_engine: Callable[[torch.nn.Module], tuple[Engine, str]]  # -> engine, why this one, in words
    engine_choice: str  # what self-play evaluates with, in words
    games_at_once: str  # how many this rank plays, in words
    callbacks: Callbacks
    log_name: str


@dataclass
class Playing:
    """This rank's self-play. It continues when other ranks are lost."""

    player: Player
    engine: Engine
    evaluate: Evaluator  # what the search calls
    weights_used: deque = field(default_factory=lambda: deque(maxlen=NUM_WEIGHTS))  # (iteration, SHA-256), oldest first
    unacknowledged: list[tuple[int, Record]] = field(default_factory=list)  # (iteration, games), maybe not on disk
    best_engine: Engine | None = None  # of the best network, once there was a match against it
    calibration: tuple[np.ndarray, np.ndarray] | None = None  # what `Engine.calibrate` got, if an engine uses it
    threshold: Threshold = Threshold()  # of the iteration under way, see `run.ranking`

    def load_weights(self, network: torch.nn.Module, iteration: int, digest: str) -> None:
        """Play with this network from now on, in games of `iteration`. digest: the SHA-256 of its weights."""
        self.load(self.engine, network)
        self.weights_used.append((iteration, digest))
        # What int8 engines answer depends on the calibration too, and the remark tells whether they fell back to bf16.
        calibration = b"" if self.calibration is None else self.calibration[0].tobytes()
        self.evaluate.clear(f"{digest} {hashlib.sha256(calibration).hexdigest()} {self.engine.remark}")

    def load(self, engine: Engine, network: torch.nn.Module) -> None:
        """Give an engine of this rank new weights."""
        if self.calibration is not None:
            # An engine of a user's own may be from before `calibrate` was given the legal actions.
            engine.calibrate(*self.calibration[: len(inspect.signature(engine.calibrate).parameters)])
        engine.load(network)

    def played_with(self, iteration: int) -> list[str]:
        """Return the SHA-256 of all weights used since the games of `iteration` began, oldest first."""
        first = max((i for i, (begun, _) in enumerate(self.weights_used) if begun <= iteration), default=0)
        return list(dict.fromkeys(digest for _, digest in list(self.weights_used)[first:]))


@dataclass
class Training:
    """Who trains, and this rank's part in it. Made for one set of ranks."""

    num_trainers: int  # the first ranks of the world train
    network: torch.nn.Module  # what plays; what `learner` trains, or on trainers perhaps the average of that
    players: World | None  # in which root sends weights to the ranks that only play; None on trainers but root
    learner: Learner | None  # None on ranks that do not train
    replay: Replay | None
    partner: PartnerCheckpoint | None  # on the only trainer and on the rank that keeps its state

    @classmethod
    def make(
        cls, setup: Setup, world: World, backend: Backend | None, num_trainers: int, network: torch.nn.Module
    ) -> "Training":
        """Return this rank's part in the training of `network`. Collective over world. backend: None on ranks that do
        not train."""
        config, game = setup.config, setup.game
        apart = num_trainers < world.size
        return cls(
            num_trainers=num_trainers,
            network=network,
            players=world.split(world.is_root or world.rank >= num_trainers) if apart else None,
            learner=Learner(config, game, network, backend, setup.device) if backend else None,
            replay=Replay(game, network.heads) if backend else None,
            partner=partner_checkpoint.make(config, world, num_trainers),
        )

    def close(self) -> None:
        """End the threads and connections between trainers, once their world has been revoked."""
        if self.partner:
            self.partner.close()
        if self.learner:
            self.learner.backend.close()


@dataclass
class Report:
    """Where this rank reports what it does."""

    world: World
    logger: Logger
    metrics: Metrics
    status: Status
    monitor: Monitor | None  # of who is alive; None for a run that is only looked at
    timers: Timers
    counters: Counters = field(default_factory=Counters)
    said_cut: bool = False  # that games are cut at the game's own `max_plies`

    def say(self, text: object, *values: object) -> None:
        """Log a line on root."""
        if self.world.is_root:
            self.logger.info(text, *values)

    def say_error(self, text: object, *values: object) -> None:
        """Log an error on root."""
        if self.world.is_root:
            self.logger.error(text, *values)

    def warn(self, text: object, *values: object) -> None:
        """Log a warning on root."""
        if self.world.is_root:
            self.logger.warning(text, *values)


@dataclass
class Run:
    """One rank's part of a run. `recovery` replaces what was made for ranks of which some are lost."""

    setup: Setup
    playing: Playing
    files: RunFiles
    # Made again for the ranks that are left:
    world: World
    start: int | None  # the number of this start; None for a run that is only looked at
    training: Training
    control: ControlChannel
    report: Report
    writers: Writers
    progress: Progress = field(default_factory=Progress)
    hours_before: float = 0.0  # that earlier starts took, where `train.hours` limits them
    saves_later: bool = False  # root: a signal asked for a checkpoint, which is saved behind the training
    before_play: Progress | None = None  # `progress` when this iteration began: a checkpoint saved in play resumes here

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Let the status record how the run ended."""
        self.report.status.end_with(error)

    def adopt(self, other: "Run") -> None:
        """Become `other`, the same run as it was made again for the ranks that are left."""
        vars(self).update(vars(other))

    @property
    def games_iteration(self) -> int:
        """The iteration that finished games are stored for: i, or i + 1 while iteration i is trained."""
        return self.progress.iteration + (self.progress.phase == "train")

    def hours(self) -> float:
        """Return the hours of all starts of the run until now, by this rank's clock. Without `train.hours` none are
        counted, so that checkpoints are the same however long a run took."""
        if not self.setup.config.train.hours:
            return self.hours_before
        return self.hours_before + (time.monotonic() - signals.begun()) / 3600

    def mark(self) -> None:
        """Remember `progress`: a checkpoint that is saved in the play phase that begins now resumes there."""
        self.before_play = self.progress.copy()

    def restart_evaluator(self) -> None:
        """Make the evaluator's random numbers depend on the seed, the iteration and the rank alone."""
        self.playing.evaluate.restart([self.setup.config.seed, self.progress.iteration, self.world.rank])

    def how_far(self) -> str:
        """Return how far the run has come, in words."""
        progress, config = self.progress, self.setup.config
        hours = f"{progress.hours:.2f} of {config.train.hours:.2f} hours, " if config.train.hours else ""
        return (
            f"iteration {progress.iteration} of {config.iterations}, {hours}"
            f"{counted(progress.num_games, 'game')}, {counted(progress.num_positions, 'position')}, "
            f"{counted(progress.step, 'step')}"
        )
