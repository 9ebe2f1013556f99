"""A position as text: the board, the names of its rows and columns, and brackets around what the last move put down."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from az_mpi.games.base import Board
    from az_mpi.player.session import Session


def draw(session: "Session", columns: tuple[str, ...] | None = None) -> str:
    """Return the position of a game as lines: X is the player who began, O the other one. columns: names for the
    columns in place of the game's own. A game without boards is shown as it shows itself."""
    game = session.game
    board = game.board(session.state)
    if board is None:
        return game.show(session.state)
    new = [] if session.before is None else board.filled_since(game.board(session.before))
    columns = board.columns if columns is None else columns
    width = max([len(name) for name in columns] + [len(kind) for row in board.symbols for kind in row], default=1)
    margin = max([len(name) for name in board.rows], default=0)
    lines = [_row(board, row, new, width) for row in range(len(board.players))]
    if board.rows:
        lines = [f"{name:>{margin}}{line}" for name, line in zip(board.rows, lines)]
    if board.shape == "hex":
        lines = [" " * row + line for row, line in enumerate(lines)]
    if columns:
        names = " ".join(f"{name:>{width}}" for name in columns)
        below = " " * (len(lines) if board.shape == "hex" else 0)
        lines.append(f"{below}{'':{margin}} {names}")
    if board.edges:
        lines.append(_edges(board.edges))
    lines += [board.beside] * bool(board.beside)
    return "\n".join(line.rstrip() for line in lines)


def _edges(edges: tuple[int, ...]) -> str:
    """Return a line that says whose edges are which."""
    upright, across = ("XO"[owner] for owner in edges)
    return f"{upright} joins top and bottom, {across} joins left and right"


def _row(board: "Board", row: int, new: list[tuple[int, int]], width: int) -> str:
    """Return the cells of a row, each after a blank or a bracket."""
    text = ""
    for column in range(len(board.players[row])):
        left = "(" if (row, column) in new else ")" if (row, column - 1) in new else " "
        text += f"{left}{board.mark(row, column):>{width}}"
    return text + (")" if (row, len(board.players[row]) - 1) in new else "")
