"""Segments: the games of one exchange as one immutable HDF5 file, RUN/games/IIIIII-KKK.h5.

P positions, M policy entries, C chance moves; the columns are those of `selfplay.record`. In `policy`, `offset`
int64 [P + 1] says where each position's entries begin.
Groups and datasets have an attribute `description`, and where they fit `unit` and `perspective`; these are for other
programs, and nothing here reads them. Every dataset is compressed by gzip, which all HDF5 tools can read, and has a
Fletcher-32 checksum, which detects flipped bits. A file ends with its SHA-256, after the part that HDF5 reads; the
sum is checked before HDF5 opens the file. Right before it stand the numbers of games and positions once more, as text:
a start reads them of thousands of segments, which takes HDF5 a millisecond each.
"""

import hashlib
import io
import math
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from az_mpi.core import files
from az_mpi.games.base import Game
from az_mpi.selfplay.record import (
    CHANCE_MOVE,
    CHANCES,
    GAMES,
    OFFSET,
    POLICIES,
    POLICY,
    POSITIONS,
    SCORE,
    Column,
    Record,
    game_dtype,
    position_dtype,
)

SCHEMA_VERSION = 2  # 1 had no SHA-256 at its end, and is still read
# The file format of HDF5 1.10, which every later version reads. It is the oldest one in which headers and chunk indices
# also have checksums; "latest" would change with the library, and older readers could not read it.
FORMAT = ("v110", "v110")
GROUPS = {
    "games": "finished games, one row each",
    "positions": "the positions of these games in which a move was played, one row each, game by game",
    "policy": "what the search thought of each position's actions, one row for each action that is not 0",
    "chance": "the moves of these games that were drawn by lot, one row each, game by game",
}
_NAME = re.compile(r"(\d{6,})-(\d{3,})\.h5")
_MARK = b"az_mpi segment sha256 "
_TRAILER_BYTES = len(_MARK) + 64
_COUNTS = b"az_mpi segment counts %020d %020d "
_COUNTED = re.compile(rb"az_mpi segment counts (\d{20}) (\d{20}) " + _MARK + rb"[0-9a-f]{64}")
_END_BYTES = len(_COUNTS % (0, 0)) + _TRAILER_BYTES
AT_ONCE = 16  # headers that are read at the same time: a file server answers each after some milliseconds
RATIO_MAX = 1100  # bytes of a dataset to bytes of its file: more than HDF5's compression can reach


class SegmentError(Exception):
    """A segment cannot be used; the text names the file and the reason."""


@dataclass(frozen=True)
class Segment:
    """What the name and the attributes of a segment file say."""

    path: Path
    iteration: int
    num_games: int
    num_positions: int


def next_path(folder: str | Path, iteration: int) -> Path:
    """Return the path of the next segment of an iteration."""
    return path_of(folder, iteration, next_number(folder, iteration))


def next_number(folder: str | Path, iteration: int) -> int:
    """Return the number of the next segment of an iteration, from 0."""
    # Not the number of segments: one may have been set aside, and no name may be used twice.
    return 1 + max((index for _, index, _ in _names(folder, iteration)), default=-1)


def path_of(folder: str | Path, iteration: int, number: int) -> Path:
    """Return the path of a segment."""
    return Path(folder) / f"{iteration:06d}-{number:03d}.h5"


def write(
    folder: str | Path,
    iteration: int,
    game: Game,
    record: Record,
    provenance: dict[str, Any],
    path: Path | None = None,
    before: Callable[[], None] | None = None,
) -> Segment:
    """Write `record` as the next segment of `iteration`, or as `path`, and return the segment.

    provenance: further attributes of the file, text or numbers. before: see `files.whole_file`.
    """
    path = path or next_path(folder, iteration)
    with _new_file(path, before, _COUNTS % (len(record.games), len(record.positions))) as file:
        file.attrs.update({"schema_version": SCHEMA_VERSION, "game": game.name, "iteration": iteration, **provenance})
        file.attrs.update({"num_games": len(record.games), "num_positions": len(record.positions)})
        groups: list[tuple[str, tuple[Column, ...], np.ndarray]] = [
            ("games", (*GAMES, SCORE) if game.score_name else GAMES, record.games),
            ("positions", POSITIONS, record.positions),
            ("policy", POLICIES, record.policy),
        ]
        groups += [("chance", CHANCES, record.chance)] if game.num_outcomes else []
        for group, columns, rows in groups:
            for column in columns:
                if column.name != "policy_count":
                    _store(file, group, column, rows[column.name])
            file[group].attrs["description"] = GROUPS[group]
        ends = np.cumsum(record.positions["policy_count"], dtype=np.int64)
        _store(file, "policy", OFFSET, np.concatenate([[0], ends]))
    return Segment(path, iteration, len(record.games), len(record.positions))


