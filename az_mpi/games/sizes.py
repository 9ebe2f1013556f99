"""Whether the sizes, the tables and the methods of a game fit together, as far as its attributes tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from az_mpi.games.base import ACTIONS_MAX, PLAYERS_MAX, Game
from az_mpi.games.position_game import PositionGame

SIZES = {  # of a game: the smallest and the largest number that is allowed
    "num_actions": (1, ACTIONS_MAX),
    "max_plies": (1, 2**31 - 1),
    "state_size": (1, 2**31 - 1),
    "num_players": (1, PLAYERS_MAX),
    "num_outcomes": (0, ACTIONS_MAX),
}


def misfit(game: Game) -> str | None:
    """Return what is wrong with the attributes of a game, None if nothing is: its sizes are in range, its class writes
    the methods of its kind, and its symmetry tables are permutations of these sizes that begin with the identity and
    turn actions with their cells."""
    for fits, what in _needs(game):
        if not fits:
            return what
    return None


def _needs(game):
    """Yield (whether an attribute is right, what is wrong otherwise). Later ones rely on those before."""
    for name, (least, most) in SIZES.items():
        value = getattr(game, name)
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        allowed = f"allowed: a whole number from {least} to {most:,}"
        yield whole and least <= value <= most, f"{name} is {value!r}; {allowed}"
    missing = _missing(game)
    yield not missing, missing
    shape = game.planes_shape
    yield len(shape) == 3 and min(shape) >= 1, f"planes_shape is {shape!r}; allowed: (planes, rows, columns)"
    yield game.planes_dtype in (np.uint8, np.float32), f"planes_dtype is {game.planes_dtype}; allowed: uint8, float32"
    yield (
        game.floor_plane is None or game.num_players == 1 and 0 <= game.floor_plane < shape[0],
        f"floor_plane is {game.floor_plane!r}\n  allowed: the number of a plane, in games of one player, or None",
    )
    yield from _tables(game, int(shape[1] * shape[2]))


def _tables(game, cells):
    """The same of the tables of symmetries, of kinds of actions and of the other player's view."""
    rows = np.shape(game.symmetry_cells)[:1]
    for name, num in (("symmetry_cells", cells), ("symmetry_actions", game.num_actions)):
        table = getattr(game, name)
        wanted = (*rows, num)
        yield (
            isinstance(table, np.ndarray) and table.shape == wanted and rows != (0,),
            f"{name} is {told(table)}; expected: int32 {wanted}, a row for each symmetry",
        )
        yield (
            table.dtype.kind in "iu" and (np.sort(table, axis=1) == np.arange(num)).all(),
            f"a row of {name} is not a permutation of 0 to {num - 1}",
        )
        yield (table[0] == np.arange(num)).all(), f"the first symmetry is not the identity in {name}"
    kinds = game.action_kinds
    other = game.other_view
    yield (
        0 <= kinds * cells <= game.num_actions,
        f"action_kinds is {kinds}; {cells} cells would have more actions than the {game.num_actions} of the game",
    )
    if other is not None:
        fits = isinstance(other, np.ndarray) and other.shape == (cells,) and (np.sort(other) == np.arange(cells)).all()
        yield fits and (other[other] == np.arange(cells)).all(), "other_view does not lead back to the same cells"
        yield (
            game.num_players == 2,
            f"num_players is {game.num_players}, and other_view is not None\n"
            "  allowed: other_view in games of two players",
        )
    of_cells = game.symmetry_actions[:, : kinds * cells].reshape(len(game.symmetry_cells), cells, kinds)
    turn_together = (of_cells // max(kinds, 1) == game.symmetry_cells[:, :, None]).all()
    yield turn_together, "a symmetry turns actions otherwise than the cells that action_kinds gives them"


def _missing(game):
    """Return what is wrong if a game's class does not write a method that its kind needs; "" otherwise."""
    kind = getattr(game, "unguarded_class", type(game))
    base = PositionGame if issubclass(kind, PositionGame) else Game

    def writes(name):
        return getattr(kind, name, None) is not getattr(base, name, None)

    which = f"num_players is {game.num_players}, num_outcomes is {game.num_outcomes}"
    if base is PositionGame and not writes("terminal"):
        wanted, other = ("result", "results") if game.num_players <= 2 else ("results", "result")
        if not writes(wanted):
            got = f"{other} is" if writes(other) else "neither is"
            return (
                f"{which}, and {wanted} is not written: {got}\n"
                "  allowed: result for one or two players, results for three or more"
            )
    if game.num_outcomes and not (writes("chances") or writes("outcome_chances")):
        name = "outcome_chances" if base is PositionGame else "chances"
        return (
            f"{which}, and {name} is not written\n  allowed: no outcomes, or {name}, which says how likely each one is"
        )
    return ""


def movers(game: Game) -> str:
    """Return what `to_play` of a game may be, in words."""
    if game.num_players == 1:
        players = "0, as a game of one player never changes the player"
    else:
        players = "0 or 1" if game.num_players == 2 else f"0 to {game.num_players - 1}"
    chance = "or CHANCE, -1" if game.num_outcomes else "CHANCE, -1, only if num_outcomes is not 0"
    return f"{players}; {chance}" if game.num_outcomes or game.num_players != 2 else players


def told(given: Any) -> str:
    """Return what a value is, in words."""
    return f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else f"{type(given).__name__} {given!r:.60}"
