"""Checks what the methods of a game return, before compiled code indexes arrays by it.

`games.make` guards each game of a user's own. The search, the cache and the training copy states, look up symmetries
and count legal actions in compiled code, which would read and write outside of its arrays where a result has another
shape or range. A guarded game raises `BrokenRules` instead, with the method, what was expected, what came, and the
state. Its methods are never called with an empty batch, which many NumPy functions cannot take.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from az_mpi.core.own_modules import failure
from az_mpi.core.problems import OwnCodeError, Refusal
from az_mpi.games import chance
from az_mpi.games.base import CHANCE, Game
from az_mpi.games.board_data import Board
from az_mpi.games.sizes import misfit, movers, told
from az_mpi.games.state_text import in_state

CURE = "docs/games.md says what each method returns, and `python -m az_mpi check-game NAME` checks a game"


MAY_REFUSE = "text_to_action", "state_to_text", "text_to_state"  # a text, or a position, by ValueError
WITHOUT_STATE = "initial", "describe_planes", "text_to_state"


class BrokenRules(OwnCodeError):
    """A game has broken a rule. what: which one, with the method, what was expected, what came, and the state."""

    what = ""

    @classmethod
    def of(cls, game: Game, what: str) -> BrokenRules:
        """Return the error that names the game and says where to look."""
        error = cls(f"the game {getattr(game, 'name', type(game).__name__)}: {what}\n  {CURE}")
        error.what = what
        return error


def guarded(game: Game, exact: bool = False) -> Game:
    """Return the same object as a game whose methods check their results; a guarded game stays as it is.

    exact: also refuse results of another dtype than `Game` says. Otherwise they are converted if no value changes.
    Raises BrokenRules if the game's sizes or tables do not fit together."""
    kind = getattr(game, "unguarded_class", type(game))
    try:
        if not isinstance(game, Guard) or exact:
            object.__setattr__(game, "__class__", Guard.over(kind, exact))
        problem = misfit(game)
    except (OwnCodeError, OSError, MemoryError):
        raise
    except Exception as error:  # such as an attribute that is missing
        raise BrokenRules.of(game, _failure(game, error)) from error
    if problem:
        raise BrokenRules.of(game, problem)
    return game


