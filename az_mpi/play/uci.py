"""python -m az_mpi uci RUN: let chess programs play against the network of a run, by the Universal Chess Interface."""

import functools
import os
import random
import re
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from az_mpi import __version__
from az_mpi.core.registry import parse
from az_mpi.play import uci_go
from az_mpi.play.line_engine import LineEngine, Serving, serve
from az_mpi.play.loading import LoadingFailed
from az_mpi.play.options import add_level, make_parser
from az_mpi.play.uci_info import info_lines
from az_mpi.play.uci_options import CHESS960, OPTIONS, Options
from az_mpi.player import levels
from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    import numpy as np

    from az_mpi.games.uci_moves import Moves
    from az_mpi.player.session import Session

PROG = "python -m az_mpi uci"
ABOUT = "Let chess programs play against the network of a run, by the Universal Chess Interface (UCI)."
EPILOG = """\
It reads commands from standard input, for chess and openspiel:chess, breakthrough, and any other game whose moves are
single words, in that game's notation. docs/play.md explains positions and time.
"""
INFO_S = 0.5  # between two lines about the search
SLEEP_S = 0.01  # between two checks for a line, once nothing is left to search
GROWTH = 1.1  # of the simulations, between two checks whether a depth or a mate has been reached
NO_MOVE = "0000"
VARIANTS = {"openspiel:chess": "chess"}  # games that UCI itself has a name for


def main(arguments: list[str]) -> NoReturn:
    """Answer the commands on standard input, then end the process. Raises Refusal."""
    parser = make_parser(PROG, ABOUT, EPILOG)
    add_level(parser)
    serve(parser.parse_args(arguments), lambda serving: UciEngine(serving, _write), "UCI")


def _write(line):
    print(line, flush=True)


