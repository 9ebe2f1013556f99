"""OpenSpiel's own search as an opponent, in games of OpenSpiel."""

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.evaluate.opponents import Opponent, Seat
from az_mpi.games.base import Game, require
from az_mpi.games.openspiel import OpenSpiel

MEMORY_MB = 1000  # that a search may take


class MctsBot(Opponent):
    """pyspiel.MCTSBot: UCT with random playouts and solved results; `simulations` a move, exploration constant `uct_c`.

    A move depends only on the position, `seed` and the index of the game in the match.
    """

    def __init__(self, game: Game, seed: tuple[int, ...], simulations: int = 1000, uct_c: float = 2.0):
        if not isinstance(game, OpenSpiel):
            raise Refusal(
                f'evaluate.opponents: "mcts_bot" plays games of OpenSpiel; game is {game.name}\n'
                "  take rollout, which is alike and plays every game, or openspiel:NAME as the game"
            )
        require("simulations", simulations, 1, 1_000_000)
        if not uct_c > 0:
            raise ValueError(f"uct_c is {uct_c!r}; allowed: a number above 0")
        self.game = game
        self.seed = (*seed, 3)
        self.simulations = simulations
        self.uct_c = uct_c

    def choose(self, seat: Seat, slots: np.ndarray) -> np.ndarray:
        return np.array([self.move(seat.states[slot], seat.indices[slot]) for slot in slots], np.int64)

    def move(self, state: np.ndarray, index: int) -> int:
        """Return the bot's action in a state, [S], of game number `index`."""
        import pyspiel

        seed = int(np.random.default_rng([*self.seed, index, int(state[0])]).integers(2**31))
        bot = pyspiel.MCTSBot(
            self.game.game,
            pyspiel.RandomRolloutEvaluator(1, seed),
            self.uct_c,
            self.simulations,
            MEMORY_MB,
            True,
            seed,
            False,
        )
        return bot.step(self.game.live(state))
