"""Results of a user's game are checked before compiled code uses them, and no method gets an empty batch."""

import dataclasses

import numpy as np
import pytest

from az_mpi import games
from az_mpi.core import problems
from az_mpi.core.problems import OwnCodeError
from az_mpi.games import mnk
from az_mpi.games.guard import BrokenRules, guarded


def changed(**members):
    """Return tic-tac-toe with other methods or attributes, guarded."""
    methods = {name: member for name, member in members.items() if callable(member)}
    game = type("Own", (mnk.Rules,), {**methods, "__module__": __name__})()
    vars(game).update({name: member for name, member in members.items() if name not in methods})
    return guarded(game)


def returns(name, change):
    """Return a method that changes what the one of tic-tac-toe returns."""
    return {name: lambda self, states, *more: change(getattr(mnk.Rules, name)(self, states, *more))}


STATES = mnk.Rules().initial(3)
WRONG = {  # name of the case: (method, change, what the error says)
    "wider states": (
        "play",
        lambda x: np.hstack([x, x]),
        r"play returned uint16 \(3, 4\)\n  expected: uint16 \(3, 2\)",
    ),
    "a row too few": ("play", lambda x: x[1:], r"play returned uint16 \(2, 2\)"),
    "fewer actions": ("legal", lambda x: x[:, 1:], r"legal returned bool \(3, 8\)\n  expected: bool \(3, 9\)"),
    "no legal action": ("legal", lambda x: x & False, "legal returned no legal action\n  expected: at least one"),
    "a list of lists": ("legal", lambda x: [[True], [True, False], []], "legal returned list"),
    "one array": ("terminal", lambda x: x[0], r"terminal returned bool \(3,\)\n  expected: two arrays"),
    "a value that is not a number": ("terminal", lambda x: (x[0] | True, x[1] * np.nan), "returned nan"),
    "a value above 1": (
        "terminal",
        lambda x: (x[0] | True, x[1] + 2),
        r"returned 2.0\n  expected: a number in \[-1, 1\]",
    ),
    "a third player": ("to_play", lambda x: x + 2, "to_play returned 2\n  expected: 0 or 1"),
    "half a player": ("to_play", lambda x: x + 0.5, "to_play returned float64, with values that int8 cannot hold"),
    "a plane too many": ("planes", lambda x: np.repeat(x, 2, axis=1), r"planes returned uint8 \(3, 4, 3, 3\)"),
    "one key": ("key", lambda x: x[0], r"key returned uint64 \(\)"),
    "a symmetry that is none": ("canonical_key", lambda x: (x[0], x[1] + 8), "the number of a symmetry, 0 to 7"),
    "keys alone": ("canonical_key", lambda x: x[0], "canonical_key returned uint64"),
    "None": ("planes", lambda x: None, "planes returned object|planes returned NoneType"),
}


@pytest.mark.parametrize("name, change, said", WRONG.values(), ids=WRONG)
def test_a_wrong_result_is_refused_with_method_expectation_and_state(name, change, said):
    game = changed(**returns(name, change))
    arguments = (STATES, np.array([0, 1, 2])) if name == "play" else (STATES,)
    with pytest.raises(OwnCodeError, match=said) as caught:
        getattr(game, name)(*arguments)
    where = str(caught.value).split("in this state, player ")[1]  # whose drawing may need what is broken
    assert "    . . .\n" in where or "    [0, 0]\n" in where


def test_planes_that_are_not_finite_are_refused_with_their_place():
    def planes(self, states):
        made = mnk.Rules.planes(self, states).astype(np.float32)
        made[2, 1, 2, 0] = np.inf
        return made

    game = changed(planes=planes, planes_dtype=np.dtype(np.float32))
    with pytest.raises(OwnCodeError, match="planes returned inf in plane 1, row 2, column 0\n.*planes are not finite"):
        game.planes(STATES)


