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


class _VertexWords(MoveWords):
    """Finds moves of files without tags: they may be vertices as in GTP, or else the game's own notation."""

    def __init__(self, game: Game):
        super().__init__(game)
        self._vertices = Vertices(game)

    def find(self, states, words):
        actions, legal = super().find(states, words), self.game.legal(states)
        for k, word in enumerate(words):
            action = self._vertices.find(states[k], word.rstrip("!?"))
            if action is not None and legal[k, action]:
                actions[k] = action
        return actions


def query(path: Path, text: str, own: Game) -> dict[str, Any]:
    """Return the query. own: the run's own game, whose name is in its files; it is analysed without the limit of its
    length. Raises Refusal if the file has no game that fits."""
    try:
        is_sgf = path.suffix == ".sgf" or text.lstrip().startswith("(;")
        found = _of_sgf(text, own.untruncated()) if is_sgf else _of_words(text.removeprefix("\ufeff"), own)
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


def _of_words(text, own):
    """Return the main line of the first game of a PGN, or of moves without tags."""
    one, has_tags = _first(text.encode(), own)
    if one.fault and not one.words:
        raise ValueError(one.fault)
    found = {"initialPosition": one.start} if one.start else {}
    if not one.words:
        return {"moves": []} | found
    game = own.untruncated()
    words = MoveWords(game) if has_tags else _VertexWords(game)
    record, [fault] = replay(game, [one._replace(result=None, fault="")], words, unfinished=True)
    if fault:
        raise ValueError(fault)
    vertices = Vertices(game)
    return {"moves": [vertices.of(row["state"], int(row["action"])) for row in record.positions]} | found


def _first(content, game):
    """Return (the first game with moves or with a fault, or else the first one with tags, whether it has tags). Before
    the first tag there may be comments. Raises ValueError if there is none."""
    found = None
    for begin, end in itertools.pairwise([*pgn_reader.game_starts(content, True), len(content)]):
        piece = content[begin:end]
        one, has_tags = pgn_reader.read_game(piece.decode(), game), bool(pgn_reader.TAG_LINE.search(piece))
        if one.words or one.fault:
            return one, has_tags
        found = found or ((one, has_tags) if has_tags else None)
    if found is None:
        raise ValueError("it has no game")
    return found
