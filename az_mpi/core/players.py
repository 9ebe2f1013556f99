"""Players by their numbers, and whose values are whose. Shapes: n positions, P players."""

import numpy as np

CHANCE = -1  # in place of a player: the next move is drawn by lot


def num_values(num_players: int) -> int:
    """Return how many values an evaluation has: one for each player if there are three or more; else one, for the
    player to move."""
    return num_players if num_players > 2 else 1


def of_players(num_players: int, value: np.ndarray, player: np.ndarray) -> np.ndarray:
    """Return the results of all players, float32 [n, P], as `Game.terminal` gives them: with one or two players
    value [n] is for the player to move, with more it has all of them, [n, P]. player: int [n], to move."""
    if num_players > 2:
        return value
    if num_players == 1:
        return value[:, None]
    return np.where(player[:, None] == [0, 1], value[:, None], -value[:, None])


def by_player(num_players: int, evaluated: np.ndarray, player: np.ndarray) -> np.ndarray:
    """Return the values of all players, float32 [n, P], of evaluations. These are as `of_players` says, but those of
    several players, [n, P], begin with the one to move, then the one after that, and so on. player: int [n], to move.
    """
    if num_players <= 2:
        return of_players(num_players, evaluated, player)
    return np.take_along_axis(evaluated, (np.arange(num_players) - player[:, None]) % num_players, axis=1)


def from_mover(values: np.ndarray, player: np.ndarray) -> np.ndarray:
    """Return the values of all players, [n, P], beginning with the one to move: what `by_player` turns back. player:
    int [n], to move."""
    num = values.shape[1]
    return np.take_along_axis(values, (np.arange(num) + player[:, None]) % num, axis=1)
