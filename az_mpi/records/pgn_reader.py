"""Reads games from PGN: the moves of the main line, the result, and values in comments, such as [%eval 0.35]."""

import functools
import re
from collections.abc import Iterator

from az_mpi.games.base import Game
from az_mpi.records.game_records import PGN_MARKS, is_chess, is_chess960
from az_mpi.records.pawns import value_of
from az_mpi.records.written_game import ENDINGS, RESULTS, WrittenGame

# A tag stands on a line of its own; in front of the first one of a file there may be a byte order mark. What is before
# the first one of tags that follow each other ends a game.
TAG_LINE = re.compile(rb'^(?:\xef\xbb\xbf)?\[[ \t]*[A-Za-z0-9_]+[ \t]+"[^\n]*(?:\n|\Z)', re.MULTILINE)
_TAG = re.compile(r'^\[[ \t]*([A-Za-z0-9_]+)[ \t]+"((?:\\.|[^"\\])*)"?[^\n]*$', re.MULTILINE)
_TOKEN = re.compile(r"\{[^}]*\}?|;[^\n]*|[()]|[^\s(){};]+")
_ESCAPED = re.compile(r"(\{[^}]*\}?|;[^\n]*)|^%[^\n]*", re.MULTILINE)  # a comment, or a line that readers pass over
_NUMBER = re.compile(r"\d+\.+")
_EVAL = re.compile(r"\[%eval\s+(#?)([+-]?\d+(?:\.\d+)?)")
_BY_MOVES = ("result", "fen", "setup")  # tags that a file of the same moves has by itself
_CHESS = ("chess", "standard", "normal", "from position", "")  # what Variant may say
_CHESS960 = ("chess960", "fischerandom", "fischerrandom")
_SIGNS = {"", "e.p.", "ep", "e.p", "=", "+-", "-+", "+/-", "-/+", "=+", "+=", "+/=", "=/+", "N", "D"}  # no moves
NOTES = "+#!?"  # that may follow a move of chess


def game_starts(content: bytes, at_start: bool) -> Iterator[int]:
    """Yield where games begin in a part of a file. at_start: whether the part is the first one: then one begins at 0.
    Otherwise a tag at the beginning of the part may belong to the game before."""
    if at_start:
        yield 0
    end = 0
    for match in TAG_LINE.finditer(content):
        begin = match.start()
        if content[end:begin].strip():
            yield begin
        end = match.end()


def read_game(text: str, game: Game) -> WrittenGame:
    """Return the game in a text of PGN."""
    end, tags, told = 0, {}, {}
    for match in _TAG.finditer(text):
        if text[end : match.start()].strip():
            break
        told[match[1]] = tags[match[1].lower()] = match[2].replace('\\"', '"').replace("\\\\", "\\")
        end = match.end()
    if fault := _misfit(tags, game):
        return WrittenGame(fault=fault)
    rest = text[end:]
    if rest.startswith("%") or "\n%" in rest:
        rest = _ESCAPED.sub(r"\1", rest)
    words, values, ending, fault = _moves(rest, is_chess(game))
    result = tags.get("result", "").strip()
    if result in RESULTS and not ending and not fault:
        fault = "not readable: the result does not stand after the moves; the game is not whole" if words else ""
    known = RESULTS.get(result if result in RESULTS else ending)
    names = (tags.get("white", "?"), tags.get("black", "?"))
    told = {name: value for name, value in told.items() if name.lower() not in _BY_MOVES}
    return WrittenGame(words, known, values, tags.get("fen", ""), fault=fault, names=names, tags=told)


def _misfit(tags, game):
    variant = tags.get("variant", "").strip()
    names = _CHESS + _CHESS960 * is_chess960(game)
    fits = variant.lower() in names if is_chess(game) else variant in ("", game.name)
    return "" if fits else f"another game: {variant[:60]}"


def _moves(text, chess):
    """Return (the words of the moves, the values, the result at the end or "", what is wrong) of the text after the
    tags."""
    words, values, ending, depth = [], {}, "", 0
    for token in _TOKEN.findall(text) if PGN_MARKS.search(text) else text.split():
        first = token[0]
        if first == "(":
            depth += 1
        elif first == ")":
            depth = max(depth - 1, 0)
        elif depth or first == ";" or first == "$":
            pass
        elif first == "{":
            if match := _EVAL.search(token):
                values[len(words)] = _value(match[1], match[2])
        elif token in ENDINGS:
            ending = token
        elif word := _word(token, chess):
            if ending:
                return words, values, ending, "moves after the result"
            words.append(word)
    return words, values, ending, ""


@functools.lru_cache(maxsize=2**14)
def _value(mark, text):
    number = float(text)
    if mark:  # so many moves to mate
        return -1.0 if text.startswith("-") else 1.0
    return value_of(number)


@functools.lru_cache(maxsize=2**14)  # the same few thousand tokens make up most games
def _word(token, chess):
    """Return the move in a token, "" if it is a number or a note."""
    if "." in token and token[0].isdigit():
        token = _NUMBER.sub("", token, count=1)
    if not chess:
        return "" if token.strip("!?.") == "" else token
    if token and token[-1] in NOTES:
        token = token.rstrip(NOTES)
    if token in _SIGNS or token[0] == "." or token.isdigit():
        return ""
    return token.replace("0", "O") if token[0] == "0" else token
