"""Exact solvers by compiled search: endings of Othello, and Hex on boards of at most 4 x 4.

Shapes: P positions, S numbers a state, A actions, N cells.
"""

import numpy as np
from numba import njit

from az_mpi.core.problems import Refusal
from az_mpi.evaluate.arena import OnProgress
from az_mpi.evaluate.solver import POSITIONS_SEED, Solved, Solver, positions
from az_mpi.games.base import Game
from az_mpi.games.hex import Rules as Hex
from az_mpi.games.hex import joins
from az_mpi.games.othello import Rules as Othello
from az_mpi.games.othello import moves_of, turned_by

EMPTY = 14, 6  # cells in the positions of Othello that are solved, at most and at least, if no player passes
HEX_FIRST_PLY = 2  # from here on nobody may swap
_ONE, _NONE = np.uint64(1), np.uint64(0)


class OthelloEndings(Solver):
    """Solves endings of Othello by alpha-beta search of the result: 8 x 8 from ply 46 on."""

    def __init__(self, game: Game):
        if not isinstance(game, Othello):
            raise Refusal(f'evaluate.solver: "othello" solves Othello; game is {game.name}')
        self.game: Othello = game

    def solve(self, num_positions: int, rank: int, size: int, on_progress: OnProgress) -> Solved:
        game = self.game
        first, last = (max(game.cells - 4 - empty, 0) for empty in EMPTY)
        states = positions(game, num_positions, POSITIONS_SEED, first, last)[rank::size].copy()
        return _solved(
            game,
            states,
            on_progress,
            lambda state: _othello_values(state, game.legal(state[None])[0], game.cells, game.steps, game.has_next),
        )


class SmallHex(Solver):
    """Solves Hex on a board of at most 4 x 4 by a search that remembers every position."""

    def __init__(self, game: Game):
        if not isinstance(game, Hex) or game.rows > 4:
            raise Refusal(f'evaluate.solver: "hex" solves Hex on boards of at most 4 x 4; game is {game.name}')
        self.game: Hex = game

    def solve(self, num_positions: int, rank: int, size: int, on_progress: OnProgress) -> Solved:
        game = self.game
        states = positions(game, num_positions, POSITIONS_SEED, HEX_FIRST_PLY, game.cells - 2)[rank::size].copy()
        known = np.zeros((2, 3**game.cells), np.int8)
        return _solved(game, states, on_progress, lambda state: _hex_values(state, game.order, game.num_actions, known))


def _solved(game, states, on_progress, values_of):
    """Return `Solved` of states [P, S]. values_of(state): the value of each move, float32 [A]."""
    values = np.empty((len(states), game.num_actions), np.float32)
    for i, state in enumerate(states):
        on_progress(i, len(states))
        values[i] = values_of(state)
    return Solved(states, game.legal(states), values)


# Not cached: a kernel that calls itself can crash the process when Numba loads it from its cache (0.68).
@njit(nogil=True)
def _othello_values(state, legal, cells, steps, has_next):
    """Return the value of each action in a state, [S], float32 [A]; nan where illegal."""
    own = state[0]
    other = state[1]
    values = np.full(cells + 1, np.nan, np.float32)
    for a in range(cells + 1):
        if legal[a]:
            stone = _ONE << np.uint64(a) if a < cells else _NONE
            turned = turned_by(stone, own, other, steps, has_next) if a < cells else _NONE
            values[a] = -_othello_value(other & ~turned, own | stone | turned, -1, 1, cells, steps, has_next)
    return values


@njit(nogil=True)
def _othello_value(own, other, alpha, beta, cells, steps, has_next):
    """Return the result, -1, 0 or 1, for the player of `own`, who is to move, as far as it lies between alpha and beta.

    Moves that leave the other player the fewest moves come first: they are searched the fastest."""
    moves = moves_of(own, other, cells, steps, has_next)
    if moves == 0:
        if moves_of(other, own, cells, steps, has_next) == 0:
            lead = _count(own) - _count(other)
            return (lead > 0) - (lead < 0)
        return -_othello_value(other, own, -beta, -alpha, cells, steps, has_next)
    num = 0
    replies = np.empty(32, np.int64)
    stones = np.empty(32, np.uint64)
    turns = np.empty(32, np.uint64)
    while moves:
        stone = moves & (~moves + _ONE)
        moves ^= stone
        turned = turned_by(stone, own, other, steps, has_next)
        reply = _count(moves_of(other & ~turned, own | stone | turned, cells, steps, has_next))
        k = num
        while k > 0 and replies[k - 1] > reply:
            replies[k], stones[k], turns[k] = replies[k - 1], stones[k - 1], turns[k - 1]
            k -= 1
        replies[k], stones[k], turns[k] = reply, stone, turned
        num += 1
    best = -1
    for k in range(num):
        value = -_othello_value(other & ~turns[k], own | stones[k] | turns[k], -beta, -alpha, cells, steps, has_next)
        best = max(best, value)
        alpha = max(alpha, value)
        if alpha >= beta:
            break
    return best


@njit(cache=True, nogil=True)
def _count(stones):
    num = 0
    while stones:
        stones &= stones - _ONE
        num += 1
    return num


@njit(nogil=True)
def _hex_values(state, order, num_actions, known):
    """Return the value of each action in a state, [S], float32 [A]; nan where illegal. known: see `_hex_wins`."""
    cells = order.shape[1]
    player = np.int64(state[2] & _ONE)
    values = np.full(num_actions, np.nan, np.float32)
    powers = 3 ** np.arange(cells)
    index = 0
    for c in range(cells):
        for p in range(2):
            if state[p] >> np.uint64(c) & _ONE:
                index += (1 + (player ^ p)) * powers[c]
    for a in range(cells):
        c = order[player, a]
        if (state[0] | state[1]) >> np.uint64(c) & _ONE == 0:
            values[a] = 1.0 if _hex_wins_by(state[0], state[1], player, c, index, order, powers, known) else -1.0
    return values


@njit(nogil=True)
def _hex_wins_by(own, other, player, c, index, order, powers, known):
    """Return whether the player to move wins by a stone on the empty cell c."""
    own |= _ONE << np.uint64(c)
    board = np.empty(1, np.uint64)
    board[0] = own
    if joins(board, order[player], np.int64(order.shape[1] ** 0.5), np.empty(order.shape[1], np.int64)):
        return True
    index += (1 + player) * powers[c]
    player = 1 - player
    if known[player, index] == 0:
        known[player, index] = 2
        for reply in range(order.shape[1]):
            if (own | other) >> np.uint64(reply) & _ONE == 0:
                if _hex_wins_by(other, own, player, reply, index, order, powers, known):
                    known[player, index] = 1
                    break
    return known[player, index] == 2
