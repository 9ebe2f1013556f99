"""What GTP, UCI and Gomocup have in common: an engine that answers the lines of a client."""

import argparse
import functools
import itertools
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from az_mpi.play.lines import Lines
from az_mpi.play.loading import Loading
from az_mpi.play.options import end_on_interrupt
from az_mpi.player import levels
from az_mpi.player.limits import Limit
from az_mpi.player.network_paths import find_network, game_named

if TYPE_CHECKING:
    from az_mpi.player.session import Session

# Loading begins when so many seconds have passed without a first line, or without another one after that.
FIRST_S, PAUSE_S = 2.0, 0.2
LEAVE_S = 0.5  # how long a search may continue once only the end of input follows


def _no_other_size(columns: int, rows: int) -> NoReturn:
    raise ValueError("the network plays its own board alone")


class Serving(NamedTuple):
    """What an engine is made of. session: waits for the session and returns it; raises LoadingFailed. limit: of the
    thinking about each move. game: its name in the configuration; "" if only the loaded session knows it. level: see
    `player.levels`. use_threads: lets `session` return one whose engine has so many threads. at_size: returns a session
    on a board of so many columns and rows; raises ValueError if the network cannot play there."""

    session: "Callable[[], Session]"
    limit: Limit
    lines: Lines
    game: str = ""
    level: float = levels.FULL
    use_threads: "Callable[[int], None]" = lambda threads: None
    at_size: "Callable[[int, int], Session]" = _no_other_size


class LineEngine(ABC):
    """An engine that answers the lines of a client. Lines that need no session are answered before it is loaded.

    write: sends a text to the client. is_over: whether `quit` or the end of input has come, or loading has failed."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        self.serving = serving
        self.limit, self.lines, self.game_name = serving.limit, serving.lines, serving.game
        self.write = write
        self.is_over = False
        self._leave_at = math.inf

    @functools.cached_property
    def session(self) -> "Session":
        """The game in progress. The first access waits until it is loaded. Raises LoadingFailed."""
        return self.serving.session()

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Answer until `quit` or the end of input, or until `until`, which is asked before each line, returns true."""
        while not self.is_over and not until():
            line = self.lines.next()
            if line is None:
                self.is_over = True
            else:
                self.answer(line)

    def must_leave(self) -> bool:
        """Return whether the end of input, or the command that ends the program, has been all that follows for LEAVE_S:
        then a search ends."""
        if self._leave_at == math.inf and self.lines.ends(self.is_quit):
            self._leave_at = time.monotonic() + LEAVE_S
        return time.monotonic() > self._leave_at

    def is_quit(self, word: str) -> bool:
        """Return whether a word is the command that ends the program."""
        return word == "quit"

    @abstractmethod
    def answer(self, line: str) -> None:
        """Answer one line, whatever it contains."""


def serve(given: argparse.Namespace, make_engine: Callable[[Serving], LineEngine], protocol: str) -> NoReturn:
    """Run an engine that answers the lines on standard input, then end the process. protocol: its name, for messages.
    Raises Refusal.

    A client's first lines are answered before anything large is loaded, since loading takes seconds, on a busy machine
    half a minute, and clients do not wait so long for them. A thread loads as soon as the client pauses."""
    lines = Lines()
    game = game_named(find_network(given.run, given.checkpoint))
    loading = Loading(given, protocol)
    end_on_interrupt()
    limit = Limit(given.simulations, given.seconds)
    level = getattr(given, "level", levels.FULL)
    engine = make_engine(Serving(loading.session, limit, lines, game, level, loading.use_threads, loading.at_size))
    pauses_s = itertools.chain([FIRST_S], itertools.repeat(PAUSE_S))
    engine.run(until=lambda: not lines.wait(next(pauses_s)))
    if not engine.is_over:
        loading.begin()
        engine.run()
    sys.stdout.flush()
    os._exit(loading.status)  # Python would first take torch apart, which takes a second or more on a busy machine
