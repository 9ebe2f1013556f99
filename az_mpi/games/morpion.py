"""Morpion solitaire (join five): one player adds points to a cross and joins five in a row by a line with each.

A state is the points row by row, in bits of a byte: POINT if there is one, and 1 << d for what lines in direction d
have used; then the number of moves, as two bytes.
"""

from collections.abc import Sequence

import numpy as np

from az_mpi.core.hashing import mix
from az_mpi.games.base import require
from az_mpi.games.board_data import Board
from az_mpi.games.position_game import PositionGame

POINT = 16
ROWS_DOWN, COLUMNS_RIGHT = np.array([0, 1, 1, 1]), np.array([1, 0, 1, -1])  # of the directions: one step
SIGNS = "-|\\/"  # of the directions in text
VARIANTS = {"5D": (22, 100), "5T": (26, 200)}  # the default size, and the moves that are worth a value of 1
CROSS = (3, 4, 5, 6), (3, 6), (3, 6), (0, 1, 2, 3, 6, 7, 8, 9), (0, 9)  # columns of the cross in the upper five rows


class Rules(PositionGame):
    """Morpion solitaire on size x size points, with 36 of them set as a cross in the middle. A move sets a point and
    draws a line through five points in a row that include it. In the variant "5D", disjoint, two lines of one direction
    share no point; in "5T", touching, they may share an end. The game is over when there is no such line. Real paper is
    not bounded: where a game reaches the edge, choose a larger size.

    The default sizes are 22 points for 5D, whose longest known game has 82 moves, and 26 for 5T.

    The value is the number of moves / 50 - 1 in 5D and / 100 - 1 in 5T, and the score is that number.

    An action is 4 x cell + direction: the point in the middle of the line, and right, down, down to the right, or down
    to the left. In text it is the new point, the direction, and how many points the line's middle is further to the
    right, or below in an upright line: h9-+1.
    """

    num_players, score_name, action_kinds, planes_dtype = 1, "moves", 4, np.dtype(np.float32)
    state_dtype = np.dtype(np.uint8)

    def __init__(self, variant: str = "5D", size: int = 0):
        if variant not in VARIANTS:
            raise ValueError(f"variant is {variant!r}; allowed: {', '.join(VARIANTS)}")
        require("size", size, 0, 50)
        usual, self.worth_1 = VARIANTS[variant]
        self.size = size or usual
        require("size", self.size, 12, 50)
        arguments = [f"variant={variant}"] * (variant != "5D") + [f"size={self.size}"] * (self.size != usual)
        self.name = f"morpion({','.join(arguments)})" if arguments else "morpion"
        self.touching, self.cells = variant == "5T", self.size**2
        self.num_actions, self.state_size = 4 * self.cells, self.cells + 2
        self.max_plies = self.cells - 36
        self.planes_shape = (10 if self.touching else 6, self.size, self.size)
        self.floor_plane = self.planes_shape[0] - 1
        # Directions have planes of their own, so that only the half turn, which keeps them, maps boards to boards.
        turned = np.arange(self.cells)[::-1]
        self.symmetry_cells = np.stack([np.arange(self.cells), turned]).astype(np.int32)
        actions = np.arange(self.num_actions).reshape(self.cells, 4)
        self.symmetry_actions = np.stack([actions, actions[turned]]).reshape(2, -1).astype(np.int32)
        # Where the lines of each direction may have their middle: rows and columns from the first to before the last.
        self.first_row, self.first_column = 2 * (ROWS_DOWN != 0), 2 * (COLUMNS_RIGHT != 0)
        self.steps = ROWS_DOWN * self.size + COLUMNS_RIGHT

    def initial(self, n: int) -> np.ndarray:
        board = np.zeros((self.size, self.size), np.uint8)
        begin = (self.size - 10) // 2
        for row, columns in enumerate(CROSS):
            for other in (row, 9 - row):
                board[begin + other, begin + np.array(columns)] = POINT
        return np.tile(np.concatenate([board.ravel(), np.zeros(2, np.uint8)]), (n, 1))

    def apply(self, state: np.ndarray, action: int) -> None:
        middle, d = action >> 2, action & 3
        step, used = self.steps[d], np.uint8(1 << d)
        for k in range(-2, 3):
            state[middle + k * step] |= POINT
        # In 5T a line uses the way from each point to the next one, which the first point holds.
        for k in range(-2, 2 if self.touching else 3):
            state[middle + k * step] |= used
        state[self.cells] += 1
        if state[self.cells] == 0:
            state[self.cells + 1] += 1

    def is_line(self, state: np.ndarray, row: int, column: int, d: int) -> bool:
        """Return whether a line in a direction may have this point in its middle."""
        if not self.first_row[d] <= row < self.size - self.first_row[d]:
            return False
        if not self.first_column[d] <= column < self.size - self.first_column[d]:
            return False
        middle, step, used, points = row * self.size + column, self.steps[d], 1 << d, 0
        for k in range(-2, 3):
            cell = state[middle + k * step]
            points += cell >= POINT
            if cell & used and (k < 2 or not self.touching):
                return False
        return points == 4

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        for row in range(self.size):
            for column in range(self.size):
                for d in range(4):
                    legal[4 * (row * self.size + column) + d] = self.is_line(state, row, column, d)

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        value = self.value_of(state)
        for row in range(self.size):
            for column in range(self.size):
                for d in range(4):
                    if self.is_line(state, row, column, d):
                        return False, value
        return True, value

    def value_of(self, state: np.ndarray) -> float:
        """Return the value of the moves so far, in [-1, 1]."""
        return min(2.0 * self.num_moves(state) / self.worth_1 - 1, 1.0)

    def num_moves(self, state: np.ndarray) -> int:
        """Return how many moves were made."""
        return np.int64(state[self.cells]) + 256 * np.int64(state[self.cells + 1])

    def sides(self, state: np.ndarray, cell: int, d: int) -> int:
        """Return on how many sides of a point a line in a direction runs, in 5T."""
        before = cell - self.steps[d]
        return (state[cell] >> d & 1) + (before >= 0 and state[before] >> d & 1)

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        planes[-1] = self.value_of(state)  # twenty48.py says why a network should see it
        for row in range(self.size):
            for column in range(self.size):
                cell = row * self.size + column
                planes[0, row, column] = state[cell] >= POINT
                for d in range(4):
                    if not self.touching:
                        planes[1 + d, row, column] = state[cell] >> d & 1
                    elif self.sides(state, cell, d):
                        planes[2 * d + self.sides(state, cell, d), row, column] = 1

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        key, turned_key = np.uint64(0), np.uint64(0)
        for cell in range(self.cells):
            turned = self.cells - 1 - cell
            bits = state[turned]
            if self.touching:  # the way that led on from a point leads to it in the turned board
                bits &= POINT
                for d in range(4):
                    before = turned - self.steps[d]
                    if before >= 0:
                        bits |= state[before] & (1 << d)
            key = mix(key + np.uint64(state[cell] + 1))
            turned_key = mix(turned_key + np.uint64(bits + 1))
        return (turned_key, 1) if turned_key < key else (key, 0)

    def score(self, states: np.ndarray) -> np.ndarray:
        return states[:, self.cells].astype(np.float32) + 256 * states[:, self.cells + 1].astype(np.float32)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        middle, d = divmod(int(action), 4)
        cells = [middle + k * int(self.steps[d]) for k in range(-2, 3)]
        new = next((k for k, cell in enumerate(cells) if state[cell] < POINT), 2)
        row, column = divmod(cells[new], self.size)
        further = (2 - new) * (-1 if SIGNS[d] == "/" else 1)
        return f"{column_name(column)}{row + 1}{SIGNS[d]}{further:+d}"

    def describe_planes(self) -> tuple[Sequence[str], str]:
        ways = ("level", "upright", "falling to the right", "falling to the left")
        if self.touching:
            lines = [
                f"points where {what} {way}" for way in ways for what in ("a line ends that is", "lines pass that are")
            ]
        else:
            lines = [f"points of lines that are {way}" for way in ways]
        return (
            "points",
            *lines,
            "the value of the moves so far, everywhere",
        ), "row 0 is the top row of the board, which is 1 in text, and column 0 the left one, a"

    def board(self, state: np.ndarray) -> Board:
        state = np.asarray(state)
        bits = state[: self.cells].reshape(self.size, self.size)
        return Board(
            np.where(bits >= POINT, 0, -1).astype(np.int8),
            columns=tuple(map(column_name, range(self.size))),
            rows=tuple(str(row + 1) for row in range(self.size)),
            beside=f"{self.num_moves(state)} moves",
            strokes=tuple(self._strokes(bits)),
        )

    def _strokes(self, bits):
        """Yield `Board.strokes`: the lines, in 5T from point to point."""
        for d in range(4):
            down, right, drawn = int(ROWS_DOWN[d]), int(COLUMNS_RIGHT[d]), set()
            length = 1 if self.touching else 4
            for row, column in np.argwhere(bits >> d & 1).tolist():  # each line begins with the first of its points
                if (row, column) not in drawn:
                    yield row, column, row + length * down, column + length * right
                    drawn |= {(row + k * down, column + k * right) for k in range(1, 5 if length > 1 else 1)}


def column_name(column: int) -> str:
    """Return the letters of a column: a to z, then aa, ab and so on."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return letters[column] if column < 26 else f"a{letters[column - 26]}"
