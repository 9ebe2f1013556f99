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
from az_mpi.play.gtp_setup import Setup
from az_mpi.play.gtp_words import ANY, COLOURS, NAMES, PASS, GtpError, Made, colour, kgs_time, number, read_all, whole
from az_mpi.play.line_engine import LineEngine, Serving, serve
from az_mpi.play.lines import without_comment
from az_mpi.play.loading import LoadingFailed
from az_mpi.play.options import make_parser
from az_mpi.player.limits import Clock, Limit

if TYPE_CHECKING:
    import numpy as np

    from az_mpi.games import go
    from az_mpi.games.vertices import Vertices

PROG = "python -m az_mpi gtp"
MOVES_TO_GO_MIN = 10  # main time has to last for so many moves at least
ABOUT = "Let programs play against the network of a run, by the Go Text Protocol (GTP), version 2."
EPILOG = """\
It reads commands from standard input, for Go, Othello, Hex, Gomoku, Connect Four, and any other game whose moves are
single words. The command list_commands lists all of them. docs/play.md explains games, vertices and time.
"""


def main(arguments: list[str]) -> NoReturn:
    """Answer the commands on standard input, then end the process. Raises Refusal."""
    given = make_parser(PROG, ABOUT, EPILOG).parse_args(arguments)
    serve(given, lambda serving: GtpEngine(serving, _write), "GTP")


def _write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


