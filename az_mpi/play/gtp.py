"""python -m az_mpi gtp RUN: let programs play against the network of a run, by the Go Text Protocol, version 2."""

import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, NoReturn

from az_mpi import __version__
from az_mpi.play import analysis
from az_mpi.play.line_engine import LineEngine, Serving, serve
from az_mpi.play.loading import LoadingFailed
from az_mpi.play.options import make_parser
from az_mpi.player.limits import Clock, Limit

if TYPE_CHECKING:
    from az_mpi.games.vertices import Vertices

PROG = "python -m az_mpi gtp"
NAMES = "black", "white"
COLOURS = {"b": 0, "black": 0, "w": 1, "white": 1}
ANY = (str, ...)  # the arguments of a command that takes any number of them
PASS = "pass"
LEAVE_S = 0.5  # how long a search may continue once only the end of input follows
MOVES_TO_GO_MIN = 10  # main time has to last for so many moves at least
ABOUT = "Let programs play against the network of a run, by the Go Text Protocol (GTP), version 2."
EPILOG = """\
It reads commands from standard input, for Go, Othello, Hex, Gomoku, Connect Four, and any other game whose moves are
single words. The command list_commands lists all of them. docs/play.md explains games, vertices and time.
"""


class GtpError(Exception):
    """A command fails. str() is the message for the program that sent it."""


def main(arguments: list[str]) -> NoReturn:
    """Answer the commands on standard input, then end the process. Raises Refusal."""
    given = make_parser(PROG, ABOUT, EPILOG).parse_args(arguments)
    serve(given, lambda serving: GtpEngine(serving, _write))


def _write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def _read(readers, words):
    """Return the values of a command's arguments."""
    try:
        return [read(word) for read, word in zip(readers, words, strict=True)]
    except ValueError:
        raise GtpError("syntax error") from None


