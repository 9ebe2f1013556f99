"""Games as files that other programs read: SGF for games of stones on a board, PGN for chess and all other games, and
JSON lines for every game."""

import functools
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.games.base import CHANCE, Game
from az_mpi.games.hex import Rules as Hex
from az_mpi.games.uci_moves import uci_moves
from az_mpi.records import sgf_words
from az_mpi.records.pawns import pawns_of
from az_mpi.records.written_game import ENDINGS

SUFFIXES = ".sgf", ".pgn", ".jsonl"
LINE_MAX = 79  # characters of a line of moves in PGN
# For a game that a limit of its length ended. Its result is the one that the match counts, not one by the rules.
ADJUDICATION, CUT_NOTE = "adjudication", "ended by the limit of its length, counted as the board stood"
# What begins or ends comments, variations and the like in PGN. Without it there are moves, numbers and a result alone.
PGN_MARKS = re.compile(r"[(){};$]")
_PGN_MOVE = re.compile(r"(?![#%]|\d[^.]*\.|[.!?]*$)[^\s(){};$]+")  # what a reader takes for a move
HEX_MOVES = {"swap": "swap-pieces"}


class Thought(NamedTuple):
    """What a search found in a position. value: for the player to move, in [-1, 1]. best: the best moves, each with its
    share of the search, from 0 to 1, best first; none after a search without a policy."""

    value: float
    best: tuple[tuple[int, float], ...] = ()


class GameRecord(NamedTuple):
    """A game, as a file tells it.

    moves: all actions, from the initial position on, with the outcomes of chance. result: for the player who began, in
    [-1, 1]; NaN: the game is not finished. names: of the players, the one who began first. note: why a player lost it,
    if that was not by the rules; None: nobody knows how it ended. thoughts: of the search in the position before each
    move, and in the last position where that is known too; None where chance moves; () if nothing is known. start: the
    text of the position in which the game begins, as `Game.state_to_text` writes it; "": the initial one. event: the
    tournament or run that it is of. results: of each player where they are not two. score: where one player has a
    score in the game's unit. tags: what else is told about the game, by names of the file's format; they replace what
    would be written there."""

    moves: Sequence[int]
    result: float
    names: tuple[str, ...]
    note: str | None = ""
    thoughts: Sequence[Thought | None] = ()
    start: str = ""
    event: str = "az_mpi match"
    results: Sequence[float] = ()
    score: float | None = None
    tags: Mapping[str, Any] = {}


def check_suffix(path: Path, game: Game) -> None:
    """Raise Refusal if games of this kind cannot be written to a file of this name."""
    if path.suffix not in SUFFIXES:
        raise Refusal(
            f"{path}: games are written as SGF, PGN or JSON lines\n  let the name end with .sgf, .pgn or .jsonl"
        )
    if path.suffix != ".jsonl" and (game.num_players != 2 or game.num_outcomes):
        raise Refusal(
            f"{path}: {path.suffix[1:].upper()} is of two players without chance, and {game.name} is of another kind\n"
            "  write .jsonl, which takes every game"
        )
    if path.suffix == ".sgf" and not game.sgf_number:
        raise Refusal(f"{path}: SGF has no form for {game.name}\n  write .pgn or .jsonl, which take every game")


def can_tell(suffix: str, start: str) -> bool:
    """Return whether a file with this suffix can tell a game that begins at `start`, see `GameRecord`: SGF, as it is
    written here, has no other beginning than the initial position."""
    return suffix != ".sgf" or not start


def check_new(path: Path) -> None:
    """Raise Refusal if there is no folder for a file, or the file is there already."""
    if not path.parent.is_dir():
        raise Refusal(f"{path}: there is no folder {path.parent}\n  make it, or name a file in another folder")
    if path.exists():
        raise Refusal(f"{path} is there already\n  name another file, or remove it")


def texts(suffix: str, game: Game, records: Sequence[GameRecord], first: int = 1) -> Iterator[str]:
    """Yield the text of each game in the format of a suffix. Texts follow each other in a file; those of PGN and SGF
    are apart by an empty line. first: the number of the first one in its file."""
    to_text = {".sgf": to_sgf, ".pgn": to_pgn, ".jsonl": to_json}[suffix]
    apart = "" if suffix == ".jsonl" else "\n"
    for number, record in enumerate(records, first):
        yield (apart if number > 1 else "") + to_text(game, record, number)


