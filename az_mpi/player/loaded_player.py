"""`az_mpi.load_player`: asks a trained network with its search for moves and values, in programs and notebooks."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from az_mpi.config import schema
from az_mpi.core.players import num_values
from az_mpi.games import chance
from az_mpi.games.base import Game, positions
from az_mpi.mpi.world import World
from az_mpi.network import engines
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines import int8
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import Evaluation, Evaluator, NetworkEvaluator
from az_mpi.network.heads.moves_left import MovesLeft
from az_mpi.player import trained_network
from az_mpi.search import make_play_search
from az_mpi.search.puct import Search
from az_mpi.search.reading import RootMove, root_moves

BATCH_MAX, BATCH_S, FAST = 128, 0.02, 0.85  # see `LoadedPlayer.leaves_at_once`
EVALUATED = 0.5  # of a tree's leaves; the others are in the cache, or are found twice


class Analysis(NamedTuple):
    """The result of a search.

    policy: float32 [A], of the search, as a training target; 0 for actions that are illegal, or proven to be worse than
    another one. value: for the player to move, in [-1, 1]. action: the best one. move: the same in the game's notation.
    variation: the moves that the search expects, in the game's notation; `move` is the first. moves: what the search
    says of each legal move.
    """

    policy: np.ndarray
    value: float
    action: int
    move: str
    variation: list[str]
    moves: list[RootMove]

    @property
    def visits(self) -> np.ndarray:
        """How many simulations went through each action, int64 [A]."""
        visits = np.zeros(len(self.policy), np.int64)
        for move in self.moves:
            visits[move.action] = move.visits
        return visits

    @property
    def values(self) -> np.ndarray:
        """The value of each action for the player who would play it, float32 [A] in [-1, 1]; NaN for actions without a
        visit and for illegal ones."""
        values = np.full(len(self.policy), np.nan, np.float32)
        for move in self.moves:
            values[move.action] = np.nan if move.value is None else move.value
        return values


class LoadedPlayer:
    """A game, a network in an engine, and the search of a run. It keeps no position: each search starts empty.

    evaluator: what a search asks for evaluations, without a cache; None: the network in the engine."""

    def __init__(self, game: Game, engine: Engine, settings: schema.Search, evaluator: Evaluator | None = None):
        self.game = game
        self.engine = engine
        self.settings = settings
        self.evaluator = evaluator or NetworkEvaluator(game, engine)

    def with_evaluator(self, evaluate: Callable[[np.ndarray], Evaluation]) -> "LoadedPlayer":
        """Return a player whose searches ask `evaluate` in place of the network: a function of states [n, S], or an
        `Evaluator`, that returns (logits [n, A], of which those of illegal actions do not count; value [n] for the
        player to move, in [-1, 1], or [n, P] with three players or more, the one to move first)."""
        return LoadedPlayer(self.game, self.engine, self.settings, _Checked(self.game, evaluate))

    def with_game(self, game: Game) -> "LoadedPlayer":
        """Return a player of another game that the network fits, such as this one with another komi: it evaluates and
        ranks positions as this player does."""
        is_network = isinstance(self.evaluator, NetworkEvaluator)  # it makes planes of states, which are the game's own
        player = LoadedPlayer(game, self.engine, self.settings, None if is_network else self.evaluator)
        player.evaluator.threshold = self.evaluator.threshold
        return player

    def search(self, state: np.ndarray, simulations: int = 0) -> Analysis:
        """Search one position, [S], without noise: the same position gets the same result.

        simulations: 0 for as many as in the run's matches. Raises ValueError if the game is over or a move is drawn by
        lot in this position, see `draw`, or `state` is no state of this game."""
        if simulations < 0:
            raise ValueError(f"simulations is {simulations}; allowed: 1 or more, or 0 for as many as in the matches")
        states = self._checked(state, (self.game.state_size,), "one state")[None]
        if self.game.terminal(states)[0][0]:
            raise ValueError("the game is over in this position")
        if chance.due(self.game, states)[0]:
            raise ValueError("a move is drawn by lot in this position: search what `draw` returns")
        search = self.new_search(simulations or self.settings.simulations)
        slots = np.arange(1)
        search.reset(slots, states, np.zeros(1, np.uint64))
        search.run(slots)
        policy, (_, actions, shares) = np.zeros(self.game.num_actions, np.float32), search.policy(slots)
        policy[actions] = shares
        action = int(search.choose(slots, np.zeros(1))[0])
        moves = root_moves(search, 0)
        [expected] = [move.variation for move in moves if move.action == action]
        variation = [
            self.game.action_to_text(before, played)
            for before, played in zip(positions(self.game, states[0], expected), expected)
        ]
        return Analysis(policy, float(search.value(slots)[0]), action, variation[0], variation, moves)

    def draw(self, state: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return the position, [S], after all moves that are drawn by lot in `state`, [S]: `state` itself if there are
        none. rng: what draws; None: a new generator. Raises ValueError if `state` is no state of this game."""
        rng = rng or np.random.default_rng()
        states = self._checked(state, (self.game.state_size,), "one state")[None]
        return chance.resolve(self.game, states, lambda rows: rng.random(len(rows)))[0]

    def new_search(self, simulations: int, cache_bytes: int = 0, num_trees: int = 1) -> Search:
        """Return a search of `num_trees` trees with room for `simulations` each, which begin when they are `reset`. It
        keeps trees between moves, whatever the run's self-play did. cache_bytes: memory to remember evaluations in."""
        settings = self.settings.model_copy(update={"simulations": simulations, "reuse_tree": True})
        cached = cache_bytes and isinstance(self.evaluator, NetworkEvaluator)
        evaluate = CachedEvaluator(self.game, self.engine, cache_bytes) if cached else self.evaluator
        evaluate.threshold = self.evaluator.threshold
        return make_play_search(self.game, evaluate, settings, num_trees)

    def leaves_at_once(self) -> int:
        """Measure and return how many leaves of one tree are to be searched at once: as many as keep the engine at FAST
        of its speed if EVALUATED of them reach it. A batch takes no more than BATCH_S."""
        states = self.game.initial(BATCH_MAX)
        rates = {}
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

    def evaluate(self, states: np.ndarray) -> Evaluation:
        """Return (logits float32 [n, A], value float32 [n]) of states [n, S]: the network's, without search.

        The logits are those of all actions, illegal ones included: `probabilities` leaves these out. The value is for
        the player to move, in [-1, 1]. Raises ValueError if `states` are no states of this game."""
        states = self._checked(states, (None, self.game.state_size), "states")
        if not len(states):
            return np.zeros((0, self.game.num_actions), np.float32), np.zeros(0, np.float32)
        return self.evaluator(states)

    def probabilities(self, states: np.ndarray) -> Evaluation:
        """Return (probability float32 [n, A] of each action, value float32 [n]) of states [n, S]: the network's,
        without search. Illegal actions have 0, and the legal ones of a state add up to 1; where the game is over, all
        have 0. Raises ValueError as `evaluate` does."""
        logits, value = self.evaluate(states)
        if not len(logits):
            return logits, value
        states = np.asarray(states, self.game.state_dtype)
        legal = self.game.legal(states) & ~self.game.terminal(states)[0][:, None]
        logits = np.where(legal, logits, -np.inf)
        highest = logits.max(axis=1, keepdims=True)
        shares = np.exp(logits - np.where(np.isfinite(highest), highest, 0))
        return (shares / np.maximum(shares.sum(axis=1, keepdims=True), 1)).astype(np.float32), value

    def _checked(self, given, shape, what):
        """Return `given` as states. shape: that it must have; None stands for any number. Raises ValueError."""
        wanted = f"{self.game.state_dtype} [{', '.join('n' if size is None else str(size) for size in shape)}]"
        text = f"{what} of {self.game.name}: expected {wanted}, as game.initial and game.play return them; got "
        try:
            states = np.asarray(given, self.game.state_dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{text}{type(given).__name__}, which is no array of numbers: {error}") from error
        if len(states.shape) != len(shape) or states.shape[-1] != shape[-1]:
            raise ValueError(f"{text}shape {list(states.shape)}")
        return states


class _Checked(Evaluator):
    """An evaluator of a user's own, whose results are checked, since compiled code reads them."""

    def __init__(self, game: Game, evaluate: Callable[[np.ndarray], Evaluation]):
        self.game = game
        self._evaluate = evaluate

    def __call__(self, states: np.ndarray) -> Evaluation:
        try:
            logits, value = (np.ascontiguousarray(array, np.float32) for array in self._evaluate(states))
        except (TypeError, ValueError) as error:
            raise ValueError(f"an evaluator returns two arrays, logits and value: {error}") from error
        num, num_players = len(states), self.game.num_players
        values = (num,) if num_values(num_players) == 1 else (num, num_players)
        for name, array, shape in (("logits", logits, (num, self.game.num_actions)), ("value", value, values)):
            if array.shape != shape:
                raise ValueError(f"{name} of an evaluator: expected shape {list(shape)}; got {list(array.shape)}")
            if len(rows := np.argwhere(np.isnan(array))):
                raise ValueError(f"{name} of an evaluator: NaN for state number {rows[0][0]} of the batch")
        return logits, value


def load_player(
    path: str | Path,
    engine: str = "auto",
    precision: str = "auto",
    threads: int = 1,
    device: str = "",
    size: tuple[int, int] | None = None,
) -> LoadedPlayer:
    """Return a player with a network of a run.

    path: a run's folder, for its newest checkpoint; a checkpoint (RUN/checkpoints/NNNNNN); a file of weights, such as
    RUN/best/NNNNNN.safetensors, in a run's folder, which has the configuration; an ONNX or safetensors file that
    `python -m az_mpi export` wrote; or the name of a network that comes with az_mpi, such as "zoo:connect4".
    engine, precision: as `network.engine` and `network.precision`. threads: of engines on a CPU. device: of torch, such
    as "cuda:1" or "cpu"; "": the first GPU if there is one. size: (columns, rows) of a board that the network has not
    learned on; None: its own board.
    Raises Refusal if there is no such run or file, or the run has no whole checkpoint; ValueError if the network cannot
    play on a board of this size.
    """
    trained = trained_network.read(path)
    config, game, network, *_ = trained
    if size and size != (game.planes_shape[2], game.planes_shape[1]):
        game = trained_network.at_size(trained, *size)
    device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    tells_moves_left = "moves_left" in network.heads and type(network.heads["moves_left"]) is MovesLeft
    if tells_moves_left:
        network.heads["moves_left"].in_play = True
    made, _ = engines.make(engine, network, game, device, threads, precision)
    # An engine of a user's own may evaluate the policy and the value alone.
    made.tells_moves_left = tells_moves_left and "moves_left" in made.evaluate(game.planes(game.initial(1)))
    if precision == "int8":
        states = int8.random_states(game)
        made.calibrate(game.planes(states), game.legal(states))
        made.load(network)
    player = LoadedPlayer(game, made, config.match_search())
    player.evaluator.threshold = trained.threshold
    return player


def on_rank(world: World) -> dict[str, Any]:
    """Return the arguments for `load_player` on a rank of an MPI job: its own GPU, or all its cores. Collective."""
    from az_mpi.mpi import placement  # not at the top: `load_player` needs no MPI

    return {"threads": world.cores(), "device": placement.choose_device(world)}
