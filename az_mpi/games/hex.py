"""Hex on bitboards. A state is (own stones, opponent's stones, turn): bit 0 of turn is the player to move, bit 1 says
that this player may swap. Cells are those of the board, counted row by row from the top left.

Both players see the board, and count actions, as if they were to join the top row to the bottom one: for player 1, who
joins the left column to the right one, it is mirrored on its long diagonal, where row and column change places.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.games.base import OWN_AND_OTHER, require
from az_mpi.games.bitboards import BitboardGame, change_sides, holds, is_empty, put
from az_mpi.games.winning_cells import Cells, chain

_PLAYER, _MAY_SWAP = np.uint64(1), np.uint64(2)


class Rules(BitboardGame):
    """Hex: player 0 joins the top row to the bottom one, player 1 the left column to the right one. No draws.

    An action is a cell as the player to move sees it, in text column and row of the board from the top left (a1). With
    `swap` there is one more, to "swap", which player 1 may do in place of the first stone: player 0's stone becomes one
    of player 1 on the mirrored cell, and player 0 moves.
    """

    shape = "hex"
    edges = 0, 1
    sgf_number = 11

    def __init__(self, size: int = 11, swap: bool = False):
        require("size", size, 2, 19)
        if type(swap) is not bool:
            raise ValueError(f"swap is {swap!r}; allowed: True or False")
        cells = np.arange(size * size, dtype=np.int32)
        half_turn = np.stack([cells, cells[::-1]])
        mirrored = cells.reshape(size, size).T.reshape(-1)
        super().__init__(size, size, half_turn, num_planes=2 + swap, order=np.stack([cells, mirrored]))
        self.name = self._named(size, swap)
        self.num_actions = self.max_plies = self.cells + swap
        self.state_size = 2 * self.words + 1
        self.swap = swap
        # The last action, to swap, is the same on the turned board.
        self.symmetry_actions = np.pad(half_turn, ((0, 0), (0, swap)), constant_values=self.cells)
        self.solver = "enumerate" if size <= 3 else "hex" if size == 4 else ""

    @staticmethod
    def _named(size, swap):
        arguments = [f"size={size}"] if size != 11 else []
        arguments += ["swap=True"] if swap else []
        return f"hex({','.join(arguments)})" if arguments else "hex"

    def apply(self, state: np.ndarray, action: int) -> None:
        player, is_first = self.current_player(state), True
        for w in range(2 * self.words):
            is_first &= state[w] == 0
        change_sides(state, self.words)
        state[-1] = _MAY_SWAP if self.swap and is_first else np.uint64(0)
        if action < self.cells:
            put(state, self.words, self.order[player, action])
        else:
            for cell in range(self.cells):  # the only stone there is: it changes its owner and its cell
                if holds(state, 0, cell):
                    state[cell >> 6] = np.uint64(0)
                    put(state, self.words, self.order[1, cell])
                    break
        state[-1] |= np.uint64(1 - player)

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        order = self.order[self.current_player(state)]
        for j in range(self.cells):
            legal[j] = is_empty(state, self.words, order[j])
        if self.swap:
            legal[self.cells] = state[-1] & _MAY_SWAP != 0

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        # Only the one who just moved can have joined the sides.
        other, stack = state[self.words : 2 * self.words].copy(), np.empty(self.cells, np.int64)
        won = joins(other, self.order[1 - self.current_player(state)], self.rows, stack)
        return won, -1.0 if won else 0.0

    def current_player(self, state: np.ndarray) -> int:
        return np.int64(state[-1] & _PLAYER)

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        """Own stones, the other player's; with `swap` a plane of ones where the player to move may swap."""
        self.observe_stones(state, planes)
        if self.swap:
            planes[2] = self.beside_stones(state)

    def beside_stones(self, state: np.ndarray) -> int:
        return state[-1] >> np.uint64(1)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        swap = ["1 everywhere if the player to move may swap"] * self.swap
        rows = "; player 1 sees it mirrored: row i and column j of the planes are row j and column i of the board"
        return (*OWN_AND_OTHER, *swap), self.describe_rows() + rows

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        player = int(np.asarray(state)[-1] & _PLAYER)
        return "swap" if action == self.cells else self.cell_name(self.order[player, action])

    def winning_cells(self, players: np.ndarray) -> Cells:
        return chain(players)


@njit(cache=True, nogil=True)
def _take(board, c):
    """Take the stone on cell c off a set of cells, in place; return whether there was one."""
    stone = np.uint64(1) << np.uint64(c & 63)
    if board[c >> 6] & stone == 0:
        return False
    board[c >> 6] ^= stone
    return True


@njit(cache=True, nogil=True)
def joins(board: np.ndarray, cells: np.ndarray, size: int, stack: np.ndarray) -> bool:
    """Return whether the set of cells `board` joins the top row to the bottom one, as its player sees it: cells[v] is
    cell v of that view. The stones that are looked at are taken off. stack: space for all cells."""
    for start in range(size):
        found = 0
        if _take(board, cells[start]):
            stack[0], found = start, 1
        while found:
            found -= 1
            r = stack[found] // size
            c = stack[found] % size
            if r == size - 1:
                return True
            for dr, dc in ((1, 0), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1)):
                if 0 <= r + dr < size and 0 <= c + dc < size:
                    v = (r + dr) * size + c + dc
                    if _take(board, cells[v]):
                        stack[found] = v
                        found += 1
    return False
