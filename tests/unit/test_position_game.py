"""Games whose rules are written for one position: compiled, and as plain Python."""

import copy
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from runners import Race

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import OwnCodeError
from az_mpi.games.guard import BrokenRules, guarded
from az_mpi.games.position_game import PositionGame
from az_mpi.games.random_games import play_out
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.player.restricted_game import restricted
from az_mpi.search import make_play_search
from az_mpi.search.reading import root_moves

DOMINEERING = "examples/own_rules.py:Domineering(size=4)"


class Slow(Race):
    """The same, not compiled."""

    compiled = False


def played(game, num_games=16, seed=0):
    """Return all that a game's methods return in random games, as bytes."""
    rng, states, seen = np.random.default_rng(seed), game.initial(num_games), []
    for _ in range(game.max_plies):
        legal = game.legal(states)
        actions = np.argmax(legal * rng.random(legal.shape), axis=1)
        after = game.play(states, actions)
        ended, value = game.terminal(after)
        keys, symmetry = game.canonical_key(states)
        for part in (legal, after, ended, value, keys, symmetry, game.planes(states), game.to_play(states)):
            seen.append(part.tobytes())
        states = after[~ended]
    assert not len(states)
    return seen


def test_compiled_and_plain_rules_play_the_same_games():
    plain = games.make(DOMINEERING)
    plain.compiled = False
    assert played(games.make(DOMINEERING), 4) == played(plain, 4)


def test_domineering_is_lost_by_the_player_who_cannot_move():
    """On 2 x 2 the first domino fills a column, and no flat one fits."""
    game = games.make("examples/own_rules.py:Domineering(size=2)")
    assert game.legal(game.initial(1)).tolist() == [[True, True, False, False]]
    state = game.play(game.initial(1), np.array([1]))
    assert state.tolist() == [[0, 1, 0, 1, 1]] and game.legal(state).sum() == 0
    assert [part.tolist() for part in game.terminal(state)] == [[True], [-1.0]]


def test_attributes_are_constants_of_each_game_and_methods_call_each_other():
    short, long, jumps = Race(4), Race(9), Race(9, bonus=[0, 5, 0, 0, 0, 0, 0, 0, 0])
    for game in (short, long, jumps):
        state = game.play(game.initial(1), np.array([0]))
        assert state.tolist() == [[6 if game is jumps else 1, 0, 1]]
        state = game.play(game.play(state, np.array([0])), np.array([2]))
        assert game.terminal(state)[0].tolist() == [game is not long]
    assert played(long) == played(Slow(9)) and played(jumps) == played(Slow(9, bonus=[0, 5, 0, 0, 0, 0, 0, 0, 0]))


OF_A_MODULE = """
from enum import IntEnum
import numpy as np
from numba import njit
TABLE = np.array([1, 1, 1])
class Field(IntEnum):
    FIRST = 0
    SECOND = 1
@njit
def step(state, field):
    state[field] += move(1)
@njit
def move(most=1):
    return most
"""
USES = """
def apply(self, state, action):
    h.step(state, h.Field.FIRST)
    state[0] += h.TABLE[action] + h.move()
"""


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("1, 1, 1", "1, 4, 1", [6, 0, 0]),
        ("FIRST = 0", "FIRST = 2", [2, 0, 1]),
        ("return most", "return most + 1", [5, 0, 0]),
        ("most=1", "most=2", [4, 0, 0]),
    ],
    ids=["an array", "a number", "a function that it calls", "a default"],
)
def test_rules_that_use_a_module_are_compiled_again_when_that_has_changed(old, new, after):
    found = []
    for text in (OF_A_MODULE, OF_A_MODULE.replace(old, new)):
        module = types.ModuleType("of_a_user")
        exec(text, vars(module))
        scope = {"h": module}
        exec(USES, scope)
        game = type("Using", (Race,), {"apply": scope["apply"]})()
        found.append(game.play(game.initial(1), np.array([1]))[0].tolist())
    assert found == [[3, 0, 0], after]


