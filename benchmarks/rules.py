"""What the rules of games cost: their share of self-play's time, and the leaves a second of a search without a network.

    python benchmarks/rules.py                                             # the native games
    python benchmarks/rules.py --games openspiel:chess openspiel:mancala   # any others

One core, one rank of self-play at the defaults, an untrained network. `rules_share` is the share of self-play's time
that is spent in the game's own methods, with the network of --blocks and --channels. `leaves_per_s` are the
simulations/s of the same search if every position is worth the same and no network is asked. `playout_plies_per_s` are
the moves of random games a second of CPU time, from the beginning. `openspiel_plies_per_s` are those of OpenSpiel's C++
rules for the same game, if it has it: 1,000 random play-outs for each call of its MCTSBot, all in C++, which are taken
to be as long as the program's own.
"""

import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pyspiel
from common import make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.doctor.trial import play_for
from az_mpi.games.random_games import play_out, random_games
from az_mpi.network import engines, resnet
from az_mpi.network.cache import network_evaluator
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.selfplay.player import Player

NATIVE = ["connect4", "tictactoe", "othello", "hex", "gomoku", "breakthrough", "go", "go(size=19)"]
NATIVE += ["chess", "backgammon", "2048", "morpion", "mnk(m=5,n=5,k=4,players=3)"]
OPENSPIEL = {
    "connect4": "connect_four",
    "tictactoe": "tic_tac_toe",
    "othello": "othello",
    "hex": "hex(board_size=11)",
    "gomoku": "mnk(m=15,n=15,k=5)",
    "breakthrough": "breakthrough",
    "go": "go(board_size=9,komi=7.0,max_game_length=162)",
    "go(size=19)": "go(board_size=19,komi=7.0,max_game_length=722)",
}
METHODS = "play", "chances", "legal", "terminal", "to_play", "planes", "key", "canonical_key"


def main():
    parser = make_parser(__doc__, runs=3)
    parser.add_argument("--games", nargs="+", default=NATIVE, metavar="NAME")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--parallel_games", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    arguments = parser.parse_args()
    take_one_core()
    rows = {}
    for name in arguments.games:
        turns = measure(name, arguments)
        rows |= {f"{name} {what}": spread([turn[what] for turn in turns]) for what in turns[0]}
    tell(f"rules of games, {arguments.blocks}x{arguments.channels}", rows, arguments.json)


def measure(name, arguments):
    """Return the figures of each turn of a game."""
    config = configuration.validate(
        {
            "game": name,
            "network": {"blocks": arguments.blocks, "channels": arguments.channels},
            "selfplay": {"parallel_games": arguments.parallel_games},
        },
        "the options",
    )
    game = Clocked(games.make(config.game))
    engine, _ = engines.make("auto", resnet.build(game.game, config.network, config.seed), game.game, "cpu", 1)
    players = [
        Player(config, game.game, evaluate, 0)
        for evaluate in (network_evaluator(game.game, engine, config.network), UniformEvaluator(game.game))
    ]
    ids = itertools.count()
    for player in players:
        play_for(player, ids, 1.0)  # compiles kernels
    turns = []
    for _ in range(arguments.runs):
        (share, simulations), (_, leaves) = (turn(player, game, ids, arguments.seconds) for player in players)
        turns.append({"rules_share": share, "simulations_per_s": simulations, "leaves_per_s": leaves})
    return [found | play_outs(name) for found in turns]


def play_outs(name):
    """Return moves/s of random games."""
    game, rng = games.make(name), np.random.default_rng(0)
    states, _ = next(random_games(game, 100, rng))  # after the moves of chance that come first
    play_out(game, states, rng)  # compiles
    begun, moves, num = time.process_time(), 0, 0
    while time.process_time() - begun < 1:
        moves, num = moves + play_out(game, states, rng)[1], num + len(states)
    found = {"playout_plies_per_s": moves / (time.process_time() - begun)}
    if name in OPENSPIEL:
        theirs = pyspiel.load_game(OPENSPIEL[name])
        bot = pyspiel.MCTSBot(theirs, pyspiel.RandomRolloutEvaluator(1000, 0), 1.0, 1, 10, False, 0, False)
        state = theirs.new_initial_state()
        begun, steps = time.process_time(), 0
        while time.process_time() - begun < 1:
            bot.step(state)
            steps += 1
        found["openspiel_plies_per_s"] = 1000 * steps * moves / num / (time.process_time() - begun)
    return found


def turn(player, game, ids, seconds):
    """Play for about `seconds`; return (the share of the time in the rules, simulations/s)."""
    before, game.seconds = player.num_simulations, 0.0
    took = play_for(player, ids, seconds)
    player.take()
    return game.seconds / took, (player.num_simulations - before) / took


class Clocked:
    """A game whose methods add up the `seconds` that are spent in them; one that another one calls counts once."""

    def __init__(self, game):
        self.game, self.seconds, self._is_inside = game, 0.0, False
        for name in METHODS:
            setattr(game, name, self._clocked(getattr(game, name)))

    def _clocked(self, method):
        def call(*what):
            if self._is_inside:
                return method(*what)
            self._is_inside, begun = True, time.perf_counter()
            try:
                return method(*what)
            finally:
                self.seconds += time.perf_counter() - begun
                self._is_inside = False

        return call


if __name__ == "__main__":
    main()
