"""What a network reads of a state of OpenSpiel: the planes that its observation becomes, and what belongs to cells.

Shapes: C planes, H rows, W columns.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from az_mpi.games.symmetry import dihedral

SYMMETRIES = {"none": 1, "half_turn": 2, "dihedral": 8}
# Games whose action cell * kinds + kind is of a cell of the planes: the one where a piece is put, or from which it
# moves. A test looks at each. Not so: quoridor's moves, the drops of crazyhouse and shogi, hive.
BY_CELLS = (
    "amazons antichess breakthrough checkers chess clobber go gomoku havannah hex lines_of_action mnk othello "
    "pentago tic_tac_toe xiangqi y"
).split()
ONE_BOARD = ("2048", "catch", "cliff_walking")  # their table of numbers is a board, that of others has a row a plane
POWERS_OF_2 = ("2048",)  # the network reads the exponents


def observer(game: Any) -> tuple[tuple[int, int, int], Callable[[Any, int], np.ndarray]]:
    """Return (the shape [C, H, W] of an observation; the function of OpenSpiel's state and OpenSpiel's number of a
    player that returns what the player sees of it, float32 [C * H * W])."""
    from open_spiel.python.observation import make_observation

    name = game.get_type().short_name
    observation = make_observation(game)
    flat = observation.tensor.reshape(-1)  # a view, into which each call writes

    def numbers(state: Any, player: int) -> np.ndarray:
        observation.set_from(state, player)
        return flat

    def exponents(state: Any, player: int) -> np.ndarray:
        return np.log2(np.maximum(numbers(state, player), 1))

    shape = board_shape(name, game.observation_tensor_shape())
    return shape, exponents if name in POWERS_OF_2 else numbers


def board_shape(name: str, shape: list[int]) -> tuple[int, int, int]:
    """Return the shape [C, H, W] of an observation tensor: see the class `OpenSpiel`."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 1:
        return (shape[0], 1, 1)
    if name in ONE_BOARD:
        return (1, shape[0], shape[1])
    channels = shape[0]
    cells = int(np.prod(shape[1:]))
    side = round(cells**0.5)
    return (channels, side, side) if side * side == cells else (channels, 1, cells)


def kinds(game: Any, most: int, wanted: int | None) -> int:
    """Return `Game.action_kinds`. most: whole kinds that the number of actions allows."""
    if wanted is None:
        return most if game.get_type().short_name in BY_CELLS else 0
    if type(wanted) is not int or not 0 <= wanted <= most:
        raise ValueError(f"action_kinds is {wanted!r}; allowed: None as is known for the game, or 0 to {most}")
    return wanted


def symmetry_tables(
    kind: str, height: int, width: int, num_actions: int, has_chance: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables `Game.symmetry_cells`, `symmetry_actions`. Actions beyond the cells, such as a pass, stay."""
    cells = height * width
    if kind not in SYMMETRIES or kind != "none" and has_chance:
        allowed = "none in a game with chance moves" if has_chance else ", ".join(SYMMETRIES)
        raise ValueError(f'symmetries is "{kind}"; allowed: {allowed}')
    if kind != "none" and num_actions < cells or kind == "dihedral" and height != width:
        raise ValueError(
            f'symmetries is "{kind}"; the board has {height} x {width} cells and the game {num_actions} '
            "actions: each cell must be an action, and a dihedral board square"
        )
    tables = dihedral(height, width)
    if kind != "dihedral":
        half_turn = tables[0, ::-1]
        tables = np.stack([tables[0], half_turn])[: SYMMETRIES[kind]]
    further = np.tile(np.arange(cells, num_actions, dtype=np.int32), (len(tables), 1))
    return tables, np.concatenate([tables, further], axis=1) if kind != "none" else (
        np.arange(num_actions, dtype=np.int32)[None]
    )
