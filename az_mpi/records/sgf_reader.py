"""Reads games from SGF: the main line, the result, and the chances of Black that Sabaki keeps (SBKV)."""

import re
from collections.abc import Iterator
from contextlib import suppress

from az_mpi.games.base import Game
from az_mpi.games.hex import Rules as Hex
from az_mpi.records import sgf_words
from az_mpi.records.game_records import HEX_MOVES
from az_mpi.records.written_game import WrittenGame

# Where a tree begins, as far as that can be told in the middle of a file, where "(;" may be a variation too.
# A property of a game as a whole tells; old files have its name with small letters in between, as in GaMe.
_WHOLE = "|".join("[a-z]*" + "[a-z]*".join(name) + "[a-z]*" for name in "GM FF SZ PB PW RE EV KM".split())
_PROPERTY = r"[A-Za-z]+\s*(?:\[(?:\\.|[^\]\\]){0,2000}\]\s*)+"
_TREE = re.compile(rf"\(\s*;\s*(?:{_PROPERTY})*?(?:{_WHOLE})\s*\[".encode(), re.DOTALL)
_MARK = re.compile(rb"\[(?:\\.|[^\]\\])*\]?|[()]", re.DOTALL)
_PART = re.compile(r"([()])|([A-Za-z]+)\s*((?:\[(?:\\.|[^\]\\])*\]\s*)+)", re.DOTALL)
_VALUE = re.compile(r"\[((?:\\.|[^\]\\])*)\]", re.DOTALL)
_POINTS = re.compile(r"([BW])\+(\d+(?:\.\d+)?)?", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# Properties about a game as a whole.
_ABOUT = set("AN BR BT CP DT EV GC GN KM ON OT PB PC PW RE RO RU SO TM US WR WT".split())
_DRAWS = ("0", "draw", "jigo", "d")
_SET_UP = ("AB", "AW", "AE")
_HEX_WORDS = {word: name for name, word in HEX_MOVES.items()}


def tree_starts(content: bytes, at_start: bool) -> Iterator[int]:
    """Yield where games begin in a part of a file that begins with a game (at_start), or anywhere. One may begin before
    the tree of another one is closed: that one is not whole."""
    if not at_start:
        yield from (match.start() for match in _TREE.finditer(content))
        return
    depth = 0
    for match in _MARK.finditer(content):
        first = content[match.start() : match.start() + 1]
        if first == b"(":
            if depth == 0 or _TREE.match(content, match.start()):
                yield match.start()
                depth = 0
            depth += 1
        elif first == b")":
            depth = max(depth - 1, 0)


def read_game(text: str, game: Game) -> WrittenGame:
    """Return the game in a text of SGF."""
    words, players, values, tags = [], [], {}, {}
    depth = 0
    for match in _PART.finditer(text):
        if match[1]:
            depth += 1 if match[1] == "(" else -1
            if match[1] == ")":
                break  # what follows are variations
            continue
        name = "".join(letter for letter in match[2] if letter.isupper())
        value = _VALUE.search(match[3])[1].strip()
        if name in ("B", "W"):
            words.append(value)
            players.append("BW".index(name))
        elif name == "SBKV":
            with suppress(ValueError):
                values[len(words)] = min(max(float(value) / 50 - 1, -1.0), 1.0)
        else:
            tags.setdefault(name, value)
    if depth == 0 and not words:
        return WrittenGame(fault="not readable: no tree of SGF")
    fault = "" if ")" in text else "not readable: the game is not whole"
    fault = _misfit(tags, game) or fault
    if fault:
        return WrittenGame(fault=fault)
    if not isinstance(game, Hex):
        words = [_cell_word(word, game) for word in words]
    else:
        words = [_HEX_WORDS.get(word.lower(), word) for word in words]
    told = {name: _ESCAPED.sub(r"\1", tags[name]) for name in sorted(_ABOUT & tags.keys())}
    names = (told.get("PB", "?"), told.get("PW", "?"))
    return WrittenGame(words, _result(tags, game), values, players=players, names=names, tags=told)


def _misfit(tags, game):
    if not game.sgf_number:
        return "another game: SGF has no form for this one"
    if (number := tags.get("GM", "")) not in ("", str(game.sgf_number)):
        return f"another game: GM[{number[:20]}]"
    if size := sgf_words.other_size(tags, game):
        return f"another size: {size[:20]}"
    if any(name in tags for name in _SET_UP):
        return "begins at another position: stones are set up"
    return ""


def _cell_word(word, game):
    """Return the number of the action as a text that no notation has, "#12"; the word itself if it names no cell."""
    cell = sgf_words.cell(game, word)
    return word if cell is None else f"#{cell}"


def _result(tags, game):
    """Return the result for Black, counted with the game's own komi where the file says by how many points."""
    text = tags.get("RE", "").strip()
    if text.lower() in _DRAWS:
        return 0.0
    match = _POINTS.match(text)
    if not match:
        return None
    sign = 1.0 if match[1].upper() == "B" else -1.0
    if match[2] and hasattr(game, "komi"):
        with suppress(ValueError):
            komi = sgf_words.komi(tags)
            lead = sign * float(match[2]) + (game.komi if komi is None else komi) - game.komi
            return float((lead > 0) - (lead < 0))
    return sign
