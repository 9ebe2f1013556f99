"""States as text: drawings of one or two in messages about the rules, and positions as one line, as in FEN.

Shapes: B batch, S numbers a state, see `games.base`.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from az_mpi.games.base import CHANCE, Game

INDENT = " " * 4
NUMBERS_MAX = 40  # of a state that are printed


def drawn(game: Game, state: np.ndarray) -> str:
    """Return a state, [S], as the game shows it, in indented lines; as its numbers if `show` fails or shows nothing."""
    try:
        text = game.show(state)
        lines = text.splitlines() if isinstance(text, str) else []
    except Exception:
        lines = []
    more = f", ... ({len(state)} numbers)" if len(state) > NUMBERS_MAX else ""
    numbers = ", ".join(map(str, state[:NUMBERS_MAX].tolist()))
    return "\n".join(INDENT + line for line in (lines if text_in(lines) else [f"[{numbers}{more}]"]))


def text_in(lines: list[str]) -> bool:
    """Return whether any line has something to see."""
    return any(line.strip() for line in lines)


def in_state(game: Game, state: np.ndarray) -> str:
    """Return the lines that say for which state, [S], something was found."""
    return f"  in this state{_to_move(game, state)}:\n{drawn(game, state)}"


def _to_move(game, state):
    try:
        player = int(game.to_play(state[None])[0])
        return ", chance to move" if player == CHANCE else f", player {player} to move"
    except Exception:
        return ""


def expect(fits: Any, told: str, game: Game, states: np.ndarray, got: Callable[[int], str] | str = "") -> None:
    """Raise AssertionError unless everything fits.

    fits: bool, or bool [B] for each of `states`, [B, S]. told: the method, and what is wrong with what it returns.
    got: what came, and what was expected, or (row) -> that. The message draws the first state that does not fit.
    """
    wrong = np.flatnonzero(~np.atleast_1d(fits))
    if len(wrong):
        row = min(int(wrong[0]), len(states) - 1)
        came = got if isinstance(got, str) else got(row)
        lines = [told, f"  {came}"] if came else [told]
        raise AssertionError("\n".join([*lines, in_state(game, states[row])]))


def same(rows: np.ndarray, others: np.ndarray) -> Any:
    """Return whether rows are equal, bool [n]; False if their shapes are not."""
    return rows.shape == others.shape and (rows == others).reshape(len(rows), -1).all(axis=1)


def side_by_side(left: str, right: str) -> str:
    """Return two drawings of several lines beside each other; below each other where they are wide."""
    left_lines = left.splitlines()
    right_lines = right.splitlines()
    width = max(map(len, left_lines), default=0)
    if width + max(map(len, right_lines), default=0) > 110:
        return f"{left}\n{right}"
    height = max(len(left_lines), len(right_lines))
    rows = zip(*(lines + [""] * (height - len(lines)) for lines in (left_lines, right_lines)))
    return "\n".join(f"{a:<{width}}  {b}".rstrip() for a, b in rows)


def stones_to_text(game: Game, state: np.ndarray) -> str:
    """Return the pieces of a state, [S], and who is to move, as one line: the rows from the top, x for a piece of the
    player who began, o for the other one's, and a number for so many empty cells; then x or o."""
    board = game.board(state)
    assert board is not None, "only for games with boards"
    rows = ("".join("xo."[player] for player in row) for row in board.players.tolist())
    text = "/".join(re.sub(r"\.+", lambda empty: str(len(empty[0])), row) for row in rows)
    return f"{text} {'xo'[int(game.to_play(state[None])[0])]}"


def stones_from_text(text: str, rows: int, columns: int) -> tuple[np.ndarray, int, list[str]]:
    """Return (the owner of the piece on each cell, int8 [rows, columns]: 0, 1, or -1 for none; the player to move; the
    words after that) of a text of `stones_to_text`. Raises ValueError if it is none, or of another size."""
    placed, mover, *more = [*text.lower().split(), "", ""]
    lines = [re.sub(r"\d{1,3}", lambda num: "." * int(num[0]), row, flags=re.ASCII) for row in placed.split("/")]
    if len(lines) != rows or any(len(line) != columns or set(line) - set("xo.") for line in lines):
        raise ValueError(f"{placed[:80]!r} are not {rows} rows of {columns} cells: x, o, and numbers of empty cells")
    if mover not in ("x", "o"):
        raise ValueError(f"{mover[:20]!r} is no player to move; allowed: x, who began, and o")
    players = np.array([["xo.".index(sign) for sign in line] for line in lines], np.int8)
    return np.where(players == 2, np.int8(-1), players), "xo".index(mover), [word for word in more if word]
