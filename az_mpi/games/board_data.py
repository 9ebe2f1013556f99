"""A position as data, from which all drawings of it are made."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

NO_CELL, NOBODY = -2, -3  # in `Board.players`
MARKS = "XOABCDEFGHIJKLMN# ."  # of `Board.players` in a text, by their numbers, of which the last ones are negative
NO_FIGURES: Mapping[str, str] = MappingProxyType({})


class Board(NamedTuple):
    """A position as data: H rows from the top by W columns from the left. All drawings are made from it: those in text
    here, those in pages by `report.board` and play/web_client.html.

    players: int8 [H, W], the owner of the piece on each cell: 0 the player who began, then 1 and so on, -1 no piece;
    `NOBODY`: a piece of no player, which needs a symbol; `NO_CELL`: the board has no cell there.
    symbols: H rows of W short texts, or of W characters: the kinds of the pieces, as in chess, " " for a plain one; ()
    where the pieces are all alike.
    shape: of the cells: "square", or "hex", where each row begins half a cell further to the right than the one above.
    columns, rows: W and H labels, which together name a cell ("b3"); () for none.
    edges: whose the top and bottom edges are, and whose the left and right ones, as in Hex; () nobody's.
    won: the cells, (row, column), of the line or chain that has won the game.
    strokes: lines over the board, each from the middle of one cell to that of another: (row, column, row, column).
    figures: {symbol: how the piece is drawn, as the data of an SVG path in a cell from -50 to 50}; a piece without one
    is a disc with its symbol. A board with figures has cells of two colours.
    light: the player whose pieces are light: 1, or 0 as in chess, where White begins.
    beside: what lies beside the board, such as pieces in hand, as a line of text.
    last: the cells that the last move put pieces on, see `filled_since`; left: those that pieces have left in it. Games
    leave both empty; `board_after` fills them in.
    """

    players: np.ndarray
    symbols: tuple[Sequence[str], ...] = ()
    shape: str = "square"
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    edges: tuple[int, ...] = ()
    won: tuple[tuple[int, int], ...] = ()
    figures: Mapping[str, str] = NO_FIGURES
    light: int = 1
    beside: str = ""
    last: tuple[tuple[int, int], ...] = ()
    left: tuple[tuple[int, int], ...] = ()
    strokes: tuple[tuple[int, int, int, int], ...] = ()

    def text(self) -> str:
        """Return the rows as lines: X for a piece of the player who began, O for the next one's, then A, B and so on, a
        point for none, # for nobody's. On a board of hexagons each line begins further to the right than the one
        above."""
        return self._joined([" ".join(MARKS[player] for player in row) for row in self.players])

    def named_text(self, columns: tuple[str, ...] | None = None) -> str:
        """Return all of the board as lines: `text` with the kinds of pieces, the names of rows and columns, brackets
        around the cells of `last`, whose edges are which, and what lies beside. columns: names for the columns in place
        of the board's own."""
        columns = self.columns if columns is None else columns
        width = max([len(name) for name in columns] + [len(kind) for row in self.symbols for kind in row], default=1)
        margin = max([len(name) for name in self.rows], default=0)
        names = self.rows or [""] * len(self.players)
        lines = [f"{name:>{margin}}{self._marked_row(row, width)}" for row, name in enumerate(names)]
        if columns:
            lines.append(" " * (margin + 1) + " ".join(f"{name:>{width}}" for name in columns))
        below = []
        if self.edges:
            upright, across = (MARKS[owner] for owner in self.edges)
            below.append(f"{upright} joins top and bottom, {across} joins left and right")
        if self.beside:
            below.append(self.beside)
        return "\n".join([self._joined(lines), *below])

    def _joined(self, lines: list[str]) -> str:
        if self.shape == "hex":
            lines = [" " * row + line for row, line in enumerate(lines)]
        return "\n".join(line.rstrip() for line in lines)

    def _marked_row(self, row: int, width: int) -> str:
        """Return the cells of a row, each after a blank or a bracket."""
        text, before = "", False
        for column in range(len(self.players[row])):
            is_last = (row, column) in self.last
            text += f"{'(' if is_last else ')' if before else ' '}{self.mark(row, column):>{width}}"
            before = is_last
        return f"{text})" if before else text

    def described(self) -> dict[str, Any]:
        """Return the board for programs that are not Python, JSON-able: its parts by name."""
        return self._asdict() | {"players": self.players.tolist(), "figures": dict(self.figures)}

    def mark(self, row: int, column: int) -> str:
        """Return the sign for a cell in a text: the kind of its piece, or else as in `text`."""
        player = self.players[row, column]
        kind = self.symbols[row][column].strip() if self.symbols and self.has_piece()[row, column] else ""
        return kind or MARKS[player]

    def cells(self) -> list[tuple[int, int]]:
        """Return the cells that there are, as (row, column) pairs."""
        return [(int(row), int(column)) for row, column in np.argwhere(self.players != NO_CELL)]

    def has_piece(self) -> np.ndarray:
        """Return which cells have a piece of anybody or nobody, bool [H, W]."""
        return (self.players >= 0) | (self.players == NOBODY)

    def name(self, row: int, column: int) -> str:
        """Return the name of a cell, "" where there are no labels."""
        return f"{self.columns[column] if self.columns else ''}{self.rows[row] if self.rows else ''}"

    def filled_since(self, before: "Board") -> list[tuple[int, int]]:
        """Return the cells, as (row, column) pairs, that the move after `before` put pieces on.

        These are cells that were empty; if the move filled none, cells whose piece it captured. Pieces that the move
        only turned over, as in Othello, do not count.
        """
        changed = self.has_piece() & (self.players != before.players)
        if self.symbols:
            old, new = (np.array([list(row) for row in board.symbols]) for board in (before, self))
            changed |= self.has_piece() & (old != new)
        onto_empty = changed & ~before.has_piece()
        cells = np.argwhere(onto_empty if onto_empty.any() else changed)
        return [(int(row), int(column)) for row, column in cells]

    def left_since(self, before: "Board", player: int) -> list[tuple[int, int]]:
        """Return the cells, as (row, column) pairs, that pieces of a player have left in the move after `before`."""
        cells = np.argwhere((before.players == player) & (self.players == -1))
        return [(int(row), int(column)) for row, column in cells]
