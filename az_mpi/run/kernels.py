"""Compiles the kernels before the run begins. Of the ranks that share a cache, one compiles and the others wait.

Numba compiles a kernel when it is first called, and caches it in a folder (set in `az_mpi/__init__.py`). Without this,
every rank would compile every kernel in its first game. `python -m az_mpi.run.kernels [GAME ...]` compiles without MPI;
`make setup` runs it for COMMON games. Games whose states are uint64 share the kernels of search and training, so that
another one has only its own rules to compile.
"""

import hashlib
import inspect
import itertools
import multiprocessing
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import numba
import numpy as np
from numba.core.registry import cpu_target

import az_mpi
from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config.schema import Config
from az_mpi.core import files, kernel_cache
from az_mpi.core.exit_codes import DONE, PROBLEMS
from az_mpi.core.players import num_values
from az_mpi.core.registry import SEARCHES
from az_mpi.games import chance
from az_mpi.games.base import Game
from az_mpi.mpi.world import World
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import RolloutEvaluator
from az_mpi.search import batches, choices, make_play_search, make_search, streams, tree
from az_mpi.selfplay import moves, starts
from az_mpi.train.replay import Replay, Samples, sample_dtype

COMMON = "connect4", "tictactoe"  # of the shipped configurations
PARTS = 8  # of `rehearse`
SAID = "compiling the kernels, %s: %d of %d (%.0f s)"


def compile_missing(world: World, config: Config, game: Game, threads: int, say: Callable[..., object]) -> None:
    """Compile all kernels, unless a file in the cache says that this was done. Collective over world.

    One rank of each host compiles; if hosts with equal processors share the cache, only one of them does. If the cache
    cannot be written, every rank compiles. threads: of this rank's search. say(text, *values): called with the
    progress, on every rank.
    """
    parallel = max(world.collect(threads)) > 1
    mark = _mark(config, game, parallel) if world.local_rank == 0 else None
    if not any(world.collect(mark is not None and not os.path.exists(mark))):
        return
    claim = f".{world.share(secrets.token_hex(8))}.claim"  # a new name in each job: a dead job's claim does not count
    mine = mark is not None and not os.path.exists(mark) and _claim(mark.with_name(mark.name + claim))
    unkept = any(world.collect(mine and kernel_cache.trial() is not None))
    when = "on every rank, at each start" if unkept else "first start only"
    parts, begun = rehearse(config, game, parallel) if mine or unkept else iter(()), time.monotonic()
    for done in range(PARTS):
        say(SAID, when, done, PARTS, time.monotonic() - begun)
        next(parts, None)
        world.barrier()
    say(SAID, when, PARTS, PARTS, time.monotonic() - begun)
    if mine:
        _compiled(mark)
        with suppress(OSError):
            os.unlink(mark.with_name(mark.name + claim))


def rehearse(config: Config, game: Game, parallel: bool) -> Iterator[None]:
    """Call the kernels that self-play, matches and training use by default, with the same types, in PARTS parts of a
    second or two each. parallel: also the kernels of a search with several threads."""
    settings = config.search.model_copy(update={"simulations": 4, "reuse_tree": True})
    evaluate = CachedEvaluator(game, _Blank(game), num_bytes=0)
    threads = [1, 2] if parallel else [1]
    searches = [make_search(game, evaluate, settings, 2, noise=True, threads=n) for n in threads]
    slots = np.arange(2)
    states = chance.resolve(game, game.initial(2), lambda rows: np.full(len(rows), 0.5))
    game.play(states, np.argmax(game.legal(states), axis=1))
    game.terminal(states), game.to_play(states), game.key(states)
    yield
    evaluate(states)
    RolloutEvaluator(game, [0])(states)
    yield
    words = streams.keyed(config.seed, slots.astype(np.uint64))
    starts.begin(game, config.selfplay, None, game.max_plies, words.copy())
    for search in searches:
        search.reset(slots, states, words)
    yield
    # Self-play of compiled rules does not take these steps; play does, in one thread.
    stepping = searches[:1] if game.has_entries else searches
    completions = [search.begin(slots) for search in stepping]
    yield
    for complete in completions:
        complete()
    yield
    search = searches[0]
    for one in searches:
        one.run(slots)
    if type(search) in choices.DECIDED:
        _rehearse_moves(config, search, slots)
    yield
    search.run(slots)
    search.advance(slots, search.choose(slots, np.ones(2)))
    search.policy(slots), search.value(slots)
    playing = make_play_search(game, evaluate, settings, 2)
    playing.reset(slots, states, words)
    playing.run(slots)
    playing.choose(slots, np.zeros(2))
    yield
    rows = np.zeros(2, sample_dtype(game, {}))
    rows["state"] = states
    replay = Replay(game, {})
    replay.add(Samples.of(rows, game.legal(states)))
    replay.sample(np.random.default_rng(0), 2)
    yield


