"""How well a run's network plays a game of one player or with dice, beyond what `match` tells.

    mpirun -np 2 -H localhost:2 python benchmarks/one_kind.py runs/2048 --games 100 --simulations 50

2048: the scores, and in how many games each tile was reached. Pig (`tests/unit/kinds.py:FullPig`): the network
plays both sides, and each of its moves is compared with the exact solution (value iteration, Neller and Presser 2004),
by moves and by what the wrong ones cost. 0 simulations: as in the run's matches.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests/unit"))

import numpy as np
import torch
from common import machine, make_parser
from solved import solve_pig

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.evaluate import arena
from az_mpi.evaluate.dice import Dice
from az_mpi.evaluate.opponents import greedy_moves, random_moves
from az_mpi.evaluate.rating import score_interval, score_summary
from az_mpi.evaluate.sides import read_side
from az_mpi.evaluate.tally import Scores
from az_mpi.mpi.world import World
from az_mpi.player.limits import Limit

SEED = (2,)  # of the dice


def main():
    parser = make_parser(__doc__)
    parser.add_argument("network", help="a run, a checkpoint, or another side as in `az_mpi match`")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--simulations", type=int, default=0, help="of each search")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world = World.start()
    side = read_side(arguments.network, Limit(arguments.simulations, 0.0), SEED, world.rank, {})
    game = side.game or games.make("2048")
    if game.name.startswith("2048"):
        players = {side.name: side.make(game), "random": random_moves(SEED), "greedy": greedy_moves(SEED)}
        rows = {name: tiles(game, played(world, game, player, arguments.games)) for name, player in players.items()}
    elif game.name == "pig":
        rows = optimal_moves(game, played(world, game, side.make(game), arguments.games))
    else:
        raise Refusal(f"{game.name}: allowed: 2048 and Pig; `python -m az_mpi match` compares players of any game")
    if world.is_root and arguments.json:
        print(json.dumps({"benchmark": "one kind", "machine": machine(), **rows}))
    elif world.is_root:
        print(f"{arguments.games} games of {game.name}, {arguments.simulations} simulations; {machine()['processor']}")
        for name, row in rows.items():
            print(f"  {name}: " + ", ".join(f"{key} {value:.5g}" for key, value in row.items()))


def played(world, game, player, num_games):
    """Return the moves of so many games of a player against itself, of all ranks. Collective."""
    num_sets = num_games // game.num_players
    starts = arena.openings(game, num_sets, 0, SEED)
    mine = arena.games_of(world, num_sets, 0, game.num_players)
    other = None if game.num_players == 1 else player
    found = arena.play_games(game, player, other, starts, mine, dice=Dice(SEED))
    return [moves for part in world.collect([one.moves for one in found]) for moves in part]


def tiles(game, all_moves):
    """Return the scores of games of 2048, and the shares of those with the tiles 512, 1024, ...."""
    states = game.initial(len(all_moves))
    for i, moves in enumerate(all_moves):
        for move in moves:
            states[i] = game.play(states[i : i + 1], np.array([move]))[0]
    summary = score_summary(Scores(game.score(states).astype(float)))
    figures = {key: round(value) for key, value in summary.items() if key.startswith("score_")}
    largest = states[:, : game.cells].max(axis=1)
    return figures | {f"tile {2**k}": float((largest >= k).mean()) for k in range(9, max(largest.max(), 11) + 1)}


def optimal_moves(game, all_moves):
    """Return the share of the decisions of games of Pig that are optimal, and the mean loss of winning chances."""
    wins, hold = solve_pig(game.goal, within=1e-9)
    optimal, cost = [], []
    for moves in all_moves:
        states = game.initial(1)
        for move in moves:
            player = game.to_play(states)[0]
            if player >= 0:
                own, other, total = int(states[0, player]), int(states[0, 1 - player]), int(states[0, 2])
                held = 1 - wins[other, min(own + total, game.goal - 1), 0] if total else -np.inf
                thrown = thrown_chance(wins, own, other, total)
                best, chosen = max(held, thrown), (thrown, held)[move]
                optimal.append(chosen >= best - 1e-7)
                cost.append(best - chosen)
            states = game.play(states, np.array([move]))
    share = float(np.mean(optimal))
    low, high = score_interval(share, len(optimal))
    found = {"optimal": share, "low": low, "high": high, "mean_cost": float(np.mean(cost)), "decisions": len(optimal)}
    return {"moves of the network": found}


def thrown_chance(wins, own, other, total):
    """Return the chance to win of a player who throws."""
    goal = len(wins)
    chance = 1 - wins[other, own, 0]
    for eyes in range(2, 7):
        chance += 1.0 if own + total + eyes >= goal else wins[own, other, total + eyes]
    return chance / 6


if __name__ == "__main__":
    main()
