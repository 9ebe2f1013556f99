"""python -m az_mpi import: bring games of people and of other programs into a run. Ranks share the work.

Collective: every rank calls every function here that takes a world.
"""

import argparse
import functools
import hashlib
import shutil
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core import files
from az_mpi.core.arguments import Parser
from az_mpi.core.exit_codes import DONE, USAGE
from az_mpi.core.printing import counted, print_result
from az_mpi.core.problems import Refusal, escape, refusal_of
from az_mpi.mpi.frame import run_command

if TYPE_CHECKING:
    from az_mpi.games.base import Game
    from az_mpi.mpi.world import World
    from az_mpi.records.game_files import GameFile

PROG = "python -m az_mpi import"
ABOUT = "Bring games of people and of other programs into a run, to train on them."
EPILOG = """\
FILES are PGN, SGF (Go, Othello, Hex, Gomoku), JSON lines, as `games` writes them, or text with one game a line: its
moves in the game's own notation and its result, 1-0, 0-1 or 1/2-1/2. A game that does not fit is counted with its
reason, and RUN/imports lists it. With mpirun the ranks share the work. Then train:
  python run_dist.py --config_file FILE --logdir RUN --mode fit     on these games alone
  python run_dist.py --config_file FILE --logdir RUN                by self-play

exit codes:
  0    some games came in, or all files are in the run already
  2    none did, a rank cannot read a file that root can, or usage
  75   a file cannot be read now: nothing came in, and the same command may succeed later
"""
UNIT_BYTES, UNIT_BYTES_LEAST = 2**21, 2**13  # of files whose games become one segment
STATES_BYTES = 2**27  # that the states of a unit take at most, about
BYTES_A_MOVE = 4  # in a file, at least
TELL_EVERY_S = 5.0
SHOWN_MAX = 10  # games left out that are shown


