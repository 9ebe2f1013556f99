"""python -m az_mpi games: write games of a run as a file that other programs read, with what the search thought."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core import files
from az_mpi.core.arguments import Parser, whole
from az_mpi.core.exit_codes import DONE
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, refusal_of

if TYPE_CHECKING:
    import numpy as np

    from az_mpi.games.base import Game

PROG = "python -m az_mpi games"
ABOUT = """\
Write the games of a run as a file that other programs read: self-play, and games that were imported. Each position has
the value of the search and its best moves as a comment."""
EPILOG = """\
Lichess and others show the values in .pgn ([%eval]), Sabaki those in .sgf (SBKV). .jsonl has every number, one game a
line. `import` reads all three. Games of a match: python -m az_mpi match A B --games_file FILE."""
RESULTS = {"1-0": 1, "0-1": -1, "1/2-1/2": 0}
NUM_MAX = 10**9


def main(arguments: list[str]) -> int:
    """Write the games that `arguments` name; return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG, run=True)
    number = whole(NUM_MAX)
    parser.add_argument("--last", type=number, metavar="N", help="the newest N games of those asked for")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--longest", type=number, metavar="N", help="the N games with the most moves of those asked for")
    which.add_argument(
        "--best", type=number, metavar="N", help="the N games with the best results of those asked for; one player"
    )
    parser.add_argument("--iteration", type=whole(NUM_MAX, 0), metavar="K", help="games of iteration K alone, from 0")
    parser.add_argument(
        "--result", choices=RESULTS, help="games with this result alone; 1-0: the player who began has won"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        required=True,
        help="FILE.sgf (Go, Othello, Hex, Gomoku), FILE.pgn, FILE.jsonl",
    )
    given = parser.parse_args(arguments)
    from az_mpi import games
    from az_mpi.records.game_records import check_new, check_suffix
    from az_mpi.storage import run_folder

    game = games.make(run_folder.recorded_config(given.run).game)
    if given.best and game.num_players > 1:
        raise Refusal(f"{PROG}: error: --best is for games of one player; {game.name} has {game.num_players} players")
    check_suffix(given.output, game)
    check_new(given.output)
    try:
        return _write(given, game)
    except OSError as error:
        raise refusal_of(error)(f"{PROG}: error: {error.filename or given.run}: {error.strerror}") from error


def _write(given: argparse.Namespace, game: "Game") -> int:
    from az_mpi.records.game_records import can_tell, texts
    from az_mpi.records.recorded_games import games_of
    from az_mpi.storage import segment

    paths = [path for iteration, path in segment.paths(given.run / "games") if given.iteration in (None, iteration)]
    chosen = _choose(given, game, paths)
    if not chosen:
        raise Refusal(
            f"{PROG}: error: {given.run} has no such games\n  ask for others; python -m az_mpi status shows the run"
        )
    num = num_elsewhere = 0
    with files.whole_file(given.output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for path, ids in chosen.items():
            record = _read(segment.read, path, game)
            for one in games_of(game, record, ids) if record else ():
                if one is None or not can_tell(given.output.suffix, one.start):
                    num_elsewhere += 1
                    continue
                file.writelines(texts(given.output.suffix, game, [one], num + 1))
                num += 1
        if not num:
            raise Refusal(
                f"{PROG}: error: all of these games begin after random moves, or at a position of another game, which "
                f"{given.output.suffix} of {game.name} cannot tell\n  ask for other games"
            )
    print(f"{counted(num, 'game')} in {given.output}")
    if num_elsewhere:
        print(
            f"left out: {num_elsewhere:,} that begin after random moves, or at a position of another game, which this "
            "file cannot tell",
            file=sys.stderr,
        )
    return DONE


def _read(read: Callable, path: Path, game: "Game") -> Any:
    """Return what `segment.read` or `segment.read_games` returns; None, after a line about it, of a damaged segment."""
    from az_mpi.storage.segment import SegmentError

    try:
        return read(path, game)
    except SegmentError as error:
        print(f"damaged: {error}; its games are missing", file=sys.stderr)
        return None


def _choose(given, game, paths) -> "dict[Path, np.ndarray]":
    """Return {segment: the ids of the games in it that are asked for}, oldest first."""
    import numpy as np

    from az_mpi.storage import segment

    rows, num = [], 0
    for place in reversed(range(len(paths))):
        games = _read(segment.read_games, paths[place], game)
        if games is None:
            continue
        fits = np.ones(len(games), bool) if given.result is None else np.sign(games["outcome"]) == RESULTS[given.result]
        for row in games[fits][::-1]:
            rows.append((place, int(row["id"]), float(row["outcome"] if given.best else row["length"])))
        num += int(fits.sum())
        if given.last and num >= given.last:
            break
    rows = rows[: given.last] if given.last else rows
    if most := given.longest or given.best:
        rows = sorted(rows, key=lambda row: row[2], reverse=True)[:most]
    chosen: dict[Path, Any] = {}
    for place, number, _ in sorted(rows):
        chosen.setdefault(paths[place], []).append(number)
    return {path: np.array(ids, np.uint64) for path, ids in chosen.items()}
