"""A configuration for a game and a time, computed from what `trial.measure` has found, called `figures` here.

Where the rules of thumb come from: docs/results/connect4.md, the recipe of configs/connect4_quick.json, for search,
targets, batch, games by iteration and positions by weight; KataGo (Wu 2019, "Accelerating Self-Play Learning in Go")
for the sizes of networks, a window that is a small part of all positions and a network that grows with the time spent;
MiniZero (Wu et al. 2023) for a window of 20 iterations.
"""

import math
from typing import Any, NamedTuple

from az_mpi.config import load as configuration
from az_mpi.config.schema import Evaluate, Search, Train
from az_mpi.doctor import trial
from az_mpi.selfplay.player import PARALLEL_GAMES, PARALLEL_GAMES_MAX

SIZES = ((3, 32), (4, 48), (5, 64), (6, 96), (10, 128), (15, 192), (20, 256))  # blocks, channels; from 6 on KataGo's
# Positions of self-play for each weight of the tower: configs/connect4_quick.json makes 24 with 3 x 32, Othello 6 x 6
# in half an hour 23 with 4 x 48. A larger network would learn less in the same time.
POSITIONS_PER_WEIGHT = 20
SIMULATIONS, FULL_SHARE = 32, 0.25
# Share of the root's value in the target, for games up to so many plies; longer ones keep the default. In a long game
# the outcome has many positions to reach, each from the one after it: docs/results/2026-11-27-root-value-share.md.
SHORT_GAME, SHORT_GAME_SHARE = 28, 0.8
# For one player the target is all of later root values, on average half a random game later, and its loss counts more:
# the recipe of configs/2048.json, docs/results/2026-11-28-kinds-of-games.md.
ALONE_HORIZON_SHARE, ALONE_VALUE_WEIGHT = 0.5, 20
GPU_BATCH = 1024  # samples a step where GPUs train: docs/results/one-gpu.md, six minutes on one GPU
OPENING_SHARE, OPENING_MIN, OPENING_MAX = 0.2, 2, 30  # of a random game: plies at random, and at a high temperature
# Iterations of a run of one hour, growing with the root of hours (212 in 8 hours), up to the 300 of MiniZero.
ITERATIONS_AN_HOUR, ITERATIONS_MAX = 75, 300
# Games an iteration, of all ranks and of each rank; and games at once of a rank: with fewer the engine's batches are so
# small that the games are far slower.
ITERATION_GAMES_MIN, RANK_GAMES_MIN, AT_ONCE_MIN = 200, 64, 32
# The window: the iterations whose positions it holds, and its least and largest number of positions.
WINDOW_ITERATIONS, WINDOW_MIN, WINDOW_MAX = 20, 20_000, 20_000_000
SPARE = 0.1  # of the time, for evaluations, exchange and checkpoints, which `trial.predict` leaves out
EVALUATIONS, EVALUATION_SHARE = 5, 1 / 200  # of all games, that each evaluation plays against each opponent
ROLLOUT_SHARE = 0.05  # of the time: if the opponent "rollout" takes more, it is left out


class Rules(NamedTuple):
    """What random games show of a game; its first three are means."""

    num_legal: float  # moves of a position
    ply_us: float  # microseconds that the rules take for a ply
    length: float  # plies of a game
    num_players: int = 2


def first(game: str, rules: Rules, size: tuple[int, int], num_ranks: int, on_gpus: bool = False) -> dict[str, Any]:
    """Return a configuration, as in a file, to measure a network of `size` (blocks, channels) with. on_gpus: whether
    any rank has a GPU, which large batches keep busy."""
    opening = min(max(round(OPENING_SHARE * rules.length), OPENING_MIN), OPENING_MAX)
    search = {
        "algorithm": "gumbel",
        "simulations": SIMULATIONS,
        "gumbel_c_scale": 0.3,
        "temperature_plies": opening,
        "temperature_final": 0.0,
    }
    if rules.num_legal > Search().gumbel_actions:
        # More moves are tried, or a mate in one may be missed; and fast searches paid in Hex and Gomoku.
        search |= {"gumbel_actions": SIMULATIONS, "full_share": FULL_SHARE}
    at_once = {"num_games": PARALLEL_GAMES_MAX * num_ranks, "parallel_games": 0}
    if not on_gpus:
        at_once = {"num_games": 256 * num_ranks, "parallel_games": 128}
    targets: dict[str, Any] = {
        "root_value_share": SHORT_GAME_SHARE if rules.length <= SHORT_GAME else Train().root_value_share
    }
    if rules.num_players == 1:
        horizon = max(round(ALONE_HORIZON_SHARE * rules.length), 1)
        targets = {"root_value_share": 1.0, "root_value_horizon": horizon, "value_loss_weight": ALONE_VALUE_WEIGHT}
    batch_size = GPU_BATCH if on_gpus else 256 if size[0] < 5 else 512
    return {
        "game": game,
        "iterations": 1,
        "network": {"blocks": size[0], "channels": size[1]},
        "search": search,
        "selfplay": at_once | {"random_plies": opening},
        "replay": {"window_max": 1_000_000},
        "train": {"batch_size": max(batch_size, num_ranks), "replay_ratio": 1.5, **targets},
    }