@pytest.mark.parametrize(
    "size, value",
    [
        ("num_actions", 0),
        ("num_actions", 2.0),
        ("max_plies", 0),
        ("state_size", True),
        ("planes_shape", (2, 3)),
        ("planes_dtype", np.dtype(np.float64)),
        ("symmetry_cells", np.zeros((8, 9), np.int32)),
        ("symmetry_cells", None),
        ("symmetry_actions", np.zeros((0, 9), np.int32)),
        ("other_view", np.arange(8)),
        ("action_kinds", 2),
    ],
)
def test_a_wrong_size_or_table_is_refused_when_the_game_is_made(size, value):
    with pytest.raises(OwnCodeError, match=size):
        changed(**{size: value})


def test_results_of_another_dtype_are_converted_where_no_value_changes():
    game = changed(
        **returns("to_play", lambda x: x.astype(np.int64)),
        **returns("legal", lambda x: x.astype(np.int32)),
        **returns("terminal", lambda x: (x[0].tolist(), x[1].astype(np.float64))),
    )
    assert game.to_play(STATES).dtype == np.int8 and game.legal(STATES).dtype == bool
    ended, value = game.terminal(STATES)
    assert ended.dtype == bool and value.dtype == np.float32
    with pytest.raises(AssertionError, match="returned int|returned list"):
        games.check(game)


def test_a_value_of_a_game_that_is_not_over_counts_as_0():
    game = changed(**returns("terminal", lambda x: (x[0], x[1] + np.float32(0.25))))
    assert not game.terminal(STATES)[1].any()


def test_an_exception_names_the_method_and_the_state():
    def legal(self, states):
        return np.zeros(3)[7]

    with pytest.raises(OwnCodeError, match=r"legal raises an error: .*IndexError(.|\n)*to move:\n    \. \. \."):
        changed(legal=legal).legal(STATES)


def test_methods_that_call_each_other_are_called_once_and_unchecked():
    """`terminal` asks `legal`, whose rows may be empty where the game is over: this must not ask `terminal` again."""
    calls = []

    def legal(self, states):
        calls.append("legal")
        return mnk.Rules.legal(self, states) & (np.bitwise_count(states).sum(axis=1) < 2)[:, None]

    def terminal(self, states):
        calls.append("terminal")
        return ~self.legal(states).any(axis=1), np.zeros(len(states), np.float32)

    game = changed(legal=legal, terminal=terminal)
    over = game.play(game.play(STATES, np.array([0, 1, 2])), np.array([3, 4, 5]))
    assert game.terminal(over)[0].all() and calls == ["terminal", "legal"]
    assert not game.legal(over).any()


class Watched(mnk.Rules):
    """Remembers the sizes of the batches that it is called with."""

    def __init__(self):
        super().__init__()
        self.sizes = set()


for method in ("initial", "play", "legal", "terminal", "to_play", "planes", "key", "canonical_key"):

    def watched(self, states, *more, method=method):
        self.sizes.add(states if method == "initial" else len(states))
        return getattr(super(Watched, self), method)(states, *more)

    setattr(Watched, method, watched)


def test_no_method_is_called_with_an_empty_batch():
    game = guarded(Watched())
    none, reference = game.initial(0), mnk.Rules()
    for name in ("legal", "terminal", "to_play", "planes", "key", "canonical_key", "lead"):
        given, wanted = getattr(game, name)(none), getattr(reference, name)(reference.initial(0))
        for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (given, wanted)), strict=True):
            assert one is other is None or one.shape == other.shape and one.dtype == other.dtype, name
    assert game.play(none, np.empty(0, np.int64)).shape == none.shape and game.ownership(none, 0) is None
    assert 0 not in game.sizes


def test_a_guarded_game_stays_one_of_its_class():
    game = changed(key=mnk.Rules.key)
    assert isinstance(game, mnk.Rules) and type(game).__name__ == "Own" and type(game).__module__ == __name__
    assert guarded(game) is game and isinstance(game.untruncated(), type(game))
    games.check(game, num_games=8)


