"""Files of games, cut into pieces that can be read by themselves: each is read in parts of one size, and a game belongs
to the part in which it begins. So ranks share a file of any size, and none needs the whole of it in memory."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from az_mpi.core.files import passes
from az_mpi.core.problems import NotNow, escape
from az_mpi.games.base import Game
from az_mpi.records import line_reader, pgn_reader, sgf_reader
from az_mpi.records.written_game import WrittenGame

GAME_BYTES_MAX = 2**20  # a longer game is left out
BEFORE_BYTES = 2**12  # that are read before a place, to see whether a game begins there
WINDOW_BYTES = 2**16  # in which a place is looked for at once
_CHARSET = re.compile(rb"\bCA\s*\[([\w-]+)\]", re.ASCII)  # of SGF
_BOM = b"\xef\xbb\xbf"
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
}
WIDE = (b"\xff\xfe", b"\xfe\xff")


class Format(NamedTuple):
    """A format of files of games.

    starts(bytes, at_start): yields where games begin in a part of a file, see `pgn_reader.game_starts`. read(text,
    game): returns a `WrittenGame`."""

    starts: Callable[[bytes, bool], Iterator[int]]
    read: Callable[[str, Game], WrittenGame]


FORMATS = {
    "pgn": Format(pgn_reader.game_starts, pgn_reader.read_game),
    "sgf": Format(sgf_reader.tree_starts, sgf_reader.read_game),
    "jsonl": Format(line_reader.line_starts, line_reader.read_json),
    "plain": Format(line_reader.line_starts, line_reader.read_plain),
}


class GameFile(NamedTuple):
    """A file of games. fault: why nothing in it can be read, "" if it can. format: of FORMATS."""

    path: str
    num_bytes: int
    format: str
    fault: str = ""


class Part(NamedTuple):
    """A part of a file: the games that begin in the bytes `begin` to `end` - 1. file: its number."""

    file: int
    begin: int
    end: int


def look(path: Path) -> GameFile:
    """Return what a file is. Raises NotNow if it cannot be read now."""
    try:
        with open(path, "rb") as file:
            if not os.path.isfile(path):
                return GameFile(str(path), 0, "plain", "not readable: it is no plain file")
            num_bytes, head = os.fstat(file.fileno()).st_size, file.read(BEFORE_BYTES)
    except OSError as error:
        if passes(error):
            raise NotNow(f"{escape(str(path))} cannot be read: {error.strerror}") from error
        return GameFile(str(path), 0, "plain", f"not readable: {error.strerror}")
    fault = next(
        (f"compressed by {name}: unpack it first" for mark, name in COMPRESSED.items() if head[:6].startswith(mark)), ""
    )
    if head.startswith(WIDE):
        fault = "not readable: it is UTF-16; convert it to UTF-8"
    elif not fault and b"\0" in head:
        fault = "not readable: it is no text"
    elif not head.strip():
        fault = "not readable: it is empty"
    return GameFile(str(path), num_bytes, _format(path, head), fault)


def _format(path, head):
    """Return the format of a file: by its name, or else by its first character."""
    by_name = {".pgn": "pgn", ".sgf": "sgf", ".jsonl": "jsonl", ".json": "jsonl", ".txt": "plain"}
    by_mark = {b"[": "pgn", b"(": "sgf", b"{": "jsonl"}
    return by_name.get(path.suffix.lower()) or by_mark.get(head.removeprefix(_BOM).lstrip()[:1], "plain")


def units(sizes: list[int], unit_bytes: int) -> Iterator[list[Part]]:
    """Yield all parts of files of these sizes in bytes, in lists of about `unit_bytes`: small files together, large
    ones in several parts."""
    unit, num_bytes = [], 0
    for file, size in enumerate(sizes):
        for begin in range(0, size, unit_bytes):
            part = Part(file, begin, min(begin + unit_bytes, size))
            if unit and num_bytes + part.end - part.begin > unit_bytes:
                yield unit
                unit, num_bytes = [], 0
            unit.append(part)
            num_bytes += part.end - part.begin
    if unit:
        yield unit


def games_in(file: GameFile, part: Part) -> Iterator[tuple[str, str]]:
    """Yield (the text of a game, why it cannot be read or "") for each game that begins in a part of a file. Raises
    OSError."""
    starts = FORMATS[file.format].starts
    with open(file.path, "rb") as stream:
        first = _boundary(stream, part.begin, part.end, starts)
        if first is None:
            return
        last = _boundary(stream, part.end, part.end + GAME_BYTES_MAX, starts)
        if last is None and file.num_bytes <= part.end + GAME_BYTES_MAX:
            last = file.num_bytes
        is_cut = last is None
        stream.seek(first)
        content = stream.read((part.end + GAME_BYTES_MAX if is_cut else last) - first)
    places = [*starts(content, True), len(content)]
    for begin, end in zip(places, places[1:]):
        if not (piece := content[begin:end].removeprefix(_BOM)).strip():
            continue
        if end - begin > GAME_BYTES_MAX:
            yield "", f"not readable: longer than {GAME_BYTES_MAX:,} bytes"
        elif is_cut and end == len(content):
            yield "", "not readable: nothing tells where the games after it begin"
        else:
            yield _text(piece), ""


def _text(piece):
    try:
        return piece.decode()
    except UnicodeDecodeError:
        if named := _CHARSET.search(piece):
            with suppress(LookupError, UnicodeDecodeError):
                return piece.decode(named[1].decode("ascii"))
        return piece.decode("latin-1")  # never fails; names may look wrong, moves do not


def _boundary(stream, begin, end, starts):
    """Return where the first game begins at `begin` or after it, before `end`; None if none does."""
    if begin == 0:
        return 0
    for place in range(begin, end, WINDOW_BYTES):
        before = min(place, BEFORE_BYTES)
        stream.seek(place - before)
        content = stream.read(before + WINDOW_BYTES + BEFORE_BYTES)  # beyond the window, so that no mark is cut
        if len(content) <= before:
            return None
        found = next((at for at in starts(content, False) if at >= before), len(content))
        if found < before + min(WINDOW_BYTES, end - place):
            return place - before + found
    return None
