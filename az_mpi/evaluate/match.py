"""python -m az_mpi match A B: play a match of runs, checkpoints, other programs and simple opponents; Elo and SPRT.

Games of one player are played by both on the same seeds; in games of three or more A sits in each seat against B."""

import argparse
import functools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core.arguments import Parser, count, even, positive, whole
from az_mpi.core.exit_codes import INTERRUPTED
from az_mpi.core.printing import counted, print_result
from az_mpi.core.problems import Refusal, write_file
from az_mpi.core.signals import handling
from az_mpi.mpi.frame import run_command
from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    from az_mpi.evaluate.tally import Played
    from az_mpi.games.base import Game
    from az_mpi.mpi.world import World

PROG = "python -m az_mpi match"
PAIRS_AT_ONCE, PAIRS_IN_TEST, PAIRS_TIMED = 64, 4, 1  # of each rank in a round; with --sprt; with --seconds
TELL_EVERY_S, SAVE_EVERY_S = 10.0, 5.0
SAVE_SHARE = 0.05  # of the time, at most, for saving games during a match
ELO_MOST = 4000  # of --sprt
STOPS = signal.SIGINT, signal.SIGTERM  # of a terminal, and of mpirun
ABOUT = """\
Play a match between A and B, every opening twice, once with each colour, with the same dice if the game has them. With
three or more players A sits in each seat once, and B in all the others. One player: both play the same seeds alone."""
EPILOG = """\
A and B are each one of
  RUN               a run's folder, for its newest checkpoint; also a checkpoint or a file of weights
  RUN@NAME          a name as in RUN/checkpoints or RUN/best, or best
  zoo:NAME          a network that comes with az_mpi, such as zoo:othello
  gtp:COMMAND       a program that speaks GTP, such as "gtp:gnugo --mode gtp --level 1"
  uci:COMMAND       a program that speaks UCI, such as uci:stockfish
  random, rollout   or any other opponent of evaluate.opponents, with its arguments
With mpirun the ranks share the games: mpirun -np 2 python -m az_mpi match A B. Ctrl-C ends the match and shows what is
known so far.
"""


