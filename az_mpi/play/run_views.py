"""What the page of `az_mpi web` shows of a run besides the game: stored games, and what the checkpoints would play."""

from pathlib import Path
from typing import Any

import numpy as np

from az_mpi.core import files
from az_mpi.core.problems import Refusal
from az_mpi.play.web_game import WebGame
from az_mpi.player.loaded_player import load_player
from az_mpi.player.network_paths import find_network
from az_mpi.player.session import Session, ready_session
from az_mpi.storage import segment

SEGMENTS, GAMES = 3, 60  # games are listed from so many of the newest segments, and at most so many
COMPARED, SIMULATIONS = 10, 100  # so many checkpoints, spread over the run, are compared; simulations of each


class RunViews:
    """The requests about one run, for `WebGame`."""

    def __init__(self, run: Path):
        self.run = run
        self.requests = {"games": self.games, "open": self.open, "compare": self.compare}

    def open_session(self, name: str) -> Session:
        """Return a new game against a network of the run. Raises Refusal."""
        return ready_session(load_player(find_network(self.run, name)))

    def checkpoints(self) -> list[str]:
        """Return the names of the checkpoints, oldest first."""
        return sorted(name for name in files.names(self.run / "checkpoints") if name.isdigit())

    def games(self, game: WebGame, _: Any) -> list[dict[str, Any]]:
        """Return the newest stored games: [{"id", "iteration", "length", "outcome" for the player who began, "score",
        None in a game without scores}]."""
        rows = [row for record in self._records(game) for row in record.games]
        return [
            {
                "id": str(row["id"]),
                "iteration": int(row["iteration"]) + 1,
                "length": int(row["length"]),
                "outcome": float(row["outcome"]),
                "score": _score(row),
            }
            for row in rows[-GAMES:]
        ][::-1]

    def open(self, game: WebGame, name: Any) -> None:
        """Show a stored game from its first position on. name: its id.

        With it go the number of moves before that position, the outcome, the score, and the values of the search that
        played the game, [[move, value]]; outcome and values are for the player who began. Raises ValueError if the game
        is not stored any more.
        """
        for record in self._records(game):
            row = record.games[record.games["id"] == np.uint64(int(name))]
            if len(row):
                positions = record.positions[record.positions["game"] == row["id"][0]]
                before = int(positions["ply"][0])
                moves = record.moves(row["id"][0])
                stored = {
                    "num_before": before - sum(ply < before for ply, _, _ in moves),  # what was drawn first is no move
                    "outcome": float(row["outcome"][0]),
                    "score": _score(row[0]),
                    "values": _values_of_first(game.session.game.num_players, positions),
                }
                game.load([action for ply, _, action in moves if ply >= before], stored, positions["state"][0])
                return
        raise ValueError("this game is not stored any more")

    def compare(self, game: WebGame, _: Any) -> list[dict[str, Any]]:
        """Return what some of the checkpoints would play in the position that is shown: [{"checkpoint", "move", "share"
        of visits, "value" for the player who began, and with several players for the one to move}]."""
        names = self.checkpoints()
        session = game.session
        rows = []
        chosen = np.unique(np.linspace(0, len(names) - 1, COMPARED).astype(int)) if names and not session.over else []
        for k in chosen:
            found = load_player(find_network(self.run, names[k])).search(session.state, SIMULATIONS)
            rows.append(
                {
                    "checkpoint": names[k],
                    "move": found.move,
                    "share": float(found.policy[found.action]),
                    "value": -found.value if session.game.num_players == 2 and session.to_play == 1 else found.value,
                }
            )
        return rows

    def _records(self, game):
        """Return the records of the newest segments that can be read."""
        records = []
        for _, path in segment.paths(self.run / "games")[-SEGMENTS:]:
            try:
                records.append(segment.read(path, game.session.game))
            except (segment.SegmentError, OSError, Refusal):
                continue  # it is damaged, or has just been removed: the others are shown
        return records


def _score(row):
    """Return the score of a stored game, None if the game has no scores."""
    return float(row["score"]) if "score" in row.dtype.names else None


def _values_of_first(num_players, positions):
    """Return the values of a stored game's positions for the player who began, [[move, value]], as far as the values of
    those who were to move tell them."""
    values = []
    plies = (positions["ply"] - positions["ply"][0]).tolist()
    for at, mover, value in zip(plies, positions["to_play"].tolist(), positions["root_value"].tolist()):
        if mover == 0:
            values.append((at, value))
        elif mover == 1 and num_players == 2:
            values.append((at, -value))
    return values
