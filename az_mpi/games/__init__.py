"""Rules of games, looked up by name. Importing this package is cheap: `make` loads the kernels of a game."""

from __future__ import annotations

from typing import TYPE_CHECKING

from az_mpi.core.registry import GAMES, parse

if TYPE_CHECKING:
    from az_mpi.games.base import Game

NAMES = tuple(GAMES.names)


def make(name: str) -> Game:
    """Return the `Game` of a name, such as "connect4" or "own_game.py:Rules(size=5)". What a user's own game returns is
    checked, see `guard`. Raises Refusal."""
    game = GAMES.make(name)
    if not parse(name).place:
        return game
    from az_mpi.games.guard import guarded

    return guarded(game)


def check(game: Game, num_games: int = 64, seed: int = 0) -> list[str]:
    """Play `num_games` random games of `game`; raise AssertionError at the first broken invariant, saying which.

    Returns warnings: what is likely a mistake but breaks no invariant.
    """
    from az_mpi.games.invariants import check as run

    return run(game, num_games, seed)
