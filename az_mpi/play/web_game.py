"""The game that the page of `az_mpi web` shows: a thread that thinks about its position and does what the page asks.

People play the sides in `humans`, the network plays the others, and moves of chance are drawn. The page may go back and
forth in the game. A move that is made in an earlier position replaces the moves that followed it.
"""

import queue
import random
import re
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, TimeoutError
from typing import Any

import numpy as np

from az_mpi.games.base import CHANCE, last_board
from az_mpi.games.board_data import Board
from az_mpi.games.uci_moves import uci_moves
from az_mpi.player import levels
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session

SLICE_S = 0.1  # of thinking, between two checks for a request
PUBLISH_S = 0.25  # between two states while it thinks
PACE_S = 0.7  # between two moves of the network, so that people can watch
ANALYSIS_MAX = 20_000  # simulations of a position in which the network does not play
SHOWN_MOVES, SHOWN_LINE = 12, 10  # moves of the analysis; moves of each one's expected line
ASK_S = 20.0  # how long a request waits for its answer


class WebGame(threading.Thread):
    """The thread.

    open_session(name): return a new session with a network of the run. about: parts of the state that never change.
    requests: {name: function of (this thread, argument)}, what the page can ask besides. Their results are in the state
    by name until the position changes. level: of the network, see `levels`."""

    def __init__(
        self,
        open_session: Callable[[str], Session],
        checkpoint: str,
        limit: Limit,
        about: dict[str, Any],
        requests: Mapping[str, Callable[["WebGame", Any], Any]],
        level: float = levels.FULL,
    ):
        super().__init__(name="web-game", daemon=True)
        self._open, self.about, self._requests = open_session, about, requests
        self.session = open_session(checkpoint)
        self.checkpoint = checkpoint
        self.limit = Limit(limit.simulations or self.session.player.settings.simulations)
        self.line: list[int] = []  # all moves of the game; the session may be at an earlier position
        self.humans = {0}
        self.is_analysing = True
        self.values: dict[int, float] = {}  # by ply, for the player who began, of positions that were searched
        self.results: dict[str, Any] = {}  # of requests
        self.stored: dict[str, Any] | None = None  # see `load`
        self._level, self._rng = level, random.Random()
        self._asked: queue.SimpleQueue[tuple[str, Any, Future]] = queue.SimpleQueue()
        self._changed = threading.Condition()  # of `_state`
        self._state: dict[str, Any] = {"version": 0}
        self._position: dict[str, Any] = {}  # the part of the state that only a move changes
        self._begun = self._published = time.monotonic()
        self._is_over = False
        self._is_known = False  # nothing is left to find out about the position
        self._through_chance()
        self._moved()

    def ask(self, what: str, argument: Any = None) -> str | None:
        """Make the thread do what is asked. Return what is wrong with the request, or None. Called by other threads."""
        answer: Future = Future()
        self._asked.put((what, argument, answer))
        try:
            return answer.result(ASK_S)
        except TimeoutError:
            return "this takes longer; the page shows the result once there is one"

    def state(self, version: int, wait_s: float) -> dict[str, Any]:
        """Return the newest state, JSON-able, once it is newer than `version`, or after wait_s. Called by other
        threads."""
        with self._changed:
            self._changed.wait_for(lambda: self._state["version"] > version, wait_s)
            return self._state

    def close(self) -> None:
        """End the thread."""
        self._is_over = True
        self._asked.put(("", None, Future()))

    def run(self) -> None:
        """Think and answer requests until `close`."""
        failed = False
        while not self._is_over:
            try:
                self._step(failed)
                failed = False
            except Exception:  # for example, of a user's own rules; the next request may lead out of this position
                traceback.print_exc()
                failed = True

    def _step(self, wait):
        """Do what is asked, or else think. If there is nothing to think about, or with `wait`, wait for a request."""
        try:
            what, argument, answer = self._asked.get(block=wait or not self._has_to_think())
        except queue.Empty:
            self._think()
            return
        try:
            answer.set_result(self._obey(what, argument))
        except Exception as error:
            answer.set_result(f"{type(error).__name__}: {error}")
        self._publish()

    # What can be asked.

    def _obey(self, what: str, argument: Any) -> str | None:
        do = getattr(self, f"_do_{what}", None)
        if do:
            return do(argument)
        if what not in self._requests:
            return f"unknown request {what[:40]}"
        result = self._requests[what](self, argument)  # this may change the position, which clears the results
        self.results[what] = result
        return None

    def _do_move(self, text: Any) -> str | None:
        if self._is_networks_turn():
            return "it is the network's turn"
        try:
            action = self.session.find(str(text))
        except ValueError as error:
            return str(error)
        # Even if this is the line's next move, so that the network answers it.
        if self.humans != set(range(self._num_players)) and not self.stored:
            del self.line[len(self.session.actions) :]
        self._play(action)
        self._stay_as_strong_as_chosen()
        return None

    def _do_goto(self, ply: Any) -> None:
        ply = min(max(int(ply), 0), len(self.line))
        now = len(self.session.actions)
        if ply < now:
            self.session.undo(now - ply)
            while self._by_lot() and self.session.actions:  # to where somebody chose
                self.session.undo()
            ply = len(self.session.actions)
        for action in self.line[len(self.session.actions) : ply]:
            self.session.play(action)
        self._through_chance()
        self._moved()

    def _do_new(self, _: Any) -> None:
        self.load([])

    def load(self, actions: list[int], stored: dict[str, Any] | None = None, start: np.ndarray | None = None) -> None:
        """Show another game, from its first position on.

        start: that position, [S]; None: the initial one. stored: what the state says of a stored game until another
        move is made in it."""
        self.session.restart(start)
        self.line = list(actions)
        self.values = {}
        self.stored = stored
        self._through_chance()
        self._moved()

    def _do_humans(self, sides: Any) -> None:
        self.humans = {side for side in range(self._num_players) if side in list(sides)}
        self._begun = time.monotonic()
        self._stay_as_strong_as_chosen()

    def _do_analysing(self, wanted: Any) -> None:
        self.is_analysing = bool(wanted)

    def _do_simulations(self, number: Any) -> None:
        self.limit = Limit(simulations=min(max(int(number), 1), 1_000_000))

    def _do_checkpoint(self, name: Any) -> None:
        session = self._open(str(name))
        session.restart(self.session.states[0])
        for action in self.session.actions:
            session.play(action)
        self.session = session
        self.checkpoint = str(name)
        self.values = {}
        self._moved()

    # Thinking.

    def _is_networks_turn(self):
        """Return whether it is the network's turn: only in the last position, and not in a game opened for review."""
        session = self.session
        return not (
            self.stored or session.over or session.to_play in self.humans or len(session.actions) < len(self.line)
        )

    def _stay_as_strong_as_chosen(self):
        """Forget the analysis of a position in which the network is to move, if it had more simulations than the
        network is allowed."""
        if self._is_networks_turn():
            levels.stay_within(self.session, Limit(simulations=self._wanted()))

    def _wanted(self):
        """Return the simulations for a move of the network."""
        return levels.limit_at(self._level, self.limit, self.limit.simulations).simulations

    def _has_to_think(self):
        if self.session.over:
            return False
        return self._is_networks_turn() or self.is_analysing and not self._is_known

    def _think(self):
        """Think for a slice of time. Play if it is the network's turn and it has thought enough."""
        session = self.session
        before = self.session.simulations
        end = time.monotonic() + SLICE_S
        wanted = self._wanted() if self._is_networks_turn() else ANALYSIS_MAX
        session.think(Limit(simulations=wanted), lambda: time.monotonic() > end)
        is_done = session.simulations == before or session.simulations >= wanted
        if self._is_networks_turn() and is_done:
            if time.monotonic() - self._begun < PACE_S:
                time.sleep(SLICE_S)
            else:
                self._play(levels.choose(session, self._level, self._rng))
                self._publish()
        elif is_done:
            self._is_known = True
            self._publish()
        if time.monotonic() - self._published > PUBLISH_S:
            self._publish()

    def _play(self, action):
        ply = len(self.session.actions)
        if self.line[ply : ply + 1] != [action]:
            self.line[ply:], self.stored = [action], None
            self.values = {at: value for at, value in self.values.items() if at <= ply}
        self.session.play(action)
        self._through_chance()
        self._moved()

    # Chance.

    @property
    def _num_players(self):
        return self.session.game.num_players

    def _by_lot(self):
        return self.session.to_play == CHANCE and not self.session.over

    def _through_chance(self):
        """Play the moves of chance that come next: those of the line, or new ones that are drawn."""
        session = self.session
        while self._by_lot():
            ply = len(session.actions)
            if ply < len(self.line):
                session.play(self.line[ply])
            else:
                session.draw()
                self.line[ply:] = session.actions[ply:]

    def _drawn(self):
        """Return the names of the moves of chance right before the position."""
        session = self.session
        num = 0
        while num < len(session.actions) and session.game.to_play(session.states[-2 - num][None])[0] == CHANCE:
            num += 1
        return [session.game.outcome_to_text(session.states[-1 - k], session.actions[-k]) for k in range(num, 0, -1)]

    # The state.

    def _moved(self):
        """Describe the new position in the state. What the search says about it follows while it thinks."""
        session, game = self.session, self.session.game
        board = last_board(game, session.states)
        self._position = {
            "board": None if board is None else board.described(),
            "text": game.show(session.state),
            "ply": len(session.actions),
            "to_play": session.to_play,
            "over": session.over,
            "result": session.result,
            "players": self._num_players,
            "outcomes": session.results,
            "score": session.score,
            "score_name": game.score_name,
            "drawn": self._drawn(),
            "cut": session.over and game.is_cut(session.state),
            "legal": self._legal(board),
        }
        self.results.clear()
        self._begun = time.monotonic()
        self._is_known = False
        self._publish()

    def _legal(self, board):
        """Return the legal moves: [{"move", "to", "from"}]. The cells to click for a move, (row, column) or None, are
        "from" and "to". Moves may have the same cells, such as those that promote a pawn: the page lets people choose.
        """
        session, game = self.session, self.session.game
        word_of = uci_moves(game).word
        cells_in = _reader_of_cells(board)
        rows = []
        unknown = []  # (row, action, cells in its word) of moves whose cells only the next position shows
        for word, action in session.legal().items():
            rows.append({"move": word, "to": None, "from": None})
            named = cells_in(word_of(session.state, action))
            if len(named) == 2 and board.players[named[0]] == session.to_play:
                rows[-1] |= {"from": named[0], "to": named[1]}
            elif board and (named or not board.columns or not board.rows):
                unknown.append((rows[-1], action, named))
        if unknown:
            states = np.repeat(session.state[None], len(unknown), axis=0)
            after = game.play(states, np.array([action for _, action, _ in unknown]))
            changes = [_changed_cells(board, game.board(state), session.to_play) for state in after]
            # Where some moves change several cells, as with two dice, all moves that name no cell are buttons.
            are_buttons = any(changed is None for (_, _, named), changed in zip(unknown, changes) if not named)
            for (row, _, named), changed in zip(unknown, changes):
                if len(named) == 1 and board.players[named[0]] == -1 and not (changed or {}).get("from"):
                    changed = {"to": named[0]}  # pieces may go elsewhere after that, as in Pentago
                row |= {} if are_buttons and not named else changed or {}
        return rows

    def _publish(self):
        session = self.session
        self._published = time.monotonic()
        moves = [] if session.over else session.moves()
        if moves:
            self.values[len(session.actions)] = session.values[0]
        analysis = [
            {
                "move": session.line([move.action])[0],
                "visits": move.visits,
                "share": move.share,
                "value": move.value,
                "exact": move.exact,
                "prior": move.prior,
                "line": session.line(move.variation[:SHOWN_LINE]),
            }
            for move in moves
            if move.visits
        ][:SHOWN_MOVES]
        words = session.played() + session.line(self.line[len(session.actions) :])
        state = (
            self.about
            | self._position
            | {
                "game": session.game.name,
                "checkpoint": self.checkpoint,
                "humans": sorted(self.humans),
                "analysing": self.is_analysing,
                "limit": self.limit.simulations,
                "simulations": session.simulations,
                "analysis": analysis,
                "moves": words,
                "values": sorted(self.values.items()),
                "expected": session.values if moves else None,
                "stored": self.stored,
                "thinking": self._is_networks_turn(),
                "results": dict(self.results),
            }
        )
        with self._changed:
            self._state = state | {"version": self._state["version"] + 1}
            self._changed.notify_all()