def _begin(game, record):
    """Return the state, [S], in which a game begins."""
    return game.text_to_state(record.start) if record.start else game.initial(1)[0]


def _states(game, record):
    """Return the positions of a game, [S] each: those before each move and the last one."""
    states = [_begin(game, record)]
    for action in record.moves:
        states.append(game.play(states[-1][None], np.array([action]))[0])
    return states


def _word(game, state, action):
    """Return a move of a player, or an outcome of chance, as one word."""
    drawn = game.num_outcomes and game.to_play(state[None])[0] == CHANCE
    return game.outcome_to_text(state, action) if drawn else game.action_to_text(state, action)


def _pgn_word(game, state, action):
    """Return a move as one word of PGN: "#12" is action 12, where its own text would be read as something else."""
    word = game.action_to_text(state, action)
    return word if _PGN_MOVE.fullmatch(word) and word not in ENDINGS else f"#{action}"


def _told(record, word, states, k):
    """Return what the search thought of position k in words, "" if that is not known. word(state, action): a move's."""
    if k >= len(record.thoughts):
        return ""
    thought = record.thoughts[k]
    words = [f"{word(states[k], action)} {100 * share:.0f} %" for action, share in thought.best]
    return f"to move: {thought.value:+.2f}" + (f"; {', '.join(words)}" if words else "")


def _first_value(game, record, states, k):
    """Return the value of position k for the player who began, in [-1, 1]; None if it is not known."""
    if k >= len(record.thoughts):
        return None
    return record.thoughts[k].value * (1 - 2 * int(game.to_play(states[k][None])[0]))


def to_sgf(game: Game, record: GameRecord, number: int = 1) -> str:
    """Return a game as one tree of SGF, file format 4, for games with `Game.sgf_number`. Black is the player who began.
    number: the game's place in its file, from 1."""
    tags = sgf_words.properties(game) | {
        "PB": record.names[0],
        "PW": record.names[1],
        "RO": number,
        "RE": _sgf_result(game, record),
    }
    if hasattr(game, "komi"):
        tags["KM"] = f"{game.komi:g}"
    if note := record.note or (CUT_NOTE if _is_cut(game, record) else ""):
        tags["GC"] = note
    tags |= record.tags
    head = "".join(f"{name}[{sgf_words.escaped(value)}]" for name, value in tags.items())
    states = _states(game, record)
    head += _sgf_thought(game, record, states, 0)
    moves = [
        f";{'BW'[int(game.to_play(state[None])[0])]}[{_sgf_move(game, state, action)}]"
        + _sgf_thought(game, record, states, k)
        for k, (state, action) in enumerate(zip(states, record.moves), 1)
    ]
    a_line = 1 if record.thoughts else 10
    lines = ["".join(moves[k : k + a_line]) for k in range(0, len(moves), a_line)]
    return "\n".join([f"(;{head}", *lines]) + ")\n"


def _sgf_thought(game, record, states, k):
    """Return what the search thought of position k as properties: C, a comment, and SBKV, the chances of Black in
    percent, which Sabaki draws as a graph."""
    value = _first_value(game, record, states, k)
    return (
        ""
        if value is None
        else f"SBKV[{50 + 50 * value:.2f}]C[{sgf_words.escaped(_told(record, game.action_to_text, states, k))}]"
    )


def _sgf_move(game, state, action):
    """Return a move as SGF writes it. SGF of Hex has words."""
    if isinstance(game, Hex):
        word = game.action_to_text(state, action)
        return HEX_MOVES.get(word, word)
    return sgf_words.point(game, action)


def _sgf_result(game, record):
    if math.isnan(record.result):
        return "?"
    if not record.result:
        return "0"
    points = ""
    if record.note == "":
        lead = game.lead(_states(game, record)[-1][None])
        points = "" if lead is None else f"{abs(float(lead[0])):g}"
    how = "R" if record.note == "resigned" else "F" if record.note else points
    return f"{'B' if record.result > 0 else 'W'}+{how}"


def _is_cut(game, record):
    """Return whether a game was ended by a limit of its length, and neither by the rules nor by a player."""
    state = _states(game, record)[-1]
    return record.note == "" and (not game.terminal(state[None])[0][0] or game.is_cut(state))


