"""python -m az_mpi gomocup RUN: let programs for Gomoku play against the network of a run, by Gomocup's protocol."""

import random
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from az_mpi import __version__
from az_mpi.play.line_engine import LineEngine, Serving, serve
from az_mpi.play.loading import LoadingFailed
from az_mpi.play.options import add_level, make_parser
from az_mpi.player import levels
from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    import numpy as np

    from az_mpi.games import mnk

PROG = "python -m az_mpi gomocup"
ABOUT = "Let programs play Gomoku against the network of a run, by the protocol of Gomocup (Piskvork)."
EPILOG = """\
It reads commands from standard input, for the games gomoku and mnk. docs/play.md explains rules and time.
"""
OVERHEAD_S = 0.05  # of a turn that is left unused, for the time that messages take
MOVES_TO_GO = 20  # the time left has to last for so many moves
LEAST_S = 0.02
TREE_SHARE, TREE_BYTES_MIN = 0.25, 2**24  # of `max_memory`; the libraries need the rest
EXACT, RENJU, CARO = 1, 4, 8  # bits of INFO rule
OWN = 1  # of a stone in BOARD; the others are 2


class GomocupError(Exception):
    """A command fails. str() is the message for the program that sent it."""


def main(arguments: list[str]) -> NoReturn:
    """Answer the commands on standard input, then end the process. Raises Refusal."""
    parser = make_parser(PROG, ABOUT, EPILOG)
    add_level(parser)
    serve(parser.parse_args(arguments), lambda serving: GomocupEngine(serving, _write), "the Gomocup protocol")


