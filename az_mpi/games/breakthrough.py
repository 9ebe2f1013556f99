"""Breakthrough on bitboards. A state is (own pieces, opponent's pieces, player to move). Cells are those of the board,
counted row by row from the top left.

Both players see the board, and count actions, as if their pieces moved up: for player 1 it is turned by half a turn.
"""

from collections.abc import Sequence

import numpy as np

from az_mpi.games.base import require
from az_mpi.games.bitboards import BitboardGame, holds, is_empty, packed

_ONE = np.uint64(1)


class Rules(BitboardGame):
    """Breakthrough: two rows of pieces each, one on boards of less than six rows (as in OpenSpiel). A piece moves one
    cell straight or diagonally forward, and captures diagonally only. Who reaches the last row, or captures all pieces,
    wins; no draws. Player 0 begins at the bottom.

    Action 3 cell + direction moves the piece on a cell, as the player to move sees it, 0 to the left, 1 straight or 2
    to the right; in text both cells of the board, column and row from the bottom left (a2b3).
    """

    action_kinds = 3

    def __init__(self, rows: int = 8, columns: int = 8):
        require("rows", rows, 4, 16)
        require("columns", columns, 2, 16)
        if rows * columns > 64:
            raise ValueError(f"rows x columns is {rows * columns}; allowed: up to 64")
        cells = np.arange(rows * columns, dtype=np.int32)
        mirror = cells.reshape(rows, columns)[:, ::-1].reshape(-1)
        symmetries = np.stack([cells, mirror])
        order = np.stack([cells, cells[::-1]])
        super().__init__(rows, columns, symmetries, order=order, upwards=True)
        self.name = "breakthrough" if rows == columns == 8 else f"breakthrough(rows={rows},columns={columns})"
        self.num_actions = 3 * self.cells
        self.state_size = 3
        # No piece gets further than the row before the last, but for the move that ends the game.
        piece_rows = 2 if rows >= 6 else 1
        self.max_plies = 2 * columns * sum(rows - 2 - row for row in range(piece_rows)) + 1
        mirrored_moves = np.stack([3 * mirror + 2, 3 * mirror + 1, 3 * mirror], axis=1).reshape(-1)
        self.symmetry_actions = np.stack([np.arange(self.num_actions, dtype=np.int32), mirrored_moves])
        pieces = piece_rows * columns
        self._start = [*packed(np.stack([cells >= len(cells) - pieces, cells < pieces]))[:, 0], 0]

    def initial(self, n: int) -> np.ndarray:
        return np.tile(np.array(self._start, np.uint64), (n, 1))

    def apply(self, state: np.ndarray, action: int) -> None:
        start = action // 3
        end = start - self.columns + action % 3 - 1
        order = self.order[self.current_player(state)]
        from_cell, to_cell = _ONE << np.uint64(order[start]), _ONE << np.uint64(order[end])
        state[0], state[1] = state[1] & ~to_cell, state[0] & ~from_cell | to_cell
        state[2] ^= _ONE

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        order = self.order[self.current_player(state)]
        for start in range(self.columns, self.cells):
            if holds(state, 0, order[start]):
                column, ahead = start % self.columns, start - self.columns
                legal[3 * start] = column > 0 and not holds(state, 0, order[ahead - 1])
                legal[3 * start + 1] = is_empty(state, 1, order[ahead])
                legal[3 * start + 2] = column < self.columns - 1 and not holds(state, 0, order[ahead + 1])

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        row = (_ONE << np.uint64(self.columns)) - _ONE
        last_row = row if state[2] else row << np.uint64(self.cells - self.columns)  # of the one who just moved
        lost = state[0] == 0 or state[1] & last_row != 0
        return lost, -1.0 if lost else 0.0

    def current_player(self, state: np.ndarray) -> int:
        return np.int64(state[2])

    def describe_planes(self) -> tuple[Sequence[str], str]:
        rows = "; player 1 sees it turned by half a turn, so that the pieces of the player to move always move up"
        return ("pieces of the player to move", "pieces of the other player"), self.describe_rows() + rows

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        start, direction = divmod(int(action), 3)
        cells = self.order[int(np.asarray(state)[2])][[start, start - self.columns + direction - 1]]
        return "".join(map(self.cell_name, cells))