def main(arguments: list[str]) -> int:
    """Play a match and print its result; return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG)
    parser.add_argument("a", metavar="A", help="a player, see below; wins and Elo are counted for A")
    parser.add_argument("b", metavar="B", help="its opponent")
    parser.add_argument(
        "--games",
        type=even,
        default=100,
        metavar="N",
        help="an even number of games, at most N with --sprt (default 100)",
    )
    add_strength(parser)
    parser.add_argument(
        "--seconds",
        type=positive,
        default=0.0,
        metavar="S",
        help="at most S seconds for each move, of networks and of programs; games are then played one pair at a time",
    )
    parser.add_argument("--game", metavar="NAME", help="the game, if neither side is a run: as in a configuration")
    parser.add_argument(
        "--seed", type=whole(least=0), default=0, metavar="N", help="seed of the openings and of random moves"
    )
    parser.add_argument(
        "--sprt",
        type=float,
        nargs=2,
        metavar=("ELO0", "ELO1"),
        help="stop as soon as it is decided, at 5 %% error, whether A is ELO0 or ELO1 better than B",
    )
    parser.add_argument(
        "--games_file",
        type=Path,
        metavar="FILE",
        help="save all games, also every few seconds: FILE.sgf for Go, Othello, Hex and m,n,k games, FILE.pgn for "
        "chess and any other game",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    return run_command(parser, arguments, _match)


def add_strength(parser: argparse.ArgumentParser) -> None:
    """Add the options that matches and ladders share."""
    parser.add_argument(
        "--simulations",
        type=count,
        default=0,
        metavar="N",
        help="simulations for each move (by default as in each run's own matches)",
    )
    parser.add_argument(
        "--opening_plies",
        type=int,
        choices=range(101),
        default=2,
        metavar="N",
        help="random plies before each game (default 2)",
    )


def _match(world: "World", given: argparse.Namespace) -> None:
    """Collective over world."""
    if given.sprt and not -ELO_MOST <= given.sprt[0] < given.sprt[1] <= ELO_MOST:
        raise Refusal(
            f"{PROG}: error: --sprt takes two Elo from {-ELO_MOST} to {ELO_MOST}, the smaller one first, "
            "such as --sprt 0 20"
        )
    from az_mpi.evaluate.sides import common_game, read_side
    from az_mpi.mpi.agreement import everywhere
    from az_mpi.player.loaded_player import on_rank
    from az_mpi.records.game_records import check_new, check_suffix

    limit, seed, where = Limit(given.simulations, given.seconds), (given.seed,), on_rank(world)

    def prepare():
        sides = [read_side(text, limit, (*seed, k), world.rank, where) for k, text in enumerate((given.a, given.b))]
        game = common_game(sides, given.game)
        if given.sprt and game.num_players != 2:
            raise Refusal(
                f"{PROG}: error: --sprt compares Elo, which games of two players have; {game.name} is of "
                f"{counted(game.num_players, 'player')}\n  leave --sprt out"
            )
        if given.games_file:
            check_suffix(given.games_file, game)
        return game, [side.name for side in sides], [side.make(game) for side in sides]

    if given.games_file:
        world.from_root(lambda: check_new(given.games_file))  # root writes it
    game, names, players = everywhere(world, prepare)
    if names[0] == names[1]:
        names = [f"{name} ({letter})" for name, letter in zip(names, "AB")]
    match = Match(world, game, names, given)
    with handling(dict.fromkeys(STOPS, match.interrupt)):
        match.play(players, seed)
    match.show()


class Match:
    """One match on this rank. played: what is known of its games, in order; of all ranks' once a round is over. Games
    of one player are two lists, those of A and those of B on the same seeds; else there is one list."""

    def __init__(self, world: "World", game: "Game", names: list[str], given: argparse.Namespace):
        self.world = world
        self.game = game
        self.names = names
        self.given = given
        num_lists = 2 if game.num_players == 1 else 1
        self.played: list[list[Played]] = [[] for _ in range(num_lists)]
        self.round: list[list[Played]] = [[] for _ in range(num_lists)]  # this rank's, of the round under way
        self.verdict = ""
        # What --games_file gets, by the number of the game in it: on root of all games, elsewhere of this rank's.
        self.texts: dict[int, str] = {}
        self._told = time.monotonic()
        self._save_from = self._told + SAVE_EVERY_S

    def play(self, players: list[Any], seed: tuple[int, ...]) -> None:
        """Play until all games are played, or the test is decided. Collective."""
        from az_mpi.evaluate import arena
        from az_mpi.evaluate.dice import Dice

        given = self.given
        world = self.world
        sets = self._num_sets()
        at_once = PAIRS_TIMED if given.seconds else PAIRS_IN_TEST if given.sprt else PAIRS_AT_ONCE
        starts = self._starts(sets, seed)
        sides = [(player, None) for player in players] if len(self.played) == 2 else [(players[0], players[1])]
        done = 0
        while done < sets and not self.verdict:
            num = min(at_once * world.size, sets - done)
            mine = arena.games_of(world, num, done, self.game.num_players)
            for k, (ours, theirs) in enumerate(sides):
                ended = functools.partial(self._ended, k)
                arena.play_games(self.game, ours, theirs, starts, mine, on_game=ended, dice=Dice(seed))
            self._exchange()
            done += num
            self._judge()
            self._tell()

    def _num_sets(self):
        return max(self.given.games // self.game.num_players, 1)

    def _starts(self, sets, seed):
        """Return the openings of the match, and say what is played."""
        from az_mpi.evaluate.arena import plies_of
        from az_mpi.evaluate.openings import openings, repeats

        plies = plies_of(self.game, self.given.opening_plies)
        starts = openings(self.game, sets, plies, seed)
        a, b = self.names
        num = counted(sets * self.game.num_players, "game")
        self._say(f"{self.game.name}: {a} against {b}, {num}, ranks: {self.world.size}")
        if warning := repeats(self.game, starts, plies):
            self._say(warning)
        return starts

    def _exchange(self):
        from az_mpi.evaluate.tally import Played

        texts = self.texts
        mine = [[(list(one), texts.get(self._number(k, one))) for one in kept] for k, kept in enumerate(self.round)]
        everyone = self.world.collect(mine)
        for k, played in enumerate(self.played):
            rows = [(Played(*row), text) for part in everyone for row, text in part[k]]
            if self.world.is_root and self.given.games_file:
                self.texts |= {self._number(k, one): text for one, text in rows}
            self.played[k] = sorted([*played, *(one for one, _ in rows)])
            self.round[k] = []
        self._save_at_times()

    def _ended(self, k, one):
        self.round[k].append(one)
        self._keep_text(k, one)
        self._save_at_times()
        if time.monotonic() > self._told + TELL_EVERY_S:
            self._tell()

    def _tell(self):
        from az_mpi.evaluate.match_text import so_far

        self._told = time.monotonic()
        under_way = any(self.round)
        others = " (of the current round, only root's games)" if under_way and self.world.size > 1 else ""
        games = self._num_sets() * self.game.num_players
        self._say(f"  {so_far(self._known(), games, self.names)}{others}")

    def _known(self):
        """Return `played` with this rank's games of the round under way. A signal may come where `_exchange` has added
        these and not dropped them yet."""
        indices = [{one.game_index for one in played} for played in self.played]
        return [
            [*played, *(one for one in kept if one.game_index not in there)]
            for played, kept, there in zip(self.played, self.round, indices)
        ]

    def _say(self, text):
        if self.world.is_root:
            print(text, file=sys.stderr, flush=True)

    def _judge(self):
        """Set the verdict if the test is decided: of games that all ranks know, so that all decide alike."""
        from az_mpi.evaluate.rating import SPRT_BOUND

        if self.given.sprt and abs(ratio := self._ratio()) >= SPRT_BOUND:
            self.verdict = "H1" if ratio > 0 else "H0"

    def _ratio(self):
        import numpy as np

        from az_mpi.evaluate.rating import log_likelihood_ratio

        signs = {one.game_index: int(np.sign(one.result)) for one in self.played[0]}
        pairs = [0] * 5
        for index in range(0, self.given.games, 2):
            if index in signs and index + 1 in signs:
                pairs[signs[index] + signs[index + 1] + 2] += 1
        return log_likelihood_ratio(pairs, *self.given.sprt)

    def result(self) -> dict[str, Any]:
        """Return what is known of the match as a JSON-able dict: `rating.summary` of the games of A, of one player
        `rating.score_summary` of A and `rating.versus` of B; and more."""
        from az_mpi.evaluate.rating import SPRT_BOUND

        found: dict[str, Any] = {
            "game": self.game.name,
            "a": self.names[0],
            "b": self.names[1],
            "num_games_asked": self.given.games,
        }
        found |= self._counted()
        found["num_forfeits"] = sum(bool(one.note) for played in self.played for one in played)
        if self.given.sprt:
            found["sprt"] = {
                "elo0": self.given.sprt[0],
                "elo1": self.given.sprt[1],
                "bound": SPRT_BOUND,
                "log_likelihood_ratio": self._ratio(),
                "accepted": self.verdict or None,
            }
        return found

    def _counted(self):
        """Return the results of the games; {} before the first set of them has ended."""
        from az_mpi.evaluate.rating import score_summary, summary, versus
        from az_mpi.evaluate.tally import tally

        if len(self.played) == 1:
            result = tally(self.game, self.played[0])
            return summary(result) if result.num_games else {}
        both = set.intersection(*({one.game_index for one in played} for played in self.played))
        if not both:
            return {}
        ours, theirs = (tally(self.game, [one for one in played if one.game_index in both]) for played in self.played)
        return {"score_name": self.game.score_name or "value"} | score_summary(ours) | {"other": versus(ours, theirs)}

    def show(self) -> None:
        """Save the games, and print the result; root alone does. Each is done also if the other one fails."""
        if self.world.is_root:
            try:
                self._save()
            finally:
                print_result(self._text())

    def _text(self):
        from az_mpi.evaluate.match_text import table

        return json.dumps(self.result()) if self.given.json else table(self.result())

    def _number(self, k, one):
        """Return the number of a game of list k in the file of all games, from 1."""
        return k * self._num_sets() * self.game.num_players + one.game_index + 1

    def _keep_text(self, k, one):
        """Make the text of a game for the file when it has ended: an interruption leaves no time for many of them."""
        if not self.given.games_file or self._number(k, one) in self.texts:
            return
        from az_mpi.records.game_records import GameRecord, texts

        game, number = self.game, self._number(k, one)
        seat = one.game_index % game.num_players  # of A, or of B where both play alone
        names = tuple(self.names[k if player == seat else 1] for player in range(game.num_players))
        score = one.score if game.num_players == 1 and game.score_name else None
        results = one.results if game.num_players != 2 else ()
        record = GameRecord(one.moves, one.results[0], names, one.note, results=results, score=score)
        self.texts[number] = "".join(texts(self.given.games_file.suffix, game, [record], number))

    def _save(self):
        """Write the file of the games that are known, if there is to be one. Raises Refusal."""
        if not self.given.games_file:
            return
        for k, played in enumerate(self._known()):
            for one in played:
                self._keep_text(k, one)
        write_file(self.given.games_file, "".join(text for _, text in sorted(self.texts.items())).lstrip("\n"))

    def _save_at_times(self):
        """Save the games on root, if that was last done some seconds ago: a kill leaves no time for it. The file is
        written whole each time, so the pauses grow with it."""
        begun = time.monotonic()
        if self.world.is_root and begun > self._save_from:
            try:
                self._save()
            except Refusal as error:  # the other ranks do not know of it, and play on
                self._say(f"{error}; the match continues, and tries again")
            now = time.monotonic()
            self._save_from = now + max(SAVE_EVERY_S, (now - begun) / SAVE_SHARE)

    def interrupt(self, *_: object) -> None:
        """Show what is known so far, and end. Not by KeyboardInterrupt: a library's callback would lose it."""
        from az_mpi.liveness import watchdog

        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        self.played = [sorted(games) for games in self._known()]
        self.round = [[] for _ in self.played]
        try:
            if self.world.is_root and "OMPI_COMM_WORLD_RANK" in os.environ:
                # mpirun passes on no output any more, and kills this process within a quarter of a second.
                about = "interrupted; of the round under way only the games of root are known"
                watchdog.say(os.getppid(), f"{about}\n{self._text()}\n")
                self._save()
            else:
                self._say("interrupted")
                self.show()
        except Refusal as error:
            self._say(str(error))
        finally:  # what was interrupted may catch exceptions
            os._exit(INTERRUPTED)
