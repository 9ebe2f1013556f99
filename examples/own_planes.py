"""Connect Four with more for the network to see: the cells that would complete a line of four."""

import numpy as np

from az_mpi.games import connect4

WINDOWS = ((1, 2, 3), (-1, 1, 2), (-2, -1, 1), (-3, -2, -1))  # from a cell, in steps: the other three of a line


class Threats(connect4.Rules):
    """The built-in rules; only what the network sees differs. Planes: the mover's stones, the other player's, and the
    empty cells where a stone of the mover, and of the other player, would complete four."""

    planes_shape = (4, connect4.ROWS, connect4.COLUMNS)

    def describe_planes(self):
        stones, rows = super().describe_planes()
        return (
            *stones,
            "cells where the player to move would complete four",
            "cells where the other player would complete four",
        ), rows

    def planes(self, states):
        stones = super().planes(states)
        empty = stones.sum(axis=1, keepdims=True) == 0
        padded = np.pad(stones, ((0, 0), (0, 0), (3, 3), (3, 3))).astype(bool)  # lines may lead out of the board

        def shifted(rows, columns):
            return padded[:, :, 3 + rows : 3 + rows + connect4.ROWS, 3 + columns : 3 + columns + connect4.COLUMNS]

        threats = np.zeros(stones.shape, bool)
        for rows, columns in ((0, 1), (1, 0), (1, 1), (1, -1)):
            for window in WINDOWS:
                a, b, c = (shifted(k * rows, k * columns) for k in window)
                threats |= a & b & c
        return np.concatenate([stones, threats & empty], axis=1, dtype=np.uint8)