def test_only_games_of_a_users_own_are_guarded(tmp_path):
    (tmp_path / "own.py").write_text("from az_mpi.games import mnk\n\nclass Rules(mnk.Rules):\n    pass\n")
    from az_mpi.games.guard import Guard

    assert isinstance(games.make(f"{tmp_path}/own.py:Rules"), Guard)
    assert not isinstance(games.make("tictactoe"), Guard)


class Helpers(mnk.Rules):
    """Has helpers and flags with the names that a guard might take, and makes others of its kind."""

    def __init__(self):
        super().__init__()
        self._inside, self._exact = np.zeros(3), "kept"
        self.legal(self.initial(1))  # before the object is guarded, or in a class that is

    def _array(self, states):
        return mnk.Rules.legal(self, states)

    def legal(self, states):
        return self._array(states)

    def untruncated(self):
        return type(self)()


def test_names_of_a_games_own_helpers_stay_its_own():
    game = guarded(Helpers())
    assert game.legal(STATES).all() and game._exact == "kept" and len(game._inside) == 3
    again = game.untruncated()
    assert again.legal(STATES).all() and type(again) is type(game) and again.legal(again.initial(0)).shape == (0, 9)


def test_a_game_that_allows_no_changes_is_guarded():
    @dataclasses.dataclass(frozen=True)
    class Frozen(mnk.Rules):
        size: int = 3

        def __init__(self):
            for name, value in vars(mnk.Rules()).items():
                object.__setattr__(self, name, value)

    assert guarded(Frozen()).legal(STATES).all()


@pytest.mark.parametrize(
    "name, given, said",
    [
        ("texts_to_actions", lambda self, states, texts: [9] * len(states), "texts_to_actions returned 9"),
        ("texts_to_actions", lambda self, states, texts: [-2] * len(states), "texts_to_actions returned -2"),
        ("texts_to_actions", lambda self, states, texts: [0], r"texts_to_actions returned int64 \(1,\)"),
        ("texts_to_actions", lambda self, states, texts: texts["x"], "texts_to_actions raises an error: .*TypeError"),
        ("text_to_state", lambda self, text: np.zeros(3), r"text_to_state returned float64 \(3,\)"),
        ("text_to_state", lambda self, text: text.x, "text_to_state raises an error: .*AttributeError"),
        ("state_to_text", lambda self, state: 7, "state_to_text returned int"),
    ],
)
def test_what_a_game_reads_from_texts_and_writes_is_checked(name, given, said):
    game = changed(**{name: given})
    asked = {"texts_to_actions": (STATES, ["a3"] * 3), "text_to_state": ("x",), "state_to_text": (STATES[0],)}[name]
    with pytest.raises(OwnCodeError, match=said):
        getattr(game, name)(*asked)


def test_a_game_may_have_no_positions_as_text_and_no_fast_reading():
    game = changed(key=mnk.Rules.key)
    assert not hasattr(game, "texts_to_actions")
    for ask in (lambda: game.state_to_text(STATES[0]), lambda: game.text_to_state("x")):
        with pytest.raises(ValueError, match="has no form"):
            ask()
    fast = changed(texts_to_actions=lambda self, states, texts: [2, -1, 4])
    assert fast.texts_to_actions(STATES, ["c3", "x", "b2"]).tolist() == [2, -1, 4]


@pytest.mark.parametrize("given", [None, (), (["a"], "b", "c"), ([1, 2], "rows"), "planes"])
def test_a_wrong_description_of_planes_is_refused(given):
    with pytest.raises(OwnCodeError, match="describe_planes returned"):
        changed(describe_planes=lambda self: given).describe_planes()


def test_errors_keep_their_kind_with_another_text():
    """A game's error can be reported for another key without a new exception."""
    broken = BrokenRules.of(mnk.Rules(), "legal returned None")
    assert broken.what == "legal returned None" and "tictactoe: legal" in str(broken)
    assert str(problems.reworded(broken, "told")) == "told" and not problems.is_on_every_rank(broken)
    assert isinstance(problems.reworded(problems.NotNow("a"), "b"), problems.NotNow)
