"""How often a network of Connect Four loses value, on sets of test positions.

    mpirun -np 2 -H localhost:2 python benchmarks/test_sets.py runs/connect4_quick Test_L3_R1 Test_L2_R1

A set is a text file with a position on each line: the columns of the moves from the empty board, numbered from 1, as in
`44436 -2`; what follows the moves is not read. Pascal Pons publishes six such sets (blog.gamesolver.org, "Solving
Connect 4", part 2); AlphaZero.jl reports its errors on them. Here the package BitBully finds the value of every move.
A move is an error if it turns a won position into a draw or a loss, or a drawn one into a loss.

`--policy` tells the errors of the network without a search as well. `random` is a player who draws legal moves.
In place of a run stands any side of `az_mpi match` that has an `evaluate` and moves in positions without their games,
such as that of others/pgx_player.py.

To judge while tuning, keep those sets for the end and make one of your own like Begin-Hard: `--make 1000` writes 1,000
positions to each file that is not there, after 2 to 12 random moves, with more than 28 moves to go in perfect play.
"""

import sys
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from common import make_parser, tell

from az_mpi import games
from az_mpi.evaluate.optimal import optimal_share
from az_mpi.evaluate.rating import score_interval
from az_mpi.evaluate.sides import read_side
from az_mpi.evaluate.solver import solve_connect4
from az_mpi.mpi.world import World
from az_mpi.player.limits import Limit


def main():
    parser = make_parser(__doc__)
    parser.add_argument("network", help="a run, a checkpoint, a file of weights, or another side as in `az_mpi match`")
    parser.add_argument("sets", nargs="+", type=Path, help="files of positions")
    parser.add_argument("--simulations", type=int, default=600, help="of each search")
    parser.add_argument("--positions", type=int, help="of each set, the first ones; by default all")
    parser.add_argument("--policy", action="store_true", help="the errors without search too")
    parser.add_argument("--make", type=int, metavar="N", help="make the sets that are not there, of N positions")
    parser.add_argument("--seed", type=int, default=1, help="of --make (default 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world, rows = World.start(), {}
    for k, path in enumerate(arguments.sets):
        if arguments.make and world.is_root and not path.exists():
            path.write_text("".join(islice(hard_positions((arguments.seed, k)), arguments.make)))
    world.barrier()
    side = read_side(arguments.network, Limit(arguments.simulations, 0.0), (arguments.seed,), world.rank, {})
    game = side.game or games.make("connect4")
    player: Any = side.make(game)  # one that evaluates positions, too: a network, or pgx's
    for path in arguments.sets:
        states = positions(game, path)[: arguments.positions]
        solved = solve_connect4(game, states[world.rank :: world.size].copy())
        shares = optimal_share(world, game, player, solved)
        for name, prefix in (("", ""), (" policy", "policy_"), (" random", "random_")):
            if name != " policy" or arguments.policy:
                rows[path.stem + name] = errors(shares[f"{prefix}overall"], shares["num_positions"])
    if world.is_root:
        tell(f"errors in %, {arguments.simulations} simulations, with 95 % intervals", rows, arguments.json)


def positions(game, path):
    """Return the positions in play of a file, [P, S]."""
    lines = [line.split()[0] for line in path.read_text().splitlines() if line.strip()]
    states = np.concatenate([game.initial(1)] * len(lines))
    for i, moves in enumerate(lines):
        for column in moves:
            action = "1234567".find(column)
            if action < 0 or not game.legal(states[i : i + 1])[0, action]:
                sys.exit(f"{path}, line {i + 1}: {moves} has an illegal move {column}; columns are 1 to 7")
            states[i] = game.play(states[i : i + 1], np.array([action]))[0]
    return states[~game.terminal(states)[0]]


def hard_positions(seed):
    """Yield lines of a set like Begin-Hard, all different, without end."""
    from bitbully import BitBully, Board

    game, rng, made = games.make("connect4"), np.random.default_rng(seed), set()
    solver = BitBully(opening_book="12-ply-dist")  # its scores tell how soon the winner wins
    while True:
        moves, state = [], game.initial(1)
        for _ in range(rng.integers(2, 13)):
            moves.append(rng.choice(np.flatnonzero(game.legal(state)[0])))
            state = game.play(state, np.array(moves[-1:]))
            if game.terminal(state)[0][0]:
                break
        else:
            score = max(solver.score_all_moves(Board([int(move) for move in moves])).values())
            if plies_to_go(len(moves), score) > 28 and state.tobytes() not in made:
                made.add(state.tobytes())
                yield "".join(str(move + 1) for move in moves) + f" {score}\n"


def plies_to_go(ply, score):
    """Return how many moves perfect play lasts after `ply` moves. score: Pons', for the player to move: 22 minus the
    stones with which the winner wins, negative if that is the other player, 0 for a draw."""
    if score > 0:
        return 2 * (22 - score - ply // 2) - 1
    return 2 * (22 + score - (ply + 1) // 2) if score else 42 - ply


def errors(share, num):
    """Return 100 (1 - share) with its interval, of `num` positions, as `common.spread` does."""
    low, high = score_interval(1 - share, num)
    return {"median": 100 * (1 - share), "min": 100 * low, "max": 100 * high, "runs": num}


if __name__ == "__main__":
    main()
