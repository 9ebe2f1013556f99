"""What the search itself costs: microseconds a simulation with an evaluator that does nothing, on one core.

python benchmarks/search.py --game connect4 --algorithm gumbel
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.config.schema import Search as Settings
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import make_search


def main():
    parser = make_parser(__doc__, runs=7)
    parser.add_argument("--game", default="connect4", choices=games.NAMES)
    parser.add_argument("--algorithm", default="puct")
    parser.add_argument("--trees", type=int, default=256)
    parser.add_argument("--simulations", type=int, default=100)
    arguments = parser.parse_args()
    take_one_core()
    game = games.make(arguments.game)
    settings = Settings(algorithm=arguments.algorithm, simulations=arguments.simulations)
    search = make_search(game, UniformEvaluator(game), settings, arguments.trees, noise=True)
    slots = np.arange(arguments.trees)
    costs = [one_game_each(game, search, slots, settings.simulations, seed) for seed in range(arguments.runs + 1)]
    rows = {"microseconds_per_simulation": spread(costs[1:])}  # the first compiled the kernels
    tell(f"search {arguments.algorithm} {arguments.game}, {arguments.trees} trees", rows, arguments.json)


def one_game_each(game, search, slots, simulations, seed):
    """Search and play the first plies of a game in every tree; return the microseconds a simulation took."""
    states = game.initial(len(slots))
    search.reset(slots, states, np.arange(len(slots), dtype=np.uint64) + np.uint64(1000 * seed))
    begun, num = time.perf_counter(), 0
    for _ in range(4):
        before = int(search.trees.visits[slots, 0].sum())
        search.run(slots)
        num += int(search.trees.visits[slots, 0].sum()) - before
        actions = search.choose(slots, np.ones(len(slots)))
        states = game.play(states, actions)
        if game.terminal(states)[0].any():  # such as by two passes in Go
            break
        search.advance(slots, actions)
    return (time.perf_counter() - begun) / num * 1e6


if __name__ == "__main__":
    main()
