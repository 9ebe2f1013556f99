"""Callbacks: users' own classes that a run calls for every finished game, iteration and evaluation."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from az_mpi.core.registry import CALLBACKS
from az_mpi.games.base import Game

if TYPE_CHECKING:
    from az_mpi.selfplay.record import Record


class FinishedGame(NamedTuple):
    """A game as it is stored: P positions, S numbers a state.

    id: unique in the run. iteration: the one in which the game began. rank: the one that played it. outcome: for the
    player who began, in [-1, 1]. truncated: whether selfplay.max_plies ended it, and it counts as a draw. states:
    [P, S], before each move; the first is the initial one unless selfplay.start_share or random_plies let the game
    begin elsewhere. actions: int32 [P]. root_values: float32 [P], values of the search for the player to move.
    players: int8 [P], who moved.
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
    """Base of callbacks; a subclass overrides the methods that it needs.

    Every rank makes one. Its constructor may have any of these arguments: folder (the run's, a Path), rank (this rank's
    number when the job starts), game (the `Game`).

    The main thread calls it and waits. A call that takes longer than `fault.hang_s` counts as a hang. If it raises an
    exception, the log says so, and the run continues without it.
    """

    def on_game(self, game: FinishedGame) -> None:
        """Called when a game is stored, on the rank that played it: at the exchange (`exchange.every_s`) after its
        end, once for each game."""

    def on_iteration(self, summary: dict[str, Any]) -> None:
        """Called on root when an iteration is complete. summary: its metrics by name, as in metrics.jsonl."""

    def on_evaluation(self, result: dict[str, Any]) -> None:
        """Called on root when the network has been evaluated. result: as in RUN/evaluations/NNNNNN.json."""


class Callbacks:
    """The callbacks of a rank, called one after the other."""

    def __init__(self, names: Iterable[str], folder: Path, rank: int, game: Game):
        self._callbacks = [CALLBACKS.make(name, folder=folder, rank=rank, game=game) for name in names]

    def games(self, record: Record) -> None:
        """Call `on_game` for each finished game of a record, in its order."""
        if not self._callbacks:
            return
        for row, end in zip(record.games, record.games["length"].cumsum()):
            rows = record.positions[end - row["length"] : end]
            numbers = row["id"], row["iteration"], row["rank"], row["outcome"], row["truncated"]
            columns = (rows[name].copy() for name in ("state", "action", "root_value", "to_play"))
            self._call("on_game", FinishedGame(*(number.item() for number in numbers), *columns))

    def iteration(self, summary: dict[str, Any]) -> None:
        self._call("on_iteration", dict(summary))

    def evaluation(self, result: dict[str, Any]) -> None:
        self._call("on_evaluation", dict(result))

    def _call(self, method, what):
        for callback in list(self._callbacks):
            try:
                getattr(callback, method)(what)
            except Exception:
                text = "callback %s failed in %s and is not called any more"
                logging.getLogger("az_mpi").exception(text, type(callback).__name__, method)
                self._callbacks.remove(callback)
