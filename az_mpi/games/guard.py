"""Checks what the methods of a game return, before compiled code indexes arrays by it.

`games.make` guards each game of a user's own. The search, the cache and the training copy states, look up symmetries
and count legal actions in compiled code, which would read and write outside of its arrays where a result has another
shape or range. A guarded game raises `BrokenRules` instead, with the method, what was expected, what came, and the
state. Its methods are never called with an empty batch, which many NumPy functions cannot take.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from az_mpi.core.own_modules import failure
from az_mpi.core.problems import OwnCodeError, Refusal
from az_mpi.games.base import ACTIONS_MAX, Board, Game
from az_mpi.games.state_text import in_state

CURE = "docs/games.md says what each method returns, and `python -m az_mpi check-game NAME` checks a game"


class BrokenRules(OwnCodeError):
    """A game has broken a rule. what: which one, with the method, what was expected, what came, and the state."""

    def __init__(self, game: Game, what: str):
        super().__init__(f"the game {getattr(game, 'name', type(game).__name__)}: {what}\n  {CURE}")
        self.what = what


def guarded(game: Game, exact: bool = False) -> Game:
    """Return the same object as a game whose methods check their results; a guarded game stays as it is.

    exact: also refuse results of another dtype than `Game` says. Otherwise they are converted if no value changes.
    Raises BrokenRules if the game's sizes or tables do not fit together."""
    if isinstance(game, Guard):
        game._exact = game._exact or exact
    else:
        kind = type(game)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        game.__class__ = type(kind.__name__, (Guard, kind), names)
        game._inside, game._exact, game.unguarded_class = False, exact, kind
        try:
            check_sizes(game)
        except (OwnCodeError, OSError, MemoryError):
            raise
        except Exception as error:  # such as an attribute that is missing
            raise BrokenRules(game, _failure(game, error)) from error
    return game


