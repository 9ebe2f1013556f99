"""Options that the commands of this package share: RUN, which of its networks plays, and how long it thinks."""

import argparse
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

from az_mpi.core.arguments import Parser, count, positive, whole
from az_mpi.core.exit_codes import DONE
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.player.limits import Limit
from az_mpi.player.network_paths import find_network

if TYPE_CHECKING:
    from az_mpi.games.base import Game
    from az_mpi.player.session import Session


def make_parser(prog: str, about: str, epilog: str, timed: bool = True) -> Parser:
    """Return a parser with the options that every command of this package takes. timed: whether --seconds is one of
    them."""
    also = (
        "RUN may also be a network that comes with az_mpi, such as zoo:othello, or a file of export --to onnx or zoo."
    )
    parser = Parser(prog, f"{about}\n{also}", epilog, run=True)
    add_checkpoint(parser)
    parser.add_argument(
        "--simulations",
        type=count,
        default=0,
        metavar="N",
        help="simulations for a move (by default as in the run's matches"
        + (", or what --seconds allows)" if timed else ")"),
    )
    if timed:
        parser.add_argument("--seconds", type=positive, default=0.0, metavar="S", help="at most S seconds for a move")
    return parser


def add_level(parser: Parser) -> None:
    """Add the option for weaker play, for `player.levels`."""
    parser.add_argument(
        "--level", type=whole(10), default=10, metavar="N", help="1, a beginner, to 10, full strength (the default)"
    )


def add_checkpoint(parser: Parser) -> None:
    """Add the option that names one of the run's networks, for `find_network`."""
    parser.add_argument(
        "--checkpoint",
        default="newest",
        metavar="NAME",
        help="newest (by default), best, or a name as in RUN/checkpoints or RUN/best, such as 000012",
    )


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process with status 0 from now on, unless the process ignores it. Output has to be flushed by
    then.

    KeyboardInterrupt does not serve for that: it is lost if it is raised in a callback of a library, for example while
    Numba loads a kernel."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(DONE))


def expect_two_players(game: "Game", what: str) -> None:
    """Raise Refusal unless a game is one of two players without moves of chance. what: the program that needs that."""
    if game.num_players == 2 and not game.num_outcomes:
        return
    has = counted(game.num_players, "player") + " and moves of chance" * (game.num_outcomes > 0)
    raise Refusal(
        f"{game.name} has {has}; {what} is for games of two players without chance\n"
        "  python -m az_mpi play and python -m az_mpi web play games of every kind"
    )


def open_session(
    given: argparse.Namespace,
    untruncated: bool = False,
    threads: int = 1,
    for_two: str = "",
    size: tuple[int, int] | None = None,
) -> "tuple[Session, Limit]":
    """Load the network that the options name, and print its name on standard error. Return (a new game against it, the
    limit that the options set, which is empty if they set none). untruncated: play `Game.untruncated`. threads: of
    engines on a CPU. for_two: the program that needs a game of two players without chance. size: as of `load_player`.
    Raises Refusal, and ValueError for a size."""
    print(f"loading {given.run} ({given.checkpoint}) ...", file=sys.stderr, flush=True)
    from az_mpi.player.loaded_player import load_player
    from az_mpi.player.session import ready_session

    player = load_player(find_network(given.run, given.checkpoint), threads=threads, size=size)
    if for_two:
        expect_two_players(player.game, for_two)
    if untruncated:
        player = player.with_game(player.game.untruncated())
    session = ready_session(player)
    # The garbage collector ignores what was loaded from now on: looking at all of it would delay a move.
    gc.collect()
    gc.freeze()
    return session, Limit(given.simulations, given.seconds)
