"""The compiled loop stays inside of its arrays: with Numba's bounds checks on it plays the games that it plays without
them, and the rules of a user's game that leave theirs are stopped."""

import hashlib
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from helpers import make_config, play_games
from kinds import Pig, Rain
from runners import Race

from az_mpi import games
from az_mpi.core.players import CHANCE
from az_mpi.core.problems import OwnCodeError
from az_mpi.games.guard import guarded
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.search import batches, tree
from az_mpi.selfplay.player import Player

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
CHECKED = """
import sys
sys.path.insert(0, sys.argv[1])
from test_bounds import games_of, is_checked
assert is_checked()
print("games", games_of(*sys.argv[2:]))
"""


class Whole(Engine):
    """Its answers look random, and depend on the position alone."""

    def __init__(self, game):
        self._factors = np.random.default_rng(0).integers(10**6, size=(int(np.prod(game.planes_shape)), 32))
        self._num_actions = game.num_actions

    def evaluate(self, planes):
        numbers = planes.reshape(len(planes), -1).astype(np.int64) @ self._factors % 1999 / np.float32(999) - 1
        return {
            "policy": 2 * numbers[:, : self._num_actions].astype(np.float32),
            "value": numbers[:, 31].astype(np.float32),
        }


def is_checked():
    """Return whether kernels of this process refuse a tree that does not exist; without checks they would read it."""
    trees = tree.allocate(games.make("tictactoe"), 1, 2)
    try:
        tree.child_of_root(trees, 5, 0)
    except IndexError:
        return True
    return False


def nightly(*values):  # not `marks.slow`, since another process imports this file, without the folder of marks
    return pytest.param(*values, marks=pytest.mark.slow)


def games_of(algorithm, name):
    """Return a hash of games by the compiled loop: over three threads, with a cache for a few positions and one for
    many, fast searches, trees that are kept, searches that are proven before their end."""
    found = []
    game = games.make(name)
    for simulations, num_bytes in (20, 2000), (60, 2000), (20, 2**20):
        search = {"algorithm": algorithm, "simulations": simulations, "full_share": 0.5, "fast_simulations": 5}
        config = make_config(name, search=search, selfplay={"parallel_games": 7})
        player = Player(config, game, CachedEvaluator(game, Whole(game), num_bytes), 0, threads=3)
        assert all(isinstance(batch, batches.CompiledBatch) for _, batch in player._groups)
        record = play_games(player, range(15))
        found += record.parts
        assert player.search.trees.exact.any()
    return hashlib.sha256(b"".join(part.tobytes() for part in found)).hexdigest()


@pytest.mark.parametrize(
    "algorithm, name", [("gumbel", "tictactoe"), nightly("gumbel", "connect4"), nightly("puct", "tictactoe")]
)
def test_the_loop_plays_the_same_games_with_bounds_checks(algorithm, name):
    """Its code with checks is kept beside the other code, whose name says from which sources it was compiled."""
    folder = Path(os.environ["NUMBA_CACHE_DIR"]) / "checked"
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", CHECKED, str(Path(__file__).parent), algorithm, name]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"games {games_of(algorithm, name)}\n"


class Wild(Race):
    """A game of which one function leaves its arrays once a runner is on field 4."""

    def __init__(self, wild):
        super().__init__()
        self.wild = wild

    def far(self, state, which):
        return 5000 * (which == self.wild and max(state[0], state[1]) >= 4)

    def apply(self, state, action):
        player = state[2]
        state[player + self.far(state, 1)] += action + 1
        state[2] = 1 - player

    def legal_actions(self, state, legal):
        for action in range(self.num_actions):
            legal[action + self.far(state, 2)] = True

    def result(self, state):
        over = state[1 - state[2] + self.far(state, 3)] >= self.length
        return over, -1.0 if over else 0.0

    def current_player(self, state):
        return state[2 + self.far(state, 4)]

    def observe(self, state, planes):
        planes[0, self.far(state, 5), 0] = state[state[2]]

    def canonical(self, state):
        return np.uint64(state[self.far(state, 6)] + 100 * state[1] + 10000 * state[2]), 0


METHODS = {1: "play", 2: "legal", 3: "terminal", 4: "to_play", 5: "planes", 6: "canonical_key"}


@pytest.mark.parametrize("wild", [*METHODS])
def test_self_play_of_rules_that_leave_their_arrays_stops_with_one_block(wild):
    game = guarded(Wild(wild))
    assert game.has_entries
    config = make_config("tictactoe", search={"simulations": 20}, selfplay={"parallel_games": 3})
    player = Player(config, game, CachedEvaluator(game, Whole(game), 10_000), 0, threads=2)
    player.start(np.arange(3), np.arange(3, dtype=np.uint64), 0)
    with pytest.raises(OwnCodeError) as raised:
        for _ in range(500):
            player.step()
    lines = str(raised.value).splitlines()
    assert f"race(length=10): {METHODS[wild]} raises an error" in lines[0]
    assert Path(__file__).name in str(raised.value) and "IndexError" in str(raised.value)
    assert all(line.startswith("  ") for line in lines[1:]) and "Traceback" not in str(raised.value)