def _reader_of_cells(board: Board | None) -> Callable[[str], list[tuple[int, int]]]:
    """Return a function of a move's word that returns the cells that the word names, in upper or lower case."""
    if board is None or not (board.columns and board.rows):
        return lambda word: []
    height, width = board.players.shape
    cells = {board.name(row, column).lower(): (row, column) for row in range(height) for column in range(width)}
    name = re.compile("|".join(sorted(map(re.escape, cells), key=len, reverse=True)))
    return lambda word: [cells[found] for found in name.findall(word.lower())]


def _changed_cells(board: Board, then: Board | None, player: int) -> dict[str, tuple[int, int] | None] | None:
    """Return the cells that `player` clicks for the move that leads from one board to the other.

    They are the cell of the piece that moves and its new cell, or the cell of a new piece, or the cell of the only
    piece that leaves the board. Returns {} where the move is none of these, and None where it changes several cells."""
    filled, left = (then.filled_since(board), then.left_since(board, player)) if then else ([], [])
    # A stone that only changes hands, as in Hex's swap, is no cell to click.
    if len(filled) == 1 and len(left) <= 1 and (left or board.players[filled[0]] < 0):
        return {"to": filled[0], "from": left[0] if left else None}
    if len(filled) > 1 or len(left) > 1:
        return None
    return {"to": left[0]} if not filled and len(left) == 1 else {}
