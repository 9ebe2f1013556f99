"""Breakthrough on bitboards. A state is (own pieces, opponent's pieces, player to move). Cells are those of the board,
counted row by row from the top left.

Both players see the board, and count actions, as if their pieces moved up: for player 1 it is turned by half a turn.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.games.base import require
from az_mpi.games.bitboards import BitboardGame, packed, unpack

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

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return _play(states, np.ascontiguousarray(actions, np.int64), self.order, self.columns)

    def legal(self, states: np.ndarray) -> np.ndarray:
        return _legal(unpack(states, self.order, self.view(states), 2, 2), self.columns)

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _terminal(states, self.cells, self.columns)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        rows = "; player 1 sees it turned by half a turn, so that the pieces of the player to move always move up"
        return ("pieces of the player to move", "pieces of the other player"), self.describe_rows() + rows

    def to_play(self, states: np.ndarray) -> np.ndarray:
        return states[:, 2].astype(np.int8)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        start, direction = divmod(int(action), 3)
        cells = self.order[int(np.asarray(state)[2])][[start, start - self.columns + direction - 1]]
        return "".join(map(self.cell_name, cells))


@njit(cache=True, nogil=True)
def _play(states, actions, order, columns):
    after = np.empty_like(states)
    for b in range(len(states)):
        player = states[b, 2]
        start = actions[b] // 3
        end = start - columns + actions[b] % 3 - 1
        from_cell = _ONE << np.uint64(order[player, start])
        to_cell = _ONE << np.uint64(order[player, end])
        after[b, 0] = states[b, 1] & ~to_cell
        after[b, 1] = states[b, 0] & ~from_cell | to_cell
        after[b, 2] = player ^ _ONE
    return after


@njit(cache=True, nogil=True)
def _legal(planes, columns):
    """planes: uint8 [B, 2, N], the player's pieces and the other one's, as the player sees them."""
    cells = planes.shape[2]
    legal = np.zeros((len(planes), 3 * cells), np.bool_)
    for b in range(len(planes)):
        for start in range(columns, cells):
            if planes[b, 0, start]:
                column = start % columns
                ahead = start - columns
                legal[b, 3 * start] = column > 0 and not planes[b, 0, ahead - 1]
                legal[b, 3 * start + 1] = not (planes[b, 0, ahead] or planes[b, 1, ahead])
                legal[b, 3 * start + 2] = column < columns - 1 and not planes[b, 0, ahead + 1]
    return legal


@njit(cache=True, nogil=True)
def _terminal(states, cells, columns):
    ended = np.zeros(len(states), np.bool_)
    value = np.zeros(len(states), np.float32)
    row = (_ONE << np.uint64(columns)) - _ONE
    for b in range(len(states)):
        last_row = row if states[b, 2] else row << np.uint64(cells - columns)  # of the one who just moved
        if states[b, 0] == 0 or states[b, 1] & last_row:
            ended[b], value[b] = True, -1.0
    return ended, value
