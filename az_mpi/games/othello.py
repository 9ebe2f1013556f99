"""Othello on bitboards. A state is (own stones, opponent's stones, player to move); the cell in row r from the top,
column c is bit size * r + c."""

import numpy as np
from numba import njit

from az_mpi.games.bitboards import BitboardGame, count, packed
from az_mpi.games.state_text import stones_from_text, stones_to_text
from az_mpi.games.symmetry import dihedral

SIZES = 4, 6, 8
_ONE = np.uint64(1)


class Rules(BitboardGame):
    """Othello: a stone must turn at least one of the opponent's; all that it encloses in the eight directions turn.

    An action is a cell, counted row by row from the top left, in text its column and row from the top (d3); the last
    action is to pass ("pass"), which is legal only where there is no other move. The game ends when neither player can
    move; the majority of stones wins. Player 0 has the stones on d5 and e4 (of 8 x 8), as Black has.
    """

    solver = "othello"
    sgf_number = 2

    def __init__(self, size: int = 8):
        if size not in SIZES or type(size) is not int:
            raise ValueError(f"size is {size!r}; allowed: {', '.join(map(str, SIZES))}")
        cells = size * size
        middle = size * (size // 2 - 1) + size // 2
        self._start = [1 << middle | 1 << middle + size - 1, 1 << middle - 1 | 1 << middle + size, 0]
        # The other four of the square's symmetries would exchange the colours of the first four stones.
        symmetries = np.array([turn for turn in dihedral(size, size) if turn[middle] in (middle, middle + size - 1)])
        super().__init__(size, size, symmetries)
        self.name = "othello" if size == 8 else f"othello(size={size})"
        self.num_actions = cells + 1
        self.state_size = 3
        self.max_plies = 2 * (cells - 4) - 1  # a stone each ply; between two stones at most one pass
        self.symmetry_actions = np.pad(symmetries, ((0, 0), (0, 1)), constant_values=cells)
        # For the kernels, of each direction: its step in bits, and the cells that have a neighbour there.
        row, column = np.divmod(np.arange(cells), size)
        ways = [(r, c) for r in (0, 1) for c in (-1, 0, 1) if (r, c) > (0, 0)]
        ways += [(-r, -c) for r, c in ways]
        inside = [(0 <= row + r) & (row + r < size) & (0 <= column + c) & (column + c < size) for r, c in ways]
        self.steps = np.array([r * size + c for r, c in ways[:4]], np.uint64)
        self.has_next = packed(np.array(inside))[:, 0]

    def initial(self, n: int) -> np.ndarray:
        return np.tile(np.array(self._start, np.uint64), (n, 1))

    def apply(self, state: np.ndarray, action: int) -> None:
        own, other = state[0], state[1]
        if action < self.cells:
            stone = _ONE << np.uint64(action)
            turned = turned_by(stone, own, other, self.steps, self.has_next)
            own, other = own | stone | turned, other & ~turned
        state[0], state[1], state[2] = other, own, state[2] ^ _ONE

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        moves = moves_of(state[0], state[1], self.cells, self.steps, self.has_next)
        for c in range(self.cells):
            legal[c] = (moves >> np.uint64(c)) & _ONE
        legal[self.cells] = moves == 0

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        own, other = state[0], state[1]
        if moves_of(own, other, self.cells, self.steps, self.has_next) or moves_of(
            other, own, self.cells, self.steps, self.has_next
        ):
            return False, 0.0
        return True, float(np.sign(count(own) - count(other)))

    def current_player(self, state: np.ndarray) -> int:
        return np.int64(state[2])

    def lead(self, states: np.ndarray) -> np.ndarray:
        own, other = np.bitwise_count(states[:, :2]).astype(np.float32).T
        return np.where(self.to_play(states) == 0, own - other, other - own)

    def ownership(self, states: np.ndarray, player: int) -> np.ndarray:
        planes = self.planes(states).view(np.int8)
        own = planes[:, 0]
        other = planes[:, 1]
        return np.where(self.to_play(states)[:, None, None] == player, own - other, other - own)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return self.cell_name(action) if action < self.cells else "pass"

    def state_to_text(self, state: np.ndarray) -> str:
        return stones_to_text(self, np.asarray(state))

    def text_to_state(self, text: str) -> np.ndarray:
        players, mover, _ = stones_from_text(text, self.rows, self.columns)
        own, other = packed(np.stack([players.ravel() == player for player in (mover, 1 - mover)]))[:, 0]
        return np.array([own, other, mover], np.uint64)


@njit(cache=True, nogil=True)
def _next(stones, d, steps, has_next):
    """Return the cells one step from `stones` in direction d, without those that would leave the board."""
    stones &= has_next[d]
    return stones << steps[d] if d < 4 else stones >> steps[d - 4]


@njit(cache=True, nogil=True)
def moves_of(own: int, other: int, cells: int, steps: np.ndarray, has_next: np.ndarray) -> int:
    """Return the empty cells where a stone of `own` turns at least one of `other`."""
    board = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - cells)
    moves = np.uint64(0)
    for d in range(8):
        run = _next(own, d, steps, has_next) & other
        ends = np.uint64(0)
        while run:
            run = _next(run, d, steps, has_next)
            ends |= run
            run &= other
        moves |= ends
    return moves & ~(own | other) & board


@njit(cache=True, nogil=True)
def turned_by(stone: int, own: int, other: int, steps: np.ndarray, has_next: np.ndarray) -> int:
    """Return the stones of `other` that turn when `own` puts a stone on the cell `stone`."""
    turned = np.uint64(0)
    for d in range(8):
        line = np.uint64(0)
        run = _next(stone, d, steps, has_next)
        while run & other:
            line |= run
            run = _next(run, d, steps, has_next)
        if run & own:
            turned |= line
    return turned
