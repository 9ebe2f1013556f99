"""Games by name. Importing this package is cheap: a game's kernels are loaded by `make`."""

from importlib import import_module

# The names a configuration may use; each is a module here with a class `Rules`.
NAMES = ("connect4", "tictactoe")


def make(name):
    """Return the `Game` called `name`. Raises KeyError for a name that is not in NAMES."""
    if name not in NAMES:
        raise KeyError(f"no game called {name!r}; there are {', '.join(NAMES)}")
    return import_module(f"az_mpi.games.{name}").Rules()


def check(game, games_num=64, seed=0):
    """Play `games_num` random games of `game`; raise AssertionError at the first broken invariant, saying which."""
    from az_mpi.games.invariants import check as run

    run(game, games_num, seed)
