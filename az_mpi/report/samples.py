"""Sample games of a run for its report, from its first and its newest segment."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from az_mpi import games
from az_mpi.core.printing import counted, seat_name
from az_mpi.games.base import CHANCE, last_board
from az_mpi.games.board_data import Board
from az_mpi.storage import segment

POSITIONS_MAX = 6  # of each game that are drawn


class Position(NamedTuple):
    """A position of a game in which a player is to move, or its end.

    ply: the number of moves from the initial position to it, without those of chance. to_play: 0, 1 and so on. value:
    of the search, in [-1, 1], for the player who began, or with three players and more for the one to move; None at the
    end of the game. drawn: what chance drew right before. board: None for a game without boards. text: what `Game.show`
    draws.
    """

    ply: int
    to_play: int
    value: float | None
    drawn: list[str]
    board: Board | None
    text: str


class Sample(NamedTuple):
    """A game. title: its description. num_players: of the game. moves: of players, in the game's notation. positions:
    before each move, and at the end. shown: the indices of the positions to draw."""

    title: str
    num_players: int
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
    ways, drawn = _replayed(game, record.moves(row["id"]), rows)
    begun = int(rows["ply"][0]) - len(drawn[0])
    sign = np.where(rows["to_play"] == 1, -1, 1) if game.num_players == 2 else np.ones(len(rows))
    values = [*(rows["root_value"] * sign).tolist(), None]
    positions = []
    for index, way in enumerate(ways):
        state = way[-1]
        player = int(game.to_play(state[None])[0])
        positions.append(
            Position(begun + index, player, values[index], drawn[index], last_board(game, way), game.show(state))
        )
    shown = np.unique(np.linspace(0, len(rows), min(POSITIONS_MAX + 1, len(rows) + 1)).round().astype(int))[1:]
    cut = " (ended by the move cap)" if row["truncated"] else ""
    elsewhere = f", begun after {begun} others" if begun else ""
    title = f"{what}: {counted(row['length'], 'move')}{elsewhere}, {_result(game, row, rows)}{cut}"
    about = f"begun in iteration {row['iteration'] + 1}, played by rank {row['rank']}"
    moves = [game.action_to_text(*pair) for pair in zip(rows["state"], rows["action"].tolist())]
    return Sample(f"{title}; {about}", game.num_players, moves, positions, shown.tolist())


def _replayed(game, moves, rows):
    """Return (for each of a game's positions, and its end, the states from the position before to it, each [S]; what
    chance drew between them, words). moves: of `Record.moves`. rows: the positions."""
    words: list[list[str]] = [[] for _ in range(len(rows) + 1)]
    ways: list[list[np.ndarray]] = [[] for _ in range(len(rows) + 1)]
    if moves[0][0] == 0:
        state = game.initial(1)[0]
    else:  # it began elsewhere
        state, moves = rows["state"][0], [move for move in moves if move[0] >= rows["ply"][0]]
    index = 0
    for _, mover, action in moves:
        ways[index].append(state)
        if mover == CHANCE:
            words[index].append(game.outcome_to_text(state, action))
        else:
            index += 1
            ways[index].append(state)
        state = game.play(state[None], np.array([action]))[0]
    ways[index].append(state)
    return ways, words


def _result(game, row, rows):
    """Return how a game ended, as text. rows: its positions."""
    outcome = float(row["outcome"])
    if game.score_name:
        return f"{game.score_name} {row['score']:,.6g}"
    if game.num_players == 1:
        return f"value {outcome:+.2f}"
    if game.num_players == 2:
        texts = {1.0: "the first player won", -1.0: "the second player won", 0.0: "drawn"}
        return texts.get(outcome, f"outcome {outcome:+.2f} for the first player")
    results = np.roll(rows["value"][0], rows["to_play"][0])
    return ", ".join(f"{seat_name(seat)} {result:+.2f}" for seat, result in enumerate(results.tolist()))