class Guard(Game):
    """The checking methods of a guarded game: its class is a subclass of this and of the user's own one.

    The results of methods that the game's own code calls are not checked, only those that it returns to the program."""

    # Two underscores in front: the names must not be those of the game's own helpers.
    __inside = False  # whether one of the game's own methods is running
    __exact = False  # see `guarded`
    unguarded_class: type[Game]  # the game's class as its author wrote it

    @classmethod
    def over(cls, kind: type[Game], exact: bool) -> type[Game]:
        """Return a class of guarded games over a game's own class. All objects of it are guarded, also those that the
        game's own methods make as `type(self)(…)`."""
        names: dict[str, Any] = {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            "unguarded_class": kind,
            "_Guard__exact": exact,
        }
        if hasattr(kind, "texts_to_actions"):  # which a game need not have
            names["texts_to_actions"] = cls.__texts_to_actions
        return type(kind.__name__, (cls, kind), names)

    def untruncated(self) -> Game:
        return guarded(super().untruncated(), self.__exact)

    def initial(self, n: int) -> np.ndarray:
        wanted = n, self.state_size
        if not n:
            return np.empty(wanted, self.state_dtype)
        return self.__array("initial", self.__ask("initial", n), wanted, self.state_dtype, None)

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        wanted = len(states), self.state_size
        if not len(states):
            return np.empty(wanted, self.state_dtype)
        return self.__array("play", self.__ask("play", states, actions), wanted, self.state_dtype, states)

    def legal(self, states: np.ndarray) -> np.ndarray:
        wanted = len(states), self.num_actions
        if not len(states):
            return np.empty(wanted, np.bool_)
        legal = self.__array("legal", self.__ask("legal", states), wanted, np.dtype(np.bool_), states)
        if not self.__inside and not (some := legal.any(axis=1)).all():
            stuck = states[~some]
            self.__need(
                "legal",
                self.terminal(stuck)[0] | chance.due(self, stuck),
                stuck,
                "at least one legal action in every state in play",
                lambda _: "no legal action",
            )
        return legal

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(states)
        if not n:
            return np.empty(0, np.bool_), np.empty((0, self.num_players) if self.num_players > 2 else 0, np.float32)
        ended, value = self.__pair("terminal", self.__ask("terminal", states), states)
        wanted = (n, self.num_players) if self.num_players > 2 else (n,)
        ended = self.__array("terminal (ended)", ended, (n,), np.dtype(np.bool_), states)
        value = self.__array("terminal (value)", value, wanted, np.dtype(np.float32), states)
        if self.__inside:
            return ended, value
        for_each = value.reshape(n, -1)
        counts = np.ones(n, np.bool_) if self.num_players == 1 else ended  # a limit may end a game of one player
        compiled, needed = self.has_entries, "a number in [-1, 1]"
        if self.num_players > 2:
            needed += " for each player"
        if compiled:  # whose loop takes no other ones
            needed += f" from `{'result' if self.num_players <= 2 else 'results'}`, also before the end"
        fits = (np.abs(for_each) <= 1).all(axis=1) | ~(counts | compiled)
        self.__need("terminal (value)", fits, states, needed, lambda i: str(value[i]))
        if compiled and self.num_outcomes and ended.any():
            over = states[ended]
            is_player = self.to_play(over) != CHANCE
            self.__need("to_play", is_player, over, "a player where the game is over", lambda _: str(CHANCE))
        if self.__exact:
            self.__need(
                "terminal (value)",
                counts | (for_each == 0).all(axis=1),
                states,
                "0 where the game is not over",
                lambda i: str(value[i]),
            )
        return ended, value if counts.all() else np.where(
            counts if value.ndim == 1 else counts[:, None], value, 0 * value
        )

    def to_play(self, states: np.ndarray) -> np.ndarray:
        if not len(states):
            return np.empty(0, np.int8)
        player = self.__array("to_play", self.__ask("to_play", states), (len(states),), np.dtype(np.int8), states)
        self.__need(
            "to_play",
            (player >= (CHANCE if self.num_outcomes else 0)) & (player < self.num_players),
            states,
            movers(self),
            lambda i: str(player[i]),
        )
        return player

    def chances(self, states: np.ndarray) -> np.ndarray:
        wanted = len(states), self.num_outcomes
        if not len(states):
            return np.empty(wanted, np.float32)
        given = self.__array("chances", self.__ask("chances", states), wanted, np.dtype(np.float32), states)
        with np.errstate(invalid="ignore"):
            fits = (given >= 0).all(axis=1) & (np.abs(given.sum(axis=1, dtype=np.float64) - 1) <= chance.SUM_WITHIN)

        def came(i):
            total = given[i].sum(dtype=np.float64)
            return f"probabilities from {given[i].min():g} to {given[i].max():g}, whose sum is {total:g}"

        self.__need(
            "chances", fits, states, f"numbers of at least 0 whose sum is 1, within {chance.SUM_WITHIN:g}", came
        )
        return given

    def score(self, states: np.ndarray) -> np.ndarray | None:
        return self.__points("score", states, 1)

    def planes(self, states: np.ndarray) -> np.ndarray:
        wanted = len(states), *self.planes_shape
        if not len(states):
            return np.empty(wanted, self.planes_dtype)
        planes = self.__array("planes", self.__ask("planes", states), wanted, self.planes_dtype, states)
        if planes.dtype.kind == "f" and not (finite := np.isfinite(planes)).all():

            def came(i):
                plane, row, column = np.argwhere(~finite[i])[0]
                return f"{planes[i, plane, row, column]} in plane {plane}, row {row}, column {column}"

            self.__need("planes", finite.all(axis=(1, 2, 3)), states, "finite numbers: planes are not finite", came)
        return planes

    def turned_planes(self, states: np.ndarray, symmetry: np.ndarray, out: np.ndarray, num_threads: int = 1) -> None:
        try:
            super().turned_planes(states, symmetry, out, num_threads)
        except (OwnCodeError, OSError, MemoryError):
            raise
        except Exception:  # of compiled rules, which do not call `planes`: that one says what is wrong
            self.planes(states)
            raise

    def key(self, states: np.ndarray) -> np.ndarray:
        if not len(states):
            return np.empty(0, np.uint64)
        return self.__array("key", self.__ask("key", states), (len(states),), np.dtype(np.uint64), states)

    def canonical_key(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(states)
        most = len(self.symmetry_cells)
        if not n:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        keys, symmetry = self.__pair("canonical_key", self.__ask("canonical_key", states), states)
        keys = self.__array("canonical_key (keys)", keys, (n,), np.dtype(np.uint64), states)
        symmetry = self.__array("canonical_key (symmetry)", symmetry, (n,), np.dtype(np.int64), states)
        self.__need(
            "canonical_key (symmetry)",
            (symmetry >= 0) & (symmetry < most),
            states,
            f"the number of a symmetry, 0 to {most - 1}",
            lambda i: str(symmetry[i]),
        )
        return keys, symmetry

    def lead(self, states: np.ndarray) -> np.ndarray | None:
        return self.__points("lead", states, 2)

    def ownership(self, states: np.ndarray, player: int) -> np.ndarray | None:
        asked = states if len(states) else self.initial(1)
        if (owned := self.__ask("ownership", asked, player)) is None:
            return None
        self.__expect_players("ownership", 2)
        owned = self.__array("ownership", owned, (len(asked), *self.planes_shape[1:]), np.dtype(np.int8), asked)
        self.__need(
            "ownership",
            (np.abs(owned) <= 1).all(axis=(1, 2)),
            asked,
            "-1, 0 or 1 in each cell",
            lambda i: ", ".join(map(str, np.unique(owned[i]))),
        )
        return owned[: len(states)]

    def board(self, state: np.ndarray) -> Board | None:
        board = self.__ask("board", state)
        if not (board is None or isinstance(board, Board) or self.__inside):
            self.__refuse("board", "a Board or None", told(board), state)
        return board

    def describe_planes(self) -> tuple[Sequence[str], str]:
        given = self.__ask("describe_planes")
        fits = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], (tuple, list))
        if not (fits and all(isinstance(text, str) for text in (*given[0], given[1]))):
            self.__refuse("describe_planes", "a pair: a text for each plane, and one for the rows", told(given), None)
        return given

    def is_cut(self, state: np.ndarray) -> bool:
        return bool(self.__ask("is_cut", state))

    def show(self, state: np.ndarray) -> str:
        return self.__text("show", self.__ask("show", state), state)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return self.__text("action_to_text", self.__ask("action_to_text", state, action), state)

    def outcome_to_text(self, state: np.ndarray, outcome: int) -> str:
        return self.__text("outcome_to_text", self.__ask("outcome_to_text", state, outcome), state)

    def text_to_action(self, state: np.ndarray, text: str) -> int:
        action = self.__ask("text_to_action", state, text)
        if not (isinstance(action, (int, np.integer)) and 0 <= action < self.num_actions):
            self.__refuse("text_to_action", f"an action, 0 to {self.num_actions - 1}", repr(action), state)
        return int(action)

    def state_to_text(self, state: np.ndarray) -> str:
        return self.__text("state_to_text", self.__ask("state_to_text", state), state)

    def text_to_state(self, text: str) -> np.ndarray:
        given = self.__ask("text_to_state", text)
        return self.__array("text_to_state", given, (self.state_size,), self.state_dtype, None)

    def __texts_to_actions(self, states, texts):
        given = self.__ask("texts_to_actions", states, texts) if len(states) else np.empty(0, np.int64)
        if self.__inside:
            return given
        actions = self.__array("texts_to_actions", given, (len(states),), np.dtype(np.int64), states)
        legal = self.legal(states)[np.arange(len(states)), np.clip(actions, 0, self.num_actions - 1)]
        fits = (actions == -1) | legal & (actions >= 0) & (actions < self.num_actions)
        self.__need("texts_to_actions", fits, states, "a legal action, or -1", lambda i: str(actions[i]))
        return actions

    def __ask(self, name, *given):
        """Return what the game's own method of this name returns. Its exceptions become BrokenRules, but for those of
        a file system, of memory, and of code that knows what it refuses."""
        method = getattr(super(), name)
        outermost = not self.__inside
        self.__inside = True
        try:
            return method(*given)
        except Exception as error:
            is_answer = name in MAY_REFUSE and isinstance(error, ValueError)
            if not outermost or is_answer or isinstance(error, (Refusal, OSError, MemoryError)):
                raise
            state = _first_that_raises(method, *given) if name not in WITHOUT_STATE else None
            where = "" if state is None else f"\n{in_state(self, state)}"
            raise BrokenRules.of(self, f"{name} raises an error: {_failure(self, error)}{where}") from error
        finally:
            if outermost:
                self.__inside = False

    def __points(self, name, states, players):
        asked = states if len(states) else self.initial(1)
        if (points := self.__ask(name, asked)) is None:
            return None
        self.__expect_players(name, players)
        points = self.__array(name, points, (len(asked),), np.dtype(np.float32), asked)
        self.__need(name, np.isfinite(points), asked, "finite numbers", lambda i: str(points[i]))
        return points[: len(states)]

    def __expect_players(self, name, players):
        if self.num_players != players and not self.__inside:
            self.__refuse(name, f"None, as num_players is {self.num_players}, and not {players}", "numbers", None)

    def __pair(self, name, given, states):
        if not (isinstance(given, (tuple, list)) and len(given) == 2):
            self.__refuse(name, "two arrays", told(given), states[0])
        return given

    def __array(self, name, given, shape, dtype, states):
        """Return the array that a method has given, if it has this shape and, if no value changes, this dtype. Within
        the game's own methods it stays as it is."""
        if self.__inside or isinstance(given, np.ndarray) and given.shape == shape and given.dtype == dtype:
            return given
        expected = f"{dtype} {shape}"
        first = None if states is None else states[0]
        if self.__exact and not isinstance(given, np.ndarray):
            self.__refuse(name, expected, told(given), first)
        try:
            array = np.asarray(given)
        except ValueError:  # lists of different lengths
            self.__refuse(name, expected, told(given), first)
        if array.shape != shape or array.dtype.kind not in "biuf" or self.__exact and array.dtype != dtype:
            self.__refuse(name, expected, f"{array.dtype} {array.shape}", first)
        with np.errstate(all="ignore"):
            converted = array.astype(dtype)
        if dtype.kind != "f" and not (converted == array).all():
            self.__refuse(name, expected, f"{array.dtype}, with values that {dtype} cannot hold", first)
        return converted

    def __text(self, name, given, state):
        if not isinstance(given, str) and not self.__inside:
            self.__refuse(name, "text", told(given), state)
        return given

    def __need(self, name, fits, states, expected, came):
        """Refuse the first state that does not fit, bool [n]. came(i): what it has, in words."""
        if not self.__inside and not fits.all():
            i = int(np.argmin(fits))
            self.__refuse(name, expected, came(i), states[i])

    def __refuse(self, name, expected, came, state):
        self.__inside = True  # `in_state` may meet the same mistake
        try:
            where = "" if state is None else f"\n{in_state(self, state)}"
        finally:
            self.__inside = False
        raise BrokenRules.of(self, f"{name} returned {came}\n  expected: {expected}{where}")


def _first_that_raises(method, states, *given):
    """Return the first state for which a method raises an error by itself; None if only the whole batch does."""
    if np.ndim(states) == 1:
        return states
    for i in range(len(states)):
        try:
            method(
                states[i : i + 1], *(row[i : i + 1] if isinstance(row, (np.ndarray, list)) else row for row in given)
            )
        except Exception:
            return states[i]
    return None


def _failure(game, error):
    return failure(getattr(sys.modules.get(type(game).__module__), "__file__", ""), error)
