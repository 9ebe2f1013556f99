"""What messages about the rules of a game show: a state, drawn, or two of them side by side.

Shapes: B batch, S numbers a state, see `games.base`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from az_mpi.games.base import Game

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
        return f", player {int(game.to_play(state[None])[0])} to move"
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