def _rehearse_moves(config, search, slots):
    """Call, or compile, what plays the moves of these games."""
    game = search.game
    how, made = moves.manner(config, game.max_plies), moves.made(2, 1, search.trees.node.shape[1])
    room = moves.with_room(moves.empty(game, 2, 1), slots, game.num_actions)
    of_games = np.zeros(2, np.int32), np.ones(2, np.bool_), how, made
    if moves.in_loop(search, batches.make(search, 2, 1)):
        moves.player_in_loop(tree.in_bytes(search.trees), room, search, *of_games)
    else:
        moves.played(room, search, slots, *of_games)


class _Blank(Engine):
    """Stands in for an engine: logits and values are 0."""

    def __init__(self, game: Game):
        self.num_actions = game.num_actions
        self.value_shape = () if num_values(game.num_players) == 1 else (game.num_players,)

    def evaluate(self, planes: np.ndarray) -> dict[str, np.ndarray]:
        n = len(planes)
        return {
            "policy": np.zeros((n, self.num_actions), np.float32),
            "value": np.zeros((n, *self.value_shape), np.float32),
        }


def _mark(config, game, parallel):
    """Return the file in the cache that says that all kernels are compiled. Its name depends on everything that the
    kernels depend on: sources and their paths, processor, Numba, Python."""
    place = inspect.getfile(type(game))
    processor = cpu_target.target_context.codegen().magic_tuple()
    content = hashlib.sha256(Path(place).read_bytes()).hexdigest()
    what = az_mpi.__file__, az_mpi.SOURCES, place, content, game.name, config.search.algorithm, parallel, processor
    key = hashlib.sha256(repr((*what, numba.__version__, sys.version_info[:2])).encode()).hexdigest()
    return Path(numba.config.CACHE_DIR) / f"compiled-{key[:16]}"


def _claim(path):
    """Return whether this process is the first to make the file; true if the file cannot be made."""
    try:
        files.create(path, b"")
    except FileExistsError:
        return False
    except OSError:
        pass
    return True


def _compiled(mark):
    """Make the file that says that the kernels are compiled. Does nothing if the cache is not writable."""
    if kernel_cache.failure is None:
        with suppress(OSError):
            mark.touch()


def main(names: Sequence[str]) -> int:
    """Compile the kernels of the games `names`, by default COMMON, for this processor; return the exit status.

    The kernels of each search are compiled by a process of its own, since few of them are also those of another."""
    for name in names:
        configuration.validate({"game": name}, "the command line")
    num = min(len(SEARCHES.built_in), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(num, multiprocessing.get_context("fork")) as pool:
        kept = list(pool.map(_compile, SEARCHES.built_in, itertools.repeat(names or COMMON)))
    return DONE if all(kept) else PROBLEMS  # the next start compiles again what could not be kept


def _compile(algorithm, names):
    """Compile the kernels of games with one search; return whether they could be kept."""
    begun = time.monotonic()
    several = [False, True][: len(os.sched_getaffinity(0))]
    for name, parallel in itertools.product(names, several):
        config = configuration.validate({"game": name, "search": {"algorithm": algorithm}}, "the command line")
        game = games.make(name)
        mark = _mark(config, game, parallel)
        if not os.path.exists(mark):
            for _ in rehearse(config, game, parallel):
                pass
            _compiled(mark)
            kind = f"{algorithm}{' over several threads' if parallel else ''}"
            print(f"compiled the kernels for {name}, {kind} ({time.monotonic() - begun:.0f} s)", flush=True)
    return kernel_cache.failure is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
