"""Segments: the games of one exchange as one immutable HDF5 file, RUN/games/IIIIII-KKK.h5.

P positions, M policy entries; the columns are those of `selfplay.record`. In `policy`, `offset` int64 [P + 1] says
where each position's entries begin. Every dataset has a Fletcher-32 checksum: a flipped bit is an error, not data.
"""

import io
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from az_mpi.files import write_bytes
from az_mpi.selfplay.record import GAME, POLICY, Record, position_dtype

SCHEMA_VERSION = 1
_NAME = re.compile(r"(\d{6,})-(\d{3,})\.h5")


class SegmentError(Exception):
    """A segment that cannot be used; the text names the file and the reason."""


@dataclass(frozen=True)
class Segment:
    """A segment file, by its name and attributes."""

    path: Path
    iteration: int
    games_num: int
    positions_num: int


def next_path(folder, iteration):
    """Return the path of the next segment of an iteration."""
    # Not their count: one may have been set aside, and no name may be given twice.
    index = 1 + max((index for number, index, _ in _names(folder) if number == iteration), default=-1)
    return Path(folder) / f"{iteration:06d}-{index:03d}.h5"


def write(folder, iteration, game, record, provenance, path=None, before=None):
    """Write `record` as the next segment of `iteration`, or as `path`, and return it.

    provenance: attributes, str or numbers. before: see `files.whole_file`.
    """
    path = path or next_path(folder, iteration)
    with _new_file(path, before) as file:
        file.attrs.update({"schema_version": SCHEMA_VERSION, "game": game.name, "iteration": iteration, **provenance})
        file.attrs.update({"games_num": len(record.games), "positions_num": len(record.positions)})
        for group, rows in (("games", record.games), ("positions", record.positions), ("policy", record.policy)):
            for name in rows.dtype.names:
                if name != "policy_count":
                    _store(file, f"{group}/{name}", rows[name])
        ends = np.cumsum(record.positions["policy_count"], dtype=np.int64)
        _store(file, "policy/offset", np.concatenate([[0], ends]))
    return Segment(path, iteration, len(record.games), len(record.positions))


def read(path, game):
    """Return the record in a segment. Raises SegmentError for a file that is damaged or not a segment of `game`."""
    try:
        with h5py.File(path, "r") as file:
            _check_origin(path, file, game)
            games, positions = np.empty(len(file["games/id"]), GAME), _positions(file, game)
            policy = np.empty(len(file["policy/action"]), POLICY)
            for group, rows in (("games", games), ("policy", policy)):
                for name in rows.dtype.names:
                    rows[name] = file[f"{group}/{name}"][:]
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise SegmentError(f"{path}: {error}") from error
    return Record(games, positions, policy)


def find(folder, iteration=None):
    """Return the segments in a folder, or those of one iteration, oldest first.

    Raises SegmentError for one whose header cannot be read.
    """
    return [_header(path, number) for number, _, path in _names(folder) if iteration in (None, number)]


def link_all(folder, path, before=None):
    """Write the file `path` whose groups link to all segments of `folder`, for readers that want one file.

    before: see `files.whole_file`.
    """
    place = os.path.relpath(folder, path.parent)
    with _new_file(path, before) as file:
        for _, _, segment in _names(folder):
            # What h5py.ExternalLink does, in a third of the time: each new segment has all of them linked again.
            file.id.links.create_external(os.fsencode(segment.stem), os.fsencode(f"{place}/{segment.name}"), b"/")


@contextmanager
def _new_file(path, before):
    """Give an HDF5 file in memory; it becomes the file `path` when the block ends."""
    # HDF5 would hold the interpreter's lock, and so the search, while a slow file system takes its writes. Its own
    # files in memory (driver "core") look their name up on disk, and two of one name cannot be made at a time.
    memory = io.BytesIO()
    with h5py.File(memory, "w", libver="latest") as file:
        yield file
    write_bytes(path, memory.getbuffer(), before=before)


def _names(folder):
    """Return (iteration, index, path) of the segments in a folder, oldest first, without opening them."""
    matches = [(_NAME.fullmatch(entry.name), Path(entry.path)) for entry in os.scandir(folder)]
    return sorted((int(match[1]), int(match[2]), path) for match, path in matches if match)


def _header(path, iteration):
    try:
        with h5py.File(path, "r") as file:
            return Segment(path, iteration, int(file.attrs["games_num"]), int(file.attrs["positions_num"]))
    except (OSError, KeyError) as error:
        raise SegmentError(f"{path}: {error}") from error


def _check_origin(path, file, game):
    version, name = file.attrs["schema_version"], file.attrs["game"]
    if version != SCHEMA_VERSION or name != game.name:
        raise SegmentError(
            f"{path}: schema {version} of {name}; this program reads schema {SCHEMA_VERSION} of {game.name} here"
        )


def _positions(file, game):
    positions = np.empty(len(file["positions/game"]), position_dtype(game))
    for name in positions.dtype.names:
        if name != "policy_count":
            positions[name] = file[f"positions/{name}"][:]
    positions["policy_count"] = np.diff(file["policy/offset"][:])
    return positions


def _store(file, name, data):
    # lzf costs a hundredth of the time that the games took; gzip would cost ten times that for a third less space.
    chunks = True if len(data) else None
    options = {"compression": "lzf", "shuffle": True, "fletcher32": True} if len(data) else {}
    file.create_dataset(name, data=data, chunks=chunks, **options)
