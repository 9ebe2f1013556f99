"""A board as inline SVG, and a game as its boards and moves.

page.css colours cells and pieces. Player 0's pieces are dark and player 1's light, which is clear on paper and to the
colour-blind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from az_mpi.games.base import Board
    from az_mpi.report.samples import Sample

CELL, LABEL = 24, 16  # sizes in the picture's units
WIDTH_MAX = 460  # pixels of a picture at most
BIG_CELL, SMALL_BOARD = 30, 105  # pixels: a cell of the big board, the width of a small board
PLAYERS = ("first player", "second player")


def draw(board: Board, caption: str, cell_px: float, numbers: dict[tuple[int, int], int] | None = None,
         marked: Iterable[tuple[int, int]] = ()) -> str:
    """Return the <svg> of a board.

    caption: for screen readers. numbers: {(row, column): number on the piece there}, for pieces without symbols.
    marked: cells with a thick edge.
    """
    height, width = board.players.shape
    step = CELL * math.sqrt(3) / 2 if board.shape == "hex" else CELL
    left = 1 + LABEL * bool(len(board.rows))
    outline = _outline(board.shape)
    cells, pieces, labels = [], [], []

    def centre(row: float, column: float) -> tuple[float, float]:
        shift = row / 2 if board.shape == "hex" else 0
        return left + (column + shift + 0.5) * CELL, 1 + outline[1] + row * step

    for row in range(height):
        for column in range(width):
            x, y = centre(row, column)
            cells.append(_cell(outline, x, y, "cell"))
            if board.players[row, column] >= 0:
                pieces.append(_piece(board, row, column, x, y, (numbers or {}).get((row, column))))
        if board.rows:
            x, y = centre(row, -0.5)
            labels.append(_text(x - 7, y, board.rows[row], 11))
    pieces += [_cell(outline, *centre(*place), "last") for place in marked]
    bottom = centre(height - 1, 0)[1] + outline[1] + 1
    for column in range(width) if board.columns else ():
        labels.append(_text(centre(height - 1, column)[0], bottom + LABEL / 2, board.columns[column], 11))
    right, bottom = centre(height - 1, width)[0] - CELL / 2 + 1, bottom + LABEL * bool(len(board.columns))
    pixels = min(right * cell_px / CELL, WIDTH_MAX)
    return (f'<svg class="board" viewBox="0 0 {right:.1f} {bottom:.1f}" style="width:{pixels:.0f}px" role="img" '
            f'aria-label="{escape(caption)}">{"".join(cells + pieces + labels)}</svg>')


def game(sample: Sample) -> str:
    """Return a <section> with the last board of a sample, its moves and some positions; the text of `Game.show` stands
    for the positions of a game without boards."""
    last = sample.positions[-1]
    moves = [f"<li>{disc(before.to_play)} {escape(move)} <small>{_value(before)}</small></li>"
             for before, move in zip(sample.positions, sample.moves)]
    final = ""
    if last.board:
        caption = "the last position, with the number of each move"
        final = draw(last.board, caption, BIG_CELL, sample.numbers(), last.filled)
    positions = "".join(f"<div>{_picture(sample.positions[index])}</div>" for index in sample.shown)
    first = sample.positions[0].ply
    numbered = f'<ol start="{first + 1}">' if first else "<ol>"
    return (f'<section><h3>{escape(sample.title)}</h3><div class="game">{final}{numbered}{"".join(moves)}</ol></div>'
            f'<div class="boards">{positions}</div></section>')


def _picture(position):
    caption = f"after move {position.ply}" + (", the end" if position.value is None else f": {_value(position)}")
    if position.board:
        cell_px = min(max(SMALL_BOARD / position.board.players.shape[1], 9), 24)
        picture = draw(position.board._replace(columns=(), rows=()), caption, cell_px, marked=position.filled)
    else:
        picture = f"<pre>{escape(position.text)}</pre>"
    return f"{picture}<small>{caption}</small>"


def _value(position):
    return f"{round(position.value, 2) + 0.0:+.2f}"  # no -0.00


def disc(player: int) -> str:
    """Return a small disc in the colour of a player."""
    return (f'<svg class="who" viewBox="0 0 12 12" role="img" aria-label="{PLAYERS[player]}">'
            f'<g class="piece p{player}"><circle cx="6" cy="6" r="5"/></g></svg>')


def _outline(shape):
    """Return the corners of a cell around its centre, and how far it reaches up and down."""
    half, side = CELL / 2, CELL / math.sqrt(3)
    if shape == "hex":
        return [(0, -side), (half, -side / 2), (half, side / 2), (0, side), (-half, side / 2), (-half, -side / 2)], side
    return [(-half, -half), (half, -half), (half, half), (-half, half)], half


def _cell(outline, x, y, kind):
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in outline[0])
    return f'<polygon class="{kind}" points="{path}"/>'


def _piece(board, row, column, x, y, number):
    player = int(board.players[row, column])
    said = [PLAYERS[player], board.name(row, column)]
    text = board.symbols[row][column] if board.symbols else ""
    if number is not None and not text:
        text = str(number)
        said.append(f"move {text}")
    inside = _text(x, y, text, 12 - 1.5 * len(text) if len(text) > 1 else 12) if text else ""
    return (f'<g class="piece p{player}"><title>{escape(", ".join(filter(None, said)))}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{0.4 * CELL:.1f}"/>{inside}</g>')


def _text(x, y, text, size):
    """Return a text with its middle at a place."""
    return (f'<text x="{x:.1f}" y="{y + 0.36 * size:.1f}" text-anchor="middle" style="font-size:{size:.4g}px">'
            f"{escape(text)}</text>")
