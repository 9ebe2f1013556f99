"""python -m az_mpi verify RUN: checks every file of a run, and with --repair fixes what can be fixed.

Nothing is deleted: damaged files are renamed to NAME.damaged. Games in two segments are kept once.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core import files
from az_mpi.core.arguments import Parser
from az_mpi.core.exit_codes import DONE, PROBLEMS
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, refusal_of

if TYPE_CHECKING:
    from az_mpi.games.base import Game

PROG = "python -m az_mpi verify"
ABOUT = "Check every file of a run, and with --repair fix what can be fixed."
EPILOG = """\
checked: the sums, schema and content of checkpoints; the sum, schema, columns and counts of every segment; that no game
is stored twice; that segments hold the games and positions that the newest whole checkpoint counts; the links of
games.h5; the networks in best/; that every JSON file can be read; what killed writers left behind.

--repair sets damaged files aside (NAME.damaged), and segments whose games are all in another; writes games.h5 again,
and config.json, from the first start that can be read; and removes what killed writers left. A run that is under way is
not repaired; a file that it is just writing can look wrong.

exit codes:
  0    everything is whole (--repair: is whole now)
  1    something is damaged or missing (--repair: and could not be fixed)
  2    usage, or no run is there, or you may not use it, or a job runs in the folder (--repair)
  75   the run's folder cannot be read now
"""


def main(arguments: list[str]) -> int:
    """Check the run that `arguments` name and return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG, run=True)
    parser.add_argument("--repair", action="store_true", help="set damaged files aside and fix the rest")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    from az_mpi import games
    from az_mpi.storage import run_folder

    game = games.make(run_folder.recorded_config(given.run).game)
    try:
        run_folder.check_folders(given.run)
        found = repaired(given.run, game) if given.repair else Findings(given.run, game)
    except OSError as error:
        raise refusal_of(error)(f"{PROG}: error: {error.filename or given.run}: {error.strerror}") from error
    except files.Forbidden as error:
        raise Refusal(f"{PROG}: error: {error}") from error
    if given.json:
        print(json.dumps(found.values(), indent=1))
    else:
        print("\n".join(found.lines()))
    return PROBLEMS if found.problems else DONE


def unreadable(error: OSError) -> str:
    """Return the line about a file that cannot be read now. It may be whole, so it stays where it is."""
    return f"it cannot be read now ({error.strerror}); look again once its file system works and you may"


def repaired(run: Path, game: Game) -> Findings:
    """Fix what can be fixed in a run's folder; return the findings afterwards. Raises LockHeld, LockLost, OSError."""
    from az_mpi.storage import imports, lock, segment

    say = functools.partial(print, file=sys.stderr, flush=True)
    # A job that starts meanwhile is refused, and has to be started again.
    held = lock.Lock.take(run, [lock.me()], "none (repair)", lock.look(run, say), hang_s=60.0, brief=True)
    try:
        done = ["an import that was killed is complete"] if imports.is_incomplete(run) else []
        held.check()
        imports.complete(run)
        before = Findings(run, game)
        held.check()
        if before.config_from:
            with files.whole_file(run / "config.json", before=held.check) as temporary:
                files.create(temporary, files.read(before.config_from))
                if run / "config.json" in before.damaged:
                    before.damaged.remove(run / "config.json")
                    done.append(_aside(run / "config.json"))
            done.append(f"{run / 'config.json'} is that of {before.config_from}")
        for path in before.damaged:
            held.check()
            done.append(_aside(path))
        if before.leftovers:
            files.remove_leftovers(run, besides=["selfplay"])
            done.append(f"{counted(len(before.leftovers), 'file')} of killed writers removed")
        if (before.damaged or before.links_wrong) and (run / "games").is_dir():
            segment.link_all(run / "games", run / "games.h5", before=held.check)
            done.append(f"{run / 'games.h5'} links to all segments")
    finally:
        held.release()
    after = Findings(run, game)
    after.repaired = done
    return after


def _aside(path):
    return f"{path} is kept as {files.set_aside(path).name}"


def _ending(folder, end):
    """Return the files of a folder whose names end so, sorted. Raises OSError if the folder cannot be read."""
    return [folder / name for name in files.names(folder) if name.endswith(end)]


