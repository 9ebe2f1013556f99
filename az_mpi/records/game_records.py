"""Games as files that other programs read: SGF for games of stones on a board, PGN for chess and all other games."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from az_mpi.core.problems import Refusal, write_file
from az_mpi.games.base import Game, after, positions
from az_mpi.games.hex import Rules as Hex
from az_mpi.games.uci_moves import ChessMoves, uci_moves

SUFFIXES = ".sgf", ".pgn"
LINE_MAX = 79  # characters of a line of moves in PGN
# For a game that a limit of its length ended. Its result is the one that the match counts, not one by the rules.
ADJUDICATION, CUT_NOTE = "adjudication", "ended by the limit of its length, counted as the board stood"
HEX_MOVES = {"swap": "swap-pieces"}


class GameRecord(NamedTuple):
    """A finished game.

    moves: all actions, from the initial position on. result: for the player who began, in [-1, 1]. names: of the player
    who began and of the other one. note: why a player lost it, if that was not by the rules."""

    moves: Sequence[int]
    result: float
    names: tuple[str, str]
    note: str = ""


def check_suffix(path: Path, game: Game) -> None:
    """Raise Refusal if games of this kind cannot be written to a file of this name."""
    if path.suffix not in SUFFIXES:
        raise Refusal(f"{path}: games are written as SGF or PGN\n  let the name end with .sgf or .pgn")
    if path.suffix == ".sgf" and not game.sgf_number:
        raise Refusal(f"{path}: SGF has no form for {game.name}\n  write .pgn, which takes every game")


def check_new(path: Path) -> None:
    """Raise Refusal if there is no folder for a file, or the file is there already."""
    if not path.parent.is_dir():
        raise Refusal(f"{path}: there is no folder {path.parent}\n  make it, or name a file in another folder")
    if path.exists():
        raise Refusal(f"{path} is there already\n  name another file, or remove it")


def write(path: Path, game: Game, records: Sequence[GameRecord]) -> None:
    """Write games to a file, in the format of its suffix; a file that is there is replaced. Raises Refusal."""
    check_suffix(path, game)
    to_text = to_sgf if path.suffix == ".sgf" else to_pgn
    write_file(path, "\n".join(to_text(game, record, number) for number, record in enumerate(records, 1)))


def to_sgf(game: Game, record: GameRecord, number: int = 1) -> str:
    """Return a game as one tree of SGF, file format 4, for games with `Game.sgf_number`. Black is the player who began.
    number: the game's place in its file, from 1."""
    _, rows, columns = game.planes_shape
    tags = {
        "GM": game.sgf_number,
        "FF": 4,
        "CA": "UTF-8",
        "AP": "az_mpi",
        "SZ": columns if rows == columns else f"{columns}:{rows}",
        "PB": record.names[0],
        "PW": record.names[1],
        "RO": number,
        "RE": _sgf_result(game, record),
    }
    if hasattr(game, "komi"):
        tags["KM"] = f"{game.komi:g}"
    if note := record.note or (CUT_NOTE if _is_cut(game, record) else ""):
        tags["GC"] = note
    head = "".join(f"{name}[{_escaped(value)}]" for name, value in tags.items())
    moves = [
        f";{'BW'[int(game.to_play(state[None])[0])]}[{_sgf_move(game, state, action)}]"
        for state, action in zip(positions(game, game.initial(1)[0], record.moves), record.moves)
    ]
    lines = ["".join(moves[k : k + 10]) for k in range(0, len(moves), 10)]
    return "\n".join([f"(;{head}", *lines]) + ")\n"


def _sgf_move(game, state, action):
    """Return a move as SGF writes it: letters for the column and for the row from the top; "" for a pass. SGF of Hex
    has words."""
    _, rows, columns = game.planes_shape
    if isinstance(game, Hex):
        word = game.action_to_text(state, action)
        return HEX_MOVES.get(word, word)
    return "" if action >= rows * columns else chr(97 + action % columns) + chr(97 + action // columns)


def _sgf_result(game, record):
    if not record.result:
        return "0"
    points = ""
    if not record.note:
        lead = game.lead(after(game, record.moves)[None])
        points = "" if lead is None else f"{abs(float(lead[0])):g}"
    how = "R" if record.note == "resigned" else "F" if record.note else points
    return f"{'B' if record.result > 0 else 'W'}+{how}"


def _is_cut(game, record):
    """Return whether a game was ended by a limit of its length, and neither by the rules nor by a player."""
    state = after(game, record.moves)
    return not record.note and (not game.terminal(state[None])[0][0] or game.is_cut(state))


def _escaped(value):
    return str(value).replace("\\", "\\\\").replace("]", "\\]")


def to_pgn(game: Game, record: GameRecord, number: int = 1) -> str:
    """Return a game in PGN, its moves in the game's own notation, which for chess is the standard one. White is the
    player who began. The tag Variant names a game other than chess. number: the game's place in its file, from 1."""
    result = {1: "1-0", 0: "1/2-1/2", -1: "0-1"}[int(np.sign(record.result))]
    tags = {
        "Event": "az_mpi match",
        "Site": "?",
        "Date": time.strftime("%Y.%m.%d"),
        "Round": number,
        "White": record.names[0],
        "Black": record.names[1],
        "Result": result,
    }
    if not isinstance(uci_moves(game), ChessMoves):
        tags["Variant"] = game.name
    if note := record.note or (ADJUDICATION if _is_cut(game, record) else ""):
        tags["Termination"] = note
    head = [f'[{name} "{_quoted(value)}"]' for name, value in tags.items()]
    states = positions(game, game.initial(1)[0], record.moves)
    words = [game.action_to_text(state, action) for state, action in zip(states, record.moves)]
    return "\n".join([*head, "", *_wrapped(words, result)]) + "\n"


def _quoted(value):
    return str(value).replace("\\", "\\\\").replace('"', '\\"')


def _wrapped(words, result):
    """Return the numbered moves and the result as lines of at most LINE_MAX characters."""
    numbered = [f"{k // 2 + 1}. {word}" if k % 2 == 0 else word for k, word in enumerate(words)]
    lines = [""]
    for word in [*numbered, result]:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > LINE_MAX:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines
