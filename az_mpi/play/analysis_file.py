"""A game in a file as a query for `analyse`: SGF, PGN, or moves as words. Every position of it is analysed."""

import itertools
from pathlib import Path
from typing import Any

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game
from az_mpi.games.vertices import Vertices
from az_mpi.play import gtp_sgf
from az_mpi.records import pgn_reader, sgf_words
from az_mpi.records.replaying import MoveWords, replay


def query(path: Path, text: str, game: Game) -> dict[str, Any]:
    """Return the query. Raises Refusal if the file has no game that fits."""
    try:
        is_sgf = path.suffix == ".sgf" or text.lstrip().startswith("(;")
        found = _of_sgf(text, game) if is_sgf else _of_words(text.removeprefix("\ufeff"), game)
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
    if hasattr(game, "komi") and (komi := sgf_words.komi(loaded.tags)) is not None:
        found["komi"] = komi
    return found


def _of_words(text, game):
    """Return the main line of the first game of a PGN, or of moves without tags."""
    content = text.encode()
    _, *others = itertools.islice(pgn_reader.game_starts(content, True), 2)
    one = pgn_reader.read_game(content[: min(others, default=None)].decode(), game)
    if one.fault and not one.words:
        raise ValueError(one.fault)
    found = {"initialPosition": one.start} if one.start else {}
    if not one.words:
        return {"moves": []} | found
    record, [fault] = replay(game, [one._replace(result=None, fault="")], MoveWords(game), unfinished=True)
    if fault:
        raise ValueError(fault)
    vertices = Vertices(game)
    return {"moves": [vertices.of(row["state"], int(row["action"])) for row in record.positions]} | found