class UciEngine(LineEngine):
    """An engine that speaks UCI.

    A move takes as long as "go" and the limit of `serving` allow. Without both, it takes as many simulations as a move
    in the run's matches. Commands that need no session are answered before the session is loaded."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        super().__init__(serving, write)
        has_960 = bool(self.game_name) and ":" not in self.game_name and variant_named(self.game_name) == "chess"
        self.options = Options({"Simulations": self.limit.simulations}, CHESS960 if has_960 else {})
        self._rng = random.Random()
        self._is_stopped = False  # whether the search has to end
        self._is_lost = False  # whether the position is not known, since "position" could not be understood
        self._is_pondering = False
        self._is_hit = False  # whether the move that was pondered about has been played
        self._place: list[str] | None = ["startpos"]  # the words for the position that `_played` begin at
        self._played: list[str] = []  # the moves that led from there to the session's position
        # Once the game's own rules have no moves: the words of other rules, and the position in these.
        self._beyond: tuple[Moves, np.ndarray] | None = None
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "uci": self._uci,
            "isready": self._isready,
            "setoption": self._setoption,
            "ucinewgame": self._ucinewgame,
            "position": self._position,
            "go": self._go,
            "stop": self._stop,
            "quit": self._quit,
            "debug": self._ignore,
            "register": self._ignore,
            "ponderhit": self._ponderhit,
        }

    @functools.cached_property
    def session(self) -> "Session":
        session = self.serving.session()
        from az_mpi.games.uci_moves import start_of, with_chess960

        if self.options.values["Hash"] != OPTIONS["Hash"].default:
            session.resize(self.options.values["Hash"] * 2**20)
        if self.options.values.get("UCI_Chess960") and with_chess960(session.game) is not session.game:
            session.use_game(with_chess960(session.game))
            session.warm_up()
        session.restart(start_of(session.game))
        return session

    @functools.cached_property
    def moves(self) -> "Moves":
        """The words that UCI has for the game's moves."""
        game = self.session.game  # before the import, so that a package that is missing is reported by the loading
        from az_mpi.games.uci_moves import uci_moves

        moves = uci_moves(game)
        moves.chess960 = self.options.values.get("UCI_Chess960", False)
        return moves

    @property
    def variant(self) -> str:
        """The game's name in UCI. It comes from the configuration, or else from the game, which is loaded for it."""
        return variant_named(self.game_name) if self.game_name else self.moves.variant

    def answer(self, line: str) -> None:
        """Do the command of one line. Words before the command are ignored, as UCI demands. A line without a command is
        answered with a remark."""
        words = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line).split()
        start = next((k for k, word in enumerate(words) if word in self._commands), None)
        if start is None:
            if words:
                self._remark(f"unknown command {words[0][:40]}")
            return
        try:
            self._commands[words[start]](words[start + 1 :])
        except LoadingFailed as error:
            self._remark(str(error))
            self._quit([])
        except Exception as error:  # an error in this program or in a game's rules: the next commands are answered
            traceback.print_exc()
            self._remark(f"internal error: {type(error).__name__}")

    def _remark(self, text):
        self.write(f"info string {text}")

    def _uci(self, _):
        self.write(f"id name az_mpi {__version__}")
        self.write("id author the az_mpi team")
        for line in self.options.lines(self.variant):
            self.write(line)
        self.write("uciok")

    def _isready(self, _):
        if self.session:  # this waits until it is loaded
            self.write("readyok")

    def _ignore(self, _):
        pass

    def _quit(self, _):
        self.is_over = self._is_stopped = True

    def _stop(self, _):
        self._is_stopped = True

    def _ponderhit(self, _):
        if self._is_pondering:
            self._is_hit = self._is_stopped = True

    def _ucinewgame(self, _):
        self._restart(["startpos"])
        self._is_lost = False

    def _setoption(self, words):
        match = re.fullmatch(r"name (.+?)(?: value ?(.*))?", " ".join(words))
        name, value = (match.group(1), match.group(2) or "") if match else ("", "")
        before = self.options.values.copy()
        if name.lower() == "uci_variant" and value != self.variant and value not in self.moves.variants:
            known = None
        else:
            known = self.options.set(name, value)
        if known is None:
            self._remark(f"no option {name[:40]} with the value {value[:40]}")
        elif known == "UCI_Chess960" and self.options.values[known] != before[known]:
            self._load_again()
        elif known == "Clear Hash":
            self.session.forget()
        elif known == "Threads" and self.options.values[known] != before[known]:
            self._use_threads(self.options.values[known])
        elif known == "Hash" and "session" in vars(self):
            self.session.resize(self.options.values[known] * 2**20)

    def _use_threads(self, threads):
        """Let the engine have so many threads; the network is loaded again for it if it was loaded with others."""
        most = len(os.sched_getaffinity(0))
        if threads > most:
            self._remark(f"Threads {threads}: {most} are used, one for each core of this process")
        self.serving.use_threads(min(threads, most))
        self._load_again()

    def _load_again(self):
        """Make the session again, if there is one, as the options are now, with the same position."""
        if "session" in vars(self):
            del self.session
            vars(self).pop("moves", None)
            place, played, self._place, was_lost = self._place, self._played, None, self._is_lost
            self._take(place or ["startpos"], played)
            self._is_lost |= was_lost

    def _position(self, words):
        """Take a position, as its moves from the start of the game or from a FEN. The search tree is kept if they
        continue those of the position before."""
        place = words
        moves = []
        if "moves" in words:
            at = words.index("moves")
            place, moves = words[:at], words[at + 1 :]
        if place[:1] == ["fen"] and place[1:] == self.moves.start_fen.split():
            place = ["startpos"]
        self._take(place, moves)

    def _take(self, place, moves):
        self._is_lost = True  # until all of it is understood
        if place != self._place or self._played != moves[: len(self._played)]:
            self._place = None
            if not self._restart(place):
                return
        for move in moves[len(self._played) :]:
            self._continue()
            moves_of, state = self._beyond or (self.moves, self.session.state)
            action = moves_of.find(state, move)
            if action is None:
                self._remark(f"illegal move {move[:40]}")
                return
            if self._beyond:
                self._beyond = moves_of, moves_of.after(state, action)
            else:
                self.session.play(action)
            self._played.append(move)
        self._is_lost = False

    def _restart(self, place):
        """Begin at the position that the words after `position` name; return whether there is one."""
        try:
            if place[:1] not in (["startpos"], ["fen"]) or place[0] == "startpos" and place[1:]:
                raise ValueError("expected: position startpos, or position fen and a FEN")
            from az_mpi.games.uci_moves import start_of

            start = start_of(self.session.game) if place[0] == "startpos" else self.moves.position(" ".join(place[1:]))
            self.session.restart(start)
        except ValueError as error:
            self._remark(f"illegal position {' '.join(place)[:100]}: {error}")
            return False
        self._place, self._played, self._beyond = place, [], None
        return True

    def _continue(self):
        """Let a game continue that is a draw: the arbiter decides whether it is over. After a repetition and 50 moves
        the network plays on; where no mate is possible any legal move will do."""
        if self.session.over and not self._beyond:
            after = self.moves.continued(self.session.state)
            if after is not None:
                self.session.restart(after)
            else:
                self._beyond = self.moves.beyond(self.session.state)

    def _go(self, words):
        if self._is_lost:
            self._remark("there is no position to search: the last one was refused")
            self.write(f"bestmove {NO_MOVE}")
            return
        self._continue()
        go = uci_go.read(words)
        self._is_stopped = self._is_hit = False
        self._is_pondering = go.ponders
        if self.session.over:
            self._wait(go)
            self.write(f"bestmove {self._any_move()}")
            return
        session = self._limited(go)
        if go.is_open:
            self._search(session, Limit(), go)
        if self._is_hit or not go.is_open:
            self._is_pondering = self._is_stopped = False
            limit = self._limit(go)
            if self._level(go) < levels.FULL:
                levels.stay_within(session, limit)
            self._search(session, limit, go._replace(is_open=False))
        action = self._chosen(session, go)
        best, *rest = next(move.variation for move in session.moves() if move.action == action)
        self.write("bestmove " + " ponder ".join(self.moves.line(session.state, [best, *rest[:1]])))

    def _any_move(self):
        """Return a legal move of a position where the game is over, if any rules have one."""
        if not self._beyond:
            return NO_MOVE
        moves_of, state = self._beyond
        legal = moves_of.game.legal(state[None])[0]
        return moves_of.word(state, int(legal.argmax())) if legal.any() else NO_MOVE

    def _limited(self, go):
        """Return the session to search in: one that looks at `searchmoves` alone, if there are any."""
        state = self.session.state
        found = [self.moves.find(state, word) for word in go.moves]
        for word, action in zip(go.moves, found):
            if action is None:
                self._remark(f"searchmoves: illegal move {word[:40]}")
        actions = {action for action in found if action is not None}
        return self.session.beside(actions=actions) if actions else self.session

    def _level(self, go):
        values = self.options.values
        if values["UCI_AnalyseMode"] or go.is_open and not go.ponders:
            return levels.FULL
        return levels.of_elo(values["UCI_Elo"]) if values["UCI_LimitStrength"] else self.serving.level

    def _limit(self, go):
        simulations = self.session.player.settings.simulations
        limit = self.limit._replace(simulations=self.options.values["Simulations"])
        overhead_s = self.options.values["Move Overhead"] / 1000
        limit = uci_go.limit_of(go, "wb"[self.session.to_play], limit, overhead_s, simulations)
        return levels.limit_at(self._level(go), limit, simulations)

    def _chosen(self, session, go):
        level = self._level(go)
        return session.best() if level >= levels.FULL else levels.choose(session, level, self._rng)

    def _search(self, session, limit, go):
        """Search up to `limit`, until what `go` looks for is found, or until a line ends the search. If the search is
        an open one, return only after such a line."""
        begun, num_before = time.monotonic(), session.simulations
        reported_s = 0.0  # after the begin: when the last line about the search was written
        due = 1.0

        def found():
            nonlocal due
            if not go.searches or go.is_open or session.simulations < due:
                return False
            due = session.simulations * GROWTH
            return go.is_found(session.moves()[0])

        def stop():
            self._hear()
            return self._is_stopped or time.monotonic() - begun - reported_s > INFO_S or found()

        while not self._is_stopped:
            seconds = limit.seconds and limit.seconds - (time.monotonic() - begun)
            if limit.seconds and seconds <= 0 and session.simulations:  # one simulation at least, to have a move
                break
            before = session.simulations
            session.think(limit._replace(seconds=seconds), stop)
            reported_s = time.monotonic() - begun
            self._write_info(session, reported_s, num_before)
            after = session.simulations
            due = 1.0
            if after == before or limit.simulations and after >= limit.simulations or found():
                break
        self._wait(go)

    def _wait(self, go):
        """Answer until a line ends the search, if it is an open one."""
        while go.is_open and not self._is_stopped:
            time.sleep(SLEEP_S)
            self._hear()

    def _hear(self):
        """Do the commands that have arrived during the search, if they are allowed in it. Lines behind one that ends
        the search wait until the search has been answered."""
        while not self._is_stopped and self.lines.waiting():
            line = self.lines.next()
            if line is None:
                self._quit([])
            elif line.split()[:1] in (["isready"], ["stop"], ["quit"], ["debug"], ["ponderhit"], ["setoption"]):
                self.answer(line)
            elif line.split():
                self._remark("a search takes no command but isready, setoption, stop, ponderhit and quit")

    def _write_info(self, session, seconds, num_before):
        """Write lines about the search, which has taken so many seconds. num_before: simulations before it."""
        values = self.options.values
        num_new = session.simulations - num_before
        for line in info_lines(session, self.moves, seconds, num_new, values["MultiPV"], values["UCI_ShowWDL"]):
            self.write(line)


def variant_named(game: str) -> str:
    """Return the name that UCI has for a game of the configuration: "go" for "go(size=9)"."""
    name = parse(game).attribute
    return VARIANTS.get(name, name)
