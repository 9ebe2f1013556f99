"""A network of a run with its search, without MPI: for programs, notebooks and play. Used as `az_mpi.load_player`."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from az_mpi.config import schema
from az_mpi.core import files
from az_mpi.core.problems import Refusal, escape
from az_mpi.games.base import Game
from az_mpi.mpi.world import World
from az_mpi.network import engines
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines import int8
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import NetworkEvaluator
from az_mpi.play import trained_network
from az_mpi.search import make_play_search
from az_mpi.search.puct import Search
from az_mpi.storage import checkpoint

BATCH_MAX, BATCH_S, FAST = 128, 0.02, 0.85  # see `LoadedPlayer.leaves_at_once`
EVALUATED = 0.5  # of a tree's leaves; the others are in the cache, or are found twice


class Analysis(NamedTuple):
    """The result of a search.

    policy: float32 [A], of the search, as a training target; 0 for actions that are illegal, or proven to be worse than
    another one. value: for the player to move, in [-1, 1]. action: the best one. move: the same in the game's notation.
    """

    policy: np.ndarray
    value: float
    action: int
    move: str


class LoadedPlayer:
    """A game, a network in an engine, and the search of a run. It keeps no position: every search begins anew.

    evaluator: what a search asks for the network's evaluations, without a cache."""

    def __init__(self, game: Game, engine: Engine, settings: schema.Search):
        self.game, self.engine, self.settings = game, engine, settings
        self.evaluator = NetworkEvaluator(game, engine)

    def search(self, state: np.ndarray, simulations: int = 0) -> Analysis:
        """Search one position, [S], without noise: the same position gets the same result.

        simulations: 0 for as many as in the run's matches. Raises ValueError if the game is over."""
        states = np.asarray(state, self.game.state_dtype)[None]
        if self.game.terminal(states)[0][0]:
            raise ValueError("the game is over in this position")
        search, slots = self.new_search(simulations or self.settings.simulations), np.arange(1)
        search.reset(slots, states, np.zeros(1, np.uint64))
        search.run(slots)
        policy, (_, actions, shares) = np.zeros(self.game.num_actions, np.float32), search.policy(slots)
        policy[actions] = shares
        action = int(search.choose(slots, np.zeros(1))[0])
        move = self.game.action_to_text(states[0], action)
        return Analysis(policy, float(search.value(slots)[0]), action, move)

    def new_search(self, simulations: int, cache_bytes: int = 0) -> Search:
        """Return a search of one tree, slot 0, with room for `simulations`, which begins when it is `reset`. It keeps
        its tree between moves, whatever the run's self-play did. cache_bytes: memory to remember evaluations in."""
        settings = self.settings.model_copy(update={"simulations": simulations, "reuse_tree": True})
        evaluate = CachedEvaluator(self.game, self.engine, cache_bytes) if cache_bytes else self.evaluator
        return make_play_search(self.game, evaluate, settings, 1)

    def leaves_at_once(self) -> int:
        """Measure and return how many leaves of one tree are to be searched at once: as many as keep the engine at FAST
        of its speed if EVALUATED of them reach it. A batch takes no more than BATCH_S."""
        states, rates = self.game.initial(BATCH_MAX), {}
        self.engine.prepare(BATCH_MAX)
        for num in (2**k for k in range(BATCH_MAX.bit_length())):
            took = []
            for _ in range(4):
                begun = time.perf_counter()
                self.evaluator(states[:num])
                took.append(time.perf_counter() - begun)
            if num > 1 and min(took) > BATCH_S:
                break
            rates[num] = num / min(took)
        batch = min(num for num, rate in rates.items() if rate >= FAST * max(rates.values()))
        return round(batch / EVALUATED) if batch > 1 else 1

    def evaluate(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (logits float32 [n, A], value float32 [n]) of states [n, S]: the network's, without search."""
        return self.evaluator(np.asarray(states, self.game.state_dtype))


def load_player(path: str | Path, engine: str = "auto", precision: str = "auto", threads: int = 1,
                device: str = "") -> LoadedPlayer:
    """Return a player with a network of a run.

    path: a run's folder, for its newest checkpoint; a checkpoint (RUN/checkpoints/NNNNNN); a file of weights, such as
    RUN/best/NNNNNN.safetensors, in a run's folder, which has the configuration; an ONNX or safetensors file that
    `python -m az_mpi export` wrote; or the name of a network that comes with az_mpi, such as "zoo:connect4".
    engine, precision: as `network.engine` and `network.precision`. threads: of engines on a CPU. device: of torch, such
    as "cuda:1" or "cpu"; "": the first GPU if there is one.
    Raises Refusal if there is no such run or file, or the run has no whole checkpoint.
    """
    config, game, network, *_ = trained_network.read(path)
    device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    made, _ = engines.make(engine, network, game, device, threads, precision)
    if precision == "int8":
        made.calibrate(game.planes(int8.random_states(game)))
        made.load(network)
    return LoadedPlayer(game, made, config.match_search())


def on_rank(world: World) -> dict[str, Any]:
    """Return the arguments for `load_player` on a rank of an MPI job: its own GPU, or all its cores. Collective."""
    from az_mpi.mpi import placement  # not at the top: `load_player` needs no MPI

    return {"threads": world.cores(), "device": placement.choose_device(world)}


def find_network(run: Path, name: str) -> Path:
    """Return the path for `load_player` of a network of a run: "newest" for the newest checkpoint, "best" for the best
    network so far, or a name as in RUN/checkpoints or RUN/best. Raises Refusal, which lists the names."""
    if name == "newest" and (run.suffix in (".onnx", ".safetensors") or trained_network.zoo_file(run)):
        return run
    saved = checkpoint.find(run / "checkpoints")
    best = [run / "best" / file for file in files.names(run / "best") if file.endswith(".safetensors")]
    named = {path.stem: path for path in (*sorted(best), *saved)}  # a checkpoint before a best network of its name
    path = {"newest": run, "best": max(best, default=None)}.get(name, named.get(name.removesuffix(".safetensors")))
    if path is None:
        trained_network.run_of(run)
        there = ["newest", *["best"] * bool(best), *sorted(named)]
        raise Refusal(f"{run} has no network {escape(name)}\n  there are: {', '.join(there)}")
    return path
