"""Moves as the Go Text Protocol writes them: vertices such as D4. A game's own notation may be another."""

from collections.abc import Callable

import numpy as np

from az_mpi.games.base import Game, legal_words, positions

LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # of GTP: no I
PASS, SWAP, SWAP_PIECES = "pass", "swap", "swap-pieces"


class Vertices:
    """Translates the moves of one game.

    - Cells in rows that are numbered from the bottom (Go, Gomoku) get GTP's letters, without I.
    - A move that names a column alone (Connect Four) is the cell that the piece falls to: D1 is the first one in
      column 4. D and 4 are understood too.
    - All other moves, such as those of Othello and Hex, which number rows from the top, stay as the game writes them.
      Hex programs call the move swap "swap-pieces"; both are understood.
    """

    def __init__(self, game: Game):
        self.game = game
        start = game.initial(1)[0]
        words = legal_words(game, start)
        board = game.board(start)
        columns, rows = (board.columns, board.rows) if board else ((), ())
        letters = {column: LETTERS[k] for k, column in enumerate(columns[: len(LETTERS)])}
        cells = {column + row: letter + row for column, letter in letters.items() for row in rows}
        self._by_column = bool(letters) and all(word in letters for word in words)
        is_upwards = bool(cells) and rows[-1] == "1" and all(word in cells or word in (PASS, SWAP) for word in words)
        self._names = letters if self._by_column else cells if is_upwards else {}
        # Of the columns, for a drawing of the board; None: as the game names them.
        self.columns = tuple(letters.values()) if self._names else None

    def of(self, state: np.ndarray, action: int) -> str:
        """Return the vertex of a legal action in a position, [S]."""
        return self._vertex(state, self.game.action_to_text(state, action))

    def _vertex(self, state, word):
        board = self.game.board(state) if self._by_column else None
        if board:
            num_pieces = (board.players[:, board.columns.index(word)] >= 0).sum()
            return f"{self._names[word]}{num_pieces + 1}"
        return SWAP_PIECES if word == SWAP else self._names.get(word, word)

    def line(self, state: np.ndarray, actions: list[int]) -> list[str]:
        """Return moves from a position, [S], on, such as a principal variation, as vertices."""
        return [self.of(before, action) for before, action in zip(positions(self.game, state, actions), actions)]

    def all(self, state: np.ndarray) -> dict[str, int]:
        """Return the legal actions of a position, [S], by their vertices."""
        return {self.of(state, action): action for action in legal_words(self.game, state).values()}

    def names(self) -> dict[int, str]:
        """Return the vertices of all cells of a board, counted row by row from the top left; {} without a board."""
        board = self.game.board(self.game.initial(1)[0])
        if board is None:
            return {}
        columns = self.columns or board.columns
        return {k: column + row for k, (row, column) in enumerate((r, c) for r in board.rows for c in columns)}

    def point(self, text: str) -> int:
        """Return the cell that a vertex names, counted as in `names`; -1 if it names none."""
        return next((cell for cell, name in self.names().items() if name.lower() == text.lower()), -1)

    def find(self, state: np.ndarray, text: str) -> int | None:
        """Return the legal action of a position, [S], that a vertex names, in upper or lower case; None if there is
        none. In chess bxc3 and Bxc3 are two moves: one that is written in the same case comes first. Moves in the
        game's own notation may be written in all ways that the game understands."""
        return self.finder(state)(text)

    def finder(self, state: np.ndarray) -> Callable[[str], int | None]:
        """Return what `find` does in one position, [S], for many texts: it looks at the legal moves once."""
        exact: dict[str, int] = {}
        for word, action in legal_words(self.game, state).items():
            name = self._vertex(state, word)
            exact.setdefault(name, action)
            if self._by_column or word == SWAP:
                exact.setdefault(word, action)
            if self._by_column:
                exact.setdefault(name[0], action)
        alike: dict[str, int] = {}
        for name, action in exact.items():
            alike.setdefault(name.lower(), action)

        def find(text):
            found = exact.get(text, alike.get(text.lower()))
            return found if found is not None or self._names else self._read(state, text)

        return find

    def _read(self, state, text):
        try:
            return self.game.text_to_action(state, text)
        except ValueError:
            return None
