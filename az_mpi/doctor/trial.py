"""A trial of a configuration: a run is set up as by run_dist.py and plays and trains for some seconds, from which the
length of the whole run is predicted. Its files are removed.

Shapes: n positions, S numbers a state, A actions.
"""

import contextlib
import io
import itertools
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from az_mpi.config.schema import Config
from az_mpi.core.host_names import value_here
from az_mpi.core.printing import counted
from az_mpi.core.processes import peak_bytes
from az_mpi.doctor import facts
from az_mpi.doctor.checks import OK, WARNING, Check, Ranks, ranks_in_words
from az_mpi.doctor.scratch import removed_at_end
from az_mpi.games.base import Game
from az_mpi.games.random_games import random_games
from az_mpi.mpi import named_hosts, placement, root_host
from az_mpi.mpi.world import World
from az_mpi.run import kernels
from az_mpi.run.setup import assemble, check_room
from az_mpi.run.state import Run
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import game_ids
from az_mpi.storage.checkpoint import Progress
from az_mpi.telemetry import console
from az_mpi.train.replay import Samples, sample_dtype

RANDOM_GAMES = 256
STEPS_MIN, STEPS_MAX = 2, 200
UNEVEN = 0.5  # of the median rank's speed: a rank below that is reported
GIB = 2**30