def _write(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class GomocupEngine(LineEngine):
    """An engine that speaks Gomocup's protocol."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        super().__init__(serving, write)
        self.rng = random.Random()
        self._turn_s: float | None = None  # None: no limit; 0: as fast as possible
        self._left_s: float | None = None
        self._commands: dict[str, Callable[[str], str | None]] = {
            "ABOUT": lambda _: f'name="az_mpi", version="{__version__}", author="the az_mpi team", country="-"',
            "START": self._start,
            "RECTSTART": self._start,
            "RESTART": self._restart,
            "BEGIN": lambda _: self._move(),
            "TURN": self._turn,
            "PLAY": self._play,
            "BOARD": self._board,
            "TAKEBACK": self._takeback,
            "INFO": self._info,
            "END": self._end,
        }

    @property
    def game(self) -> "mnk.Rules":
        """The game. Raises GomocupError if it is another one."""
        from az_mpi.games import mnk

        game = self.session.game
        if not isinstance(game, mnk.Rules):
            raise GomocupError(f"this network plays {game.name}, not Gomoku")
        return game

    def answer(self, line: str) -> None:
        """Answer one line, whatever it contains."""
        words = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line).split(maxsplit=1)
        if not words:
            return
        name, rest = words[0].upper(), words[1].strip() if words[1:] else ""
        if name not in self._commands:
            self.write(f"UNKNOWN command {words[0][:40]}")
            return
        try:
            reply = self._commands[name](rest)
        except GomocupError as error:
            self.write(f"ERROR {error}")
        except LoadingFailed as error:
            self.write(f"ERROR {error}")
            self.is_over = True
        except Exception as error:  # an error in this program: the next commands are answered
            traceback.print_exc()
            self.write(f"ERROR internal error: {type(error).__name__}")
        else:
            if reply is not None:
                self.write(reply)

    def is_quit(self, word: str) -> bool:
        """Return whether a word is the command that ends the program."""
        return word.upper() == "END"

    def _end(self, _):
        self.is_over = True

    def _start(self, rest):
        sizes = re.fullmatch(r"(\d{1,3})(?:\s*,\s*(\d{1,3}))?", rest, re.ASCII)
        if not sizes:
            raise GomocupError("expected the size of the board")
        game, columns = self.game, int(sizes[1])
        if (columns, int(sizes[2] or columns)) != (game.columns, game.rows):
            raise GomocupError(f"unsupported size: this network plays on {game.columns} x {game.rows}")
        return self._restart("")

    def _restart(self, _):
        self.game  # noqa: B018 (another game is an error)
        self.session.restart()
        return "OK"

    def _cell(self, text):
        """Return the cell that a text, such as "3,4" for column 3 and row 4 from the top, names."""
        numbers = re.fullmatch(r"(\d{1,3})\s*,\s*(\d{1,3})", text, re.ASCII)
        game = self.game
        if not numbers or not (int(numbers[1]) < game.columns and int(numbers[2]) < game.rows):
            raise GomocupError("expected the column and the row of a cell")
        return int(numbers[2]) * game.columns + int(numbers[1])

    def _put(self, cell):
        """Play a stone of the player to move."""
        session = self.session
        if session.over:
            raise GomocupError("the game is over")
        if not session.game.legal(session.state[None])[0, cell]:
            raise GomocupError("there is a stone already")
        session.play(cell)

    def _turn(self, rest):
        self._put(self._cell(rest))
        return self._move()

    def _play(self, rest):
        cell = self._cell(rest)
        self._put(cell)
        return self._named(cell)

    def _named(self, cell):
        return f"{cell % self.game.columns},{cell // self.game.columns}"

    def _move(self):
        session, game = self.session, self.game
        if session.over:
            raise GomocupError("the game is over")
        simulations = session.player.settings.simulations
        limit = levels.limit_at(self.serving.level, self._limit(simulations), simulations)
        session.think(limit, self.must_leave)
        cell = levels.choose(session, self.serving.level, self.rng)
        self._put(cell)
        return f"{cell % game.columns},{cell // game.columns}"

    def _limit(self, simulations):
        limit = self.limit
        times = [self._turn_s] if self._turn_s is not None else []
        times += [self._left_s / MOVES_TO_GO] if self._left_s is not None else []
        times += [limit.seconds] if limit.seconds else []
        if times:
            return limit._replace(seconds=max(min(times) - OVERHEAD_S, LEAST_S))
        return limit if limit != Limit() else Limit(simulations=simulations)

    def _board(self, _):
        """Read stones, as `column,row,whose`, up to DONE, and play a move. The lines follow the command."""
        import numpy as np

        rows = []
        while (line := self.lines.next()) is not None and line.strip().upper() != "DONE":
            rows.append(line)
        game = self.game
        own, other = np.zeros(game.cells, np.bool_), np.zeros(game.cells, np.bool_)
        for row in rows:
            place, _, whose = row.strip().rpartition(",")
            cell = self._cell(place)
            if whose.strip() not in ("1", "2") or own[cell] or other[cell]:
                raise GomocupError(f"not a stone: {row[:40]}")
            (own if whose.strip() == str(OWN) else other)[cell] = True
        self.session.restart(game.with_stones(own, other))
        return self._move()

    def _takeback(self, rest):
        cell = self._cell(rest)
        session = self.session
        if session.actions and session.actions[-1] == cell:
            session.undo()
            return "OK"
        own, other = self._stones(session.state)
        if not own[cell] and not other[cell]:
            raise GomocupError("there is no stone")
        own[cell] = other[cell] = False
        # One stone fewer: it is the other player's turn.
        session.restart(self.game.with_stones(other, own))
        return "OK"

    def _stones(self, state: "np.ndarray") -> "tuple[np.ndarray, np.ndarray]":
        """Return the stones of the player to move and of the other one, bool [N] each."""
        planes = self.session.game.planes(state[None])[0].reshape(2, -1)
        return planes[0] > 0, planes[1] > 0

    def _info(self, rest):
        """Take a setting; unknown ones are ignored, as the protocol wants. Nothing is answered."""
        key, _, text = rest.partition(" ")
        number = None
        with suppress(ValueError):
            number = int(text)
        if number is None:
            return
        if key == "timeout_turn":
            self._turn_s = number / 1000
        elif key in ("time_left", "timeout_match"):
            # 0 for a match without a limit; what is left of it may be at its end, or 2147483647.
            self._left_s = (
                None if key == "timeout_match" and number == 0 or number >= 2**31 - 1 else max(number, 0) / 1000
            )
        elif key == "max_memory" and number > 0:
            self.session.resize(max(min(int(number * TREE_SHARE), 2**29), TREE_BYTES_MIN))
        elif key == "rule":
            self._use_rule(number)

    def _use_rule(self, rule):
        from az_mpi.games import mnk

        game = self.game
        if rule & (RENJU | CARO):
            self.write("MESSAGE renju and caro are not known here: five in a row win")
        exact = bool(rule & EXACT)
        if exact != game.exact:
            self.write(f"MESSAGE the network learned with exact={game.exact}; the rules of this game count")
            self.session.use_game(mnk.Rules(game.columns, game.rows, game.k, exact))