def read(path: Path, game: Game) -> Record:
    """Return the record in a segment. Raises SegmentError if the file is damaged, or is not a segment of `game` with a
    known schema; OSError if its file system fails for a while."""

    def take(file):
        kinds = {"games": game_dtype(game), "policy": POLICY}
        kinds |= {"chance": CHANCE_MOVE} if game.num_outcomes else {}
        parts = {group: _rows(file, group, dtype) for group, dtype in kinds.items()}
        record = Record(positions=_positions(file, game), **parts)
        _check_counts(file, record, game)
        return record

    return _read(path, game, take)


def read_games(path: Path, game: Game) -> np.ndarray:
    """Return the games in a segment without their positions, game_dtype(game) [n]. Raises as `read` does."""
    return _read(path, game, lambda file: _rows(file, "games", game_dtype(game)))


def _read(path, game, take):
    """Return take(the HDF5 file of a segment)."""
    content = _content(path)
    body, mark, digest = content[:-_TRAILER_BYTES], content[-_TRAILER_BYTES:-64], content[-64:]
    if mark == _MARK and hashlib.sha256(body).hexdigest().encode() != digest:
        raise SegmentError(f"{path}: its SHA-256 does not match")
    with _naming_damage(path), h5py.File(io.BytesIO(content), "r") as file:
        _check_origin(path, file, game)
        if file.attrs["schema_version"] > 1 and mark != _MARK:
            raise ValueError("it does not end with its SHA-256")
        return take(file)


@contextmanager
def _naming_damage(path):
    """Raise SegmentError for the errors of a file that is not valid, of which HDF5 has many kinds; OSError if memory is
    too little."""
    try:
        yield
    except SegmentError:
        raise
    except Exception as error:
        damage = SegmentError(f"{path}: {type(error).__name__}: {error}")
        raise files.lack_of_memory(error, path) or damage from error


def find(
    folder: str | Path, iteration: int | None = None, on_damage: Callable[[Path, SegmentError], None] | None = None
) -> list[Segment]:
    """Return the segments in a folder, or those of one iteration, oldest first.

    on_damage: called with (path, SegmentError) for each one with a damaged header, which is left out; None: raise the
    error. Raises OSError if the file system fails for a while.
    """
    found, listed = [], _names(folder, iteration)
    if not listed:
        return found
    with ThreadPoolExecutor(min(AT_ONCE, len(listed))) as pool:
        headers = [(name, pool.submit(_header, Path(folder) / name, number)) for number, _, name in listed]
    for name, header in headers:
        try:
            found.append(header.result())
        except SegmentError as error:
            if on_damage is None:
                raise
            on_damage(Path(folder) / name, error)
    return found


def paths(folder: str | Path) -> list[tuple[int, Path]]:
    """Return (iteration, path) of all segments of a folder, oldest first, without opening them; none if there is no
    such folder."""
    return [(number, Path(folder) / name) for number, _, name in _names(folder)] if files.is_there(folder) else []


def linked(path: Path) -> list[str]:
    """Return the names of the links in a file by `link_all`. Raises SegmentError and OSError as `read` does."""
    content = _content(path)
    with _naming_damage(path), h5py.File(io.BytesIO(content), "r") as file:
        return sorted(file)


