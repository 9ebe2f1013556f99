"""The files of a run under way: a rank's writer, the lock on the folder, and the games that are on disk."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from az_mpi.core import files
from az_mpi.core.problems import refusal_of
from az_mpi.core.signals import Requests
from az_mpi.games.base import Game
from az_mpi.selfplay.record import Record
from az_mpi.storage import lock as locks
from az_mpi.storage import segment, thinning
from az_mpi.storage.segment import Segment
from az_mpi.storage.writer import Writer, describe


class RunFiles:
    """Root reads and writes a run's folder through this. Other ranks have no lock, and only the writers among them
    (`run.writers`) have a writer. Not collective."""

    def __init__(self, folder: Path, game: Game, give_up_s: float):
        self.folder, self.game, self._give_up_s = folder, game, give_up_s
        self.writer: Writer | None = None
        self.lock: locks.Lock | None = None
        self.token: str | None = None  # of the lock, on every rank: a new root needs it to take the lock over
        self.are_several = False  # whether other ranks write games too
        self.ranks: list[dict[str, Any]] = []  # `lock.me()` of all ranks of this start, lost ones too
        self._thinned_at = 0  # positions of the run when old games were removed, or none could be

    def open_writer(self, requests: Requests, is_root: bool = True) -> Writer:
        """Start the writer. requests: where it asks for a stop when it gives up."""
        if self.writer:  # of a rank that was not root; all that it had is on disk, or lost
            self.writer.flush()
        links = self.folder / "games.h5" if is_root else None
        self.writer = Writer(self.folder / "games", links, self.game, requests, self._give_up_s)
        if not is_root:
            self.writer.may_appear = lambda: locks.check(self.folder, self.token or "")
        if self.lock:
            self.hold(self.lock)
        return self.writer

    def hold(self, lock: locks.Lock) -> None:
        """Write only as long as this job has the lock."""
        self.lock, self.writer.may_appear = lock, lock.check

    def release(self) -> None:
        """Release the lock, if this rank has it."""
        if self.lock:
            self.lock.release()

    def read(self, path: Path, look: Callable[[], Any]) -> Any:
        """Return `look()`, which reads `path`; the writer calls it again while the file system is unavailable, and None
        is returned once it has given up. Without a writer `look` is called once. Raises Refusal."""
        try:
            return look()
        except OSError as error:
            if self.writer is None:
                if not files.unavailable(error):
                    raise
                raise refusal_of(error)(f"{path} cannot be read: {describe(path, error)}") from error
        return self.writer.do(path, lambda check: look(), "read")

    @property
    def end(self) -> tuple[str, int, bool] | None:
        """Why this rank's writer has ended, how many games it lost, and whether the same command continues later; None:
        it has not ended, or there is none."""
        writer = self.writer
        return writer and writer.ended and (writer.ended, writer.num_lost_games, writer.resumable) or None

    @property
    def writes_no_more(self) -> bool:
        """Whether this is root and its writer has ended: nothing more reaches the disk."""
        return self.writer is not None and self.writer.ended is not None

    def flush(self) -> None:
        """Wait until all that this rank's writer was given is on disk, if it has one."""
        if self.writer:
            self.writer.flush()

    def next_number(self, iteration: int) -> int:
        """Return the number of the next segment of an iteration; -1 if the folder cannot be read and the writer has
        given up."""
        folder = self.folder / "games"
        files.refresh(folder)
        number = self.read(folder, functools.partial(segment.next_number, folder, iteration))
        return -1 if number is None else number

    def segments(self, iteration: int | None = None) -> list[Segment]:
        """Return the segments of the run, or of one iteration, oldest first. Damaged ones are set aside."""
        folder = self.folder / "games"
        if self.are_several:
            files.refresh(folder)
        found = self.read(folder, functools.partial(segment.find, folder, iteration, self._set_aside)) or []
        gone = set(self.removed().names)
        return [one for one in found if one.path.name not in gone] if gone else found

    def totals(self, end: int) -> tuple[int, int]:
        """Return how many games and positions the iterations before `end` have made, with those that were removed."""
        gone, left = self.removed(), [one for one in self.segments() if one.iteration < end]
        num_games, num_positions = (sum(getattr(one, name) for one in left) for name in ("num_games", "num_positions"))
        return gone.num_games + num_games, gone.num_positions + num_positions

    def removed(self) -> thinning.Removed:
        """Return what was removed of the run's games (`storage.keep_windows`)."""
        folder = self.folder / "games"
        return self.read(folder, functools.partial(thinning.removed, folder)) or thinning.Removed()

    def thin_games(self, num_positions: int, held: int, end: int, num_games: int = 0) -> None:
        """Remove the oldest segments, of iterations before `end`, as far as the others hold `num_positions`.

        held: the positions of the run until its newest checkpoint. num_games: see `thinning.thin_games`. Nothing is
        done until there is an eighth more than `num_positions`, and than at the time before, so that the segments are
        seldom looked at."""
        folder, more = self.folder / "games", num_positions / 8
        if self.writer is None or held - max(self.removed().num_positions + num_positions, self._thinned_at) <= more:
            return
        self._thinned_at = held
        found = self.segments()
        thin = functools.partial(thinning.thin_games, folder, found, num_positions, end, num_games)
        self.writer.do(folder, thin)
        self.writer.submit(end, Record.empty(self.game), {})  # renews the links to the segments that are left
        self.writer.flush()

    def finish_removal(self, forget: bool) -> None:
        """Complete what `thin_games` began before the run continues. forget: see `thinning.finish`."""
        folder = self.folder / "games"
        if self.writer and self.removed() != thinning.Removed():
            self.writer.do(folder, lambda check: thinning.finish(folder, forget, check))

    def games_of(self, iteration: int) -> Record:
        """Return the games of an iteration that are on disk."""
        return Record.join(self.game, [self.games_in(found.path) for found in self.segments(iteration)])

    def games_in(self, path: Path) -> Record:
        """Return the games in a segment. A damaged one is set aside and counts as one without games."""
        try:
            found = self.read(path, lambda: segment.read(path, self.game))
        except segment.SegmentError as error:
            self._set_aside(path, error)
            found = None
        return Record.empty(self.game) if found is None else found

    def _set_aside(self, path, error):
        logging.getLogger("az_mpi").warning(
            "damaged: %s; it is kept as %s, its games are missing", error, files.set_aside(path).name
        )
