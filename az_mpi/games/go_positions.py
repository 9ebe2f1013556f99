"""Positions of Go as programs for boards set them up: any turn, any komi, moves that only superko forbids."""

from copy import copy

import numpy as np

from az_mpi.games.go import Rules

_PLAYER = 1  # the bit of a state's turn that says who is to move, see `go`


def with_komi(game: Rules, komi: float) -> Rules:
    """Return the same game with another komi; states of the two fit each other."""
    other = copy(game)
    other.komi = komi
    return other


def turned(game: Rules, state: np.ndarray, player: int) -> np.ndarray:
    """Return a position, [S], with `player` to move as at the start of a game: no ply and no pass was before it.
    Positions before it may still not come back."""
    at = 3 * game.words
    if int(state[at]) & _PLAYER == player:
        after = np.array(state)
    else:
        after = game.play(state[None], np.array([game.cells]))[0]  # a pass, which is forgotten
    after[at] = player
    return after


def is_legal_by_simple_ko(game: Rules, state: np.ndarray, action: int) -> bool:
    """Return whether the player to move may put a stone on a point if only the position before the last move must not
    come back: no suicide, and no retaking of a ko at once."""
    if not 0 <= action < game.cells or game.board(state).players.reshape(-1)[action] >= 0:
        return False
    mover = int(game.to_play(state[None])[0])
    after = game.play(state[None], np.array([action]))[0]
    hashes = 3 * game.words + 1
    return _has_liberty(game.board(after).players, action, mover) and after[hashes] != state[hashes + 1]


def _has_liberty(players, cell, player):
    """Return whether the stones that are joined to a cell have an empty point beside them."""
    size = len(players)
    seen, left = {divmod(cell, size)}, [divmod(cell, size)]
    while left:
        row, column = left.pop()
        for near in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if near in seen or not (0 <= near[0] < size and 0 <= near[1] < size):
                continue
            if players[near] == -1:
                return True
            if players[near] == player:
                seen.add(near)
                left.append(near)
    return False


def fixed_handicap(size: int, number: int) -> list[int]:
    """Return the points of so many stones of handicap, as the Go Text Protocol sets them; none if the board has no such
    handicap."""
    if size < 7 or not 2 <= number <= (9 if size % 2 and size > 7 else 4):
        return []
    edge = 2 if size < 12 else 3
    low, high, middle = edge, size - 1 - edge, size // 2
    # Rows count from the top: lower left, upper right, upper left, lower right, then the sides, and the centre.
    places = [(high, low), (low, high), (low, low), (high, high)][:number]
    sides = [(middle, low), (middle, high), (low, middle), (high, middle)]
    places += sides[: 4 if number >= 8 else 2 if number >= 6 else 0]
    places += [(middle, middle)] * (number in (5, 7, 9))
    return [row * size + column for row, column in places]
