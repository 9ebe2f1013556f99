"""What every game provides: rules over batches of states, with no state of their own.

Shapes: B batch, S numbers a state, A actions, C planes, H rows, W columns, K symmetries.
A state is one row of a fixed-size array, so it can be stored in a tree node, a message or a file.
"""

from abc import ABC, abstractmethod

import numpy as np
from numba import njit

from az_mpi.hashing import FNV_OFFSET, FNV_PRIME, mix


class Game(ABC):
    """Rules of a two-player zero-sum game with perfect information. Values are for the player to move, in [-1, 1]."""

    name: str
    num_actions: int
    planes_shape: tuple  # (C, H, W)
    state_size: int  # S
    state_dtype: np.dtype
    max_plies: int  # no game is longer
    # Row k of each table is one symmetry of the board, row 0 the identity. With cells = symmetry_cells[k] and
    # actions = symmetry_actions[k], the turned board is planes[..., cells] and its policy is policy[..., actions].
    symmetry_cells: np.ndarray  # int32 [K, H*W]
    symmetry_actions: np.ndarray  # int32 [K, A]

    @abstractmethod
    def initial(self, n):
        """Return n starting states, state_dtype [n, S]."""

    @abstractmethod
    def play(self, states, actions):
        """Return the states after one legal action in each: state_dtype [B, S]. `states` is left as it was."""

    @abstractmethod
    def legal(self, states):
        """Return which actions may be played, bool [B, A]; at least one in every state that is not terminal."""

    @abstractmethod
    def terminal(self, states):
        """Return (ended bool [B], value float32 [B] for the player to move; 0 where the game goes on)."""

    @abstractmethod
    def to_play(self, states):
        """Return who is to move, int8 [B]: 0 for the player who began, else 1."""

    @abstractmethod
    def planes(self, states):
        """Return the network's input as the player to move sees it, uint8 [B, C, H, W]."""

    @abstractmethod
    def show(self, state):
        """Return one state, [S], as a drawing of several lines."""

    def key(self, states):
        """Return a 64-bit key of each state, uint64 [B]: equal states have equal keys, others different ones but by
        chance; images of one board are different states."""
        row_bytes = self.state_dtype.itemsize * self.state_size
        words = np.ascontiguousarray(states).view(np.uint8).reshape(len(states), row_bytes)
        return _hash_rows(words)

    def canonical_key(self, states):
        """Return (keys uint64 [B], symmetry int64 [B]): one key for all images of a board.

        Seen through the symmetry k = symmetry[i], every image of board i is the same one. Boards that differ have
        different keys but by chance. What the network says of one image is remembered under this key.

        Without symmetries this is `key`. With them it hashes the planes of every image: a game that can turn its
        states themselves does so in a fraction of the time.
        """
        if len(self.symmetry_cells) == 1:
            return self.key(states), np.zeros(len(states), np.int64)
        planes = self.planes(states)
        return _smallest_keys(planes.reshape(*planes.shape[:2], -1), self.symmetry_cells)


@njit(cache=True, nogil=True)
def _hash_rows(rows):
    """Hash the bytes of each row, uint8 [n, bytes] -> uint64 [n]."""
    keys = np.empty(len(rows), np.uint64)
    for b in range(len(rows)):
        h = FNV_OFFSET
        for byte in rows[b]:
            h = (h ^ np.uint64(byte)) * FNV_PRIME
        keys[b] = mix(h)
    return keys


@njit(cache=True, nogil=True)
def _smallest_keys(planes, cells):
    """Return (the smallest hash over all images of each board, uint64 [n], and which symmetry gives it, int64 [n]).

    planes: uint8 [n, C, H * W]; cells: int32 [K, H * W], see `Game`.
    """
    keys, best = np.empty(len(planes), np.uint64), np.zeros(len(planes), np.int64)
    for i in range(len(planes)):
        keys[i] = np.uint64(0xFFFFFFFFFFFFFFFF)
        for k in range(len(cells)):
            h = FNV_OFFSET
            for c in range(planes.shape[1]):
                for j in cells[k]:
                    h = (h ^ np.uint64(planes[i, c, j])) * FNV_PRIME
            h = mix(h)
            if h < keys[i]:
                keys[i], best[i] = h, k
    return keys, best