def main(arguments: list[str]) -> int:
    """Import what `arguments` name; return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a file of games")
    parser.add_argument(
        "--game", metavar="GAME", help="the game, as in a configuration; not needed for a run that is there"
    )
    parser.add_argument(
        "--config_file",
        metavar="FILE",
        type=Path,
        help="take the game of this configuration, with which you will train",
    )
    parser.add_argument("--logdir", metavar="RUN", type=Path, required=True, help="the run's folder, also of a new run")
    return run_command(parser, arguments, _import)


def _import(world: "World", given: argparse.Namespace) -> int:
    from az_mpi import games
    from az_mpi.mpi.agreement import everywhere
    from az_mpi.storage import imports, lock, run_folder

    name = world.from_root(lambda: game_name(given.logdir, _asked(given)))
    game = everywhere(world, lambda: games.make(name))
    ranks = world.collect(lock.me())
    held: Any = None

    def take():
        nonlocal held
        say = functools.partial(print, file=sys.stderr, flush=True)
        run_folder.check_folders(given.logdir)
        imports.check_game(given.logdir, game.name)
        with run_folder.usable(given.logdir):
            held = lock.Lock.take(given.logdir, ranks, "none (import)", lock.look(given.logdir, say), hang_s=60.0)
            imports.complete(given.logdir)  # one that was killed
            (given.logdir / "games" / imports.WAITING).mkdir(parents=True)

    def check():
        try:
            held.check()
        except files.Forbidden as error:
            raise Refusal(f"{PROG}: error: {error}") from error

    try:
        world.from_root(take)
        return Import(world, game, given.logdir, given.files, check).run()
    finally:
        if held:  # else another job may be importing there
            with suppress(Refusal, OSError):
                check()
                imports.complete(given.logdir)
            held.release()


def _asked(given):
    """Return the game that was named; None if none was."""
    from az_mpi.config import load

    if given.game and given.config_file:
        raise Refusal(f"{PROG}: error: --game and --config_file both name a game\n  give one of them")
    return load.load(given.config_file, {}).game if given.config_file else given.game


def game_name(run: Path, asked: str | None) -> str:
    """Return the name of the game, as a configuration has it. Raises Refusal."""
    from az_mpi import games
    from az_mpi.storage import run_folder

    if not run_folder.holds_run(run):
        if asked is None:
            raise Refusal(
                f"{PROG}: error: {run} holds no run yet\n  say which game it is for: --config_file FILE or --game GAME"
            )
        return asked
    name = run_folder.recorded_config(run).game
    if asked is not None and games.make(asked).name != games.make(name).name:
        raise Refusal(
            f"{PROG}: error: {run} is a run of {name}, not of {asked}\n"
            "  leave out --game and --config_file, or give another --logdir"
        )
    return name


class Import:
    """One import into a run's folder. check(): raises Refusal on root once this job may not write there."""

    def __init__(self, world: "World", game: "Game", folder: Path, paths: list[Path], check: Any):
        self.world, self.game, self.folder, self.check = world, game, folder, check
        self.files: list[GameFile] = []
        self.num_games = self.num_positions = 0
        self.by_file: Counter[int] = Counter()  # games of each file that are taken
        self.seen: Counter[int] = Counter()  # games of each file, in all
        self.reasons: Counter[str] = Counter()
        self.known: list[str] = []  # lines about files that are in the run already
        self.sums: list[str] = []
        self.listed: list[str] = []  # on root: lines about games left out that are not in the list yet
        self.shown = 0
        self.begun = self.told = time.monotonic()
        self._look(paths)

    def run(self) -> int:
        """Import, and return the exit status. Collective."""
        self.iteration, self.num_before = self.world.from_root(self._choose_iteration)
        for number, file in enumerate(self.files):
            if file.fault:
                self._count_fault(number, 0, file.fault)
        self._read_all()
        if self.world.from_root(self._finish):
            return DONE
        return DONE if self.known and not self.reasons else USAGE

    def _look(self, paths):
        """Find out what the files are, and leave out those that are in the run, or are named twice. Collective. Raises
        Refusal if a rank cannot read a file that root has found, or root cannot read one now."""
        from az_mpi.mpi.agreement import everywhere
        from az_mpi.records.game_files import GameFile, look

        rows = self.world.from_root(lambda: [list(look(path)) for path in paths])
        found = [GameFile(*row) for row in rows]
        mine = everywhere(self.world, lambda: self._sums(found))
        sums = {int(k): digest for part in self.world.collect(mine) for k, digest in part.items()}
        before = self.world.from_root(self._sums_before)
        for k, file in enumerate(found):
            digest = sums.get(k, "")
            if digest and digest in before:
                self._say(f"{escape(file.path)}: its games are in the run already ({escape(before[digest])})")
                self.known.append(file.path)
                continue
            if digest:
                before[digest] = file.path
            self.files.append(file)
            self.sums.append(digest)

    def _sums(self, found):
        """Return the SHA-256 of this rank's share of the files, {number: digest}. Raises Refusal if this rank cannot
        read one of its share, or open any of the others: their parts are read by all ranks."""
        mine = {}
        for k, file in enumerate(found):
            if not file.fault:
                with _readable(file), open(file.path, "rb") as stream:
                    if k % self.world.size == self.world.rank:
                        mine[k] = _sha256(stream)
        return mine

    def _sums_before(self):
        from az_mpi.storage import imports

        told = [file for entry in imports.entries(self.folder) for file in entry["files"] if file.get("num_games")]
        return {file["sha256"]: file["name"] for file in told if file.get("sha256")}

    def _choose_iteration(self):
        """Return the iteration that the games are stored for: one after all that the run has, or that of an import
        that the run has not begun to use; and how many games earlier imports have stored for it."""
        from az_mpi.storage import checkpoint_names, imports, segment

        newest = max((iteration for iteration, _ in segment.paths(self.folder / "games")), default=-1)
        done = max(
            (int(path.name.partition("-")[0]) for path in checkpoint_names.find(self.folder / "checkpoints")), default=0
        )
        imported = imports.newest_iteration(self.folder)
        told = sum(entry["num_games"] for entry in imports.entries(self.folder) if entry["iteration"] == imported)
        if imported == newest >= done:
            stored = segment.find(self.folder / "games", imported, on_damage=lambda path, error: None)
            if sum(one.num_games for one in stored) == told:  # otherwise some ids would be given twice
                return imported, told
        return max(newest + 1, done), 0

    def _read_all(self):
        """Read all files, a unit on each rank at a time. Collective."""
        from az_mpi.records import game_files
        from az_mpi.records.replaying import MoveWords

        size = self.game.state_size * self.game.state_dtype.itemsize
        unit_bytes = max(UNIT_BYTES_LEAST, min(UNIT_BYTES, STATES_BYTES * BYTES_A_MOVE // size))
        units = list(game_files.units([0 if file.fault else file.num_bytes for file in self.files], unit_bytes))
        words, total = MoveWords(self.game), sum(part.end - part.begin for unit in units for part in unit)
        done = 0
        for first in range(0, len(units), self.world.size):
            place = first + self.world.rank
            self._read(units[place] if place < len(units) else [], place, words)
            done += sum(part.end - part.begin for unit in units[first : first + self.world.size] for part in unit)
            if time.monotonic() > self.told + TELL_EVERY_S:
                self.told = time.monotonic()
                self._say(f"  {100 * done / total:.0f} %: {self._so_far()}")
        self.world.barrier()  # root must not name the segments before all ranks have written theirs

    def _so_far(self):
        rate = self.num_games / max(time.monotonic() - self.begun, 1e-9)
        return f"{counted(self.num_games, 'game')}, {self.num_positions:,} positions, {rate:,.0f} games/s"

    def _read(self, unit, place, words):
        """Read one unit on this rank and store its games. Collective: a rank without a unit gives none."""
        import numpy as np

        from az_mpi.mpi.agreement import everywhere
        from az_mpi.records.replaying import replay
        from az_mpi.selfplay.record import game_ids
        from az_mpi.storage.imports import START

        written, of_file = everywhere(self.world, lambda: self._written(unit))
        record, faults = replay(self.game, written, words)
        mine = [[], len(record.games), len(record.positions)]
        for file in dict.fromkeys(of_file):
            told = [fault for fault, k in zip(faults, of_file) if k == file]
            mine[0].append([file, len(told), [[number, fault] for number, fault in enumerate(told) if fault]])
        rows = self.world.collect(mine)
        first = self.num_before + self.num_games + sum(row[1] for row in rows[: self.world.rank])
        ids = game_ids(self.iteration, START, np.arange(first, first + len(record.games)))
        record.games["id"], record.games["iteration"] = ids, self.iteration
        record.positions["game"] = np.repeat(ids, record.games["length"])
        record.chance["game"] = ids[record.chance["game"].astype(np.int64)]
        everywhere(self.world, lambda: self._store(record, place))
        for of_files, num_games, num_positions in rows:
            self.num_games += num_games
            self.num_positions += num_positions
            for file, num, left_out in of_files:
                for number, fault in left_out:
                    self._count_fault(file, self.seen[file] + number + 1, fault)
                self.seen[file] += num
                self.by_file[file] += num - len(left_out)

    def _written(self, unit):
        """Return (the games of a unit, the number of the file of each). Raises Refusal if a file cannot be read: its
        games would be missing for good, as the run would have the file."""
        from az_mpi.records import game_files
        from az_mpi.records.written_game import WrittenGame

        written, of_file = [], []
        for part in unit:
            file = self.files[part.file]
            read = game_files.FORMATS[file.format].read
            with _readable(file):
                for text, fault in game_files.games_in(file, part):
                    written.append(WrittenGame(fault=fault) if fault else read(text, self.game))
                    of_file.append(part.file)
        return written, of_file

    def _store(self, record, place):
        from az_mpi import __version__
        from az_mpi.storage import run_folder, segment

        with run_folder.usable(self.folder):
            if len(record.games):
                path = self._waiting() / f"{place:09d}.h5"
                about = {"weights": "", "az_mpi": __version__, "imported": "yes"}
                segment.write(path.parent, self.iteration, self.game, record, about, path)
            self._list_faults()

    def _waiting(self):
        from az_mpi.storage import imports

        return self.folder / "games" / imports.WAITING

    def _list_faults(self):
        """Write the lines about games left out; return the path of their list."""
        path = self._waiting() / "left-out.txt"
        if self.listed:
            with open(path, "a") as file:
                file.writelines(self.listed)
            self.listed = []
        return path

    def _count_fault(self, file, number, fault):
        """Count a game that is left out. number: of the game in its file, from 1; 0: the whole file."""
        self.reasons[fault.partition(":")[0]] += 1
        if not self.world.is_root:
            return
        line = f"{escape(self.files[file].path)}: " + (f"game {number}: " if number else "") + escape(fault)
        self.listed.append(line + "\n")
        if self.shown < SHOWN_MAX:
            self._say(f"  left out: {line}")
        self.shown += 1

    def _finish(self):
        """Give the segments their names, and tell the run of them; return whether there are games. For root."""
        from az_mpi.storage import imports, run_folder, segment

        games, num_left_out = self.folder / "games", sum(self.reasons.values())
        with run_folder.usable(self.folder):
            self.check()
            path = imports.next_path(self.folder)
            lists = path.with_name(f"{path.stem}-left-out.txt")
            if num_left_out:
                path.parent.mkdir(exist_ok=True)
                shutil.copyfile(self._list_faults(), lists)
            if self.num_games:
                mine = [name for name in files.names(self._waiting()) if name.endswith(".h5")]
                first = segment.next_number(games, self.iteration)
                named = {old: segment.path_of(games, self.iteration, first + k).name for k, old in enumerate(mine)}
                imports.commit(self.folder, path, self._entry(num_left_out), named, self.check)
                imports.complete(self.folder)
                segment.link_all(games, self.folder / "games.h5", self.check)
        print_result(self._text(num_left_out, lists))
        return bool(self.num_games)

    def _entry(self, num_left_out) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "game": self.game.name,
            "num_games": self.num_games,
            "num_positions": self.num_positions,
            "num_left_out": num_left_out,
            "reasons": dict(self.reasons),
            "files": [
                {"name": file.path, "sha256": digest, "num_games": self.by_file[k]}
                for k, (file, digest) in enumerate(zip(self.files, self.sums))
            ],
        }

    def _text(self, num_left_out, lists):
        lines = [f"imported into {self.folder}: {self._so_far()}, as iteration {self.iteration}"]
        if num_left_out:
            lines.append(f"left out: {num_left_out:,}, listed in {lists}")
            lines += [f"  {num:>9,} {reason}" for reason, num in self.reasons.most_common()]
        if self.known:
            lines.append(f"files whose games are in the run already: {len(self.known)}")
        return "\n".join(lines)

    def _say(self, text):
        if self.world.is_root:
            print(text, file=sys.stderr, flush=True)


@contextmanager
def _readable(file):
    """Turn an error of the file system about a file into a Refusal."""
    try:
        yield
    except OSError as error:
        raise refusal_of(error)(
            f"{PROG}: error: {escape(file.path)} cannot be read: {error.strerror}\n"
            "  nothing was imported; every rank must see the same files"
        ) from error


def _sha256(stream):
    """Return the SHA-256 of an open file. Raises OSError."""
    digest = hashlib.sha256()
    while piece := stream.read(2**20):
        digest.update(piece)
    return digest.hexdigest()
