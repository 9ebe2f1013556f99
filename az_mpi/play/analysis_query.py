"""Queries of KataGo's analysis engine: what a line of JSON asks for, as positions to search."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from az_mpi.core.problems import escape
from az_mpi.games import go, go_positions
from az_mpi.games.base import Game
from az_mpi.games.uci_moves import uci_moves
from az_mpi.games.vertices import Vertices
from az_mpi.play.analysis import counts_by_area

PLAYERS = {"b": 0, "w": 1}
PASS = "pass"
VISITS_MAX = 1_000_000
# What KataGo knows and this engine does not do. A query with one of these gets a warning.
LEFT_OUT = (
    "includeOwnership",
    "includeOwnershipStdev",
    "includeMovesOwnership",
    "includeMovesOwnershipStdev",
    "includePVVisits",
    "includeNoResultValue",
    "rootPolicyTemperature",
    "rootFpuReductionMax",
    "overrideSettings",
)
KNOWN = {
    "id", "action", "moves", "initialStones", "initialPlayer", "initialPosition", "rules", "komi", "whiteHandicapBonus",
    "boardXSize", "boardYSize", "analyzeTurns", "maxVisits", "includePolicy", "avoidMoves", "allowMoves",
    "reportDuringSearchEvery", "priority", "priorities", "analysisPVLen", *LEFT_OUT,
}  # fmt: skip


class QueryError(Exception):
    """A query cannot be done. field: the part of it that is wrong."""

    def __init__(self, message: str, field: str):
        super().__init__(message)
        self.field = field


class Turn(NamedTuple):
    """A position to analyse. number: of the moves of the query before it. state: [S]. plies: that count for the limit
    of the game's length. actions: the only ones to look at; () for all."""

    number: int
    state: np.ndarray
    plies: int
    priority: int
    actions: tuple[int, ...]


class Query(NamedTuple):
    """What a query asks for. komi: None for the game's own. every_s: seconds between reports during a search, or 0.
    warnings: (message, field)."""

    id: str
    turns: Sequence[Turn]
    komi: float | None
    visits: int
    policy: bool
    line: int
    every_s: float
    warnings: Sequence[tuple[str, str]]


