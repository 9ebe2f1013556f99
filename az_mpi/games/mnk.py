"""m,n,k-games on bitboards: k in a row on a board of m columns and n rows. Tic-tac-toe is 3,3,3, Gomoku 15,15,5.

A state is (own stones, opponent's stones), in numbers of 16 bits where they suffice.
"""

import numpy as np
from numba import njit

from az_mpi.games.base import Game, require
from az_mpi.games.bitboards import BitboardGame, change_sides, count, is_empty, packed, put
from az_mpi.games.symmetry import dihedral
from az_mpi.games.winning_cells import Cells, lines

NAMES = {(3, 3, 3): "tictactoe", (15, 15, 5): "gomoku"}


class Rules(BitboardGame):
    """Players put stones on empty cells alternately. k or more in a row, column or diagonal win; a full board is a
    draw. exact: k win, but more than k do not.

    An action is a cell, counted row by row from the top left; in text its column, and its row from the bottom: a3 b3 c3
    in the top row of tic-tac-toe.
    """

    sgf_number = 4

    def __init__(self, m: int = 3, n: int = 3, k: int = 3, exact: bool = False):
        require("m", m, 3, 19)
        require("n", n, 3, 19)
        require("k", k, 3, max(m, n))
        if type(exact) is not bool:
            raise ValueError(f"exact is {exact!r}; allowed: True, False")
        super().__init__(n, m, dihedral(n, m), upwards=True)
        self.symmetry_actions = self.symmetry_cells
        self.k = k
        plain = f"mnk(m={m},n={n},k={k}{',exact=True' if exact else ''})"
        self.name = plain if exact else NAMES.get((m, n, k), plain)
        self.num_actions = self.max_plies = self.cells
        self.state_size, self.state_dtype = 2 * self.words, np.dtype(np.uint16 if self.cells <= 16 else np.uint64)
        self.solver = "enumerate" if self.cells == 9 else ""
        self.exact = exact
        # For each direction, right, down, down to the right and to the left: its step in bits, and where lines begin.
        row, column = np.divmod(np.arange(self.cells), m)
        ways = [(0, 1), (1, 0), (1, 1), (1, -1)]
        ends = [(row + (k - 1) * r, column + (k - 1) * c) for r, c in ways]
        self._begins = packed(np.array([(r < n) & (0 <= c) & (c < m) for r, c in ends]))
        # Where lines of k + 1 begin, for each direction: such a line is no win if `exact`.
        ends = [(row + k * r, column + k * c) for r, c in ways]
        self._longer = packed(np.array([(r < n) & (0 <= c) & (c < m) for r, c in ends]))
        self._steps = np.array([r * m + c for r, c in ways])
        self._full = packed(np.ones(self.cells, np.bool_))

    def apply(self, state: np.ndarray, action: int) -> None:
        put(state, 0, action)
        change_sides(state, self.words)

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        for cell in range(self.cells):
            legal[cell] = is_empty(state, self.words, cell)

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        other, run, is_full = np.empty(self.words, np.uint64), np.empty(self.words, np.uint64), True
        for w in range(self.words):
            other[w] = state[self.words + w]
            is_full &= np.uint64(state[w]) | other[w] == self._full[w]
        for d in range(4):  # only the one who just moved can have completed a line
            if has_line(other, run, self.k, self._steps[d], self._begins[d]) and (
                not self.exact or has_exact_line(run, self._steps[d], self._begins[d], self._longer[d])
            ):
                return True, -1.0
        return is_full, 0.0

    def current_player(self, state: np.ndarray) -> int:
        num = 0
        for number in state:
            num += count(number)
        return num & 1

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return self.cell_name(action)

    def with_stones(self, own: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the state, [S], with these stones of the player to move and of the other one; bool [N]."""
        return np.concatenate([packed(own), packed(other)]).astype(self.state_dtype)

    def winning_cells(self, players: np.ndarray) -> Cells:
        return lines(players, self.k, self.exact)


def mnk(m: int = 3, n: int = 3, k: int = 3, exact: bool = False, players: int = 2) -> Game:
    """Return the game m,n,k, of two players or more."""
    if players == 2:
        return Rules(m, n, k, exact)
    if exact:
        raise ValueError("exact is True; allowed with more than two players: False")
    from az_mpi.games.mnk_several import Several

    return Several(m, n, k, players)


def tictactoe() -> Rules:
    """Return the game 3,3,3."""
    return Rules(3, 3, 3)


def gomoku() -> Rules:
    """Return the game 15,15,5: Gomoku in free style, where more than five in a row win, too."""
    return Rules(15, 15, 5)


@njit(cache=True, nogil=True)
def has_line(stones: np.ndarray, run: np.ndarray, k: int, step: int, begins: np.ndarray) -> bool:
    """Return whether k of `stones` lie in a row in steps of `step` from a cell of `begins`. run: space of that size."""
    words = len(stones)
    shift = np.uint64(step)
    for w in range(words):  # not run[:] = stones, for which Numba compiles an error message in 2 s
        run[w] = stones[w]
    for _ in range(k - 1):  # then run holds the cells with one more stone after them
        for w in range(words):
            above = run[w + 1] << (np.uint64(64) - shift) if w + 1 < words else np.uint64(0)
            run[w] = stones[w] & (run[w] >> shift | above)
    for w in range(words):
        if run[w] & begins[w]:
            return True
    return False


@njit(cache=True, nogil=True)
def has_exact_line(run: np.ndarray, step: int, begins: np.ndarray, longer: np.ndarray) -> bool:
    """Return whether a line that begins at one of the cells `run`, as `has_line` leaves them, is no part of a longer
    one. longer: uint64 [words], the cells where a line of k + 1 begins."""
    words = len(run)
    shift = np.uint64(step)
    for w in range(words):
        found = run[w] & begins[w]
        above = run[w + 1] & begins[w + 1] if w + 1 < words else np.uint64(0)
        # Of a longer row the next cell begins a line of k too, or the cell before it does.
        next_too = (found >> shift | above << (np.uint64(64) - shift)) & longer[w]
        below = run[w - 1] & begins[w - 1] & longer[w - 1] if w > 0 else np.uint64(0)
        before_too = (found & longer[w]) << shift | below >> (np.uint64(64) - shift)
        if found & ~next_too & ~before_too:
            return True
    return False
