"""2048 (Cirulli 2014): one player slides numbered tiles on a square, and chance adds a tile after each move.

A state is the tiles row by row, as exponents of 2, 0 for none; then the score, and how many tiles chance still has to
add: two at the start.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.games.base import CHANCE, require
from az_mpi.games.board_data import Board
from az_mpi.games.position_game import PositionGame
from az_mpi.games.symmetry import dihedral

MOVES = ("up", "right", "down", "left")
STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # of the moves: rows down, columns right
PLANES = 17  # of exponents; the last one is also of larger ones, which 4 x 4 cells cannot reach
COLUMNS = "abcdefgh"
FOURS = 0.1  # how likely a new tile is a 4 in place of a 2
LOW, HIGH = 500, 500_000  # of the scores that the value tells apart well


class Rules(PositionGame):
    """2048 on size x size cells. An action slides all tiles up, right, down or left; two equal ones that meet become
    their sum, which counts as points. Then chance puts a 2 (nine times of ten) or a 4 on an empty cell. The game is
    over when no move changes the board.

    The value is 2 log(1 + points / 500) / log(1001) - 1, with at most 500,000 points: -1 for none, -0.67 for 1,100,
    0.07 for 20,000, and 0.53 for 100,000. It is that of the points so far at all times, so that a limit of the length
    may end a game. max_plies: a game also ends when the sum of its tiles reaches this number, which a game of so many
    plies, chance's included, cannot fail to do; the 20,000 of the default are some 230,000 points.

    An outcome of chance is 2 * cell for a 2 and 2 * cell + 1 for a 4.
    """

    num_players, score_name = 1, "points"
    num_actions, planes_dtype, state_dtype = len(MOVES), np.dtype(np.float32), np.dtype(np.int32)

    def __init__(self, size: int = 4, max_plies: int = 20_000):
        require("size", size, 2, 8)
        require("max_plies", max_plies, 8, 2**22)
        arguments = [f"size={size}"] * (size != 4) + [f"max_plies={max_plies}"] * (max_plies != 20_000)
        self.name = f"2048({','.join(arguments)})" if arguments else "2048"
        self.size, self.cells, self.max_plies = size, size * size, max_plies
        self.num_outcomes, self.state_size = 2 * self.cells, self.cells + 2
        self.planes_shape = (PLANES + 1, size, size)
        self.floor_plane = PLANES
        self.symmetry_cells = dihedral(size, size)
        self.symmetry_actions = _turned_moves(self.symmetry_cells, size)
        # lines[a, k]: the cells of a line, from the edge that action a slides tiles to.
        cells = np.arange(self.cells).reshape(size, size)
        self.lines = np.stack([cells.T, cells[:, ::-1], cells[::-1].T, cells])

    def initial(self, n: int) -> np.ndarray:
        states = np.zeros((n, self.state_size), self.state_dtype)
        states[:, -1] = 2
        return states

    def apply(self, state: np.ndarray, action: int) -> None:
        if state[self.cells + 1] > 0:
            state[action >> 1] = 1 + (action & 1)
            state[self.cells + 1] -= 1
        else:
            for k in range(self.size):
                state[self.cells] += slide(state, self.lines[action, k])
            state[self.cells + 1] = 1

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        for action in range(4):
            for k in range(self.size):
                if not legal[action]:
                    legal[action] = can_slide(state, self.lines[action, k])

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        value = value_of(state[self.cells])
        if state[self.cells + 1] > 0:
            return False, value
        total = 0
        for cell in range(self.cells):
            if state[cell]:
                total += 1 << state[cell]
        if total >= self.max_plies:
            return True, value
        for action in range(1, 3):  # a move that is possible in one direction of a line changes it in one of the two
            for k in range(self.size):
                if can_slide(state, self.lines[action, k]) or can_slide(state, self.lines[action ^ 2, k]):
                    return False, value
        return True, value

    def current_player(self, state: np.ndarray) -> int:
        return CHANCE if state[self.cells + 1] > 0 else 0

    def outcome_chances(self, state: np.ndarray, chances: np.ndarray) -> None:
        empty = 0
        for cell in range(self.cells):
            empty += state[cell] == 0
        for cell in range(self.cells):
            if state[cell] == 0:
                chances[2 * cell] = (1 - FOURS) / empty
                chances[2 * cell + 1] = FOURS / empty

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        # Without `floor_plane` the network values positions that few games have reached below the points that they
        # already have. A search then prefers to end the game, since the value of an end is exact.
        planes[PLANES] = value_of(state[self.cells])
        for cell in range(self.cells):
            if state[cell] > 0:
                planes[min(state[cell], PLANES) - 1, cell // self.size, cell % self.size] = 1

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        best, symmetry = np.uint64(0), 0
        for k in range(len(self.symmetry_cells)):
            key = np.uint64(0)
            for cell in self.symmetry_cells[k]:
                key = mix(key + np.uint64(min(state[cell], PLANES) + 1))
            key = mix(key + np.uint64(state[self.cells]))
            if k == 0 or key < best:
                best, symmetry = key, k
        return best, symmetry

    def score(self, states: np.ndarray) -> np.ndarray:
        return states[:, self.cells].astype(np.float32)

    def is_cut(self, state: np.ndarray) -> bool:
        return bool(self.legal(np.asarray(state)[None]).any())

    def describe_planes(self) -> tuple[Sequence[str], str]:
        tiles = [f"tiles {2**exponent}" for exponent in range(1, PLANES)]
        names = (*tiles, f"tiles {2**PLANES} and larger", "the value of the points so far, everywhere")
        return names, "row 0 is the top row of the board, and column 0 the left one"

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return MOVES[action]

    def outcome_to_text(self, state: np.ndarray, outcome: int) -> str:
        """Return the tile and its cell, such as "2@b3": the column, and the row from the top."""
        row, column = divmod(int(outcome) // 2, self.size)
        return f"{2 + 2 * (int(outcome) & 1)}@{COLUMNS[column]}{row + 1}"

    def show(self, state: np.ndarray) -> str:
        return self.board(state).named_text()

    def board(self, state: np.ndarray) -> Board:
        tiles = np.asarray(state)[: self.cells].reshape(self.size, self.size)
        symbols = tuple(tuple(str(2**tile) if tile else " " for tile in row) for row in tiles.tolist())
        players = np.where(tiles > 0, 0, -1).astype(np.int8)
        rows = tuple(str(row + 1) for row in range(self.size))
        return Board(
            players,
            symbols,
            columns=tuple(COLUMNS[: self.size]),
            rows=rows,
            beside=f"{int(state[self.cells]):,} points",
        )


def _turned_moves(cells, size):
    """Return `Game.symmetry_actions` for the four moves. cells: `Game.symmetry_cells`."""
    table = np.empty((len(cells), len(MOVES)), np.int32)
    for k, turned in enumerate(cells):
        for action, (down, right) in enumerate(STEPS):
            before = 0 if down + right > 0 else size + 1
            after = before + size * down + right
            step = np.subtract(divmod(int(turned[after]), size), divmod(int(turned[before]), size))
            table[k, action] = STEPS.index(tuple(step.tolist()))
    return table


@njit(cache=True, nogil=True)
def slide(state: np.ndarray, line: np.ndarray) -> int:
    """Slide the tiles of a line to its first cell; return the points."""
    points, to, last = 0, 0, 0  # last: the exponent of the tile before `to`, 0 if it may not become another one
    for cell in line:
        tile = state[cell]
        if tile == 0:
            continue
        state[cell] = 0
        if tile == last:
            state[line[to - 1]] = tile + 1
            points += 2 << tile
            last = 0
        else:
            state[line[to]] = tile
            to += 1
            last = tile
    return points


@njit(cache=True, nogil=True)
def can_slide(state: np.ndarray, line: np.ndarray) -> bool:
    """Return whether tiles of a line can move to its first cell or become another tile."""
    last, gap = -1, False
    for cell in line:
        tile = state[cell]
        if tile == 0:
            gap = True
        elif gap or tile == last:
            return True
        else:
            last = tile
    return False


@njit(cache=True, nogil=True)
def value_of(points: int) -> float:
    """Return the value of so many points, in [-1, 1], see `Rules`."""
    return 2 * np.log1p(min(points, HIGH) / LOW) / np.log1p(HIGH / LOW) - 1