class GtpEngine(LineEngine):
    """An engine that speaks GTP.

    A move takes as long as its clock and the limit of `serving` allow. Without both, it takes as many simulations as a
    move in the run's matches. Commands that need no session are answered before the session is loaded."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        super().__init__(serving, write)
        self._settings: tuple[float, float, int] | None = None  # of `time_settings`
        self._clocks: list[Clock] = []  # of Black and White, while there is a time limit
        self.made: list[Made] = []
        self.placed: list[Made] = []  # stones that were there before the first move, such as those of a handicap
        # {command: (the function that does it, the functions that read its arguments)}
        self.commands: dict[str, tuple[Callable, tuple]] = {
            "protocol_version": (lambda: "2", ()),
            "name": (lambda: "az_mpi", ()),
            "version": (lambda: __version__, ()),
            "known_command": (lambda name: str(name in self.commands).lower(), (str,)),
            "list_commands": (lambda: "\n".join(self.commands), ()),
            "quit": (self._quit, ()),
            "boardsize": (lambda sizes: self._boardsize(*read_all([whole] * (2 if sizes[1:] else 1), sizes)), ANY),
            "rectangular_boardsize": (self._boardsize, (whole, whole)),
            "clear_board": (self.clear_board, ()),
            "play": (self.play, (colour, str)),
            "genmove": (self._genmove, (colour,)),
            "reg_genmove": (self._reg_genmove, (colour,)),
            "undo": (self._undo, ()),
            "showboard": (self._showboard, ()),
            "time_settings": (self._time_settings, (number, number, whole)),
            "time_left": (self._time_left, (colour, number, whole)),
            "kgs-time_settings": (self._kgs_time_settings, ANY),
            "kgs-genmove_cleanup": (self._genmove_cleanup, (colour,)),
            "lz-analyze": (partial(self._analyze, analysis.in_leela_zero), ANY),
            "kata-analyze": (partial(self._analyze, analysis.in_katago), ANY),
            "lz-genmove_analyze": (partial(self._genmove_analyze, analysis.in_leela_zero), ANY),
            "kata-genmove_analyze": (partial(self._genmove_analyze, analysis.in_katago), ANY),
        }
        self.setup = Setup(self)
        self.commands |= self.setup.commands

    @cached_property
    def vertices(self) -> "Vertices":
        """The names that GTP has for the game's moves."""
        game = self.session.game  # before the import, so that a package that is missing is reported by the loading
        from az_mpi.games.vertices import Vertices

        return Vertices(game)

    def answer(self, line: str) -> None:
        """Answer one line, whatever it contains. A line without a command gets no answer."""
        line = without_comment(re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line)).strip()
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
        return (do(words) if readers is ANY else do(*read_all(readers, words))) or ""

    def _quit(self):
        self.is_over = True

    def _boardsize(self, columns, rows=None):
        learned = self.serving.session()
        height, width = learned.game.planes_shape[1:]
        size = (height if columns == width else columns) if rows is None else rows, columns
        if size != self.session.game.planes_shape[1:]:
            try:
                session = learned if size == (height, width) else self.serving.at_size(columns, size[0])
            except ValueError as error:
                raise GtpError(f"unacceptable size: {error}") from None
            self.session = session
            vars(self).pop("vertices", None)
            self.setup.komi_again()
        self.clear_board()

    def clear_board(self) -> None:
        """Begin a new game."""
        self.session.restart()
        self.made.clear()
        self.placed.clear()
        self._set_clocks()

    @property
    def go(self) -> "go.Rules | None":
        """The game if it is Go, whose positions can be set up; else None."""
        from az_mpi.games import go

        game = self.session.game
        return game if isinstance(game, go.Rules) else None

    def turned(self, player: int) -> "np.ndarray":
        """Return the position of Go, [S], with a player to move whose turn it may not be."""
        from az_mpi.games import go_positions

        return go_positions.turned(self.go, self.session.state, player)

    def _give_turn(self, colour):
        """Make it this player's turn. In Go that makes no move; else the other player passes. Raises GtpError if the
        other player may not pass."""
        session = self.session
        if self.go:
            if session.over or session.to_play != colour:
                session.restart(self.turned(colour))
            return
        if session.over:
            raise GtpError("illegal move: the game is over")
        if session.to_play == colour:
            return
        passes = self.vertices.find(session.state, PASS)
        if passes is None:
            raise GtpError(f"illegal move: it is the turn of {NAMES[1 - colour]}")
        session.play(passes)
        if session.over:
            session.undo()
            raise GtpError(f"illegal move: if {NAMES[1 - colour]} passes, the game is over")

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

    def play(self, colour: int, vertex: str) -> None:
        """Play a move. Raises GtpError, and leaves the position as it is, if it is illegal."""
        session = self.session
        made = Made(colour, vertex.lower(), tuple(session.states), tuple(session.actions))
        is_pass = vertex.lower() == PASS
        if is_pass and (session.over or self._sits_out(colour)):
            self.made.append(made)
            return
        if session.over and not self.go:
            raise GtpError("illegal move: the game is over")
        # A pass of a player whose turn it is not changes nothing.
        if not is_pass or session.to_play == colour or self.vertices.find(session.state, PASS) is None:
            try:
                self._give_turn(colour)
                session.play(self._found(vertex))
            except GtpError:
                session.restore(made.states, made.actions)
                raise
        self.made.append(made)

    def _found(self, vertex):
        """Return the action for a vertex. In Go a move of another program is taken that only superko forbids."""
        state = self.session.state
        action = self.vertices.find(state, vertex)
        if action is None and self.go:
            from az_mpi.games import go_positions

            point = self.vertices.point(vertex)
            action = point if go_positions.is_legal_by_simple_ko(self.go, state, point) else None
        if action is None:
            raise GtpError("illegal move")
        return action

    def _genmove(self, colour, report=lambda is_last: None, asked=None):
        """Think and play a move; return its vertex. report: called after each step of the search with False, and once
        with True before the move is played. asked: see `analysis.Asked`."""
        begun = time.monotonic()
        session = self.session
        made = Made(colour, PASS, tuple(session.states), tuple(session.actions))
        if session.over or self._sits_out(colour):
            self.made.append(made)
            return PASS
        try:
            self._give_turn(colour)
            self._searched = self._among(self.session, asked)
            action = self._choose(colour, report)
            report(True)
            vertex = self.vertices.of(session.state, action)
            session.play(action)
        except BaseException:
            session.restore(made.states, made.actions)
            raise
        self.made.append(made._replace(vertex=vertex))
        if self._clocks:
            self._clocks[colour].spend(time.monotonic() - begun)
        return vertex

    def _genmove_cleanup(self, colour):
        """Play on after both have passed, so that dead stones are taken off, which counting by area needs."""
        if self.go and self.session.over:
            before = Made(colour, PASS, tuple(self.session.states), tuple(self.session.actions))
            self._give_turn(colour)
            vertex = self._genmove(colour)
            self.made[-1] = before._replace(vertex=vertex)
            return vertex
        return self._genmove(colour)

    def _reg_genmove(self, colour):
        if self.session.over or self._sits_out(colour):
            return PASS
        self._searched = self._aside(colour)
        return self.vertices.of(self._searched.state, self._choose(colour))

    def _aside(self, colour):
        """Return the session to search in for a move of this player, whose turn it may not be."""
        session = self.session
        if session.to_play == colour:
            return session
        if self.go:
            return session.beside(self.turned(colour))
        states, actions = tuple(session.states), tuple(session.actions)
        try:
            self._give_turn(colour)
            return session.beside()
        finally:
            session.restore(states, actions)

    def _among(self, session, asked):
        """Return the session for a search of the moves that `asked` allows alone."""
        if asked is None or not (asked.allow or asked.avoid):
            return session
        legal, find = session.legal().values(), self.vertices.finder(session.state)
        allow, avoid = ([find(word) for player, word in named if player == session.to_play] for named in asked[3:])
        chosen = [action for action in legal if (not allow or action in allow) and action not in avoid]
        if not chosen:
            raise GtpError("no legal move is allowed")
        return session.beside(actions=chosen) if len(chosen) < len(legal) else session

    def _choose(self, colour, report=lambda is_last: None):
        """Think about a move of this player, whose turn it is, and return the action to play."""
        session = self._searched
        limit = self.limit
        _, height, width = session.game.planes_shape
        plies_to_go = min(session.game.max_plies, height * width) - len(self.made)
        budget_s = math.inf
        if self._clocks:
            budget_s = self._clocks[colour].budget_s(max(MOVES_TO_GO_MIN, plies_to_go // 2))
        if budget_s < math.inf:
            limit = limit._replace(seconds=max(min(budget_s, limit.seconds or math.inf), 1e-3))
        elif limit == Limit():
            limit = Limit(simulations=session.player.settings.simulations)
        session.think(
            Limit(simulations=1) if len(session.legal()) == 1 else limit, lambda: report(False) or self.must_leave()
        )
        return session.best()

    def _undo(self):
        if not self.made:
            raise GtpError("cannot undo")
        before = self.made.pop()
        self.session.restore(before.states, before.actions)

    def _showboard(self):
        drawing = self.session.drawing(self.vertices.columns)
        return "\n" + "\n".join(line or " " for line in drawing.splitlines())

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

    def _kgs_time_settings(self, words):
        self._time_settings(*kgs_time(words))

    def _analyze(self, write, words):
        """Return an iterator over lines about the position, which ends as soon as there is input."""
        asked = self._asked(words)
        if self.session.over:
            raise GtpError("the game is over")
        session = self._aside(self.session.to_play if asked.player is None else asked.player)
        return self._reports(self._among(session, asked), write, asked)

    def _reports(self, session, write: Callable, asked: "analysis.Asked") -> Iterator[str]:
        try:
            while not self.lines.waiting():
                due = time.monotonic() + asked.interval_s
                session.think(Limit(seconds=asked.interval_s), self.lines.waiting)
                self.lines.wait(due - time.monotonic())
                if line := write(session, self.vertices, asked):  # an empty line would end the reply
                    yield line
        except Exception:  # the reply has begun: an error can only end it
            traceback.print_exc()

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
            self._among(self._aside(colour), asked)  # a move out of turn is refused before the reply begins
        return self._reported_move(write, asked, colour)

    def _reported_move(self, write, asked, colour):
        reported_at = time.monotonic()

        def report(is_last):
            nonlocal reported_at
            if is_last or time.monotonic() >= reported_at + asked.interval_s:
                reported_at = time.monotonic()
                if line := write(self._searched, self.vertices, asked):
                    self.write(line + "\n")

        try:
            yield f"play {self._genmove(colour, report, asked)}"
        except Exception:  # the reply has begun: an error can only end it
            traceback.print_exc()
