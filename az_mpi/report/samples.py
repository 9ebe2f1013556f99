"""Sample games of a run for its report, from its first and its newest segment."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from az_mpi import games
from az_mpi.core.printing import counted
from az_mpi.games.base import board_after
from az_mpi.games.board_data import Board
from az_mpi.storage import segment

POSITIONS_MAX = 6  # of each game that are drawn


class Position(NamedTuple):
    """A position of a game.

    ply: the number of moves from the initial position to it. to_play: 0 or 1. value: of the search, for the player who
    began, in [-1, 1]; None at the end of the game. board: None for a game without boards. text: what `Game.show` draws.
    """

    ply: int
    to_play: int
    value: float | None
    board: Board | None
    text: str


class Sample(NamedTuple):
    """A game. title: its description. moves: in the game's notation. positions: before each move, and at the end.
    shown: the indices of the positions to draw."""

    title: str
    moves: list[str]
    positions: list[Position]
    shown: list[int]

    def numbers(self) -> dict[tuple[int, int], int]:
        """Return {(row, column): number of the last move that put a piece on this cell}. Moves count from 1."""
        drawn = [position for position in self.positions if position.board]
        return {cell: position.ply for position in drawn for cell in position.board.last}


def choose(folder: Path, game_name: str) -> list[Sample]:
    """Return samples of a run: the game of median length of the first segment, and the shortest, the median and the
    longest game of the newest segment. Raises segment.SegmentError for a damaged file."""
    game = games.make(game_name)
    paths = [path for _, path in segment.paths(Path(folder) / "games")]
    records = [(path, segment.read(path, game)) for path in dict.fromkeys([*paths[:1], *paths[-1:]])]
    samples = []
    for path, record in records:
        order = np.argsort(record.games["length"], kind="stable")
        if not len(order):
            continue
        of = f"of the {'newest' if path == paths[-1] else 'first'} games"
        chosen = {order[len(order) // 2]: f"A game of median length {of}"}
        if path == paths[-1]:
            chosen = {order[0]: f"The shortest {of}"} | chosen | {order[-1]: f"The longest {of}"}
        samples += [_sample(game, record, index, what) for index, what in chosen.items()]
    return samples


def _sample(game, record, index, what):
    row = record.games[index]
    rows = record.positions[record.positions["game"] == row["id"]]
    states = np.concatenate([rows["state"], game.play(rows["state"][-1:], rows["action"][-1:])])
    players = game.to_play(states)
    positions = []
    begun = int(rows["ply"][0])
    for index, state in enumerate(states):
        value = None
        if index < len(rows):
            value = float(rows["root_value"][index]) * (1 if players[index] == 0 else -1)
        board = board_after(game, states[index - 1] if index else None, state)
        positions.append(Position(begun + index, int(players[index]), value, board, game.show(state)))
    shown = np.unique(np.linspace(0, len(rows), min(POSITIONS_MAX + 1, len(rows) + 1)).round().astype(int))[1:]
    result = {1.0: "the first player won", -1.0: "the second player won", 0.0: "drawn"}.get(
        float(row["outcome"]), f"outcome {row['outcome']:+.2f} for the first player"
    )
    end = " (ended by the move cap)" if row["truncated"] else ""
    elsewhere = f", begun after {begun} others" if begun else ""
    title = f"{what}: {counted(row['length'], 'move')}{elsewhere}, {result}{end}"
    about = f"begun in iteration {row['iteration'] + 1}, played by rank {row['rank']}"
    moves = [game.action_to_text(*pair) for pair in zip(rows["state"], rows["action"].tolist())]
    return Sample(f"{title}; {about}", moves, positions, shown.tolist())
