"""Games as a run has stored them, as games that files can tell: all moves, the results, and what the search thought."""

from collections.abc import Iterator

import numpy as np

from az_mpi.core.players import by_player
from az_mpi.games.base import Game
from az_mpi.records.game_records import GameRecord, Thought
from az_mpi.selfplay.record import Record
from az_mpi.storage.imports import RANK

BEST_MAX = 3  # moves of a comment


def games_of(game: Game, record: Record, ids: np.ndarray) -> Iterator[GameRecord | None]:
    """Yield the games of a record that have these ids; None for one that begins where no file can tell."""
    ends = np.cumsum(record.games["length"])
    first_policy = np.cumsum(record.positions["policy_count"]) - record.positions["policy_count"]
    parts = np.split(record.chance, np.flatnonzero(np.diff(record.chance["game"])) + 1)
    drawn = {int(part["game"][0]): part for part in parts if len(part)}
    for k in np.flatnonzero(np.isin(record.games["id"], ids)):
        begin, end = int(ends[k] - record.games["length"][k]), int(ends[k])
        chance = drawn.get(int(record.games["id"][k]), record.chance[:0])
        yield _game(game, record, k, slice(begin, end), first_policy, chance)


def _game(game, record, k, rows, first_policy, chance):
    """Return game k of a record. chance: its moves of chance."""
    positions, about = record.positions[rows], record.games[k]
    moves, start, last = _moves(game, positions, chance)
    if start is None:
        return None
    is_imported = about["rank"] == RANK
    thoughts: list[Thought | None] = [None] * len(moves)
    first_ply = min([int(positions["ply"][0]), *chance["ply"][:1].tolist()])
    for position, first in zip(positions, first_policy[rows]):
        entries = record.policy[first : first + position["policy_count"]]
        order = (-entries["probability"]).argsort(kind="stable")[:BEST_MAX]
        best = tuple((int(entries["action"][j]), float(entries["probability"][j])) for j in order)
        thought = Thought(float(position["root_value"]), () if is_imported else best)
        thoughts[int(position["ply"]) - first_ply] = thought
    is_over = game.num_players != 2 or game.terminal(last)[0][0]
    note: str | None = (
        "the limit of moves" if about["truncated"] else "" if is_over or not about["outcome"] else "resigned"
    )
    note = "unterminated" if np.isnan(about["outcome"]) else note
    note = None if is_imported and not is_over else note  # the run has not kept how it ended
    return GameRecord(
        moves,
        float(about["outcome"]),
        ("imported" if is_imported else "az_mpi",) * game.num_players,
        note,
        thoughts,
        start,
        f"game {int(about['id'])}, iteration {int(about['iteration'])}",
        _results(game, positions, about),
        float(about["score"]) if game.score_name else None,
    )


def _moves(game, positions, chance):
    """Return (all moves of a game, with the outcomes of chance; the text of the position in which it begins, "" for the
    initial one, None if there is no text; the last state, [1, S])."""
    order = np.argsort(np.concatenate([positions["ply"], chance["ply"]]), kind="stable")
    moves = np.concatenate([positions["action"], chance["outcome"]])[order]
    last = game.play(positions["state"][-1:], positions["action"][-1:])
    for drawn in chance["outcome"][chance["ply"] > positions["ply"][-1]]:
        last = game.play(last, np.array([drawn]))
    begins_with_chance = order[0] >= len(positions)  # no game that begins elsewhere does
    start: str | None = ""
    if not begins_with_chance and positions["state"][0].tobytes() != game.initial(1)[0].tobytes():
        try:
            start = game.state_to_text(positions["state"][0])
        except (AttributeError, ValueError):
            start = None
    return moves.tolist(), start, last


def _results(game, positions, about):
    """Return the result of each player where they are not two, else ()."""
    if game.num_players <= 2:
        return () if game.num_players == 2 else (float(about["outcome"]),)
    return tuple(by_player(game.num_players, positions["value"][:1], positions["to_play"][:1])[0].tolist())
