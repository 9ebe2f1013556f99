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
from az_mpi.play.drawing import draw
from az_mpi.play.gtp_arguments import ANY, COLOURS, colour, number, whole
from az_mpi.play.line_engine import LineEngine, Serving, serve
from az_mpi.play.loading import LoadingFailed
from az_mpi.play.options import make_parser
from az_mpi.player.limits import Clock, Limit

if TYPE_CHECKING:
    from az_mpi.games.vertices import Vertices

PROG = "python -m az_mpi gtp"
NAMES = "black", "white"
PASS = "pass"
LEAVE_S = 0.5  # how long a search may go on when nothing follows but the end
MOVES_TO_GO_MIN = 10  # for how many moves at least main time is to last
ABOUT = "Let programs play against the network of a run, by the Go Text Protocol (GTP), version 2."
EPILOG = """\
It reads commands from standard input, for Go, Othello, Hex, Gomoku, Connect Four, and any other game whose moves are
single words. list_commands lists them; docs/play.md says how games, vertices and time are understood.
"""


class GtpError(Exception):
    """A command fails, with this message for its sender."""


def main(arguments: list[str]) -> NoReturn:
    """Answer the commands that come in at standard input, then end the process. Raises Refusal."""
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
    """Answers GTP. The limit of `serving` is for every move, on top of the clock; none without a clock: as in the
    run's matches. Commands that need no session are answered without waiting for it."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        super().__init__(serving, write)
        self._settings: tuple[float, float, int] | None = None  # of `time_settings`
        self._clocks: list[Clock] = []  # of Black and White, while there is a time limit
        self._plies: list[int] = []  # of each move by GTP: 2 if the other player passed first, 0 after the game's end
        self._leave_at = math.inf
        # How each command is done, and what reads its arguments.
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
            "hexgui-analyze_commands": (lambda: "", ()),  # HexGui does not go on without a list of its commands
        }

    @cached_property
    def vertices(self) -> "Vertices":
        """How the game's moves are written."""
        game = self.session.game  # first: what loading lacks, the import below would lack too
        from az_mpi.games.vertices import Vertices

        return Vertices(game)

    def answer(self, line: str) -> None:
        """Answer one line, whatever is in it. A line without a command gets no answer."""
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
        except Exception as error:  # a mistake of ours, or of a game's own rules: the next commands are answered
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
        """Do a command; return its reply as text, or an iterator over lines that are sent one by one."""
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
        """Make it this player's turn: the other one passes, if that is needed and legal. Return the number of plies."""
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
        """Return whether the other player, who made the last move, is to move again. A program that alternates colours
        asks for a move of this player meanwhile, or reports a pass."""
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
        if is_pass and self.session.to_play != colour:  # the turn is the other one's already
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
        """Think and play. report(whether it is the last time): called after each step of the search."""
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
        """Think, and return the action to play."""
        session, limit = self.session, self.limit
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
        """Return whether nothing but the end has followed for LEAVE_S."""
        if self._leave_at == math.inf and self.lines.ends("quit"):
            self._leave_at = time.monotonic() + LEAVE_S
        return time.monotonic() > self._leave_at

    def _undo(self):
        if not self._plies:
            raise GtpError("cannot undo")
        self.session.undo(self._plies.pop())

    def _showboard(self):
        drawing = draw(self.session, self.vertices.columns)
        return "\n" + "\n".join(line or " " for line in drawing.splitlines())

    def _final_score(self):
        session = self.session
        lead, result = session.game.lead(session.state[None]), session.result
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
        """Return an iterator over lines about the position, which ends when something comes in."""
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
        """As `_genmove`, with lines about the position while it thinks. The last line is `play` and the move."""
        asked = self._asked(words)
        colour = self.session.to_play if asked.player is None else asked.player
        if not self.session.over and not self._sits_out(colour):
            self.session.undo(self._give_turn(colour))  # a move out of turn is refused before the reply begins
        return self._told_move(write, asked, colour)

    def _told_move(self, write, asked, colour):
        told, begun_with = time.monotonic(), len(self.session.actions)

        def report(is_last):
            nonlocal told
            if is_last or time.monotonic() >= told + asked.interval_s:
                told = time.monotonic()
                self.write(write(self.session, self.vertices, asked) + "\n")

        try:
            yield f"play {self._genmove(colour, report)}"
        except Exception:  # the reply has begun: an error can only end it
            traceback.print_exc()
            self.session.undo(len(self.session.actions) - begun_with)