class Findings:
    """The state of a run's folder. problems: (path, what is wrong) each. damaged: paths to set aside. leftovers: files
    of killed writers. repaired: what `repaired` did. Raises OSError if a folder cannot be read."""

    def __init__(self, run: Path, game: Game):
        self.run, self.game, self.problems, self.damaged, self.repaired = run, game, [], [], []
        self.notes, self.counts, self.missing = [], Counter(), []
        self._checkpoints()
        self._segments()
        self._texts()
        unfinished = [*run.glob(".*.tmp"), *run.glob("*/.*.tmp")]
        self.leftovers = [path for path in unfinished if path.parent != run / "selfplay"]
        for path in self.leftovers:
            self._wrong(path, "left by a writer that was killed; harmless")
        for path in sorted({*unfinished} - {*self.leftovers}):  # a job of that mode takes no lock
            self.notes.append(f"{path.relative_to(run)} is unfinished: a --mode selfplay writes it, or was killed")
        for path in sorted([*run.glob("*.damaged*"), *run.glob("*/*.damaged*")]):
            self.notes.append(f"{path.relative_to(run)} was set aside before")

    def values(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        problems = [{"path": str(path.relative_to(self.run)), "problem": text} for path, text in self.problems]
        return {
            "run": str(self.run),
            "whole": not problems,
            "problems": problems,
            "notes": self.notes,
            "repaired": self.repaired,
            **self.counts,
        }

    def lines(self) -> list[str]:
        """Return everything as lines for people."""
        count = self.counts
        found = [counted(count[f"num_{noun}s"], noun) for noun in ("checkpoint", "segment", "game", "position")]
        lines = ["{}: {}, {} with {} and {} are whole".format(self.run, *found)]
        lines += [f"  fixed: {text}" for text in self.repaired]
        lines += [f"  note: {text}" for text in self.notes]
        lines += [f"  WRONG: {path.relative_to(self.run)}: {text}" for path, text in self.problems]
        return lines + [
            "nothing is wrong"
            if not self.problems
            else f"{len(self.problems)} things are wrong"
            + ("" if self.repaired else f"; {PROG} {self.run} --repair fixes what can be")
        ]

    def _wrong(self, path, text, damaged=False):
        self.problems.append((path, text.removeprefix(f"{path}: ")))
        if damaged:
            self.damaged.append(path)

    def _unusable(self, path, error, damaged):
        """Add the problem of a file that could not be read. It is `damaged` unless only its file system fails."""
        if files.unavailable(error):
            self._wrong(path, unreadable(error))
        else:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            self._wrong(path, f"{kind}{error}", damaged)

    def _checkpoints(self):
        from az_mpi.storage import checkpoint

        self.newest, readable = None, True
        for path in reversed(checkpoint.find(self.run / "checkpoints")):
            try:
                found = checkpoint.read(path)
            except (OSError, ValueError) as error:
                self._unusable(path, error, damaged=True)
                readable = readable and not files.unavailable(error)
                continue
            self.counts["num_checkpoints"] += 1
            self.newest = self.newest or found.progress
        folder = self.run / "checkpoints"
        if self.newest is None and readable and (lines := checkpoint.traces(folder)):
            self._wrong(
                folder,
                f"no checkpoint is whole ({lines[-1]}): put a copy of one there, or train on with --without_checkpoint",
            )
        for path in _ending(self.run / "best", ".safetensors"):
            try:
                checkpoint.from_bytes(files.read(path, files.DATA_BYTES_MAX))
            except Exception as error:
                self._unusable(path, files.lack_of_memory(error, path) or error, damaged=True)

    def _segments(self):
        from az_mpi.storage import imports, segment, thinning

        folder, before, read = self.run / "games", Counter(), []
        gone = thinning.removed(folder)
        before.update(num_games=gone.num_games, num_positions=gone.num_positions)
        if gone.num_games:
            self.notes.append(f"{counted(gone.num_games, 'game')} were removed (storage.keep_windows)")
        if imports.is_incomplete(self.run):
            self.notes.append(
                "an import was killed: the next start, or --repair, moves the rest of its games to games/"
            )
        paths = [(number, path) for number, path in segment.paths(folder) if path.name not in gone.names]
        for iteration, path in paths:
            try:
                record = segment.read(path, self.game)
                read.append((iteration, path, record.games["id"], len(record.positions)))
            except segment.SegmentError as error:
                self._wrong(path, str(error), damaged=True)
            except OSError as error:
                self._wrong(path, unreadable(error))
        for iteration, ids, num_positions in self._once(read):
            self.counts["num_segments"] += 1
            for counts in [self.counts] + [before] * (self._counted(iteration)):
                counts["num_games"] += len(ids)
                counts["num_positions"] += num_positions
        for name in ("num_games", "num_positions") if self.newest else ():
            expected = getattr(self.newest, name)
            if before[name] != expected:
                self.notes.append(
                    f"the newest checkpoint counts {expected:,} {name[4:]}, the whole segments before it "
                    f"hold {before[name]:,}; a resumed run continues with these"
                )
        self._links([path.stem for _, path in paths])

    def _once(self, read):
        """Return (iteration, ids, number of positions) of the segments that hold no game of an earlier one. read:
        (iteration, path, ids uint64 [n], number of positions) of all of them, oldest first."""
        import numpy as np

        everything = np.concatenate([ids for _, _, ids, _ in read]) if read else np.empty(0, np.uint64)
        good, seen = [], {}
        # Rare, and looked at first, since millions of ids as Python's numbers fill memory.
        has_doubles = len(np.unique(everything)) < len(everything)
        for iteration, path, ids, num_positions in read:
            if has_doubles:
                if twice := [game for game in ids.tolist() if game in seen]:
                    text = f"{len(twice)} of its {len(ids)} games are also in {seen[twice[0]].name}"
                    self._wrong(path, text, damaged=len(twice) == len(ids))
                    continue
                seen |= dict.fromkeys(ids.tolist(), path)
            good.append((iteration, ids, num_positions))
        return good

    def _links(self, stems):
        """Check that games.h5 links to the segments with these stems."""
        from az_mpi.storage import segment

        links, self.links_wrong = self.run / "games.h5", False
        try:
            there = segment.linked(links) if files.is_there(links) else []
            self.links_wrong = there != sorted(stems)
            if self.links_wrong:
                self._wrong(links, "does not link to exactly the segments that are there")
        except segment.SegmentError as error:
            self.links_wrong = True
            self._wrong(links, str(error))
        except OSError as error:
            self._wrong(links, unreadable(error))

    def _counted(self, iteration):
        """Return whether the newest checkpoint counts the games of an iteration."""
        progress = self.newest
        return progress is not None and iteration < progress.iteration + (progress.phase == "train")

    def _texts(self):
        from az_mpi.storage import run_folder

        config, starts = self.run / "config.json", run_folder.starts(self.run)
        whole = [path for path in [config, *starts] if self._can_be_read(path, run_folder.description)]
        mendable = config in self.damaged or config in self.missing
        self.config_from = whole[0] if mendable and whole else None
        for path in _ending(self.run / "evaluations", ".json"):
            self._can_be_read(path, files.read_json)
        metrics = self.run / "metrics.jsonl"
        if files.is_there(metrics):
            self._can_be_read(metrics, self._lines)
        for path in _ending(self.run / "logs", ".log"):
            self._can_be_read(path, lambda path: os.close(files.open_plain(path)))

    def _lines(self, path):
        """Add a note on how many lines of metrics.jsonl are no records."""
        lines, bad = files.read(path, files.LINES_BYTES_MAX).splitlines(), 0
        for line in lines:
            try:
                bad += not isinstance(files.parse_json(line), dict)
            except ValueError:
                bad += 1
        if bad:
            self.notes.append(
                f"metrics.jsonl: {bad} of {len(lines)} lines are cut off or no records; readers leave them out"
            )

    def _can_be_read(self, path, read):
        try:
            read(path)
            return True
        except (OSError, ValueError) as error:
            self._unusable(path, error, damaged=isinstance(error, ValueError))
            if isinstance(error, FileNotFoundError):
                self.missing.append(path)
            return False
