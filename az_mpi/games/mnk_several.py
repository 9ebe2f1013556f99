"""m,n,k-games of three players or more: k in a row on a board of m columns and n rows.

A state is the cells row by row, 0 or the number of the player whose stone is there, counted from 1; then the number of
stones, as two bytes.
"""

from collections.abc import Sequence

import numpy as np

from az_mpi.core.hashing import mix
from az_mpi.games.base import PLAYERS_MAX, require
from az_mpi.games.bitboards import LETTERS
from az_mpi.games.board_data import Board
from az_mpi.games.position_game import PositionGame
from az_mpi.games.symmetry import dihedral
from az_mpi.games.winning_cells import LINES, lines


class Several(PositionGame):
    """Players put stones on empty cells, one after the other. Who has k or more in a row, column or diagonal wins and
    gets 1; the others get -1 / (players - 1) each. A full board is a draw, 0 for all. Actions and their texts are those
    of `mnk.Rules`."""

    sgf_number, action_kinds = 0, 1
    state_dtype = np.dtype(np.uint8)

    def __init__(self, m: int, n: int, k: int, players: int):
        require("m", m, 3, 19)
        require("n", n, 3, 19)
        require("k", k, 3, max(m, n))
        require("players", players, 2, PLAYERS_MAX)
        self.m, self.n, self.k, self.num_players = m, n, k, players
        self.name = f"mnk(m={m},n={n},k={k},players={players})"
        self.num_actions = self.max_plies = self.cells = m * n
        self.planes_shape, self.state_size = (players, n, m), m * n + 2
        self.symmetry_cells = self.symmetry_actions = dihedral(n, m)
        self.loser = -1 / (players - 1)
        self.downs, self.rights = (np.array(steps) for steps in zip(*LINES))

    def apply(self, state: np.ndarray, action: int) -> None:
        state[action] = self.current_player(state) + 1
        state[self.cells] += 1
        if state[self.cells] == 0:
            state[self.cells + 1] += 1

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        for cell in range(self.cells):
            legal[cell] = state[cell] == 0

    def num_stones(self, state: np.ndarray) -> int:
        """Return how many stones there are."""
        return np.int64(state[self.cells]) + 256 * np.int64(state[self.cells + 1])

    def results(self, state: np.ndarray, values: np.ndarray) -> bool:
        stones = self.num_stones(state)
        if stones == 0:
            return False
        last = (stones - 1) % self.num_players + 1  # only the one who just moved can have completed a line
        for row in range(self.n):
            for column in range(self.m):
                if state[row * self.m + column] == last and self.begins_line(state, row, column):
                    for player in range(self.num_players):
                        values[player] = 1.0 if player == last - 1 else self.loser
                    return True
        return stones == self.cells

    def begins_line(self, state: np.ndarray, row: int, column: int) -> bool:
        """Return whether a line of k stones of one player begins at this stone."""
        owner = state[row * self.m + column]
        for d in range(4):
            down, right = self.downs[d], self.rights[d]
            far_row, far_column = row + (self.k - 1) * down, column + (self.k - 1) * right
            if far_row < self.n and 0 <= far_column < self.m:
                length = 1
                while length < self.k and state[(row + length * down) * self.m + column + length * right] == owner:
                    length += 1
                if length == self.k:
                    return True
        return False

    def current_player(self, state: np.ndarray) -> int:
        return self.num_stones(state) % self.num_players

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        mover = self.current_player(state)
        for cell in range(self.cells):
            if state[cell]:
                plane = (np.int64(state[cell]) - 1 - mover) % self.num_players
                planes[plane, cell // self.m, cell % self.m] = 1

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        best, symmetry = np.uint64(0), 0
        for k in range(len(self.symmetry_cells)):
            key = np.uint64(0)
            for cell in self.symmetry_cells[k]:
                key = mix(key + np.uint64(state[cell] + 1))
            if k == 0 or key < best:
                best, symmetry = key, k
        return best, symmetry

    def describe_planes(self) -> tuple[Sequence[str], str]:
        further = [f"stones of the player who moves {k} later" for k in range(1, self.num_players)]
        return (
            ("stones of the player to move", *further),
            f"row 0 is the top row of the board, which is {self.n} in text, and column 0 the left one, which is a",
        )

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return f"{LETTERS[action % self.m]}{self.n - action // self.m}"

    def board(self, state: np.ndarray) -> Board:
        players = np.asarray(state)[: self.cells].reshape(self.n, self.m).astype(np.int8) - np.int8(1)
        won = lines(players, self.k) if self.terminal(np.asarray(state)[None])[0][0] else ()
        rows = tuple(str(self.n - row) for row in range(self.n))
        return Board(players, columns=tuple(LETTERS[: self.m]), rows=rows, won=won)
