"""An engine that answers the lines of a client: what GTP and UCI have in common."""

import argparse
import functools
import itertools
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from az_mpi.play.lines import Lines
from az_mpi.play.loading import Loading
from az_mpi.play.options import end_on_interrupt
from az_mpi.player.limits import Limit
from az_mpi.player.network_paths import find_network, game_named

if TYPE_CHECKING:
    from az_mpi.player.session import Session

FIRST_S, PAUSE_S = 2.0, 0.2  # without a first line, and without a further one, after which loading begins


class Serving(NamedTuple):
    """What an engine begins with. session: waits for the session and returns it; raises LoadingFailed. limit: for every
    move. game: as the configuration names it; "" if that is not known before the session is."""

    session: "Callable[[], Session]"
    limit: Limit
    lines: Lines
    game: str = ""


class LineEngine(ABC):
    """Answers lines. What needs no session is answered without waiting for it.

    write: takes what is to be sent. is_over: `quit` or the end of input has come, or nothing can be played."""

    def __init__(self, serving: Serving, write: Callable[[str], None]):
        self._open, self.limit, self.lines, self.game_name = serving
        self.write, self.is_over = write, False

    @functools.cached_property
    def session(self) -> "Session":
        """The game in progress. Waits until it is loaded. Raises LoadingFailed."""
        return self._open()

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Answer until `quit` or the end of input, or until `until`, which is asked before each line, returns true."""
        while not self.is_over and not until():
            line = self.lines.next()
            if line is None:
                self.is_over = True
            else:
                self.answer(line)

    @abstractmethod
    def answer(self, line: str) -> None:
        """Answer one line, whatever is in it."""


def serve(given: argparse.Namespace, make_engine: Callable[[Serving], LineEngine]) -> NoReturn:
    """Run an engine that answers what comes in at standard input, then end the process. Raises Refusal.

    What a client asks first is answered before anything large is loaded: loading takes seconds, on a busy machine half
    a minute, and clients give up. It begins when the client pauses, and goes on in a thread."""
    lines = Lines()
    game = game_named(find_network(given.run, given.checkpoint))
    loading = Loading(given)
    end_on_interrupt()
    engine = make_engine(Serving(loading.session, Limit(given.simulations, given.seconds), lines, game))
    pauses_s = itertools.chain([FIRST_S], itertools.repeat(PAUSE_S))
    engine.run(until=lambda: not lines.wait(next(pauses_s)))
    if not engine.is_over:
        loading.begin()
        engine.run()
    sys.stdout.flush()
    os._exit(loading.status)  # Python would first take torch apart, which takes a second or more on a busy machine
