"""What it takes to analyse a game: all positions together, as `python -m az_mpi analyse` does, or one after the other.

    python benchmarks/analysis.py --network zoo:go9 --simulations 400 --moves 60

The game is one that the network plays without a search. "together": one query, 64 positions at once. "one_by_one": a
query for each position, each answered before the next one. "session": the position's search in play (GTP, the page),
which evaluates several leaves of one tree at once. Times are those of the processor, so that other programs count less.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import make_parser, spread, tell

from az_mpi.games.vertices import Vertices
from az_mpi.play.analyse import Analyser
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import load_player
from az_mpi.player.session import ready_session


def a_game(player, num, rng):
    """Return (the moves of a game as queries have them, the positions before them)."""
    game, vertices = player.game, Vertices(player.game)
    state, moves, states = game.initial(1), [], []
    while len(moves) < num and not game.terminal(state)[0][0]:
        share = player.probabilities(state)[0][0].astype(float) ** 2
        if share[:-1].any():
            share[-1] = 0  # no pass, where the last action is one
        action = int(rng.choice(len(share), p=share / share.sum()))
        moves.append(["BW"[int(game.to_play(state)[0])], vertices.of(state[0], action)])
        states.append(state[0])
        state = game.play(state, np.array([action]))
    return moves, states


def analysed(player, moves, simulations, at_once, queries):
    """Return the seconds of the processor for queries, each a list of turns."""
    said = []
    analyser = Analyser(player, simulations, at_once, "black", said.append)
    begun = time.process_time()
    for turns in queries:
        analyser.take(json.dumps({"id": "game", "moves": moves, "analyzeTurns": turns}))
        analyser.finish()
    assert sum("rootInfo" in one for one in said) == sum(map(len, queries)), "positions are missing"
    return time.process_time() - begun


def in_session(session, states, simulations):
    begun = time.process_time()
    for state in states:
        session.restart(state)
        session.think(Limit(simulations=simulations))
    return time.process_time() - begun


def main():
    parser = make_parser(__doc__, runs=2)
    parser.add_argument("--network", default="zoo:go9")
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--moves", type=int, default=60)
    given = parser.parse_args()
    player = load_player(given.network)
    moves, states = a_game(player, given.moves, np.random.default_rng(1))
    turns, num = list(range(len(moves))), given.simulations
    session = ready_session(player)
    ways = {
        "together": lambda: analysed(player, moves, num, 64, [turns]),
        "one_by_one": lambda: analysed(player, moves, num, 1, [[turn] for turn in turns]),
        "session": lambda: in_session(session, states, num),
    }
    analysed(player, moves, 8, 64, [turns[:2]])  # compiles
    took = [{way: do() for way, do in ways.items()} for _ in range(given.runs)]
    rows = {f"{way}_s": spread([one[way] for one in took]) for way in ways}
    rows["one_by_one / together"] = spread([one["one_by_one"] / one["together"] for one in took])
    rows["session / together"] = spread([one["session"] / one["together"] for one in took])
    tell(f"analysis of {len(moves)} moves of {player.game.name}", rows, given.json)


if __name__ == "__main__":
    main()