class Reader:
    """Reads the queries about one game. visits: of a query that does not say how many it wants."""

    def __init__(self, game: Game, visits: int):
        self.game, self.visits = game, visits
        self.vertices, self.words = Vertices(game), uci_moves(game)

    def read(self, given: Mapping[str, Any]) -> Query:
        """Return what a query asks for. Raises QueryError."""
        self._check_board(given)
        warnings = [("this engine does not know it", key) for key in given if key not in KNOWN]
        warnings += [("this engine leaves it out", key) for key in LEFT_OUT if given.get(key)]
        komi = _number(given, "komi", -400, 400)
        if komi is not None and not hasattr(self.game, "komi"):
            warnings.append(("this game has no komi", "komi"))
            komi = None
        if str(given.get("whiteHandicapBonus") or 0) != "0":
            warnings.append(("this engine leaves it out", "whiteHandicapBonus"))
        if given.get("rules") and not counts_by_area(given["rules"]):
            warnings.append(("the network counts by area", "rules"))
        visits = _number(given, "maxVisits", 1, VISITS_MAX)
        states = self._states(given)
        every_s = _number(given, "reportDuringSearchEvery", 0, 1e6) or 0.0
        line = int(_number(given, "analysisPVLen", 1, 1000) or 1000)
        turns = self._turns(given, states)
        return Query(
            str(given["id"]),
            turns,
            komi,
            int(visits or self.visits),
            bool(given.get("includePolicy")),
            line,
            every_s,
            warnings,
        )

    def _check_board(self, given):
        _, rows, columns = self.game.planes_shape
        for key, size in (("boardXSize", columns), ("boardYSize", rows)):
            if key in given and given[key] != size:
                raise QueryError(f"the board of {self.game.name} has {columns} columns and {rows} rows", key)

    def _states(self, given):
        """Return [(state, plies)] from the initial position on, one more than there are moves."""
        state, plies = self._initial(given), 0
        found = [(state, plies)]
        moves = given.get("moves", [])
        if not isinstance(moves, list):
            raise QueryError("expected a list of moves", "moves")
        for number, move in enumerate(moves, 1):
            player, word = self._player_and_word(move, state, "moves")
            state, counts = self._played(state, player, word, plies, f"move {number}")
            plies += counts
            found.append((state, plies))
        return found

    def _initial(self, given):
        game, state = self.game, self.game.initial(1)[0]
        stones, player = given.get("initialStones") or [], given.get("initialPlayer")
        if text := given.get("initialPosition"):
            try:
                state = self.words.position(str(text))
            except ValueError as error:
                raise QueryError(str(error), "initialPosition") from None
        if player is not None and str(player).lower() not in PLAYERS:
            raise QueryError("expected B or W", "initialPlayer")
        if not isinstance(game, go.Rules):
            if stones:
                raise QueryError("only Go takes stones; initialPosition may be another game's", "initialStones")
            if player is not None and PLAYERS[str(player).lower()] != game.to_play(state[None])[0]:
                raise QueryError("it is the other player's turn", "initialPlayer")
            return state
        if not isinstance(stones, list):
            raise QueryError("expected a list of stones", "initialStones")
        for stone in stones:
            who, word = self._player_and_word(stone, state, "initialStones")
            state, _ = self._played(state, who, word, 0, "a stone", "initialStones")
        first = given.get("moves")
        is_told = isinstance(first, list) and first and isinstance(first[0], list) and first[0]
        who = player or (first[0][0] if is_told else "W" if stones else "B")
        return go_positions.turned(game, state, PLAYERS.get(str(who).lower(), 0))

    def _player_and_word(self, move, state, field):
        """Return (the player, the word) of a move: [player, word], or the word alone."""
        mover = int(self.game.to_play(state[None])[0])
        if isinstance(move, str):
            return mover, move
        if not (isinstance(move, list) and len(move) == 2 and str(move[0]).lower() in PLAYERS):
            raise QueryError('expected ["B" or "W", move]', field)
        return PLAYERS[str(move[0]).lower()], str(move[1])

    def _played(self, state, player, word, plies, what, field="moves"):
        """Return (the state after a move, the plies that it counts)."""
        game = self.game
        is_go = isinstance(game, go.Rules)
        if is_go and (game.to_play(state[None])[0] != player or game.terminal(state[None])[0][0]):
            state = go_positions.turned(game, state, player)
        if game.terminal_at(state[None], plies)[0][0]:
            raise QueryError(f"{what} comes after the end of the game", field)
        if game.to_play(state[None])[0] != player:
            passes = self.vertices.find(state, PASS)
            if passes is None:
                raise QueryError(f"{what}, {escape(word)[:20]}, is out of turn", field)
            state = game.play(state[None], np.array([passes]))[0]
        action = self._action(state, word, self.vertices.finder(state))
        if action is None:
            raise QueryError(f"{what}, {escape(word)[:20]}, is illegal", field)
        return game.play(state[None], np.array([action]))[0], 1

    def _action(self, state, word, find):
        """Return the action that a word names; None if there is none. find: `Vertices.finder` of this position."""
        action = find(word)
        if action is None and isinstance(self.game, go.Rules):
            point = self.vertices.point(word)
            return point if go_positions.is_legal_by_simple_ko(self.game, state, point) else None
        return self.words.find(state, word) if action is None else action

    def _turns(self, given, states):
        numbers = given.get("analyzeTurns", [len(states) - 1])
        if not isinstance(numbers, list) or not all(type(k) is int and 0 <= k < len(states) for k in numbers):
            raise QueryError(f"expected turns from 0 to {len(states) - 1}", "analyzeTurns")
        priorities = given.get("priorities", [given.get("priority", 0)] * len(numbers))
        if not isinstance(priorities, list) or [type(k) for k in priorities] != [int] * len(numbers):
            raise QueryError("expected one whole number for each turn", "priorities")
        return [
            Turn(number, *states[number], priority, self._limited(given, states[number][0]))
            for number, priority in zip(numbers, priorities)
        ]

    def _limited(self, given, state):
        """Return the only actions to look at in a position; () for all."""
        mover = int(self.game.to_play(state[None])[0])
        named: dict[str, set[int | None]] = {}
        find = None
        for key in ("allowMoves", "avoidMoves"):
            rows = given.get(key) or []
            for row in rows if isinstance(rows, list) else [None]:
                if not (isinstance(row, dict) and str(row.get("player")).lower() in PLAYERS):
                    raise QueryError("expected a list of {player, moves, untilDepth}", key)
                if PLAYERS[str(row["player"]).lower()] == mover and isinstance(row.get("moves"), list):
                    find = find or self.vertices.finder(state)
                    named.setdefault(key, set()).update(self._action(state, str(word), find) for word in row["moves"])
        if not named or self.game.terminal(state[None])[0][0]:
            return ()
        legal = np.flatnonzero(self.game.legal(state[None])[0]).tolist()
        allow, avoid = named.get("allowMoves"), named.get("avoidMoves", set())
        chosen = tuple(action for action in legal if (allow is None or action in allow) and action not in avoid)
        if not chosen:
            raise QueryError("no legal move is left", "allowMoves" if allow else "avoidMoves")
        return chosen


def _number(given, key, least, most):
    """Return a number of a query, None if it has none. Raises QueryError."""
    if key not in given or given[key] is None:
        return None
    value = given[key]
    if type(value) not in (int, float) or not least <= value <= most:
        raise QueryError(f"expected a number from {least:g} to {most:g}", key)
    return value
