"""Callbacks: classes of the user's own that see every finished game, every iteration and every evaluation of a run."""

import logging
from typing import NamedTuple

import numpy as np

from az_mpi.core.registry import CALLBACKS


class FinishedGame(NamedTuple):
    """A game as it is stored: P positions, S numbers a state.

    id: no other game of the run has it. iteration: when it was begun. rank: who played it. outcome: for the player who
    began, in [-1, 1]. truncated: ended by selfplay.max_plies, and counted as a draw. states: [P, S], before each move.
    actions: int32 [P]. root_values: float32 [P], the search's, for the player to move. players: int8 [P], who moved.
    """

    id: int
    iteration: int
    rank: int
    outcome: float
    truncated: bool
    states: np.ndarray
    actions: np.ndarray
    root_values: np.ndarray
    players: np.ndarray


class Callback:
    """Sees a run. One is made on every rank, with those of these arguments that it names: folder (the run's, a Path),
    rank (this rank's number as the job starts) and game (the `Game`).

    It is called by the main thread, which waits: within `fault.hang_s`, or the rank is taken for hung. One that raises
    an exception is told of in the log and not called any more; the run goes on.
    """

    def on_game(self, game):
        """A game was finished; game: a `FinishedGame`. Called on the rank that played it, once for each game that is
        stored, when the rank hands its games over (`exchange.every_s`)."""

    def on_iteration(self, summary):
        """An iteration is complete. Called on root. summary: what metrics.jsonl has of it, by name."""

    def on_evaluation(self, result):
        """The network was evaluated. Called on root. result: as in RUN/evaluations."""


class Callbacks:
    """The callbacks of a rank, called one after the other."""

    def __init__(self, names, folder, rank, game):
        self._callbacks = [CALLBACKS.make(name, folder=folder, rank=rank, game=game) for name in names]

    def games(self, record):
        """Tell of the finished games of a `Record`, in its order."""
        if not self._callbacks:
            return
        for row, end in zip(record.games, record.games["length"].cumsum()):
            rows = record.positions[end - row["length"] : end]
            numbers = row["id"], row["iteration"], row["rank"], row["outcome"], row["truncated"]
            columns = (rows[name].copy() for name in ("state", "action", "root_value", "to_play"))
            self._call("on_game", FinishedGame(*(number.item() for number in numbers), *columns))

    def iteration(self, summary):
        self._call("on_iteration", dict(summary))

    def evaluation(self, result):
        self._call("on_evaluation", dict(result))

    def _call(self, method, what):
        for callback in list(self._callbacks):
            try:
                getattr(callback, method)(what)
            except Exception:
                text = "callback %s failed in %s and is not called any more"
                logging.getLogger("az_mpi").exception(text, type(callback).__name__, method)
                self._callbacks.remove(callback)
