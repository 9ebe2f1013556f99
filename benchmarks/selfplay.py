"""Self-play of one rank on one core against the bare engine in the same run, and of several ranks against one.

    python benchmarks/selfplay.py --run runs/connect4_quick      # a trained network; without --run an untrained one
    mpirun -np 2 -H localhost:2 python benchmarks/selfplay.py --run runs/connect4_quick

The floor is the network's forward pass: `ratio` is simulations/s over the bare engine's evaluations/s at its best
batch. `positions_per_s` are moves played, also in games that are not over, each after a search of
`search.simulations`, those carried over from the search before included; `--set search.reuse_tree=false` runs all of
them again. Games begin one after the other before the first turn, so that in each turn some open and some end. Under
mpirun each rank has a core: `ranks_over_one` is what all ranks play at the same time over what the first plays while
the others wait. All sides take turns, so that a machine whose speed drifts slows each of them. Where there is a GPU the
engine runs there, as in a run; the search still has one core, unless --all_cores gives each rank its share of them.
--engine none takes an engine that answers at once with random numbers: what is left is the program itself.
"""

import itertools
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import add_network, bare_rate, make_parser, network_of, spread, take_all_cores, take_one_core, tell

from az_mpi.doctor.trial import play_for
from az_mpi.mpi import placement
from az_mpi.mpi.world import World
from az_mpi.network import engines
from az_mpi.network.cache import network_evaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.run import games_at_once
from az_mpi.selfplay.player import PARALLEL_GAMES_MAX, Player
from az_mpi.selfplay.record import game_ids

BATCHES = (32, 64, 128, 256, 512)
BATCHES_OF_GPUS = (512, 1024, 2048, 4096)


def main():
    parser = make_parser(__doc__, runs=5)
    add_network(parser)
    parser.add_argument("--engine", choices=("auto", "openvino", "torch", "none"), default="auto")
    parser.add_argument("--seconds", type=float, default=15.0, help="of self-play in each of the runs")
    parser.add_argument("--all_cores", action="store_true", help="as a run: the ranks share the cores of the host")
    parser.add_argument("--counts", action="store_true", help="play for ever and print totals, for others/turns.py")
    arguments = parser.parse_args()
    world = World.start()
    threads = take_all_cores(world) if arguments.all_cores else 1
    if not arguments.all_cores:
        take_one_core(world.local_rank)
    config, game, network = network_of(arguments)
    device = placement.choose_device(world)
    if arguments.engine == "none":
        engine: Engine = AtOnce(game)
        choice = "no engine"
    else:
        engine, choice = engines.make(arguments.engine, network, game, device, threads, config.network.precision)
    evaluate = network_evaluator(game, engine, config.network)
    at_once = games_at_once.AtOnce(*world.share(games_at_once.choose(config, game, engine, evaluate, world.size)))
    player = Player(config, game, evaluate, world.rank, threads, at_once.num_groups, at_once.num_games)
    engine.prepare(player.batch_max)
    ids = itertools.count()
    play(player, ids, 0.0)  # compiles kernels
    spread_games(player, ids, arguments.seconds)
    play(player, ids, arguments.seconds)
    if arguments.counts:
        print_counts(player, ids, world.rank)
    if world.size > 1:
        figures = [compare(world, player, ids, arguments.seconds) for _ in range(arguments.runs)]
    else:
        figures = [measure(player, ids, arguments.seconds) for _ in range(arguments.runs)]
        batches = BATCHES_OF_GPUS if engine.in_background else BATCHES
        for row in figures:
            row["bare_evaluations_per_s"] = max(bare_rate(engine, game, batch) for batch in batches)
            row["ratio"] = row["simulations_per_s"] / row["bare_evaluations_per_s"]
    if world.is_root:
        title = f"selfplay {config.game} {config.network.blocks}x{config.network.channels}, {choice}"
        tell(
            f"{title}, {world.size} rank(s), games at once {at_once.words}",
            {name: spread([f[name] for f in figures]) for name in figures[0]},
            arguments.json,
        )


class AtOnce(Engine):
    """Answers at once: rows of random logits, and random values from -0.3 to 0.3."""

    __module__ = "az_mpi.benchmarks"  # else it counts as an engine of a user, whose numbers are checked
    describe, precision = "at once", "fp32"

    def __init__(self, game):
        rng = np.random.default_rng(0)
        self.policy = rng.normal(size=(PARALLEL_GAMES_MAX, game.num_actions)).astype(np.float32)
        self.value = rng.uniform(-0.3, 0.3, len(self.policy)).astype(np.float32)
        self.planes = np.empty((len(self.policy), *game.planes_shape), game.planes_dtype)

    def room(self, num):
        return self.planes[:num]

    def begin(self, planes):
        outputs = {"policy": self.policy[: len(planes)], "value": self.value[: len(planes)]}
        return lambda: outputs


def print_counts(player, ids, rank):
    """Play until the process is ended; print a line of totals about twice a second."""
    moves = evaluations = 0
    while True:
        moves += play(player, ids, 0.5)[1]
        evaluations += player.search.evaluate.take_counts()[1]
        print(
            json.dumps(
                {"source": rank, "simulations": player.num_simulations, "moves": moves, "evaluations": evaluations}
            ),
            flush=True,
        )


def compare(world, player, ids, seconds):
    """Return the figures of one turn of the first rank alone and one of all ranks together. Collective."""
    world.barrier()
    alone = measure(player, ids, seconds) if world.is_root else None
    world.barrier()
    together = sum(world.collect(measure(player, ids, seconds)["simulations_per_s"]))
    alone = world.share(alone and alone["simulations_per_s"])
    return {"alone_simulations_per_s": alone, "simulations_per_s": together, "ranks_over_one": together / alone}


def measure(player, ids, seconds):
    """Return the figures of one turn of self-play; the cache begins empty."""
    player.search.evaluate.clear(f"a turn that begins after {player.num_simulations} simulations")
    player.search.evaluate.take_counts()
    simulations, finished = player.num_simulations, player.num_finished
    took, positions = play(player, ids, seconds)
    figures = {"simulations_per_s": (player.num_simulations - simulations) / took}
    figures |= {"games_per_s": (player.num_finished - finished) / took, "positions_per_s": positions / took}
    asked, evaluated = player.search.evaluate.take_counts()
    if asked:
        figures |= {"evaluations_per_s": evaluated / took, "cache_hit_rate": 1 - evaluated / asked}
    return figures


def play(player, ids, seconds):
    """Play for about `seconds`; return how long it was and how many moves were made."""
    before = player.num_unfinished_moves
    took = play_for(player, ids, seconds)
    moves = player.take().games["length"].sum() + player.num_unfinished_moves - before
    return took, int(moves)


def spread_games(player, ids, seconds):
    """Drop the games under way and play for about `seconds`, in which one slot after the other gets its first game."""
    player.live[:] = False
    begun, num_slots = time.perf_counter(), len(player.live)
    while (share := (time.perf_counter() - begun) / seconds) < 1:
        slots = player.free()
        slots = slots[slots <= share * num_slots]
        if len(slots):
            player.start(slots, game_ids(0, 0, list(itertools.islice(ids, len(slots)))), 0)
        player.step()
    player.take()


if __name__ == "__main__":
    main()
