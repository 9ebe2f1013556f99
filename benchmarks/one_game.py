"""One game searched deeply against self-play with many games, alternately in one run on one core, by one network.

    python benchmarks/one_game.py --run runs/connect4_quick      # a trained network; without --run an untrained one

`ratio` is the simulations/s of a game that thinks as `python -m az_mpi play` and `gtp` do, over those of self-play.
`single_ratio` is the same with one leaf at a time and no cache. In all of them only new simulations count.
"""

import itertools
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import add_network, make_parser, network_of, spread, take_one_core, tell

from az_mpi.doctor.trial import play_for
from az_mpi.network import engines
from az_mpi.network.cache import network_evaluator
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.session import CACHE_BYTES, Session
from az_mpi.selfplay.player import Player

OPENING_PLIES = 4


def main():
    parser = make_parser(__doc__, runs=5)
    add_network(parser)
    parser.add_argument("--simulations", type=int, default=800, help="for a move of the one game")
    parser.add_argument("--leaves", type=int, default=0, help="at once; by default as many as make the engine fast")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each side in each of the runs")
    arguments = parser.parse_args()
    take_one_core()
    config, game, network = network_of(arguments)
    engine, choice = engines.make("auto", network, game, "cpu", 1, "auto")
    player = LoadedPlayer(game, engine, config.search)
    leaves_max = arguments.leaves or player.leaves_at_once()
    many = Player(config, game, network_evaluator(game, engine, config.network), 0)
    ids, deep = itertools.count(), lambda: Session(player, leaves_max, CACHE_BYTES)
    sides = {
        "selfplay_per_s": lambda seconds: selfplay_rate(many, ids, seconds),
        "one_game_per_s": lambda seconds: game_rate(deep, arguments, seconds),
        "single_per_s": lambda seconds: game_rate(lambda: Session(player), arguments, seconds),
    }
    rates = {name: [] for name in sides}
    for run in range(arguments.runs + 1):  # the first one warms up
        for name, rate in sides.items():
            rates[name].append(rate(arguments.seconds if run else 1.0))
    rates = {name: values[1:] for name, values in rates.items()}
    rows = {name: spread(values) for name, values in rates.items()}
    for name, side in (("ratio", "one_game_per_s"), ("single_ratio", "single_per_s")):
        rows[name] = spread([a / b for a, b in zip(rates[side], rates["selfplay_per_s"])])
    tell(f"one game of {config.game}, {choice}, {leaves_max} leaves", rows, arguments.json)


def selfplay_rate(player, ids, seconds):
    """Return the simulations a second of self-play."""
    before = player.num_simulations
    took = play_for(player, ids, seconds)
    return (player.num_simulations - before) / took


def game_rate(new_session, arguments, seconds):
    """Play games, with `arguments.simulations` for a move; return the simulations a second of thinking. Each game is
    begun by random moves, and remembers no evaluation of the one before."""
    num, took, rng, session = 0, 0.0, np.random.default_rng(), None
    while took < seconds:
        while session is None or session.over:
            session = new_session()
            for _ in range(OPENING_PLIES):
                session.play(int(rng.choice(list(session.legal().values()))))
        before, begun = session.simulations, time.perf_counter()
        session.think(Limit(simulations=arguments.simulations))
        took += time.perf_counter() - begun
        num += session.simulations - before
        session.play(session.best())
    return num / took


if __name__ == "__main__":
    main()
