"""A board as inline SVG, and a game as its boards and moves.

page.css colours cells and pieces. One player's pieces are dark and the other one's light (see `Board.light`), and those
of further players have other shapes, so that they differ on paper and for the colour-blind.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from az_mpi.core.printing import seat_name

if TYPE_CHECKING:
    from az_mpi.games.board_data import Board
    from az_mpi.report.samples import Sample

CELL, LABEL, RIM = 24, 16, 5  # of a cell, of the names beside the board, of coloured edges, in the picture's units
WON_SIZE = 0.9  # of the frame around a cell of a winning line, as a share of the cell's size
WIDTH_MAX = 460  # pixels of a picture at most
BIG_CELL, SMALL_BOARD = 30, 105  # pixels: a cell of the big board, the width of a small board
SHAPES, COLOURS = 4, 6  # of the pieces of players 2 and higher, in page.css: polygons of 3 corners or more


def draw(board: Board, caption: str, cell_px: float, numbers: dict[tuple[int, int], int] | None = None) -> str:
    """Return the <svg> of a board. The cells of `Board.last` have a thick edge.

    caption: for screen readers. cell_px: the width of a cell on the page. numbers: {(row, column): number on the piece
    there}, for pieces without symbols.
    """
    height, width = board.players.shape
    step = CELL * math.sqrt(3) / 2 if board.shape == "hex" else CELL
    outline = _outline(board.shape)
    rim = RIM if board.edges else 0
    row_names = LABEL if board.rows else 0
    column_names = LABEL if board.columns else 0
    shift = CELL / 2 if board.shape == "hex" else 0.0
    there = board.cells()
    first = min(column * CELL + row * shift for row, column in there)
    left = 1 + row_names + rim - first

    def centre(row: float, column: float) -> tuple[float, float]:
        return left + (column + 0.5) * CELL + row * shift, 1 + rim + outline[1] + row * step

    cells, pieces, labels = [], [], []
    has_piece = board.has_piece()
    for row, column in there:
        x, y = centre(row, column)
        cells.append(_cell(outline, x, y, "cell odd" if board.figures and (row + column) % 2 else "cell"))
        if has_piece[row, column]:
            pieces.append(_piece(board, row, column, x, y, (numbers or {}).get((row, column))))
    for from_row, from_column, to_row, to_column in board.strokes:
        (x, y), (to_x, to_y) = centre(from_row, from_column), centre(to_row, to_column)
        pieces.append(f'<line class="stroke" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>')
    pieces += [_cell(outline, *centre(*place), "last") for place in board.last]
    pieces += [_cell(outline, *centre(*place), "won", WON_SIZE) for place in board.won]
    bottom = centre(height - 1, 0)[1] + outline[1] + rim + 1
    for row in range(height) if board.rows else ():
        x, y = centre(row, min(column for at, column in there if at == row) - 0.5)
        labels.append(_text(x - 7 - rim, y, board.rows[row], 11))
    for column in sorted({column for _, column in there}) if board.columns else ():  # a gap has no cells
        x, y = centre(max(row for row, at in there if at == column), column)
        labels.append(_text(x, y + outline[1] + rim + 1 + LABEL / 2, board.columns[column], 11))
    right = max(centre(*place)[0] for place in there) + CELL / 2 + rim + 1
    bottom += column_names
    pixels = min(right * cell_px / CELL, WIDTH_MAX)
    below = _edges(board, centre, outline[0]) if board.edges else []
    return (
        f'<svg class="board" viewBox="0 0 {right:.1f} {bottom:.1f}" style="width:{pixels:.0f}px" role="img" '
        f'aria-label="{escape(caption)}">{"".join(below + cells + pieces + labels)}</svg>'
    )


def game(sample: Sample) -> str:
    """Return a <section> with the last board of a sample, its moves and some of its positions. Positions of a game
    without boards are shown as the text of `Game.show`."""
    last = sample.positions[-1]
    light = last.board.light if last.board else 1
    moves = [
        f"<li>{_before_move(sample, before, light)}{escape(move)} <small>{_value(before)}</small></li>"
        for before, move in zip(sample.positions, sample.moves)
    ]
    final = ""
    if last.board:
        caption = "the last position, with the number of each move"
        final = draw(last.board, caption, BIG_CELL, sample.numbers())
    positions = "".join(f"<div>{_picture(sample.positions[index])}</div>" for index in sample.shown)
    first = sample.positions[0].ply
    numbered = f'<ol start="{first + 1}">' if first else "<ol>"
    return (
        f'<section><h3>{escape(sample.title)}</h3><div class="game">{final}{numbered}{"".join(moves)}</ol></div>'
        f'<div class="boards">{positions}</div></section>'
    )


def _picture(position):
    caption = f"after move {position.ply}" + (", the end" if position.value is None else f": {_value(position)}")
    if position.board:
        if position.board.beside:
            caption += f"; {position.board.beside}"
        cell_px = min(max(SMALL_BOARD / position.board.players.shape[1], 9), 24)
        picture = draw(position.board._replace(columns=(), rows=()), caption, cell_px)
    else:
        picture = f"<pre>{escape(position.text)}</pre>"
    return f"{picture}<small>{escape(caption)}</small>"


def _before_move(sample, position, light):
    """Return whose move it is, of two players and more, and what was drawn for it."""
    mover = "" if sample.num_players == 1 else f"{disc(position.to_play, light)} "
    return f"{mover}<small>{escape(', '.join(position.drawn))}:</small> " if position.drawn else mover


def _value(position):
    return f"{round(position.value, 2) + 0.0:+.2f}"  # no -0.00


def disc(player: int, light: int = 1) -> str:
    """Return a small disc in the colour of a player's pieces. light: the player whose pieces are light."""
    return (
        f'<svg class="who" viewBox="0 0 12 12" role="img" aria-label="{seat_name(player)}">'
        f'<g class="piece {_colour(player, light)}">{_shape(player, 6, 6, 5)}</g></svg>'
    )


