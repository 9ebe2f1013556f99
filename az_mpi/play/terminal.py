"""python -m az_mpi play RUN: play against the network of a run in the terminal."""

import argparse
import io
import random
import re
import sys
import time
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from az_mpi.core import files
from az_mpi.core.problems import Refusal, escape
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
        type=_side,
        default="first",
        metavar="SIDE",
        help="your side: first (the default) begins, second answers; black begins in all games but chess. With several "
        "players, or one, the numbers of the seats where people sit, such as 1 or 1,3; none: watch",
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
        Terminal(session, limit, seats_of(given.colour, session.game), about, given.level).run()
    except (Quit, EOFError, KeyboardInterrupt):
        print()
    return 0


def _side(text):
    if not re.fullmatch(rf"{'|'.join(SIDES)}|none|\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {', '.join(SIDES)}, none, and numbers such as 1 or 1,3")
    return text


def seats_of(colour: str, game: "Game") -> set[int]:
    """Return the players that --colour names: 0 begins. White begins in chess, Black in all other games of two. Raises
    Refusal."""
    from az_mpi.games.uci_moves import ChessMoves, uci_moves

    if colour == "none":
        return set()
    if colour in SIDES and (game.num_players == 2 or colour in ("first", "second")[: game.num_players]):
        swapped = colour in ("black", "white") and isinstance(uci_moves(game), ChessMoves)
        return {SIDES[colour] ^ swapped}
    numbers = {int(word) - 1 if word.isdecimal() else -1 for word in colour.split(",")}  # -1 of a word
    if not numbers <= set(range(game.num_players)):
        raise Refusal(
            f"--colour is {colour!r}; allowed: {', '.join(SIDES) if game.num_players == 2 else 'first'}, numbers of "
            f"seats from 1 to {game.num_players}, such as 1, and none"
        )
    return numbers


class Terminal:
    """A game between the network and the people who are the players `humans` (0 begins). about: the line that describes
    the game in its file. level: of the network, see `levels`."""

    def __init__(self, session: "Session", limit: Limit, humans: set[int], about: str, level: float = levels.FULL):
        self.session, self.limit, self.humans, self.about, self.level = session, limit, humans, about, level
        self.num_players = session.game.num_players
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
        self._begin()
        while True:
            if not self.session.over and self.session.to_play not in self.humans:
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
        self._play(action)

    def _begin(self):
        """Draw what is drawn before the first move, and show the position."""
        self._announce()
        self._show()

    def _play(self, action):
        self.session.play(action)
        self._begin()

    def _announce(self):
        for word in self.session.draw():
            print(f"Drawn: {word}")

    def _answer(self):
        begun = time.monotonic()
        limit = levels.limit_at(self.level, self.limit, self.session.player.settings.simulations)
        if self.level < levels.FULL:
            levels.stay_within(self.session, limit)
        self.session.think(limit)
        action = levels.choose(self.session, self.level, self._rng)
        best = next(move for move in self.session.moves() if move.action == action)
        [word] = self.session.line([best.action])
        print(
            f"{self._who()} plays {word} ({_value(best)} for it; {self.session.simulations:,} simulations, "
            f"{time.monotonic() - begun:.1f} s)"
        )
        self._play(best.action)

    def _who(self):
        """Return what the network is called that is to move."""
        seat = f", player {self.session.to_play + 1}," if self.num_players > 2 else ""
        return f"The network{seat}"

    def _show(self):
        print("\n" + self.session.drawing() + "\n")
        if self.session.over:
            print(f"The game is over: {self._outcome()} Type new, undo, save FILE or quit.")
        elif self.session.to_play in self.humans:
            known = self.session.legal()
            # Of moves with one name, such as both orders of two dice, the first is listed, which has no number.
            legal = [word for word in known if "#" not in word or word.rpartition("#")[0] not in known]
            listed = " ".join(legal) if len(legal) <= LISTED_MAX else f"{len(legal)}; `moves` lists them"
            print(f"{self._you()}. Legal moves: {listed}")

    def _you(self):
        """Return a sentence that says who the person to move is, or what one player has."""
        from az_mpi.games.board_data import MARKS

        session, player = self.session, self.session.to_play
        if self.num_players == 1:
            score = session.score
            return "It is your move" if score is None else f"Your {session.game.score_name}: {_number(score)}"
        if self.num_players == 2:
            return f"You are {'XO'[player]}"
        has_board = session.game.board(session.state) is not None
        return f"You are player {player + 1}" + f" ({MARKS[player]} on the board)" * has_board

    def _outcome(self):
        """Return a sentence that says how the game ended."""
        results = self.session.results
        if self.num_players == 1:
            score = self.session.score
            name = self.session.game.score_name
            return f"the value is {results[0]:+.2f}." if score is None else f"{name} {_number(score)}."
        if self.num_players > 2:
            best = [seat for seat, value in enumerate(results) if value == max(results)]
            all_have = ", ".join(f"player {seat + 1} has {value:+.2f}" for seat, value in enumerate(results))
            first = "a draw" if len(best) == self.num_players else "nobody is alone ahead"
            return f"{f'player {best[0] + 1} wins' if len(best) == 1 else first}; {all_have}."
        if not results[0]:
            return "a draw."
        winner = 0 if results[0] > 0 else 1
        if len(self.humans) == 1:
            return "You win." if winner in self.humans else "The network wins."
        return f"{'XO'[winner]} wins."

    def _undo(self, _):
        """Take back moves until it is the person's turn again."""
        session = self.session
        plies = 1
        turns = [int(session.game.to_play(state[None])[0]) for state in session.states[:-1]]
        while plies <= len(turns) and turns[-plies] not in self.humans:
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
        lines = [(move, self.session.line(move.variation[:8])) for move in self.session.moves()[:HINTS]]
        width = max([9, *(len(words[0]) for _, words in lines)])
        print(f"  {'move':<{width}} share   value   prior  expected")
        for move, words in lines:
            print(
                f"  {words[0]:<{width}} {move.share:>4.0%}  {_value(move):>7}   {move.prior:>4.0%}   {' '.join(words)}"
            )

    def _moves(self, _):
        print(" ".join(self.session.legal()) or "The game is over.")

    def _swap(self, _):
        self.humans = set(range(self.num_players)) - self.humans
        seats = ", ".join(str(seat + 1) for seat in sorted(self.humans))
        if self.num_players == 1 or not self.humans:
            print("You play now." if self.humans else "The network plays now.")
        elif self.num_players == 2 and len(self.humans) == 1:
            print(f"You are {'XO'[min(self.humans)]} now.")
        else:
            print(f"You are {'player' if len(self.humans) == 1 else 'players'} {seats} now.")

    def _new(self, _):
        self.session.restart()
        self._begin()

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
        if value is not None and self.num_players != 2:
            value = self._outcome()
        return "\n".join(
            [
                f"game: {self.about}",
                f"first: {'you' if 0 in self.humans else 'the network'}",
                f"moves: {' '.join(self.session.played())}",
                f"result: {result.get(value, value)}",
                "",
            ]
        )

    def _help(self, _):
        print(HELP)

    def _quit(self, _):
        raise Quit


def _number(score):
    """Return a score as text."""
    return f"{score:,.10g}"


def _value(move):
    """Return the value of a `RootMove` as text, with ! if it is proven."""
    if move.value is None:
        return "-"
    return f"{move.value:+.2f}!" if move.exact else f"{move.value:+.2f}"
