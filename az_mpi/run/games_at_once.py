"""How many games a rank plays at once, and in how many groups, where the configuration leaves that open."""

from __future__ import annotations

from typing import NamedTuple

from az_mpi.config.schema import Config
from az_mpi.games.base import Game
from az_mpi.network.engines import timing
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import Evaluator
from az_mpi.selfplay.player import PARALLEL_GAMES, PARALLEL_GAMES_MAX

UNMEASURED_MAX = 2048


class AtOnce(NamedTuple):
    """Of one rank: its games at once, and the groups that they form, each of which becomes one batch."""

    num_games: int
    num_groups: int
    why: str  # "measured", "as configured", or "" for the least number

    @property
    def words(self) -> str:
        groups = f" in {self.num_groups} groups" if self.num_groups > 1 else ""
        return f"{self.num_games:,}{groups}" + (f" ({self.why})" if self.why else "")


def choose(config: Config, game: Game, engine: Engine, evaluate: Evaluator, num_ranks: int) -> AtOnce:
    """Return the number of games and groups for this rank. `selfplay.parallel_games` is obeyed; without it the engine's
    speed decides. An engine that works in the background has at least two groups: one is searched meanwhile.

    With more games at once than a rank's share of an iteration's `num_games`, each game would take several iterations;
    with more than half of it, ranks wait for the last games, which costs a GPU less than small batches do.
    With `selfplay.deterministic`, and where the network does not evaluate, nothing is measured."""
    settings = config.selfplay
    share = -(-settings.num_games // num_ranks)
    configured = settings.parallel_games
    why = "as configured" if configured else ""
    in_background = evaluate.in_background
    num_groups = 2 if in_background else 1
    most = max(share if in_background else share // 2, PARALLEL_GAMES)
    if settings.deterministic or evaluate.describe:
        by_rule = min(most, UNMEASURED_MAX) if in_background else PARALLEL_GAMES
        return AtOnce(configured or by_rule, num_groups, why)
    num_games = configured or min(most, PARALLEL_GAMES_MAX)
    size = max(num_games // num_groups, 1)
    if not configured and num_games > PARALLEL_GAMES:
        size = timing.batch_size(engine, game, PARALLEL_GAMES // num_groups, size, num_groups)
        why = "measured"
    if in_background:
        num_groups = 1 + timing.num_under_way(engine, game, size)
    return AtOnce(configured or min(num_games, size * num_groups), num_groups, why)