def to_pgn(game: Game, record: GameRecord, number: int = 1) -> str:
    """Return a game in PGN, its moves in the game's own notation, which for chess is the standard one. White is the
    player who began. The tag Variant names a game other than chess. number: the game's place in its file, from 1."""
    record = _after_set_up(game, record)
    result = "*" if math.isnan(record.result) else {1: "1-0", 0: "1/2-1/2", -1: "0-1"}[int(np.sign(record.result))]
    tags = {
        "Event": record.event,
        "Site": "?",
        "Date": time.strftime("%Y.%m.%d"),
        "Round": number,
        "White": record.names[0],
        "Black": record.names[1],
        "Result": result,
    }
    if not is_chess(game) or is_chess960(game):
        tags["Variant"] = "Chess960" if is_chess(game) else game.name
    if record.start:
        tags |= {"SetUp": "1", "FEN": record.start}
    if note := record.note or (ADJUDICATION if _is_cut(game, record) else ""):
        tags["Termination"] = note
    tags |= record.tags
    head = [f'[{name} "{_quoted(value)}"]' for name, value in tags.items()]
    return "\n".join([*head, "", *_wrapped(_pgn_words(game, record), result)]) + "\n"


def is_chess(game: Game) -> bool:
    """Return whether a game is chess, which PGN names by no tag."""
    return uci_moves(game).variant == "chess"


def is_chess960(game: Game) -> bool:
    """Return whether a game is Chess960, whose first action sets up the pieces."""
    return uci_moves(game).chess960


def _after_set_up(game, record):
    """Return a game of Chess960 from the position on that its first action sets up, which PGN tells as FEN; any other
    game as it is."""
    if not is_chess960(game) or record.start or not record.moves:
        return record
    start = game.play(game.initial(1), np.array(record.moves[:1]))[0]
    return record._replace(start=game.state_to_text(start), moves=record.moves[1:], thoughts=record.thoughts[1:])


def _pgn_words(game, record):
    """Return the numbered moves of a game, each followed by the comment about the position that it leads to."""
    states = _states(game, record)
    words = _pgn_thought(game, record, states, 0)
    before = _half_moves(game.state_to_text(states[0])) if record.start and is_chess(game) else 0
    for k, action in enumerate(record.moves):
        second = (before + k) % 2  # of its pair
        words += [] if second and k and not record.thoughts else [f"{(before + k) // 2 + 1}.{'..' * second}"]
        words.append(_pgn_word(game, states[k], action))
        words += _pgn_thought(game, record, states, k + 1)
    return words


def _half_moves(fen):
    """Return how many moves of White and of Black the number of a FEN's move counts."""
    _, mover, *_, number = fen.split()
    return 2 * (max(int(number), 1) - 1) + (mover == "b")


def _pgn_thought(game, record, states, k):
    """Return the words of a comment: the value of position k as Lichess and others show it, and what the search
    thought."""
    value = _first_value(game, record, states, k)
    if value is None:
        return []
    word = functools.partial(_pgn_word, game)
    return f"{{ [%eval {pawns_of(value):.2f}] {_told(record, word, states, k)} }}".split()


def _quoted(value):
    """Return a value as the text between the quotes of a tag, which is one line."""
    return " ".join(str(value).split()).replace("\\", "\\\\").replace('"', '\\"')


def _wrapped(words, result):
    """Return the words of a game and its result as lines of at most LINE_MAX characters."""
    lines = [""]
    for word in [*words, result]:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > LINE_MAX:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def to_json(game: Game, record: GameRecord, number: int = 1) -> str:
    """Return a game as a line of JSON, its moves in the game's own notation. number: as in `to_pgn`."""
    states = _states(game, record)
    content: dict[str, Any] = {
        "game": game.name,
        "number": number,
        "event": record.event,
        "players": list(record.names),
        "moves": [_word(game, state, action) for state, action in zip(states, record.moves)],
        "result": None if math.isnan(record.result) else float(record.result),
    }
    content |= {"results": list(record.results)} if record.results else {}
    content |= {} if record.score is None else {"score": record.score}
    content |= {"start": record.start} if record.start else {}
    content |= {"note": record.note} if record.note else {}
    tags = {name: text for name, text in record.tags.items() if name != "Event"}
    content |= {"tags": tags} if tags else {}
    if record.thoughts:
        content["values"] = [thought and round(thought.value, 6) for thought in record.thoughts]
        content["best"] = [
            {game.action_to_text(state, action): round(share, 4) for action, share in (thought.best if thought else ())}
            for state, thought in zip(states, record.thoughts)
        ]
    return json.dumps(content, ensure_ascii=False) + "\n"
