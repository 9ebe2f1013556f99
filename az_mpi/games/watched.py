"""A game whose mistakes say where they are: the method, what was expected, what came, and the state, drawn.

Shapes: B batch, S numbers a state, see `games.base`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from az_mpi.core.own_modules import failure
from az_mpi.games.base import Board, Game

INDENT = " " * 4
NUMBERS_MAX = 40  # of a state that are printed
ARRAY, PAIR, TEXT = "a NumPy array", "a pair of NumPy arrays", "text"
RETURNS = {
    "initial": ARRAY, "play": ARRAY, "legal": ARRAY, "terminal": PAIR, "to_play": ARRAY, "planes": ARRAY, "show": TEXT,
    "action_to_text": TEXT, "text_to_action": "a number", "board": "a Board or None", "lead": f"{ARRAY} or None",
    "ownership": f"{ARRAY} or None", "key": ARRAY, "canonical_key": PAIR}  # fmt: skip
TYPES = {
    ARRAY: lambda given: isinstance(given, np.ndarray),
    PAIR: lambda given: isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, np.ndarray) for x in given),
    TEXT: lambda given: isinstance(given, str),
    "a number": lambda given: isinstance(given, (int, np.integer)),
    "a Board or None": lambda given: given is None or isinstance(given, Board),
    f"{ARRAY} or None": lambda given: given is None or isinstance(given, np.ndarray),
}


class Watched:
    """A game like `game`. A method that raises an error, or returns something of another type than `RETURNS` has,
    raises AssertionError, which names the method and draws the state."""

    def __init__(self, game: Game):
        self._game = game

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._game, name)
        return self._watch(name, member) if name in RETURNS else member

    def _watch(self, name, method):
        def call(*given):
            try:
                found = method(*given)
            except Exception as error:
                state = None if name == "initial" else _first_that_raises(method, *given)
                where = "" if state is None else f"\n{in_state(self._game, state)}"
                raise AssertionError(f"{name} raises an error: {_raised(self._game, error)}{where}") from error
            if not TYPES[RETURNS[name]](found):
                raise AssertionError(f"{name} returns another type: expected {RETURNS[name]}, got {_type(found)}")
            return found

        return call


def _raised(game, error):
    """Return in one line what a method of the game raised, with the line of the game's own file."""
    place = getattr(sys.modules.get(type(game).__module__), "__file__", None)
    return failure(place, error) if place else f"{type(error).__name__}: {error}"


def _first_that_raises(method: Callable, states: np.ndarray, *given: Any) -> np.ndarray | None:
    """Return the first state for which a method raises an error by itself; None if only the whole batch does."""
    if states.ndim == 1:
        return states
    for i in range(len(states)):
        try:
            method(states[i : i + 1], *(row[i : i + 1] if isinstance(row, np.ndarray) else row for row in given))
        except Exception:
            return states[i]
    return None


def _type(found):
    """Return the type of what a method returned, in words."""
    if isinstance(found, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in found) or 'nothing'}"
    return "None" if found is None else type(found).__name__


def drawn(game: Game, state: np.ndarray) -> str:
    """Return a state, [S], as the game shows it, in indented lines; as its numbers if `show` fails or shows nothing."""
    try:
        text = game.show(state)
        lines = text.splitlines() if isinstance(text, str) else []
    except Exception:
        lines = []
    more = f", ... ({len(state)} numbers)" * (len(state) > NUMBERS_MAX)
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
        raise AssertionError(told + f"\n  {came}" * bool(came) + f"\n{in_state(game, states[row])}")


def side_by_side(left: str, right: str) -> str:
    """Return two drawings of several lines beside each other; below each other where they are wide."""
    left_lines, right_lines = left.splitlines(), right.splitlines()
    width = max(map(len, left_lines), default=0)
    if width + max(map(len, right_lines), default=0) > 110:
        return f"{left}\n{right}"
    height = max(len(left_lines), len(right_lines))
    rows = zip(*(lines + [""] * (height - len(lines)) for lines in (left_lines, right_lines)))
    return "\n".join(f"{a:<{width}}  {b}".rstrip() for a, b in rows)
