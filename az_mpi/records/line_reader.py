"""Reads games from files with one game a line: as JSON, which `games` writes, or as moves and a result."""

import re
from collections.abc import Iterator
from contextlib import suppress

from az_mpi.core import files
from az_mpi.games.base import Game
from az_mpi.records.written_game import RESULTS, WrittenGame

_LINE = re.compile(rb"\n(?=[^\n])")
_NUMBER = re.compile(r"\d+\.+")


def line_starts(content: bytes, at_start: bool) -> Iterator[int]:
    """Yield where lines begin in a part of a file. at_start: whether one begins at 0."""
    if at_start:
        yield 0
    yield from (match.end() for match in _LINE.finditer(content))


def read_json(text: str, game: Game) -> WrittenGame:
    """Return the game in a line of JSON."""
    try:
        content = {key: value for key, value in files.parse_json(text).items() if value is not None}
        name, words = content.get("game", game.name), content["moves"]
        values = content.get("values") or []
        result, start = content.get("result"), content.get("start", "")
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise TypeError("moves are no list of words")
        result = RESULTS.get(result) if isinstance(result, str) else None if result is None else float(result)
        values = {k: min(max(float(value), -1.0), 1.0) for k, value in enumerate(values) if value is not None}
        results = [float(one) for one in content.get("results") or []]
        players = content.get("players")
        names = [name if isinstance(name, str) else "?" for name in players] if isinstance(players, list) else []
        told = content.get("tags")
        tags = {str(name): str(text) for name, text in told.items()} if isinstance(told, dict) else {}
        tags |= {"Event": content["event"]} if isinstance(content.get("event"), str) else {}
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        return WrittenGame(fault=f"not readable: {type(error).__name__}: {str(error)[:80]}")
    if name != game.name:
        return WrittenGame(fault=f"another game: {str(name)[:60]}")
    said = [*results, *([] if result is None else [result])]
    if not all(abs(one) <= 1 for one in said) or any(value != value for value in values.values()):
        return WrittenGame(fault="not readable: a result or value is no number from -1 to 1")
    return WrittenGame(words, result, values, str(start), for_mover=True, results=results, names=names, tags=tags)


def read_plain(text: str, game: Game) -> WrittenGame:
    """Return the game in a line of moves in the game's own notation and a result, 1-0, 0-1 or 1/2-1/2, which may be
    missing where the rules say it. Numbers of moves, such as "12.", are passed over."""
    words = [word for word in (_NUMBER.sub("", word, count=1) for word in text.split()) if word]
    result = None
    if words and (words[-1] in RESULTS or words[-1] == "*"):
        with suppress(KeyError):
            result = RESULTS[words[-1]]
        words.pop()
    return WrittenGame(words, result)
