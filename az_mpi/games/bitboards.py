"""What games on bitboards share: the layout of a state, and kernels for planes, empty cells and canonical keys.

Shapes: B batch, S numbers a state, N cells, W words of a set of cells, P planes, K symmetries, V views.
Cells are counted row by row from the top left. A set of cells is W unsigned integers: cell j is bit j % 64 of number
j // 64. A state begins with the stones of the player to move, then those of the other one; a game may keep more.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.games.base import OWN_AND_OTHER, owners
from az_mpi.games.board_data import Board
from az_mpi.games.position_game import PositionGame
from az_mpi.games.winning_cells import Cells

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SEED = 20261123  # of the numbers that keys are made of


class BitboardGame(PositionGame):
    """A board of rows x columns cells.

    order: int32 [V, N]. Cell v of the network's input, as player p sees it, is cell order[p % V, v] of the board; V is
    1 where both see it alike. num_sets: how many sets of cells, from the first, tell boards apart. letters: of the
    columns. upwards: whether rows are numbered from the bottom.
    """

    state_dtype = np.dtype(np.uint64)
    action_kinds = 1
    shape = "square"
    edges: tuple[int, ...] = ()  # see `Board`

    def __init__(
        self,
        rows: int,
        columns: int,
        symmetry_cells: np.ndarray,
        num_planes: int = 2,
        num_sets: int = 2,
        order: np.ndarray | None = None,
        letters: str = LETTERS,
        upwards: bool = False,
    ):
        cells = rows * columns
        self.rows = rows
        self.columns = columns
        self.cells = cells
        self.words = num_words(cells)
        self.planes_shape = (num_planes, rows, columns)
        self.symmetry_cells = symmetry_cells
        self.order = np.arange(cells, dtype=np.int32)[None] if order is None else order
        if len(self.order) == 2:
            self.other_view = np.argsort(self.order[1])[self.order[0]].astype(np.int32)
        self._key_words = _words_of_images(symmetry_cells, self.order, num_sets)
        numbers = [str(row + 1) for row in range(rows)]
        self.labels = tuple(letters[:columns]), tuple(numbers[::-1] if upwards else numbers)

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        """Own stones, then the other player's; the planes after these two stay 0."""
        self.observe_stones(state, planes)

    def observe_stones(self, state: np.ndarray, planes: np.ndarray) -> None:
        """Set the first two planes."""
        view = self.seen_by(state)
        for p in range(2):
            for row in range(self.rows):
                for column in range(self.columns):
                    j = row * self.columns + column
                    cell = self.order[view, j] if len(self.order) == 2 else j
                    planes[p, row, column] = holds(state, p * self.words, cell)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        return OWN_AND_OTHER, self.describe_rows()

    def describe_rows(self) -> str:
        """Return which row and column of the board the planes' first ones are, for player 0."""
        columns, rows = self.labels
        return (
            f"row 0 is the top row of the board, which is {rows[0]} in text, and column 0 the left one, which is "
            f"{columns[0]}"
        )

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        """The key of an image is the exclusive or of the words of its stones, see `_words_of_images`."""
        image, words = np.empty(len(self.symmetry_cells), np.uint64), self._key_words[self.seen_by(state)]
        for k in range(len(image)):
            image[k] = 0
        for p in range(words.shape[0]):
            for w in range(self.words):
                bits = self.cells_of(state, p, w)
                while bits:
                    j = 64 * w + lowest(bits)
                    for k in range(len(image)):
                        image[k] ^= words[p, j, k]
                    bits &= bits - np.uint64(1)
        best = 0
        for k in range(len(image)):
            best = k if image[k] < image[best] else best
        return mix(image[best] + mix(self.beside_stones(state))), best

    def cells_of(self, state: np.ndarray, which: int, w: int) -> int:
        """Return word w of a set of cells."""
        return np.uint64(state[which * self.words + w])

    def seen_by(self, state: np.ndarray) -> int:
        """Return the row of `order` for the player to move."""
        return self.current_player(state) if len(self.order) == 2 else 0

    def beside_stones(self, state: np.ndarray) -> int:
        """Return what else but sets of cells the planes show, as a number."""
        return np.uint64(0)

    def cell_name(self, cell: int) -> str:
        """Return the column and the row of a cell of the board, such as "b3"."""
        return self.labels[0][cell % self.columns] + self.labels[1][cell // self.columns]

    def board(self, state: np.ndarray) -> Board:
        states = np.ascontiguousarray(state)[None]
        cells = np.arange(self.cells)
        stones = [holds.py_func(states[0], p * self.words, cells) for p in range(2)]  # plain NumPy, for all at once
        players = owners(np.array(stones, np.uint8).reshape(2, self.rows, self.columns), self.to_play(states)[0])
        won = self.winning_cells(players) if self.terminal(states)[0][0] else ()
        return Board(players, (), self.shape, *self.labels, edges=self.edges, won=won)

    def winning_cells(self, players: np.ndarray) -> Cells:
        """Return `Board.won` at the end of a game; () where no cells are a line or a chain. players: as there."""
        return ()


def num_words(cells: int) -> int:
    """Return W, the number of words of a set of cells."""
    return -(-cells // 64)


def packed(cells: np.ndarray) -> np.ndarray:
    """Return sets of cells, bool [..., N], as uint64 [..., W]."""
    padding = [(0, 0)] * (cells.ndim - 1) + [(0, -cells.shape[-1] % 64)]
    return np.packbits(np.pad(cells, padding), axis=-1, bitorder="little").view("<u8").astype(np.uint64)


def _words_of_images(symmetry_cells, order, num_sets):
    """Return uint64 [V, num_sets, N, K]: what a stone of each set on each cell of the board adds to the key of each
    image (Zobrist 1970)."""
    words = np.random.default_rng(_SEED).integers(2**64, size=(num_sets, order.shape[1]), dtype=np.uint64)
    lands = np.argsort(symmetry_cells, axis=1).T  # [N, K]: where each image has a cell of the network's input
    seen = np.argsort(order, axis=1)  # [V, N]: which cell of the input a cell of the board is
    return np.ascontiguousarray(np.moveaxis(words[:, lands[seen]], 0, 1))


@njit(cache=True, nogil=True)
def holds(state: np.ndarray, first: int, cell: int) -> bool:
    """Return whether a set of cells of a state has this cell. first: the set's first number in the state."""
    return (np.uint64(state[first + (cell >> 6)]) >> np.uint64(cell & 63)) & np.uint64(1) != np.uint64(0)


@njit(cache=True, nogil=True)
def is_empty(state: np.ndarray, words: int, cell: int) -> bool:
    """Return whether there is no stone on a cell. words: of a set of cells."""
    return not holds(state, 0, cell) and not holds(state, words, cell)


@njit(cache=True, nogil=True)
def put(state: np.ndarray, first: int, cell: int) -> None:
    """Put a stone on a cell of the set of cells that begins with number `first` of the state."""
    state[first + (cell >> 6)] |= state.dtype.type(1) << state.dtype.type(cell & 63)


@njit(cache=True, nogil=True)
def change_sides(state: np.ndarray, words: int) -> None:
    """Exchange the stones of the player to move and those of the other one."""
    for w in range(words):
        state[w], state[words + w] = state[words + w], state[w]


@njit(cache=True, nogil=True)
def count(stones: int) -> int:
    """Return the number of stones in a bitboard of 64 bits."""
    stones = np.uint64(stones)
    stones -= (stones >> np.uint64(1)) & np.uint64(0x5555555555555555)
    stones = (stones & np.uint64(0x3333333333333333)) + ((stones >> np.uint64(2)) & np.uint64(0x3333333333333333))
    stones = (stones + (stones >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((stones * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def lowest(bits: int) -> int:
    """Return the number of the lowest bit that is set in a word, which is not 0."""
    return count(~bits & (bits - np.uint64(1)))
