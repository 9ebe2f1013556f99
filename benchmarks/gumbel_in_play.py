"""How strong play is by different rules at the root: a network against itself, with equal simulations on both sides.

    python benchmarks/gumbel_in_play.py --network zoo:hex7 --simulations 400 --games 100 --a play

A side is "play", Gumbel search as in play and matches; "gumbel:M", the same as in self-play but without noise, with at
most M moves of the root; or "puct". The two last do not look for moves that win at once. Two games have the same random
opening, with the sides exchanged. Both sides share one cache of evaluations, so that the time says nothing.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import machine, make_parser, spread

from az_mpi.evaluate.arena import play_games
from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import Opponent, SearchPlayer, SearchSeat
from az_mpi.evaluate.rating import summary
from az_mpi.evaluate.tally import tally
from az_mpi.network.cache import CachedEvaluator
from az_mpi.player.loaded_player import load_player
from az_mpi.search import make_search

CACHE_BYTES = 2**28


class Fixed(Opponent):
    """Plays by a search as self-play has it, without noise."""

    def __init__(self, evaluate, settings):
        self.evaluate, self.settings = evaluate, settings

    def seat(self, game, states, indices, moves):
        search = make_search(game, self.evaluate, self.settings, len(states), noise=False)
        return SearchSeat(search, states, np.array([len(of_game) for of_game in moves]))


def side(text, evaluate, settings, scale):
    """Return the opponent that `text` names."""
    algorithm, _, most = text.partition(":")
    changes = {"algorithm": "puct" if algorithm == "puct" else "gumbel", "gumbel_c_scale": scale}
    if algorithm == "play":
        return SearchPlayer(evaluate, settings.model_copy(update=changes))
    return Fixed(evaluate, settings.model_copy(update=changes | {"gumbel_actions": int(most or 16)}))


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--network", default="zoo:hex7")
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--opening_plies", type=int, default=4)
    parser.add_argument("--a", default="play")
    parser.add_argument("--b", default="gumbel:16")
    parser.add_argument("--scale", type=float, default=0.3, help="search.gumbel_c_scale (default 0.3)")
    parser.add_argument("--seed", type=int, default=1, help="of the openings")
    given = parser.parse_args()
    player = load_player(given.network)
    evaluate = CachedEvaluator(player.game, player.engine, CACHE_BYTES)
    settings = player.settings.model_copy(update={"simulations": given.simulations})
    ours, theirs = (side(text, evaluate, settings, given.scale) for text in (given.a, given.b))
    starts = openings(player.game, given.games // 2, given.opening_plies, (given.seed, given.simulations))
    played = play_games(player.game, ours, theirs, starts, np.arange(given.games))
    result = summary(tally(player.game, played))
    if given.json:
        plies = spread([len(one.moves) for one in played])
        print(json.dumps({"machine": machine(), **vars(given), **result, "plies": plies}))
        return
    print(
        f"{given.network}, {given.simulations} simulations, {given.a} against {given.b}: won {result['wins']}, drew "
        f"{result['draws']}, lost {result['losses']}; score {result['score']:.3f} [{result['score_low']:.3f}, "
        f"{result['score_high']:.3f}], on {machine()['processor']}"
    )


if __name__ == "__main__":
    main()
