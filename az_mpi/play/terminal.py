"""python -m az_mpi play RUN: play against the network of a run in the terminal."""

import io
import random
import sys
import time
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from az_mpi.core import files
from az_mpi.core.problems import escape
from az_mpi.play.options import add_level, make_parser, open_session
from az_mpi.player import levels
from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    from az_mpi.games.base import Game
    from az_mpi.player.session import Session

PROG = "python -m az_mpi play"
ABOUT = "Play against the network of a run in the terminal."
SIDES = {"first": 0, "black": 0, "second": 1, "white": 1}
LISTED_MAX = 40  # so many legal moves are listed before each move; if there are more, only their number is shown
HINTS = 5  # moves that `hint` shows
EPILOG = """\
Type a move, or one of these:
"""
HELP = """\
  undo       take back your last move, and the answer to it
  hint       what the network would play here, and why
  moves      all legal moves
  swap       change sides with the network
  new        begin a new game
  save FILE  write the moves of the game to a new file
  help       these lines
  quit       leave (as Ctrl-D and Ctrl-C do)
A game may have a move of the same name: then /swap is the command and swap the move."""


class Quit(Exception):
    """The user leaves."""


def main(arguments: list[str]) -> int:
    """Play with the person at the terminal; return the exit status. Raises Refusal."""
    parser = make_parser(PROG, ABOUT, EPILOG + HELP)
    parser.add_argument(
        "--colour",
        choices=SIDES,
        default="first",
        help="your side: first (the default) begins, second answers; black begins in all games but chess",
    )
    add_level(parser)
    given = parser.parse_args(arguments)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    try:
        session, limit = open_session(given, untruncated=True)
        if not limit.seconds and not limit.simulations:
            limit = Limit(simulations=session.player.settings.simulations)
        about = f"{session.game.name} against {given.run} ({given.checkpoint})"
        Terminal(session, limit, side_of(given.colour, session.game), about, given.level).run()
    except (Quit, EOFError, KeyboardInterrupt):
        print()
    return 0


def side_of(colour: str, game: "Game") -> int:
    """Return the player that --colour names: 0 begins. White begins in chess, Black in all other games."""
    from az_mpi.games.uci_moves import ChessMoves, uci_moves

    swapped = colour in ("black", "white") and isinstance(uci_moves(game), ChessMoves)
    return SIDES[colour] ^ swapped


class Terminal:
    """A game between a person, who is player `human` (0 begins), and the network. about: the line that describes the
    game in its file. level: of the network, see `levels`."""

    def __init__(self, session: "Session", limit: Limit, human: int, about: str, level: float = levels.FULL):
        self.session, self.limit, self.human, self.about, self.level = session, limit, human, about, level
        self._rng = random.Random()
        self._saved: set[Path] = set()
        self.commands: dict[str, Callable[[str], None]] = {
            "undo": self._undo,
            "hint": self._hint,
            "moves": self._moves,
            "swap": self._swap,
            "new": self._new,
            "save": self._save,
            "help": self._help,
            "quit": self._quit,
        }

    def run(self) -> None:
        """Play until the user leaves. Raises Quit, EOFError or KeyboardInterrupt then."""
        print(f"{self.about}. Type a move, or help.")
        self._show()
        while True:
            if not self.session.over and self.session.to_play != self.human:
                self._answer()
            else:
                self._obey(input("> "))

    def _obey(self, line):
        """Do what a line says. It is a legal move, or else a command. After a slash it can only be a command."""
        word, _, rest = line.strip().partition(" ")
        name = word.removeprefix("/").lower()
        if not word:
            return
        try:
            action = self.session.find(line.strip())
        except ValueError as error:
            if name in self.commands:
                self.commands[name](rest.strip())
                return
            near = "".join(f"; or the command {each}?" for each in get_close_matches(name, self.commands, 1, 0.7))
            print(f"{escape(line.strip())}: {error}{near}")
            return
        self.session.play(action)
        self._show()

    def _answer(self):
        begun = time.monotonic()
        self.session.think(levels.limit_at(self.level, self.limit, self.session.player.settings.simulations))
        action = levels.choose(self.session, self.level, self._rng)
        best = next(move for move in self.session.moves() if move.action == action)
        [word] = self.session.line([best.action])
        print(
            f"The network plays {word} ({_value(best)} for it; {self.session.simulations:,} simulations, "
            f"{time.monotonic() - begun:.1f} s)"
        )
        self.session.play(best.action)
        self._show()

    def _show(self):
        print("\n" + self.session.drawing() + "\n")
        if self.session.over:
            result = self.session.result
            who = "You win." if (result > 0) == (self.human == 0) else "The network wins."
            print(f"The game is over: {who if result else 'a draw.'} Type new, undo, save FILE or quit.")
        elif self.session.to_play == self.human:
            legal = list(self.session.legal())
            listed = " ".join(legal) if len(legal) <= LISTED_MAX else f"{len(legal)}; `moves` lists them"
            print(f"You are {'XO'[self.human]}. Legal moves: {listed}")

    def _undo(self, _):
        """Take back moves until it is the person's turn again."""
        session = self.session
        plies = 1
        turns = [int(session.game.to_play(state[None])[0]) for state in session.states[:-1]]
        while plies <= len(turns) and turns[-plies] != self.human:
            plies += 1
        if plies > len(turns):
            print("There is no move of yours to take back.")
            return
        session.undo(plies)
        self._show()

    def _hint(self, _):
        if self.session.over:
            print("The game is over.")
            return
        self.session.think(self.limit)
        print("  move      share   value   prior  expected")
        for move in self.session.moves()[:HINTS]:
            words = self.session.line(move.variation[:8])
            print(f"  {words[0]:<9} {move.share:>4.0%}  {_value(move):>7}   {move.prior:>4.0%}   {' '.join(words)}")

    def _moves(self, _):
        print(" ".join(self.session.legal()) or "The game is over.")

    def _swap(self, _):
        self.human = 1 - self.human
        print(f"You are {'XO'[self.human]} now.")

    def _new(self, _):
        self.session.restart()
        self._show()

    def _save(self, name):
        path = Path(name)
        try:
            if not name:
                print("save needs the name of a file: save FILE")
            elif path.exists() and path.resolve() not in self._saved:
                print(f"{escape(name)} is there already; nothing was written. Name another file.")
            else:
                files.write_text(path, self._record())
                self._saved.add(path.resolve())
                print(f"Saved in {escape(name)}.")
        except (OSError, ValueError) as error:  # a name too long, or with a zero byte
            print(f"{escape(name)} cannot be written: {getattr(error, 'strerror', None) or error}")

    def _record(self):
        """Return the game as a text of four lines: its description, who began, the moves, the result."""
        result = {None: "unfinished", 1.0: "first wins", -1.0: "second wins", 0.0: "draw"}
        value = self.session.result
        return "\n".join(
            [
                f"game: {self.about}",
                f"first: {'you' if self.human == 0 else 'the network'}",
                f"moves: {' '.join(self.session.played())}",
                f"result: {result.get(value, value)}",
                "",
            ]
        )

    def _help(self, _):
        print(HELP)

    def _quit(self, _):
        raise Quit


def _value(move):
    """Return the value of a `RootMove` as text, with ! if it is proven."""
    if move.value is None:
        return "-"
    return f"{move.value:+.2f}!" if move.exact else f"{move.value:+.2f}"