def measure(
    world: World, config: Config, seconds: float, logdir: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Return (the figures measured, the lines of the start-up table). Collective. Raises Refusal on every rank if a run
    would refuse to start. logdir: the run's folder, if its free space is to be checked."""
    config = config.model_copy(
        update={
            "train": config.train.model_copy(update={"max_steps": 0}),
            "report": config.report.model_copy(update={"tensorboard": False}),
        }
    )

    def look(setup, network, files):
        if logdir:
            check_room(setup, network, logdir)
        return 1

    # On this host: the shared folder has a trial of its own.
    scratch = tempfile.mkdtemp(prefix="doctor-")
    with removed_at_end(scratch):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # The run may number its ranks in another order; the figures are in the order of `world`.
            named_hosts.check_weights(config.selfplay, world)
            run_world = root_host.order(world, config.train.root_host)
            run_world, num_trainers = placement.place(config, run_world, placement.choose_device(run_world))
            run = assemble(config, run_world, Path(scratch), look, num_trainers=num_trainers)
        game = run.setup.game
        replay = run.training.replay
        kernels.compile_missing(run_world, config, game, run.setup.cores, lambda *what: None)
        table = [lines for lines in world.collect(printed.getvalue().splitlines()[1:]) if lines]  # root's
        try:
            samples, mean_length = random_samples(game, run.training.network.heads, np.random.default_rng(world.rank))
            with run:
                figures = play(run, world, seconds) | train(run, world, samples, seconds)
        finally:
            run.report.metrics.close()
            console.start(run_world.is_root, run.setup.log_name, None)  # closes the log files
    peak = peak_bytes()
    share = config.replay.window_max / sum(figures["trainers"])
    # A full array and, at its last growth, the one before it.
    window = int(share * (replay.num_bytes + replay.largest_bytes) / replay.num_positions) if replay else 0
    rows = world.collect([world.host, peak, window])
    figures["peak_bytes"] = [peak + window for _, peak, window in rows]  # with a full window
    figures["window_bytes"] = [window for _, _, window in rows]
    figures["position_bytes"] = sum(figures["window_bytes"]) / config.replay.window_max
    if figures["mean_length"] is None:
        figures |= {"mean_length": mean_length, "length_from": "random games"}
    return figures, table[0]


def play(run: Run, world: World, seconds: float) -> dict[str, Any]:
    """Play on all ranks at once; return moves and simulations a second of each rank, and the mean length of the games
    that ended, None if few did. Collective."""
    player = run.playing.player
    ids = itertools.count(world.rank, world.size)
    play_for(player, ids, seconds / 3)  # kernels are compiled, and the games leave their common beginning
    player.pause()
    player.take()
    plies_before = player.num_unfinished_moves
    simulations_before = player.num_simulations
    world.barrier()
    took = play_for(player, ids, seconds)
    player.pause()
    lengths = player.take().games["length"]
    rate = (int(lengths.sum()) + player.num_unfinished_moves - plies_before) / took
    speed = (player.num_simulations - simulations_before) / took
    if rate * took < player.live.sum():  # fewer than one move of each game: count simulations instead
        rate = speed / run.setup.config.search.simulations
    rows = world.collect([rate, speed, len(lengths), int(lengths.sum()), int(player.live.sum())])
    rates, speeds, games, length, live = zip(*rows)
    # If fewer games have ended than are still played, those were short ones.
    mean_length = sum(length) / sum(games) if sum(games) >= sum(live) else None
    weights = world.collect(value_here(run.setup.config.selfplay.weights, 1.0))
    return {
        "hosts": world.hosts,
        "weights": weights,
        "moves_per_s": rates,
        "simulations_per_s": speeds,
        "mean_length": mean_length,
        "length_from": "the games of the trial",
    }


def play_for(player: Player, ids: Iterator[int], seconds: float) -> float:
    """Play for about `seconds`, at least one step; return the seconds it took. ids: an iterator of games' numbers."""
    begun = time.perf_counter()
    while True:
        slots = player.free()
        if len(slots):
            player.start(slots, game_ids(0, 0, list(itertools.islice(ids, len(slots)))), 0)
        player.step()
        if (took := time.perf_counter() - begun) >= seconds:
            return took


def train(run: Run, world: World, samples: Samples, seconds: float) -> dict[str, Any]:
    """Take optimiser steps with `Samples` on the ranks that train; return the seconds of one. Collective."""
    learner = run.training.learner
    replay = run.training.replay
    if learner:
        replay.add(samples)
    steps = STEPS_MIN
    step_s = None
    for _ in range(3):  # kernels are compiled; a first estimate; then for about `seconds`
        world.barrier()
        begun = time.perf_counter()
        if learner:
            due = Progress(samples_due=steps * run.setup.config.train.batch_size)
            learner.train(replay, due, lambda *what: None)
        step_s = max(world.collect((time.perf_counter() - begun) / steps if learner else 0.0))
        steps = min(max(int(seconds / step_s), STEPS_MIN), STEPS_MAX)
    return {"step_s": step_s, "trainers": world.collect(learner is not None)}


def random_samples(game: Game, heads: nn.ModuleDict, rng: np.random.Generator) -> tuple[Samples, float]:
    """Return the positions of random games as `Samples` to train on, and the games' mean length."""
    taken = []
    for states, legal in random_games(game, RANDOM_GAMES, rng):
        rows = np.zeros(len(states), sample_dtype(game, heads))
        rows["state"] = states
        taken.append(Samples.of(rows, legal / legal.sum(axis=1, keepdims=True)))
    rows, policy = (np.concatenate([getattr(part, name) for part in taken]) for name in ("rows", "policy"))
    rows["index"] = np.arange(len(rows))
    rows["weight"] = 1.0
    rows["value"] = rng.choice([0.0, 1.0], rows["value"].shape)
    return Samples(rows, policy), len(rows) / RANDOM_GAMES


def predict(config: Config, figures: dict[str, Any]) -> dict[str, Any]:
    """Return a prediction for the configured run from measured figures; times in seconds."""
    quota = config.selfplay.num_games
    length = figures["mean_length"]
    games_by_rank = [moves / length for moves in figures["moves_per_s"]]
    if config.selfplay.deterministic:  # shares are fixed, so all wait for the rank that takes longest for its own
        slowest = min(rate / weight for rate, weight in zip(games_by_rank, figures["weights"]))
        games_by_rank = [slowest * weight for weight in figures["weights"]]
    games = sum(games_by_rank)
    steps = quota * length * config.train.replay_ratio / config.train.batch_size
    iterations = config.iterations
    limits = config.train
    if limits.max_steps:
        iterations = min(iterations, math.ceil(limits.max_steps / steps))
    train_s = steps * figures["step_s"]
    # Ranks that do not train play meanwhile, except in deterministic runs.
    spare = sum(
        rate
        for rate, trains in zip(games_by_rank, figures["trainers"])
        if not trains and not config.selfplay.deterministic
    )
    play_s = max(0.0, quota - spare * train_s) / games
    if limits.hours:
        iterations = min(iterations, math.ceil(3600 * limits.hours / (play_s + train_s)))
    return {
        "games_per_s": games,
        "games_per_s_by_rank": games_by_rank,
        "mean_length": length,
        "play_s": play_s,
        "train_s": train_s,
        "step_s": figures["step_s"],
        "num_steps": steps,
        "iterations": iterations,
        "simulations_per_s": sum(figures["simulations_per_s"]),
        "hours": iterations * (play_s + train_s) / 3600,
    }


def examine(
    ranks: Ranks, config: Config, figures: dict[str, Any], shown: bool
) -> tuple[list[Check], list[str], dict[str, Any]]:
    """Return (checks, lines, figures): a run starts, and if `shown`, it would take so long."""
    trainers = [rank for rank, trains in enumerate(figures["trainers"]) if trains]
    found = [Check("start", OK, f"a run starts: every rank played, {ranks_in_words(trainers)} trained")]
    found += _memory(ranks, figures)
    if not shown:
        return found, [], {}
    prediction = predict(config, figures)
    by_rank = prediction["games_per_s_by_rank"]
    middle = sorted(figures["moves_per_s"])[len(ranks) // 2]
    slow = [k for k, moves in enumerate(figures["moves_per_s"]) if moves < UNEVEN * middle]
    which = f"; {ranks_in_words(slow)} at less than half" if slow else ""
    found.append(
        Check(
            "selfplay",
            WARNING if slow else OK,
            f"{prediction['games_per_s']:,.1f} games/s, "
            f"{prediction['simulations_per_s']:,.0f} simulations/s; a rank {min(by_rank):,.1f} to "
            f"{max(by_rank):,.1f} games/s{which}",
            "look at its cores and at what else runs on its host",
        )
    )
    found.append(
        Check(
            "train",
            OK,
            f"{prediction['step_s']:.4f} s a step of {counted(config.train.batch_size, 'sample')} on "
            f"{counted(len(trainers), 'rank')}; {prediction['num_steps']:,.0f} steps an iteration",
        )
    )
    found.append(
        Check(
            "hours",
            OK,
            f"{prediction['hours']:,.2f} hours: {counted(prediction['iterations'], 'iteration')} of "
            f"{prediction['play_s']:.1f} s of play and {prediction['train_s']:.1f} s of training",
        )
    )
    where = f"{prediction['mean_length']:.1f} moves, from {figures['length_from']}"
    lines = [
        f"assumed: games of {where}; those of a trained network may be longer",
        "assumed: every rank stays as fast as with this untrained network, whose games have only begun",
        "not counted: evaluation matches; exchange and checkpoints, which the figures of network and folder decide",
    ]
    return found, lines, {"prediction": prediction}


def _memory(ranks, figures):
    """Check whether each host has memory for its ranks with full windows."""
    found = []
    for host in dict.fromkeys(rank["host"] for rank in ranks):
        here = [k for k, rank in enumerate(ranks) if rank["host"] == host]
        needed = sum(figures["peak_bytes"][k] for k in here)
        room = facts.room(ranks[here[0]]["memory"])
        words = f"{host}: {needed / GIB:.1f} GiB with a full window, of {room / GIB:.1f} GiB"
        found.append(
            Check(
                "run_memory",
                WARNING if needed > room else OK,
                words,
                "fewer ranks a host, or less replay.window_max, network.cache_bytes or parallel_games",
            )
        )
    return found