def link_all(folder: str | Path, path: Path, before: Callable[[], None] | None = None) -> None:
    """Write the file `path`, whose groups are links to all segments of `folder`, for programs that read one file.

    before: see `files.whole_file`.
    """
    Links(folder, path).renew(before)


class Links:
    """The file of `link_all`, kept in memory, so that a new segment costs one new link instead of thousands."""

    def __init__(self, folder: str | Path, path: Path):
        self._folder, self.path = folder, path
        self._memory, self._linked = io.BytesIO(), set()

    def renew(self, before: Callable[[], None] | None = None) -> None:
        """Write the file with links to exactly the segments that are there. before: see `files.whole_file`."""
        there, place = [name for _, _, name in _names(self._folder)], os.path.relpath(self._folder, self.path.parent)
        if not self._linked or not self._linked.issubset(there):
            self._memory, self._linked = io.BytesIO(), set()
        with h5py.File(self._memory, "r+" if self._linked else "w", libver=FORMAT) as file:
            for name in [name for name in there if name not in self._linked]:
                # As h5py.ExternalLink does, in a third of the time.
                link = os.fsencode(name.removesuffix(".h5")), os.fsencode(f"{place}/{name}")
                file.id.links.create_external(*link, b"/")
        self._linked = set(there)
        _write(self.path, io.BytesIO(self._memory.getvalue()), before)


@contextmanager
def _new_file(path, before, counts):
    """Yield an HDF5 file in memory; it is written as `path` when the block ends, with `counts` behind it."""
    # HDF5 would hold the interpreter's lock, and so stop the search, while a slow file system takes its writes. Its own
    # files in memory (driver "core") look up their name on disk, and two of one name cannot be open at a time.
    memory = io.BytesIO()
    with h5py.File(memory, "w", libver=FORMAT) as file:
        yield file
    memory.seek(0, io.SEEK_END)
    memory.write(counts)
    _write(path, memory, before)


def _write(path, memory, before):
    """Write a file in memory as `path`, with its SHA-256 behind it."""
    with memory.getbuffer() as body:
        digest = hashlib.sha256(body).hexdigest()
    memory.seek(0, io.SEEK_END)
    memory.write(_MARK + digest.encode())
    if memory.tell() > files.DATA_BYTES_MAX:  # `read` would refuse it
        raise SegmentError(
            f"{path}: it would have {memory.tell():,} bytes, {files.DATA_BYTES_MAX:,} are allowed\n"
            "  store games more often: lower exchange.every_s or selfplay.num_games"
        )
    files.write_bytes(path, memory.getbuffer(), before=before)


def _names(folder, iteration=None):
    """Return (iteration, index, name) of the segments in a folder, or those of one iteration, oldest first, without
    opening them."""
    # Names instead of paths: each exchange lists the folder, and thousands of paths take milliseconds and megabytes.
    wanted = "" if iteration is None else f"{iteration:06d}-"
    with os.scandir(folder) as entries:
        matches = [_NAME.fullmatch(entry.name) for entry in entries if entry.name.startswith(wanted)]
    return sorted((int(match[1]), int(match[2]), match[0]) for match in matches if match)


def _content(path):
    try:
        return files.read(path, files.DATA_BYTES_MAX)
    except OSError as error:
        if files.unavailable(error):
            raise
        raise SegmentError(f"{path}: {error.strerror}") from error


def _header(path, iteration):
    try:
        with open(files.open_plain(path), "rb", buffering=0) as file:
            file.seek(-_END_BYTES, os.SEEK_END)
            if counted := _COUNTED.fullmatch(file.read(_END_BYTES)):
                return Segment(path, iteration, int(counted[1]), int(counted[2]))
            return _counts(file, path, iteration)
    except Exception:  # it is damaged, or its file system fails for a while: reading all of it tells which
        content = _content(path)
    with _naming_damage(path):
        return _counts(io.BytesIO(content), path, iteration)


def _counts(file, path, iteration):
    file.seek(-_TRAILER_BYTES, os.SEEK_END)
    mark = file.read(len(_MARK))
    with h5py.File(file, "r") as content:  # a Python file: with a path HDF5 would hold the interpreter's lock
        if content.attrs["schema_version"] > 1 and mark != _MARK:
            raise ValueError("it does not end with its SHA-256")
        return Segment(path, iteration, *_said(content))