class GtpEngine(LineEngine):
    """An engine that speaks GTP.

    A move takes as long as its clock and the limit of `serving` allow. Without both, it takes as many simulations as a
    move in the run's matches. Commands that need no session are answered before the session is loaded."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        super().__init__(serving, write)
        self._settings: tuple[float, float, int] | None = None  # of `time_settings`
        self._clocks: list[Clock] = []  # of Black and White, while there is a time limit
        # How many moves of the game each move by GTP was: 2 if the other player passed first, 0 after the game's end.
        self._plies: list[int] = []
        self._leave_at = math.inf
        # {command: (the function that does it, the functions that read its arguments)}
        self.commands: dict[str, tuple[Callable, tuple]] = {
            "protocol_version": (lambda: "2", ()),
            "name": (lambda: "az_mpi", ()),
            "version": (lambda: __version__, ()),
            "known_command": (lambda name: str(name in self.commands).lower(), (str,)),
            "list_commands": (lambda: "\n".join(self.commands), ()),
            "quit": (self._quit, ()),
            "boardsize": (lambda sizes: self._boardsize(*_read([whole] * (2 if sizes[1:] else 1), sizes)), ANY),
            "rectangular_boardsize": (self._boardsize, (whole, whole)),
            "clear_board": (self._clear_board, ()),
            "komi": (self._komi, (number,)),
            "play": (self._play, (colour, str)),
            "genmove": (self._genmove, (colour,)),
            "reg_genmove": (self._reg_genmove, (colour,)),
            "undo": (self._undo, ()),
            "showboard": (self._showboard, ()),
            "final_score": (self._final_score, ()),
            "time_settings": (self._time_settings, (number, number, whole)),
            "time_left": (self._time_left, (colour, number, whole)),
            "lz-analyze": (partial(self._analyze, analysis.in_leela_zero), ANY),
            "kata-analyze": (partial(self._analyze, analysis.in_katago), ANY),
            "lz-genmove_analyze": (partial(self._genmove_analyze, analysis.in_leela_zero), ANY),
            "kata-genmove_analyze": (partial(self._genmove_analyze, analysis.in_katago), ANY),
            "hexgui-analyze_commands": (lambda: "", ()),  # HexGui ends if this command is unknown
        }

    @cached_property
    def vertices(self) -> "Vertices":
        """The names that GTP has for the game's moves."""
        game = self.session.game  # before the import, so that a package that is missing is reported by the loading
        from az_mpi.games.vertices import Vertices

        return Vertices(game)

    def answer(self, line: str) -> None:
        """Answer one line, whatever it contains. A line without a command gets no answer."""
        line = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line.partition("#")[0]).strip()
        if not line:
            return
        number, name, words = re.fullmatch(r"(?:(\d+)(?:\s+|$))?(\S*)(.*)", line, re.ASCII).groups("")
        try:
            reply = self._do(name, words.split())
        except GtpError as error:
            self.write(f"?{number} {error}\n\n")
        except LoadingFailed as error:
            self.write(f"?{number} {error}\n\n")
            self.is_over = True
        except Exception as error:  # an error in this program or in a game's rules: the next commands are answered
            traceback.print_exc()
            self.write(f"?{number} internal error: {type(error).__name__}\n\n")
        else:
            if isinstance(reply, str):
                self.write(f"={number} {reply}\n\n")
                return
            self.write(f"={number}\n")
            for part in reply:
                self.write(part + "\n")
            self.write("\n")

    def _do(self, name, words):
        """Do a command. Return its reply as text, or an iterator over the lines of a reply that takes time."""
        if name not in self.commands:
            raise GtpError("unknown command")
        do, readers = self.commands[name]
        return (do(words) if readers is ANY else do(*_read(readers, words))) or ""

    def _quit(self):
        self.is_over = True

    def _boardsize(self, columns, rows=None):
        _, height, width = self.session.game.planes_shape
        if columns != width or rows not in (None, height):
            raise GtpError("unacceptable size")
        self._clear_board()

    def _clear_board(self):
        self.session.restart()
        self._plies.clear()
        self._set_clocks()

    def _komi(self, komi):
        if komi != getattr(self.session.game, "komi", komi):
            raise GtpError("unacceptable komi")

    def _give_turn(self, colour):
        """Make it this player's turn: the other player passes if it is not. Return how many passes that took, 0 or 1.
        Raises GtpError if the other player may not pass."""
        if self.session.to_play == colour:
            return 0
        passes = self.vertices.find(self.session.state, PASS)
        if passes is None:
            raise GtpError(f"illegal move: it is the turn of {NAMES[1 - colour]}")
        self.session.play(passes)
        if self.session.over:
            self.session.undo()
            raise GtpError(f"illegal move: if {NAMES[1 - colour]} passes, the game is over")
        return 1

    def _sits_out(self, colour):
        """Return whether the other player, who made the last move, is to move again. A program that only knows games in
        which players alternate asks for a move of this player in between, or reports that this player passes."""
        before = self.session.before
        others = 1 - colour
        return (
            before is not None
            and not self.session.over
            and self.session.to_play == others
            and self.session.game.to_play(before[None])[0] == others
        )

    def _play(self, colour, vertex):
        if vertex.lower() == PASS and (self.session.over or self._sits_out(colour)):
            self._plies.append(0)
            return
        if self.session.over:
            raise GtpError("illegal move: the game is over")
        is_pass = vertex.lower() == PASS and self.vertices.find(self.session.state, PASS) is not None
        if is_pass and self.session.to_play != colour:  # it is the other player's turn without a pass
            self._plies.append(0)
            return
        passes = self._give_turn(colour)
        action = self.vertices.find(self.session.state, vertex)
        if action is None:
            self.session.undo(passes)
            raise GtpError("illegal move")
        self.session.play(action)
        self._plies.append(1 + passes)

    def _genmove(self, colour, report=lambda is_last: None):
        """Think and play a move; return its vertex. report: called after each step of the search with False, and once
        with True before the move is played."""
        begun = time.monotonic()
        if self.session.over or self._sits_out(colour):
            self._plies.append(0)
            return PASS
        passes = self._give_turn(colour)
        action = self._choose(colour, report)
        report(True)
        vertex = self.vertices.of(self.session.state, action)
        self.session.play(action)
        self._plies.append(1 + passes)
        if self._clocks:
            self._clocks[colour].spend(time.monotonic() - begun)
        return vertex

    def _reg_genmove(self, colour):
        if self.session.over or self._sits_out(colour):
            return PASS
        passes = self._give_turn(colour)
        vertex = self.vertices.of(self.session.state, self._choose(colour))
        self.session.undo(passes)
        return vertex

    def _choose(self, colour, report=lambda is_last: None):
        """Think about a move of this player, whose turn it is, and return the action to play."""
        session = self.session
        limit = self.limit
        _, height, width = session.game.planes_shape
        plies_to_go = min(session.game.max_plies, height * width) - len(session.actions)
        budget_s = math.inf
        if self._clocks:
            budget_s = self._clocks[colour].budget_s(max(MOVES_TO_GO_MIN, plies_to_go // 2))
        if budget_s < math.inf:
            limit = limit._replace(seconds=max(min(budget_s, limit.seconds or math.inf), 1e-3))
        elif limit == Limit():
            limit = Limit(simulations=session.player.settings.simulations)
        session.think(
            Limit(simulations=1) if len(session.legal()) == 1 else limit, lambda: report(False) or self._must_leave()
        )
        return session.best()

    def _must_leave(self):
        """Return whether the end of input, or the command quit, has been all that follows for LEAVE_S."""
        if self._leave_at == math.inf and self.lines.ends("quit"):
            self._leave_at = time.monotonic() + LEAVE_S
        return time.monotonic() > self._leave_at

    def _undo(self):
        if not self._plies:
            raise GtpError("cannot undo")
        self.session.undo(self._plies.pop())

    def _showboard(self):
        drawing = self.session.drawing(self.vertices.columns)
        return "\n" + "\n".join(line or " " for line in drawing.splitlines())

    def _final_score(self):
        session = self.session
        lead = session.game.lead(session.state[None])
        result = session.result
        points = result if lead is None else float(lead[0])
        if points is None:
            raise GtpError("cannot score: the game is not over")
        return f"{'B' if points > 0 else 'W'}+{abs(points):g}" if points else "0"

    def _time_settings(self, main_s, period_s, moves):
        if main_s < 0 or period_s < 0:
            raise GtpError("syntax error")
        self._settings = main_s, period_s, moves
        self._set_clocks()

    def _set_clocks(self):
        self._clocks = [Clock(*self._settings) for _ in NAMES] if self._settings else []

    def _time_left(self, colour, left_s, moves):
        self._clocks = self._clocks or [Clock(0, 0, 0) for _ in NAMES]
        self._clocks[colour].set_left(left_s, moves)

    def _analyze(self, write, words):
        """Return an iterator over lines about the position, which ends as soon as there is input."""
        asked = self._asked(words)
        if self.session.over:
            raise GtpError("the game is over")
        passes = self._give_turn(self.session.to_play if asked.player is None else asked.player)
        return self._reports(write, asked, passes)

    def _reports(self, write: Callable, asked: "analysis.Asked", passes: int) -> Iterator[str]:
        try:
            while not self.lines.waiting():
                due = time.monotonic() + asked.interval_s
                self.session.think(Limit(seconds=asked.interval_s), self.lines.waiting)
                self.lines.wait(due - time.monotonic())
                yield write(self.session, self.vertices, asked)
        except Exception:  # the reply has begun: an error can only end it
            traceback.print_exc()
        finally:
            self.session.undo(passes)

    def _asked(self, words):
        asked = analysis.read(words, COLOURS)
        if asked is None:
            raise GtpError("syntax error")
        return asked

    def _genmove_analyze(self, write, words):
        """Do what `_genmove` does, and send lines about the position during the search. The last line of the reply is
        `play` and the move."""
        asked = self._asked(words)
        colour = self.session.to_play if asked.player is None else asked.player
        if not self.session.over and not self._sits_out(colour):
            self.session.undo(self._give_turn(colour))  # a move out of turn is refused before the reply begins
        return self._reported_move(write, asked, colour)

    def _reported_move(self, write, asked, colour):
        reported_at = time.monotonic()
        moves_before = len(self.session.actions)

        def report(is_last):
            nonlocal reported_at
            if is_last or time.monotonic() >= reported_at + asked.interval_s:
                reported_at = time.monotonic()
                self.write(write(self.session, self.vertices, asked) + "\n")

        try:
            yield f"play {self._genmove(colour, report)}"
        except Exception:  # the reply has begun: an error can only end it
            traceback.print_exc()
            self.session.undo(len(self.session.actions) - moves_before)


# What reads an argument of a command takes its text, and raises ValueError for any other text.


def colour(text: str) -> int:
    """Return the player of a colour: 0 for Black, 1 for White."""
    if text.lower() not in COLOURS:
        raise ValueError
    return COLOURS[text.lower()]


def whole(text: str) -> int:
    """Return a whole number of up to 9 digits; it is not negative."""
    return int(_matched(r"\d{1,9}", text))


def number(text: str) -> float:
    """Return a number that is written without an exponent."""
    return float(_matched(r"-?\d{1,9}(\.\d{0,9})?", text))


def _matched(pattern, text):
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError
    return text