class Strict(Pig):
    """Pig whose methods for the player to move raise an error where chance moves. `broken` names the rule that breaks
    once somebody has points."""

    name = "strict"

    def legal_actions(self, state, legal):
        if state[3] & 1:
            raise ValueError("asked where chance moves")
        legal[0], legal[1] = True, state[2] > 0

    def observe(self, state, planes):
        if state[3] & 1:
            raise ValueError("asked where chance moves")
        planes[0, 0, 0] = state[0]

    def canonical(self, state):
        if state[3] & 1:
            raise ValueError("asked where chance moves")
        return state[0] + 100 * state[1] + 10000 * state[2] + 1000000 * state[3], 0


def strict(**rules):
    return guarded(type("Broken", (Strict,), {**rules, "__module__": __name__})())


def short_chances(self, state, chances):
    chances[:] = 1 / 6
    if state[0] + state[1] > 0:
        chances[5] = 0.01


def no_number(self, state, chances):
    chances[:] = 1 / 6
    if state[0] + state[1] > 0:
        chances[5] = np.nan


def no_six(self, state, action):
    if state[3] & 1 and action == 5 and state[0] + state[1] > 0:
        raise ValueError("no such face")
    player = state[3] >> 1
    if not state[3] & 1 and action == 0:
        state[3] |= 1
    elif not state[3] & 1:
        state[player] += state[2]
        state[2], state[3] = 0, 2 * (1 - player)
    elif action == 0:
        state[2], state[3] = 0, 2 * (1 - player)
    else:
        state[2] += action + 1
        state[3] = 2 * player


def early_value(self, state):
    player = state[3] >> 1
    if state[1 - player] >= self.goal:
        return True, -1.0
    return False, 2.0 if state[0] + state[1] > 0 else 0.0


def chance_at_the_end(self, state):
    player = state[3] >> 1
    return CHANCE if state[3] & 1 or state[player] + state[2] >= self.goal else player


class TwoDrops(Rain):
    """Rain where two drops fall after the second move, of which the last is drawn with wrong probabilities."""

    name, max_plies = "two_drops", 14

    def apply(self, state, action):
        if state[6]:
            state[action], state[6] = 1, state[6] - 1
        else:
            state[action] = 0
            state[5] += 1
            state[6] = 2 if state[5] == 2 else 1

    def outcome_chances(self, state, chances):
        for cell in range(5):
            chances[cell] = state[cell] == 0
        chances[:] /= chances.sum() + (state[5] == 2 and state[6] == 1)


FAULTS = {
    "probabilities below 1": (
        lambda: strict(outcome_chances=short_chances),
        r"chances returned probabilities from 0\.01 to 0\.166667, whose sum is 0\.84.*chance to move:",
    ),
    "a probability that is no number": (
        lambda: strict(outcome_chances=no_number),
        r"chances returned probabilities .*nan.*chance to move:",
    ),
    "an outcome that raises": (
        lambda: strict(apply=no_six),
        r"play raises an error: .*ValueError: no such face.*chance to move:",
    ),
    "a value before the end": (
        lambda: strict(result=early_value),
        r"terminal \(value\) returned 2\.0\n  expected: a number in \[-1, 1\] from `result`.*in this state, ",
    ),
    "chance at the end": (
        lambda: strict(current_player=chance_at_the_end),
        r"to_play returned -1\n  expected: a player where the game is over\n  in this state",
    ),
    "the second of two moves of chance": (
        lambda: guarded(TwoDrops()),
        r"chances returned probabilities from 0 to .*, whose sum is 0\..*chance to move:",
    ),
}


@pytest.mark.parametrize("make, said", FAULTS.values(), ids=FAULTS)
def test_compiled_rules_that_are_broken_are_named_with_their_state(make, said):
    """No method is called where the program itself does not call it: those of `Strict` would be blamed."""
    game = make()
    config = make_config("tictactoe", search={"simulations": 40}, selfplay={"parallel_games": 2})
    player = Player(config, game, UniformEvaluator(game), 0)
    assert all(isinstance(batch, batches.CompiledBatch) for _, batch in player._groups)
    with pytest.raises(OwnCodeError, match=f"(?s){said}") as raised:
        play_games(player, range(3))
    assert "asked where chance moves" not in str(raised.value)


HELPER = """
from numba import njit
@njit
def far(values, field):
    return change(values, field)
@njit
def change(values, field):
    values[field] = 1
"""
CALLS = """
def apply(self, state, action):
    {call}(state, 5000 * action)
"""


@pytest.mark.parametrize("call", ["far", "module.far"])
def test_a_function_that_rules_call_cannot_write_outside_of_a_state_either(call):
    module = types.ModuleType("of_a_user")
    exec(HELPER, vars(module))
    module.far(np.zeros(3, np.int32), 0)  # compiled already, without checks
    scope = {"module": module, "far": module.far}
    exec(CALLS.format(call=call), scope)
    game = guarded(type("Calling", (Race,), {"apply": scope["apply"]})())
    assert game.play(game.initial(1), np.array([0])).tolist() == [[1, 0, 0]]
    with pytest.raises(OwnCodeError, match="play raises an error(?s:.*)IndexError"):
        game.play(game.initial(1), np.array([1]))