def _said(file):
    """Return (number of games, number of positions) as the attributes of a file say it. No other attribute is read, as
    HDF5 can crash at one that is damaged."""
    names = ("num_games", "num_positions") if "num_games" in file.attrs else ("games_num", "positions_num")
    return tuple(int(file.attrs[name]) for name in names)


def _check_origin(path, file, game):
    version, name = file.attrs["schema_version"], file.attrs["game"]
    if version not in (1, SCHEMA_VERSION) or name != game.name:
        raise SegmentError(
            f"{path}: schema {version} of {name}; this program reads schemas to {SCHEMA_VERSION} of {game.name} here"
        )


def _positions(file, game):
    dtype = position_dtype(game)
    positions = _rows(file, "positions", dtype, [name for name in dtype.names if name != "policy_count"])
    positions["policy_count"] = np.diff(_column(file, "policy/offset", len(positions) + 1))
    return positions


def _rows(file, group, dtype, names=None):
    """Return the columns of a group as rows of this dtype. names: of the columns; None: all of the dtype."""
    names = names or dtype.names
    first = _column(file, f"{group}/{names[0]}")
    rows = np.empty(len(first), dtype)
    rows[names[0]] = first
    for name in names[1:]:
        rows[name] = _column(file, f"{group}/{name}", len(rows))
    return rows


def _column(file, name, n=None):
    """Return what is in a dataset, which must have n rows if that is given. Raises ValueError, also if it lies in
    another file, or claims more than such a file can hold."""
    found = h5py.h5d.open(file.id, name.encode())
    how = found.get_create_plist()
    inside = h5py.h5i.get_file_id(found) == file.id
    if how.get_external_count() or how.get_layout() == h5py.h5d.VIRTUAL or not inside:
        raise ValueError(f"{name} lies in another file")
    num_bytes = math.prod(found.shape) * found.dtype.itemsize
    if num_bytes > RATIO_MAX * file.id.get_filesize():
        raise ValueError(f"{name} would take {num_bytes:,} bytes")
    column = np.empty(found.shape, found.dtype)
    if num_bytes:
        found.read(h5py.h5s.ALL, h5py.h5s.ALL, column)
    if n is not None and len(column) != n:
        raise ValueError(f"{name} has {len(column)} rows instead of {n}")
    return column


def _check_counts(file, record, game):
    """Raise ValueError if the parts of a segment do not fit each other."""
    games, positions, policy, chance = record.parts
    if _said(file) != (len(games), len(positions)):
        raise ValueError("its attributes count other games or positions than it holds")
    if not np.array_equal(np.repeat(games["id"], np.maximum(games["length"], 0)), positions["game"]):
        raise ValueError("its positions are not those of its games")
    if len(np.unique(games["id"])) != len(games):
        raise ValueError("a game is in it twice")
    if (positions["policy_count"] < 0).any() or positions["policy_count"].sum(dtype=np.int64) != len(policy):
        raise ValueError("its policies are not those of its positions")
    if len(policy) and not (0 <= policy["action"].min() <= policy["action"].max() < game.num_actions):
        raise ValueError("a policy names an action that the game does not have")
    if not np.isin(chance["game"], games["id"]).all():
        raise ValueError("a chance move is of none of its games")
    if len(chance) and not (0 <= chance["outcome"].min() <= chance["outcome"].max() < game.num_outcomes):
        raise ValueError("a chance move has an outcome that the game does not have")


def _store(file, group, column, data):
    # gzip at its fastest. LZF takes a fifth less time to write (some 25 ms for 1,000 games) and a ninth more space, but
    # h5dump cannot read it.
    chunks = True if len(data) else None
    options = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True} if len(data) else {}
    dataset = file.create_dataset(f"{group}/{column.name}", data=data, chunks=chunks, **options)
    about = {"description": column.description, "unit": column.unit, "perspective": column.perspective}
    dataset.attrs.update({name: text for name, text in about.items() if text})