def check_sizes(game: Game) -> None:
    """Raise BrokenRules unless the sizes of a game are in range, and its symmetry tables are permutations of these
    sizes that begin with the identity and turn actions with their cells."""
    def need(fits, what):
        if not fits:
            raise BrokenRules(game, what)

    for name, most in (("num_actions", ACTIONS_MAX), ("max_plies", 2**31 - 1), ("state_size", 2**31 - 1)):
        value = getattr(game, name)
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        need(whole and 1 <= value <= most, f"{name} is {value!r}; allowed: a whole number from 1 to {most:,}")
    shape = game.planes_shape
    need(len(shape) == 3 and min(shape) >= 1, f"planes_shape is {shape!r}; allowed: (planes, rows, columns)")
    need(game.planes_dtype in (np.uint8, np.float32), f"planes_dtype is {game.planes_dtype}; allowed: uint8, float32")
    cells, rows = int(shape[1] * shape[2]), np.shape(game.symmetry_cells)[:1]
    for name, num in (("symmetry_cells", cells), ("symmetry_actions", game.num_actions)):
        table, wanted = getattr(game, name), (*rows, num)
        need(isinstance(table, np.ndarray) and table.shape == wanted and rows != (0,),
             f"{name} is {_told(table)}; expected: int32 {wanted}, a row for each symmetry")
        need(table.dtype.kind in "iu" and (np.sort(table, axis=1) == np.arange(num)).all(),
             f"a row of {name} is not a permutation of 0 to {num - 1}")
        need((table[0] == np.arange(num)).all(), f"the first symmetry is not the identity in {name}")
    kinds, other = game.action_kinds, game.other_view
    need(0 <= kinds * cells <= game.num_actions, f"action_kinds is {kinds}; {cells} cells would have more actions than "
         f"the {game.num_actions} of the game")
    if other is not None:
        fits = isinstance(other, np.ndarray) and other.shape == (cells,) and (np.sort(other) == np.arange(cells)).all()
        need(fits and (other[other] == np.arange(cells)).all(), "other_view does not lead back to the same cells")
    of_cells = game.symmetry_actions[:, : kinds * cells].reshape(len(game.symmetry_cells), cells, kinds)
    turn_together = (of_cells // max(kinds, 1) == game.symmetry_cells[:, :, None]).all()
    need(turn_together, "a symmetry turns actions otherwise than the cells that action_kinds gives them")


class Guard(Game):
    """The checking methods of a guarded game: its class is a subclass of this and of the user's own one.

    The results of methods that the game's own code calls are not checked, only those that it returns to the program."""

    _inside: bool  # whether one of the game's own methods is running
    _exact: bool  # see `guarded`
    unguarded_class: type[Game]  # the game's class as its author wrote it

    def untruncated(self) -> Game:
        return guarded(super().untruncated(), self._exact)

    def initial(self, n: int) -> np.ndarray:
        wanted = n, self.state_size
        if not n:
            return np.empty(wanted, self.state_dtype)
        return self._array("initial", self._ask("initial", n), wanted, self.state_dtype, None)

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        wanted = len(states), self.state_size
        if not len(states):
            return np.empty(wanted, self.state_dtype)
        return self._array("play", self._ask("play", states, actions), wanted, self.state_dtype, states)

    def legal(self, states: np.ndarray) -> np.ndarray:
        wanted = len(states), self.num_actions
        if not len(states):
            return np.empty(wanted, np.bool_)
        legal = self._array("legal", self._ask("legal", states), wanted, np.dtype(np.bool_), states)
        if not self._inside and not (some := legal.any(axis=1)).all():
            stuck = states[~some]
            self._need("legal", self.terminal(stuck)[0], stuck, "at least one legal action in every state in play",
                       lambda _: "no legal action")
        return legal

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(states)
        if not n:
            return np.empty(0, np.bool_), np.empty(0, np.float32)
        ended, value = self._pair("terminal", self._ask("terminal", states), states)
        ended = self._array("terminal (ended)", ended, (n,), np.dtype(np.bool_), states)
        value = self._array("terminal (value)", value, (n,), np.dtype(np.float32), states)
        self._need("terminal (value)", ~ended | (np.abs(value) <= 1), states, "a number in [-1, 1]",
                   lambda i: str(value[i]))
        if self._exact:
            self._need("terminal (value)", ended | (value == 0), states, "0 where the game goes on",
                       lambda i: str(value[i]))
        return ended, value if ended.all() else np.where(ended, value, np.float32(0))

    def to_play(self, states: np.ndarray) -> np.ndarray:
        if not len(states):
            return np.empty(0, np.int8)
        player = self._array("to_play", self._ask("to_play", states), (len(states),), np.dtype(np.int8), states)
        self._need("to_play", (player == 0) | (player == 1), states, "0 or 1", lambda i: str(player[i]))
        return player

    def planes(self, states: np.ndarray) -> np.ndarray:
        wanted = len(states), *self.planes_shape
        if not len(states):
            return np.empty(wanted, self.planes_dtype)
        planes = self._array("planes", self._ask("planes", states), wanted, self.planes_dtype, states)
        if planes.dtype.kind == "f" and not (finite := np.isfinite(planes)).all():
            def came(i):
                plane, row, column = np.argwhere(~finite[i])[0]
                return f"{planes[i, plane, row, column]} in plane {plane}, row {row}, column {column}"

            self._need("planes", finite.all(axis=(1, 2, 3)), states, "finite numbers: planes are not finite", came)
        return planes

    def key(self, states: np.ndarray) -> np.ndarray:
        if not len(states):
            return np.empty(0, np.uint64)
        return self._array("key", self._ask("key", states), (len(states),), np.dtype(np.uint64), states)

    def canonical_key(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, most = len(states), len(self.symmetry_cells)
        if not n:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        keys, symmetry = self._pair("canonical_key", self._ask("canonical_key", states), states)
        keys = self._array("canonical_key (keys)", keys, (n,), np.dtype(np.uint64), states)
        symmetry = self._array("canonical_key (symmetry)", symmetry, (n,), np.dtype(np.int64), states)
        self._need("canonical_key (symmetry)", (symmetry >= 0) & (symmetry < most), states,
                   f"the number of a symmetry, 0 to {most - 1}", lambda i: str(symmetry[i]))
        return keys, symmetry

    def lead(self, states: np.ndarray) -> np.ndarray | None:
        asked = states if len(states) else self.initial(1)
        if (points := self._ask("lead", asked)) is None:
            return None
        points = self._array("lead", points, (len(asked),), np.dtype(np.float32), asked)
        self._need("lead", np.isfinite(points), asked, "finite numbers", lambda i: str(points[i]))
        return points[: len(states)]

    def ownership(self, states: np.ndarray, player: int) -> np.ndarray | None:
        asked = states if len(states) else self.initial(1)
        if (owned := self._ask("ownership", asked, player)) is None:
            return None
        owned = self._array("ownership", owned, (len(asked), *self.planes_shape[1:]), np.dtype(np.int8), asked)
        self._need("ownership", (np.abs(owned) <= 1).all(axis=(1, 2)), asked, "-1, 0 or 1 in each cell",
                   lambda i: ", ".join(map(str, np.unique(owned[i]))))
        return owned[: len(states)]

    def board(self, state: np.ndarray) -> Board | None:
        board = self._ask("board", state)
        if not (board is None or isinstance(board, Board) or self._inside):
            self._refuse("board", "a Board or None", _told(board), state)
        return board

    def show(self, state: np.ndarray) -> str:
        return self._text("show", self._ask("show", state), state)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return self._text("action_to_text", self._ask("action_to_text", state, action), state)

    def text_to_action(self, state: np.ndarray, text: str) -> int:
        action = self._ask("text_to_action", state, text)
        if not (isinstance(action, (int, np.integer)) and 0 <= action < self.num_actions):
            self._refuse("text_to_action", f"an action, 0 to {self.num_actions - 1}", repr(action), state)
        return int(action)

    def _ask(self, name, states, *more):
        """Return what the game's own method of this name returns. Its exceptions become BrokenRules, but for those of
        a file system, of memory, and of code that knows what it refuses."""
        method, outermost = getattr(super(), name), not self._inside
        self._inside = True
        try:
            return method(states, *more)
        except Exception as error:
            no_such_move = name == "text_to_action" and isinstance(error, ValueError)
            if not outermost or no_such_move or isinstance(error, (Refusal, OSError, MemoryError)):
                raise
            state = None if name == "initial" else _first_that_raises(method, states, *more)
            where = "" if state is None else f"\n{in_state(self, state)}"
            raise BrokenRules(self, f"{name} raises an error: {_failure(self, error)}{where}") from error
        finally:
            if outermost:
                self._inside = False

    def _pair(self, name, given, states):
        if not (isinstance(given, (tuple, list)) and len(given) == 2):
            self._refuse(name, "two arrays", _told(given), states[0])
        return given

    def _array(self, name, given, shape, dtype, states):
        """Return the array that a method has given, if it has this shape and, if no value changes, this dtype. Within
        the game's own methods it stays as it is."""
        if self._inside or isinstance(given, np.ndarray) and given.shape == shape and given.dtype == dtype:
            return given
        expected, first = f"{dtype} {shape}", None if states is None else states[0]
        if self._exact and not isinstance(given, np.ndarray):
            self._refuse(name, expected, _told(given), first)
        try:
            array = np.asarray(given)
        except ValueError:  # lists of different lengths
            self._refuse(name, expected, _told(given), first)
        if array.shape != shape or array.dtype.kind not in "biuf" or self._exact and array.dtype != dtype:
            self._refuse(name, expected, f"{array.dtype} {array.shape}", first)
        with np.errstate(all="ignore"):
            converted = array.astype(dtype)
        if dtype.kind != "f" and not (converted == array).all():
            self._refuse(name, expected, f"{array.dtype}, with values that {dtype} cannot hold", first)
        return converted

    def _text(self, name, given, state):
        if not isinstance(given, str) and not self._inside:
            self._refuse(name, "text", _told(given), state)
        return given

    def _need(self, name, fits, states, expected, came):
        """Refuse the first state that does not fit, bool [n]. came(i): what it has, in words."""
        if not self._inside and not fits.all():
            i = int(np.argmin(fits))
            self._refuse(name, expected, came(i), states[i])

    def _refuse(self, name, expected, came, state):
        self._inside = True  # `in_state` may meet the same mistake
        try:
            where = "" if state is None else f"\n{in_state(self, state)}"
        finally:
            self._inside = False
        raise BrokenRules(self, f"{name} returned {came}\n  expected: {expected}{where}")


def _first_that_raises(method, states, *given):
    """Return the first state for which a method raises an error by itself; None if only the whole batch does."""
    if np.ndim(states) == 1:
        return states
    for i in range(len(states)):
        try:
            method(states[i : i + 1], *(row[i : i + 1] if isinstance(row, np.ndarray) else row for row in given))
        except Exception:
            return states[i]
    return None


def _failure(game, error):
    return failure(getattr(sys.modules.get(type(game).__module__), "__file__", ""), error)


def _told(given: Any) -> str:
    """Return what a value is, in words."""
    return f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else f"{type(given).__name__} {given!r:.60}"
