"""A game in a file as a query for `analyse`: SGF, PGN, or moves as words. Every position of it is analysed."""

import re
from pathlib import Path
from typing import Any

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game
from az_mpi.games.vertices import Vertices
from az_mpi.play import gtp_sgf
from az_mpi.records import sgf_words

_COMMENT = re.compile(r"\{[^}]*\}|;[^\n]*|\$\d+")
_TAG = re.compile(r'^\s*\[\s*(\w+)\s+"((?:\\.|[^"\\])*)"\s*\]\s*$', re.MULTILINE)
_LEFT_OUT = re.compile(r"\d+\.+|[!?]+$")
_RESULTS = ("1-0", "0-1", "1/2-1/2", "*")


def query(path: Path, text: str, game: Game) -> dict[str, Any]:
    """Return the query. Raises Refusal if the file has no game that fits."""
    try:
        found = _of_sgf(text, game) if path.suffix == ".sgf" or text.lstrip().startswith("(;") else _of_words(text)
    except ValueError as error:
        raise Refusal(f"{path}: {error}") from error
    return {"id": path.name, "analyzeTurns": list(range(len(found["moves"]) + 1))} | found


def _of_sgf(text, game):
    loaded = gtp_sgf.read(text)
    if not game.sgf_number or loaded.tags.get("GM", str(game.sgf_number)) != str(game.sgf_number):
        raise ValueError("it is of another game")
    if size := sgf_words.other_size(loaded.tags, game):
        _, rows, columns = game.planes_shape
        raise ValueError(f"its board is of size {size[:20]}, not {columns} x {rows}")
    names = Vertices(game).names()
    found: dict[str, Any] = {
        "moves": [["BW"[player], gtp_sgf.vertex(point, game, names)] for player, point in loaded.moves],
        "initialStones": [["BW"[player], gtp_sgf.vertex(point, game, names)] for player, point in loaded.stones],
    }
    if loaded.to_play is not None:
        found["initialPlayer"] = "BW"[loaded.to_play]
    if "KM" in loaded.tags and hasattr(game, "komi"):
        found["komi"] = float(loaded.tags["KM"])
    return found


def _of_words(text):
    """Return the main line of the first game of a PGN, or of moves without tags."""
    tags = {name.lower(): value for name, value in _TAG.findall(text)}
    moves: list[str] = []
    depth = 0
    for word in re.sub(r"([()])", r" \1 ", _COMMENT.sub(" ", _TAG.sub(" ", text))).split():
        depth += {"(": 1, ")": -1}.get(word, 0)
        plain = _LEFT_OUT.sub("", word)
        if word in _RESULTS:
            break
        if depth == 0 and word not in "()" and plain:
            moves.append(plain)
    return {"moves": moves} | ({"initialPosition": tags["fen"]} if "fen" in tags else {})