def games_in(data: dict[str, Any], figures: dict[str, Any], hours: float) -> float:
    """Return how many games are played and trained on in `hours`, of which the share SPARE is left for other things."""
    config = configuration.validate(data, "suggest")
    prediction = trial.predict(config, figures)
    return (1 - SPARE) * hours * 3600 * config.selfplay.num_games / (prediction["play_s"] + prediction["train_s"])


def positions_wanted(blocks: int, channels: int) -> int:
    """Return how many positions of self-play a network of this size should have to learn from."""
    return POSITIONS_PER_WEIGHT * 2 * 9 * blocks * channels**2


def lacks(data: dict[str, Any], figures: dict[str, Any], hours: float) -> str:
    """Return of what a network of this size gets too few in this time: "positions" to learn from, or "games" for its
    iterations; "" if the time is long enough."""
    games = games_in(data, figures, hours)
    if games * figures["mean_length"] < positions_wanted(data["network"]["blocks"], data["network"]["channels"]):
        return "positions"
    return "games" if games < _iterations(hours) * _least_games(figures) else ""


def _iterations(hours):
    return min(max(int(ITERATIONS_AN_HOUR * math.sqrt(hours)), 2), ITERATIONS_MAX)


def _least_games(figures):
    return max(ITERATION_GAMES_MIN, RANK_GAMES_MIN * len(figures["hosts"]))


def fill(data: dict[str, Any], figures: dict[str, Any], rules: Rules, hours: float) -> dict[str, Any]:
    """Return the configuration `data` with the counts that fill `hours`. It keeps the network, the simulations and the
    batch, with which the figures were measured."""
    games = games_in(data, figures, hours)
    iterations = max(min(_iterations(hours), int(games / _least_games(figures))), 1)
    num_games = max(int(games / iterations), 1)
    window = int(min(WINDOW_ITERATIONS * num_games * figures["mean_length"], _window_in_memory(figures), WINDOW_MAX))
    matches = min(max(2 * int(games * EVALUATION_SHARE / 2), 10), 100)
    evaluate: dict[str, Any] = {"every": -(-iterations // EVALUATIONS), "num_games": matches}
    plies = figures["mean_length"] / 2  # the opponent's moves in a game, and how many are left at one of them
    rollouts = EVALUATIONS * matches * plies * Evaluate().rollout_simulations
    seconds = rollouts * plies * rules.ply_us / 1e6 / len(figures["hosts"])
    if rules.num_players > 1 and seconds > ROLLOUT_SHARE * hours * 3600:  # by default one player meets no rollouts
        evaluate["opponents"] = ["best", "random"]
    return data | {
        "iterations": iterations,
        "selfplay": data["selfplay"] | {"num_games": num_games},
        "replay": {"window_max": max(round(window, -3), WINDOW_MIN)},
        "evaluate": evaluate,
        "train": data["train"] | {"hours": hours},
    }


def at_once(data: dict[str, Any], num_ranks: int) -> dict[str, Any]:
    """Return the configuration with half of a rank's games of an iteration as its games at once: with more, a game
    would take several iterations. Where half of them is more than the default, the number is 0, which means the
    default."""
    share = data["selfplay"]["num_games"] // (2 * num_ranks)
    if not data["selfplay"]["parallel_games"]:  # GPUs: measured at the start of the run
        return data
    num = 0 if share >= PARALLEL_GAMES else max(share // 8 * 8, AT_ONCE_MIN)
    return data | {"selfplay": data["selfplay"] | {"parallel_games": num}}


def _window_in_memory(figures):
    """Return for how many positions the ranks that train have memory. Half of what the run leaves free is used."""
    rows = zip(figures["memory_bytes"], figures["peak_bytes"], figures["window_bytes"], figures["trainers"])
    free = min(memory - (peak - window) for memory, peak, window, trains in rows if trains)
    return max(free, 0) / 2 * sum(figures["trainers"]) / figures["position_bytes"]
