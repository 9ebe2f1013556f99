"""A network of pgx's AlphaZero example in Connect Four, as a side of `az_mpi match` and for benchmarks/test_sets.py.

    python -m az_mpi match RUN "benchmarks/others/pgx_player.py:PgxPlayer(python='jax-env/bin/python',
        example='pgx/examples/alphazero', folder='FOLDER')" --games 200 --opening_plies 4 --simulations 100

FOLDER is that of `pgx_example.py train`. JAX runs in a process of its own, started by `python`, one for each rank. The
simulations are those that the match names. `search_of` says who searches: "mctx", its Gumbel search as in the example,
but without noise, from a new tree for each move; or a run, a checkpoint or a name of the zoo: az_mpi then searches with
pgx's network, under the settings of that run.
"""

import atexit
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from az_mpi import load_player
from az_mpi.config import schema
from az_mpi.evaluate.opponents import Opponent, SearchPlayer, Seat
from az_mpi.games.base import Game
from az_mpi.games.random_games import random_games
from az_mpi.network.evaluators import Evaluation, Evaluator

PROGRAM = Path(__file__).with_name("pgx_example.py")
PLIES, COLUMNS = 42, 7
CHECKED_GAMES = 20


class Server:
    """A process of `pgx_example.py serve`. settings: what it says of its network."""

    def __init__(self, python: str, example: str, folder: str):
        self.command = [python, str(PROGRAM), "serve", example, folder]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.process.kill)
        self.settings = json.loads(self.process.stdout.readline() or self._ended())

    def ask(self, what: str, rows: np.ndarray, shape: tuple[int, ...], dtype: type, simulations: int = 0) -> np.ndarray:
        """Return the answer to one request, of this shape and dtype."""
        request = {"ask": what, "num": len(rows), "simulations": simulations}
        self.process.stdin.write(json.dumps(request).encode() + b"\n" + rows.tobytes())
        self.process.stdin.flush()
        answer = self.process.stdout.read(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return np.frombuffer(answer or self._ended(), dtype).reshape(shape)

    def _ended(self):
        sys.exit(f"{' '.join(self.command)}\n  ended with status {self.process.wait()}")


class PgxNetwork(Evaluator):
    """Evaluates positions with a server's network."""

    def __init__(self, game: Game, server: Server):
        self.game = game
        self.server = server

    def __call__(self, states: np.ndarray) -> Evaluation:
        if not len(states):
            return np.zeros((0, COLUMNS), np.float32), np.zeros(0, np.float32)
        planes = np.ascontiguousarray(self.game.planes(states), np.uint8)
        answer = self.server.ask("evaluate", planes, (len(states), COLUMNS + 1), np.float32)
        return answer[:, :COLUMNS], answer[:, COLUMNS]


class PgxPlayer(Opponent):
    """See the text of this file."""

    def __init__(
        self, game: Game, settings: schema.Evaluate, python: str, example: str, folder: str, search_of: str = "mctx"
    ):
        if game.name != "connect4":
            raise ValueError(f"it plays connect4, and the game is {game.name}")
        self.simulations = settings.rollout_simulations
        self.server = Server(python, example, folder)
        self.evaluate = PgxNetwork(game, self.server)
        check_rules(game, self.server)
        self.searches = None
        if search_of != "mctx":
            found = load_player(search_of).settings.model_copy(update={"simulations": self.simulations})
            self.searches = SearchPlayer(self.evaluate, found)

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> Seat:
        return (self.searches.seat if self.searches else super().seat)(game, states, indices, moves)

    def actions(self, game: Game, states: np.ndarray) -> np.ndarray:
        if self.searches:
            return self.searches.actions(game, states)
        return self.server.ask("search", moves_to(game, states), (len(states),), np.int8, self.simulations).astype(int)


def moves_to(game: Game, states: np.ndarray) -> np.ndarray:
    """Return moves that lead from the start of the game to each state in play, int8 [n, 42], filled up with -1.

    Any order in which the players alternate will do: nobody has four in a row on the way either."""
    moves = np.full((len(states), PLIES), -1, np.int8)
    for row, (own, other) in zip(moves, game.planes(states)[:, :2].astype(bool)):
        num = int(own.sum() + other.sum())
        # The player of each stone by column and height, 0 for the one who began.
        stones = np.where(own, num % 2, 1 - num % 2)[::-1].T
        heights = (own | other).sum(axis=0)
        row[:num] = _order(stones, heights, (0,) * COLUMNS, set())
    return moves


def _order(stones, heights, filled, failed):
    """Return the columns of the moves that are left after `filled`, the stones in each column; None if none fit."""
    if filled == tuple(heights):
        return []
    for column in range(COLUMNS):
        if filled[column] < heights[column] and stones[column, filled[column]] == sum(filled) % 2:
            later = (*filled[:column], filled[column] + 1, *filled[column + 1 :])
            if later not in failed and (rest := _order(stones, heights, later, failed)) is not None:
                return [column, *rest]
    failed.add(filled)
    return None


def check_rules(game: Game, server: Server) -> None:
    """End this program unless both sides show the same planes in the positions of random games."""
    found = [states for states, _ in random_games(game, CHECKED_GAMES, np.random.default_rng(0))]
    states = np.concatenate(found)
    planes = game.planes(states)
    if not np.array_equal(server.ask("planes", moves_to(game, states), planes.shape, np.uint8), planes):
        sys.exit("pgx and az_mpi show different planes in the same position")
