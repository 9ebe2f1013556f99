"""What games on bitboards share: the layout of a state, and kernels for planes, empty cells and canonical keys.

Shapes: B batch, S numbers a state, N cells, W words of a set of cells, P planes, K symmetries, V views.
Cells are counted row by row from the top left. A set of cells is W unsigned integers: cell j is bit j % 64 of number
j // 64. A state begins with the stones of the player to move, then those of the other one; a game may keep more.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.games.base import OWN_AND_OTHER, Board, Game, owners
from az_mpi.games.winning_cells import Cells

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SEED = 20261123  # of the numbers that keys are made of


class BitboardGame(Game):
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

    def initial(self, n: int) -> np.ndarray:
        return np.zeros((n, self.state_size), self.state_dtype)

    def planes(self, states: np.ndarray) -> np.ndarray:
        """Own stones, then the other player's; the planes after these two are 0."""
        return unpack(states, self.order, self.view(states), 2, self.planes_shape[0]).reshape(-1, *self.planes_shape)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        return OWN_AND_OTHER, self.describe_rows()

    def describe_rows(self) -> str:
        """Return which row and column of the board the planes' first ones are, for player 0."""
        columns, rows = self.labels
        return (
            f"row 0 is the top row of the board, which is {rows[0]} in text, and column 0 the left one, which is "
            f"{columns[0]}"
        )

    def canonical_key(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return smallest_keys(states, self._key_words, self.view(states), self.beside_stones(states))

    def view(self, states: np.ndarray) -> np.ndarray:
        """Return the row of `order` for each state, int8 [B]."""
        return np.zeros(len(states), np.int8) if len(self.order) == 1 else self.to_play(states)

    def beside_stones(self, states: np.ndarray) -> np.ndarray:
        """Return what else but sets of cells the planes show, as a number for each state, uint64 [B]."""
        return np.zeros(len(states), np.uint64)

    def cell_name(self, cell: int) -> str:
        """Return the column and the row of a cell of the board, such as "b3"."""
        return self.labels[0][cell % self.columns] + self.labels[1][cell // self.columns]

    def board(self, state: np.ndarray) -> Board:
        states = np.ascontiguousarray(state)[None]
        as_it_is = np.arange(self.cells, dtype=np.int32)[None]
        stones = unpack(states, as_it_is, np.zeros(1, np.int8), 2, 2).reshape(2, self.rows, self.columns)
        players = owners(stones, self.to_play(states)[0])
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
def unpack(states: np.ndarray, order: np.ndarray, view: np.ndarray, num_sets: int, num_planes: int) -> np.ndarray:
    """Return the first `num_sets` sets of cells as planes, uint8 [B, num_planes, N]; the planes after them are 0."""
    cells = order.shape[1]
    words = (cells + 63) // 64
    planes = np.zeros((len(states), num_planes, cells), np.uint8)
    for b in range(len(states)):
        for p in range(num_sets):
            for j in range(cells):
                c = order[view[b], j]
                planes[b, p, j] = (np.uint64(states[b, p * words + (c >> 6)]) >> np.uint64(c & 63)) & np.uint64(1)
    return planes


@njit(cache=True, nogil=True)
def empty_cells(states: np.ndarray, order: np.ndarray, view: np.ndarray, num_actions: int) -> np.ndarray:
    """Return which cells of the network's input hold no stone, bool [B, num_actions]; actions from N on are False."""
    cells = order.shape[1]
    words = (cells + 63) // 64
    empty = np.zeros((len(states), num_actions), np.bool_)
    for b in range(len(states)):
        for j in range(cells):
            c = order[view[b], j]
            stones = np.uint64(states[b, c >> 6]) | np.uint64(states[b, words + (c >> 6)])
            empty[b, j] = (stones >> np.uint64(c & 63)) & np.uint64(1) == 0
    return empty


@njit(cache=True, nogil=True)
def smallest_keys(
    states: np.ndarray, words_of_images: np.ndarray, view: np.ndarray, beside: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `Game.canonical_key`: (keys uint64 [B], symmetry int64 [B]). The key of an image is the exclusive or of
    the words of its stones. words_of_images: `_words_of_images`; beside: uint64 [B], `BitboardGame.beside_stones`."""
    _, num_sets, cells, symmetries = words_of_images.shape
    words = (cells + 63) // 64
    keys = np.empty(len(states), np.uint64)
    best = np.zeros(len(states), np.int64)
    image = np.empty(symmetries, np.uint64)
    for b in range(len(states)):
        image[:] = 0
        for p in range(num_sets):
            for w in range(words):
                bits = np.uint64(states[b, p * words + w])
                j = 64 * w
                while bits:
                    if bits & np.uint64(1):
                        for k in range(symmetries):
                            image[k] ^= words_of_images[view[b], p, j, k]
                    bits >>= np.uint64(1)
                    j += 1
        for k in range(symmetries):
            if image[k] < image[best[b]]:
                best[b] = k
        keys[b] = mix(image[best[b]] + mix(beside[b]))
    return keys, best