def _colour(player, light):
    """Return the class of page.css that colours a player's pieces."""
    if player in (0, 1):
        return "p1" if player == light else "p0"
    return "nobody" if player < 0 else f"p{2 + (player - 2) % COLOURS}"


def _shape(player, x, y, radius):
    """Return a plain piece of a player: a disc, or a polygon for players 2 and higher."""
    if player < 2:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'
    corners = 3 + (player - 2) % SHAPES
    around = [2 * math.pi * corner / corners for corner in range(corners)]
    points = " ".join(f"{x + radius * math.sin(a):.1f},{y - radius * math.cos(a):.1f}" for a in around)
    return f'<polygon points="{points}"/>'


def _outline(shape):
    """Return (the corners of a cell as seen from its centre, its height above the centre)."""
    half, side = CELL / 2, CELL / math.sqrt(3)
    if shape == "hex":
        return [(0, -side), (half, -side / 2), (half, side / 2), (0, side), (-half, side / 2), (-half, -side / 2)], side
    return [(-half, -half), (half, -half), (half, half), (-half, half)], half


def _cell(outline, x, y, kind, size=1.0):
    path = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in outline[0])
    return f'<polygon class="{kind}" points="{path}"/>'


def _edges(board, centre, corners):
    """Return the edges of a board of hexagons, each in the colour of the player who has to join it to the opposite
    one. corners: of a cell, see `_outline`."""
    height, width = board.players.shape
    sides = [
        ([(0, c) for c in range(width)], (5, 0, 1), 0),
        ([(height - 1, c) for c in range(width)], (4, 3, 2), 0),
        ([(r, 0) for r in range(height)], (5, 4), 1),
        ([(r, width - 1) for r in range(height)], (1, 2), 1),
    ]
    under, over = [], []
    for cells, wanted, edge in sides:
        points = [(x + corners[k][0], y + corners[k][1]) for x, y in (centre(*cell) for cell in cells) for k in wanted]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        under.append(f'<polyline class="under" points="{path}"/>')
        over.append(f'<polyline class="border {_colour(board.edges[edge], board.light)}" points="{path}"/>')
    return under + over


def _piece(board, row, column, x, y, number):
    player = int(board.players[row, column])
    said = [seat_name(player), board.name(row, column)]
    text = board.symbols[row][column].strip() if board.symbols else ""
    figure = board.figures.get(text)
    if number is not None and not text:
        text = str(number)
        said.append(f"move {text}")
    elif figure:
        said.append(text)
    if figure:
        shape = f'<path d="{escape(figure)}" transform="translate({x:.1f} {y:.1f}) scale({0.0098 * CELL:.4f})"/>'
    elif player < 0:
        shape = _cell(_outline(board.shape), x, y, "block", 0.8)
    else:
        inside = _text(x, y, text, 12 - 1.5 * len(text) if len(text) > 1 else 12) if text else ""
        shape = f"{_shape(player, x, y, 0.4 * CELL)}{inside}"
    title = escape(", ".join(filter(None, said)))
    return f'<g class="piece {_colour(player, board.light)}"><title>{title}</title>{shape}</g>'


def _text(x, y, text, size):
    """Return a text whose middle is at (x, y)."""
    return (
        f'<text x="{x:.1f}" y="{y + 0.36 * size:.1f}" text-anchor="middle" style="font-size:{size:.4g}px">'
        f"{escape(text)}</text>"
    )
