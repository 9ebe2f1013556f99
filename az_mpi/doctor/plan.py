"""A configuration for a game and a time: arithmetic on what `trial.measure` finds, called `figures` here. No measuring.

Where the rules of thumb come from: KataGo (Wu 2019, "Accelerating Self-Play Learning in Go") for the sizes of networks,
a window that is a small part of all positions and a network that grows with the time spent; MiniZero (Wu et al. 2023)
for a window of 20 iterations; AlphaZero.jl's and our own Connect Four for positions by weight and games by iteration.
"""

import math
from typing import Any, NamedTuple

from az_mpi.config import load as configuration
from az_mpi.config.schema import Evaluate
from az_mpi.doctor import trial

SIZES = ((3, 32), (4, 48), (5, 64), (6, 96), (10, 128), (15, 192), (20, 256))  # blocks, channels; from 6 on KataGo's
# Positions of self-play for each weight of the tower: configs/connect4_quick.json made 2.2 with 4 x 48, AlphaZero.jl's
# Connect Four 1.4 with 5 x 128, configs/go9.json about 4. A larger network would learn less in the same time.
POSITIONS_PER_WEIGHT = 2
SIMULATIONS_PER_MOVE, SIMULATIONS_MIN, SIMULATIONS_MAX = 4, 100, 400
# Iterations of a run of one hour, growing with the root of hours (212 in 8 hours), up to the 300 of MiniZero.
ITERATIONS_AN_HOUR, ITERATIONS_MAX = 75, 300
# Games an iteration, of all ranks and of each rank; and games at once of a rank: with fewer the engine's batches are so
# small that the games are far slower.
ITERATION_GAMES_MIN, RANK_GAMES_MIN, AT_ONCE_MIN, AT_ONCE_MAX = 200, 64, 32, 256
WINDOW_ITERATIONS, WINDOW_MIN, WINDOW_MAX = 20, 20_000, 20_000_000
SPARE = 0.1  # of the time, for evaluations, exchange and checkpoints: what `trial.predict` leaves out
EVALUATIONS, EVALUATION_SHARE = 5, 1 / 200  # of all games, that each evaluation plays against each opponent
ROLLOUT_SHARE = 0.05  # of the time: if the opponent "rollout" takes more, it is left out


class Rules(NamedTuple):
    """What random games show of a game: legal moves of a position, microseconds of its rules for each ply."""

    legal_num: float
    ply_us: float


def first(game: str, rules: Rules, size: tuple[int, int], ranks_num: int) -> dict[str, Any]:
    """Return a configuration, as in a file, to measure a network of `size` (blocks, channels) with."""
    simulations = 50 * round(SIMULATIONS_PER_MOVE * rules.legal_num / 50)
    return {"game": game, "iterations": 1, "network": {"blocks": size[0], "channels": size[1]},
            "search": {"simulations": min(max(simulations, SIMULATIONS_MIN), SIMULATIONS_MAX)},
            "selfplay": {"games_num": 256 * ranks_num, "parallel_games": 128}, "replay": {"window_max": 1_000_000},
            "train": {"batch_size": max(512 if size[0] < 5 else 1024, ranks_num)}}  # fmt: skip


def games_in(data: dict[str, Any], figures: dict[str, Any], hours: float) -> float:
    """Return how many games are played and trained on in the part of `hours` that is not spared."""
    config = configuration.validate(data, "suggest")
    said = trial.predict(config, figures)
    return (1 - SPARE) * hours * 3600 * config.selfplay.games_num / (said["play_s"] + said["train_s"])


def positions_wanted(blocks: int, channels: int) -> int:
    """Return how many positions of self-play a network of this size should have to learn from."""
    return POSITIONS_PER_WEIGHT * 2 * 9 * blocks * channels**2


def lacks(data: dict[str, Any], figures: dict[str, Any], hours: float) -> str:
    """Return what there are too few of in this time for a network of this size, in a word; "" if it fits."""
    games = games_in(data, figures, hours)
    if games * figures["mean_length"] < positions_wanted(**data["network"]):
        return "positions"
    return "games" if games < _iterations(hours) * _least_games(figures) else ""


def _iterations(hours):
    return min(max(int(ITERATIONS_AN_HOUR * math.sqrt(hours)), 2), ITERATIONS_MAX)


def _least_games(figures):
    return max(ITERATION_GAMES_MIN, RANK_GAMES_MIN * len(figures["hosts"]))


def fill(data: dict[str, Any], figures: dict[str, Any], rules: Rules, hours: float) -> dict[str, Any]:
    """Return the configuration `data` with the counts that fill `hours`. It keeps the network, simulations and batch
    that the figures are of."""
    games = games_in(data, figures, hours)
    iterations = max(min(_iterations(hours), int(games / _least_games(figures))), 1)
    games_num = max(int(games / iterations), 1)
    window = int(min(WINDOW_ITERATIONS * games_num * figures["mean_length"], _window_in_memory(figures), WINDOW_MAX))
    matches = min(max(2 * int(games * EVALUATION_SHARE / 2), 10), 100)
    evaluate: dict[str, Any] = {"every": -(-iterations // EVALUATIONS), "games_num": matches}
    plies = figures["mean_length"] / 2  # the opponent's moves in a game, and how many are left at one of them
    rollouts = EVALUATIONS * matches * plies * Evaluate().rollout_simulations
    if rollouts * plies * rules.ply_us / 1e6 / len(figures["hosts"]) > ROLLOUT_SHARE * hours * 3600:
        evaluate["opponents"] = ["best", "random"]
    return data | {"iterations": iterations, "selfplay": data["selfplay"] | {"games_num": games_num},
                   "replay": {"window_max": max(round(window, -3), WINDOW_MIN)}, "evaluate": evaluate,
                   "train": data["train"] | {"hours": hours}}  # fmt: skip


def at_once(data: dict[str, Any], ranks_num: int) -> dict[str, Any]:
    """Return the configuration with half of a rank's share of an iteration as games at once, so that games do not take
    several iterations; 0, the default, where that is more than the default."""
    share = data["selfplay"]["games_num"] // (2 * ranks_num)
    num = 0 if share >= AT_ONCE_MAX else max(share // 8 * 8, AT_ONCE_MIN)
    return data | {"selfplay": data["selfplay"] | {"parallel_games": num}}


def _window_in_memory(figures):
    """Return the positions for which there is memory on every rank that trains, half of what the run leaves free."""
    rows = zip(figures["memory_bytes"], figures["peak_bytes"], figures["window_bytes"], figures["trainers"])
    free = min(memory - (peak - window) for memory, peak, window, trains in rows if trains)
    return max(free, 0) / 2 * sum(figures["trainers"]) / figures["position_bytes"]
