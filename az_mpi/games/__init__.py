"""Rules of games, looked up by name. Importing this package is cheap: a game's kernels are loaded by `make`."""

from az_mpi.core.registry import GAMES

NAMES = tuple(GAMES.names)


def make(name):
    """Return the `Game` of a name, such as "connect4" or "own_game.py:Rules(size=5)". Raises Refusal."""
    return GAMES.make(name)


def check(game, games_num=64, seed=0):
    """Play `games_num` random games of `game`; raise AssertionError at the first broken invariant, saying which."""
    from az_mpi.games.invariants import check as run

    run(game, games_num, seed)
