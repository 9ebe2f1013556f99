"""How far the levels of `--level` are apart: each against the one before it, by a network with batches of games.

    python benchmarks/levels.py --network zoo:hex7 --simulations 100 --games 80

Two games have the same two random plies at their beginning, with the sides exchanged. Each move is searched from an
empty tree. The Elo between two levels is that of the score; where a side won all games it is that of half a game less.
"""

import json
import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import machine, make_parser

from az_mpi.evaluate.openings import openings
from az_mpi.player import levels
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import load_player
from az_mpi.search.reading import RootMove, root_moves

OPENING_PLIES = 2
CACHE_BYTES = 2**25


class Searched:
    """What `levels.choose` asks of a session."""

    def __init__(self, moves):
        self._moves = moves

    def moves(self) -> list[RootMove]:
        return self._moves

    def best(self) -> int:
        return self._moves[0].action


class Match:
    def __init__(self, player, simulations, starts, seed):
        self.player, self.game, self.simulations = player, player.game, simulations
        self.starts, self.rng = starts, random.Random(seed)
        self.searches = {}

    def score(self, one, other):
        """Return the points of level `one` against level `other`, which begins in every second game."""
        game, num = self.game, len(self.starts)
        states, is_on, points = self.starts.copy(), np.ones(num, bool), 0.0
        first = np.arange(num) % 2  # 1 where `other` is player 0
        plies = OPENING_PLIES
        while is_on.any():
            by_one = game.to_play(states) == first
            for level, movers in ((one, by_one), (other, ~by_one)):
                if len(slots := np.flatnonzero(is_on & movers)):
                    states[slots] = game.play(states[slots], self.chosen(level, states[slots], slots, plies))
            plies += 1
            ended, value = game.terminal_at(states, plies)
            over = is_on & ended
            mine = np.where(game.to_play(states) == first, value, -value)
            points += float(((1 + mine[over]) / 2).sum())
            is_on &= ~ended
        return points

    def chosen(self, level, states, slots, plies):
        """Return a level's actions."""
        simulations = levels.limit_at(level, Limit(simulations=self.simulations), self.simulations).simulations
        if simulations not in self.searches:
            self.searches[simulations] = self.player.new_search(simulations, CACHE_BYTES, len(self.starts))
        search = self.searches[simulations]
        search.reset(slots, states, np.zeros(len(slots), np.uint64), plies)
        search.run(slots)
        return np.array([levels.choose(Searched(root_moves(search, int(slot))), level, self.rng) for slot in slots])


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--network", default="zoo:hex7")
    parser.add_argument("--simulations", type=int, default=100, help="at full strength")
    parser.add_argument("--games", type=int, default=80, help="between two levels, an even number")
    parser.add_argument("--levels", type=int, nargs=2, default=[1, 10], help="the lowest and the highest")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    player = load_player(given.network)
    starts = np.repeat(openings(player.game, given.games // 2, OPENING_PLIES, (given.seed,)).states, 2, axis=0)
    match, rows = Match(player, given.simulations, starts, given.seed), {}
    for level in range(given.levels[0] + 1, given.levels[1] + 1):
        score = match.score(level, level - 1)
        share = min(max(score, 0.5), given.games - 0.5) / given.games
        rows[level] = {"score": score, "elo": round(400 * math.log10(share / (1 - share)))}
        if not given.json:
            print(f"{level} against {level - 1}: {score:g} of {given.games}, {rows[level]['elo']:+d} Elo", flush=True)
    if given.json:
        print(json.dumps({"machine": machine(), **vars(given), "levels": rows}))


if __name__ == "__main__":
    main()
