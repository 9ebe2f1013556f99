"""Rules of games, looked up by name. Importing this package is cheap: `make` loads the kernels of a game."""

from __future__ import annotations

from typing import TYPE_CHECKING

from az_mpi.core.registry import GAMES

if TYPE_CHECKING:
    from az_mpi.games.base import Game

NAMES = tuple(GAMES.names)


def make(name: str) -> Game:
    """Return the `Game` of a name, such as "connect4" or "own_game.py:Rules(size=5)". Raises Refusal."""
    return GAMES.make(name)


def check(game: Game, games_num: int = 64, seed: int = 0) -> list[str]:
    """Play `games_num` random games of `game`; raise AssertionError at the first broken invariant, saying which.

    Returns warnings: what is likely a mistake but breaks no invariant.
    """
    from az_mpi.games.invariants import check as run

    return run(game, games_num, seed)