@pytest.mark.long
def test_sizes_that_processes_compiled_apart_work_together(tmp_path):
    """Their compiled functions are loaded from the cache into one process, where no two may have the same name: that
    process compiles nothing, and has both at the same time."""
    code = f"""import numpy as np, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from numba.core import event
from test_position_game import Race, Slow, played
with event.install_recorder("numba:compile") as compiled:
    made = {{length: Race(length) for length in map(int, sys.argv[1:])}}
    for game in made.values():
        game.entries
    for length, game in [*made.items(), *made.items()]:
        assert played(game) == played(Slow(length)), length
print(len(compiled.buffer))"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    found = []
    for lengths in (["4"], ["9"], ["9", "4"]):
        command = [sys.executable, "-c", code, *lengths]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found.append((int(done.stdout), len(list(tmp_path.rglob("*.nbi")))))
    (first, one), (second, two), (both, three) = found
    assert first > second > both == 0 and one < two == three


@pytest.mark.long
def test_a_copy_of_a_game_has_rules_of_its_own():
    game = games.make("go(size=3)")
    state = game.play(game.initial(1), np.array([4]))
    longer = copy.copy(game)
    longer.max_plies = 1
    assert [made.terminal(state)[0].tolist() for made in (game, longer)] == [[False], [True]]


def test_compiled_code_may_not_call_the_rules_where_a_class_has_methods_for_batches():
    class Swapped(Race):
        def planes(self, states):
            return super().planes(states)[:, :, ::-1]

    assert [game.has_entries for game in (Race(), Slow(), Swapped(), guarded(Race()), guarded(Swapped()))] == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_a_restricted_game_is_searched_by_its_own_legal_actions_not_by_compiled_ones():
    game = Race()
    state = game.play(game.initial(1), np.array([1]))[0]
    few = restricted(game, state, [2])
    assert game.has_entries and not few.has_entries
    assert few.legal(np.stack([state, game.initial(1)[0]])).tolist() == [[False, False, True], [True, True, True]]
    search = make_play_search(few, UniformEvaluator(few), models.Search(simulations=30), 1)
    search.reset(np.array([0]), state[None], np.zeros(1, np.uint64))
    search.run(np.array([0]))
    assert [move.action for move in root_moves(search, 0)] == [2] and search.trees.visits[0, 0] > 10


def test_states_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"states have the shape \(1, 2\); expected: \(1, 3\)"):
        Race().legal(np.zeros((1, 2), np.int32))


def test_the_argument_of_play_stays_as_it_is():
    game, states = Race(), Race().initial(2)
    assert game.play(states, np.array([0, 1])).tolist() == [[1, 0, 1], [2, 0, 1]] and not states.any()


def test_a_users_rules_cannot_write_outside_of_a_state():
    class Wild(Race):
        def apply(self, state, action):
            state[action + 5000] = 1

    game = guarded(Wild())
    with pytest.raises(BrokenRules, match="play raises an error.*line \\d+.*IndexError(?s:.*)0 0, 0 to move"):
        game.play(game.initial(3), np.array([0, 1, 2]))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_states_that_differ_by_less_than_one_have_different_keys(compiled, dtype):
    class Parts(Race):
        def apply(self, state, action):
            state[0] += action

        def result(self, state):
            return False, 0.0

        def current_player(self, state):
            return 0

        def observe(self, state, planes):
            planes[0, 0, 0] = 1

    game = Parts()
    game.compiled, game.state_dtype = compiled, dtype
    states = np.array([[0.2, 0, 0], [0.7, 0, 0], [-0.2, 0, 0], [-1, 0, 0]]).astype(dtype)
    assert len(np.unique(game.canonical_key(states)[0])) == len(np.unique(states[:, 0]))


def test_rules_that_numba_cannot_compile_are_refused_with_the_line_and_work_as_python():
    class Words(Race):
        def current_player(self, state):
            return {"first": 0, "second": 1}[["first", "second"][int(str(state[2]))]]

    with pytest.raises(
        OwnCodeError, match="Numba cannot compile its rules(?s:.*)current_player(?s:.*)compiled = False"
    ):
        Words().to_play(Words().initial(1))
    game = Words()
    game.compiled = False
    assert game.to_play(game.initial(2)).tolist() == [0, 0]


def test_rules_that_return_what_they_must_not_are_refused():
    class Both(Race):
        def apply(self, state, action):
            return state[action]

    class One(Race):
        def result(self, state):
            return self.has_arrived(state, player=1 - state[2])

    with pytest.raises(OwnCodeError, match="apply returns int32; it must return nothing"):
        Both().to_play(Both().initial(1))
    with pytest.raises(OwnCodeError, match="result returns bool; it must return .whether the game is over, its value"):
        One().to_play(One().initial(1))


@pytest.mark.parametrize("game", [Race(), Slow(), DOMINEERING])
def test_the_check_accepts_rules_for_one_position(game):
    assert games.check(games.make(game) if isinstance(game, str) else guarded(game), 16) == []


@pytest.mark.parametrize("name", ["tictactoe", "go(size=2)", "connect4"])
def test_compiled_play_outs_end_as_often_in_each_result_as_those_in_batches(name):
    game, plain = games.make(name), games.make(name)
    plain.compiled = False
    drawn = [
        [play_out(one, one.initial(num), np.random.default_rng(seed)) for seed, num in enumerate([num] * 4)]
        for one, num in ((game, 4000), (plain, 50))
    ]
    shares = [[np.mean([np.mean(value == result) for value, _ in parts]) for result in (-1, 0, 1)] for parts in drawn]
    assert np.abs(np.subtract(*shares)).max() < 0.12  # four standard deviations of 200 games, and less
    lengths = [sum(plies for _, plies in parts) / sum(len(value) for value, _ in parts) for parts in drawn]
    assert abs(lengths[0] / lengths[1] - 1) < 0.12


class Lot(PositionGame):
    """One action of many ends the game: the one of a few legal ones that was chosen is the result."""

    name, num_actions, max_plies, planes_shape = "lot", 83, 1, (1, 1, 1)
    state_size, state_dtype = 2, np.dtype(np.int32)
    symmetry_cells, symmetry_actions = np.zeros((1, 1), np.int32), np.arange(83, dtype=np.int32)[None]

    def apply(self, state, action):
        state[0] = action + 1
        state[1] = 1

    def legal_actions(self, state, legal):
        for action in (0, 7, 8, 40, 79, 80, 82):
            legal[action] = True

    def result(self, state):
        return state[0] > 0, state[0] / 100.0

    def current_player(self, state):
        return state[1]

    def observe(self, state, planes):
        planes[0, 0, 0] = state[1]

    def canonical(self, state):
        return state[0], 0


def test_play_outs_draw_each_legal_action_of_many_equally_often():
    game = Lot()
    value, plies = play_out(game, game.initial(7000), np.random.default_rng(2))
    chosen, times = np.unique(np.round(-100 * value).astype(int) - 1, return_counts=True)  # the other one is to move
    assert plies == 7000 and chosen.tolist() == [0, 7, 8, 40, 79, 80, 82] and abs(times - 1000).max() < 120


def test_play_outs_of_rules_that_fail_say_where():
    class Broken(Race):
        def legal_actions(self, state, legal):
            legal[self.num_actions] = True

    game = guarded(Broken())
    with pytest.raises(BrokenRules, match="legal raises an error(?s:.*)IndexError"):
        play_out(game, game.initial(2), np.random.default_rng(0))
