"""games.check accepts the games and finds each broken invariant."""

import numpy as np
import pytest
from helpers import Ways

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games import connect4, mnk, othello
from az_mpi.games.bitboards import change_sides, count, is_empty, put
from az_mpi.games.board_data import Board
from az_mpi.search import tree

CONNECT4, TICTACTOE = games.make("connect4"), games.make("tictactoe")
BOTH = pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=lambda game: game.name)


# games.check


@BOTH
def test_check_accepts_the_games(game):
    assert games.check(game, num_games=32, seed=3) == []


def _broken(base, **members):
    methods = {name: member for name, member in members.items() if callable(member)}
    game = type("Broken", (base,), methods)()
    vars(game).update({name: member for name, member in members.items() if name not in methods})
    return game


def _changes_its_input(self, states, actions):
    after = connect4.Rules.play(self, states, actions)
    states[:, 0] |= np.uint64(1)
    return after


def _loses_twice(self, states):
    ended, value = connect4.Rules.terminal(self, states)
    return ended, value * 2


BROKEN = {
    "play changes its input": (connect4.Rules, {"play": _changes_its_input}, "changed the states"),
    "value out of range": (connect4.Rules, {"terminal": _loses_twice}, r"terminal \(value\) returned -2.0"),
    "value while in play": (
        connect4.Rules,
        {"terminal": lambda self, s: (connect4.Rules.terminal(self, s)[0], np.full(len(s), 0.5, np.float32))},
        r"terminal \(value\) returned 0.5",
    ),
    "no legal action": (
        mnk.Rules,
        {"legal": lambda self, s: mnk.Rules.legal(self, s) & (np.bitwise_count(s).sum(axis=1) < 5)[:, None]},
        "no legal action",
    ),
    "two moves have one name": (connect4.Rules, {"action_to_text": lambda self, s, a: str(a // 2)}, "are both 0"),
    "a move of two words": (connect4.Rules, {"action_to_text": lambda self, s, a: f"column {a}"}, "not one word"),
    "text is read otherwise": (
        connect4.Rules,
        {"text_to_action": lambda self, s, text: (int(text) + 1) % 7},
        "takes 1 for another action",
    ),
    "longer than it says": (connect4.Rules, {"max_plies": 9}, "longer than max_plies"),
    "never ends": (
        mnk.Rules,
        {
            "play": lambda self, s, a: s[:, ::-1].copy(),
            "terminal": lambda self, s: (np.zeros(len(s), bool), np.zeros(len(s), np.float32)),
        },
        "longer than max_plies",
    ),
    "actions are not mirrored": (
        connect4.Rules,
        {"symmetry_actions": np.array([range(7), range(7)], np.int32)},
        "does not map boards",
    ),
    "cells are not mirrored": (
        connect4.Rules,
        {"symmetry_cells": np.array([range(42), range(42)], np.int32)},
        "does not map boards",
    ),
    "a table that is no permutation": (
        mnk.Rules,
        {"symmetry_actions": np.zeros((8, 9), np.int32)},
        "not a permutation",
    ),
    "actions of other cells": (
        mnk.Rules,
        {"symmetry_actions": TICTACTOE.symmetry_actions[[0, 3, 2, 1, 4, 5, 6, 7]]},
        "otherwise than the cells",
    ),
    "more actions of cells than there are": (mnk.Rules, {"action_kinds": 2}, "action_kinds is 2"),
    "the identity is not first": (
        connect4.Rules,
        {name: getattr(connect4.Rules, name)[::-1] for name in ("symmetry_cells", "symmetry_actions")},
        "not the identity",
    ),
    "legal actions are not mirrored": (
        connect4.Rules,
        {"legal": lambda self, s: connect4.Rules.legal(self, s) & (np.arange(7) > 0)},
        "does not map legal actions",
    ),
    "keys that are too short": (connect4.Rules, {"key": lambda self, s: s[:, 0] % np.uint64(64)}, "share a key"),
    "canonical keys that forget a side": (
        mnk.Rules,
        {"canonical_key": lambda self, s: mnk.Rules.canonical_key(self, s & np.array([511, 0], np.uint16))},
        "two boards have one canonical key",
    ),
    "canonical keys of states": (
        connect4.Rules,
        {"canonical_key": lambda self, s: (self.key(s), np.zeros(len(s), np.int64))},
        "images of a board have different",
    ),
    "canonical keys without their symmetry": (
        connect4.Rules,
        {"canonical_key": lambda self, s: (connect4.Rules.canonical_key(self, s)[0], np.zeros(len(s), np.int64))},
        "two boards have one canonical key",
    ),
    "planes of another type": (
        connect4.Rules,
        {"planes": lambda self, s: connect4.Rules.planes(self, s).astype(np.float32)},
        r"planes returned float32 \(64, 2, 6, 7\)\n  expected: uint8 \(64, 2, 6, 7\)",
    ),
    "states of another type": (
        othello.Rules,
        {"state_dtype": np.dtype(np.int32)},
        r"initial returned uint64 \(64, 3\)\n  expected: int32 \(64, 3\)",
    ),
    "a board with other players": (
        mnk.Rules,
        {"board": lambda self, s: Board(mnk.Rules.board(self, s).players + np.int8(1))},
        "board's players",
    ),
    "a board with too few labels": (
        mnk.Rules,
        {"board": lambda self, s: mnk.Rules.board(self, s)._replace(columns=("a",))},
        "board's columns",
    ),
    "ownership without signs": (
        othello.Rules,
        {"ownership": lambda self, s, player: np.abs(othello.Rules.ownership(self, s, player))},
        "is not lost to the other one",
    ),
    "ownership of another type": (
        othello.Rules,
        {"ownership": lambda self, s, player: othello.Rules.ownership(self, s, player).astype(np.float32)},
        "ownership returned float32",
    ),
    "ownership that does not turn": (
        othello.Rules,
        {"ownership": lambda self, s, player: othello.Rules.ownership(self, s, player)[:, ::-1]},
        "does not map owners",
    ),
    "points of the loser": (othello.Rules, {"lead": lambda self, s: -othello.Rules.lead(self, s)}, "different winners"),
    "players counted from 1": (
        mnk.Rules,
        {"to_play": lambda self, s: mnk.Rules.to_play(self, s) + np.int8(1)},
        "to_play",
    ),
}


def test_types_may_be_written_as_numpy_has_them():
    class Mine(mnk.Rules):
        planes_dtype = np.uint8

        def __init__(self):
            super().__init__(3, 3, 3)
            self.state_dtype = "int64"

    assert Mine.planes_dtype == np.dtype(np.uint8) and isinstance(Mine.planes_dtype, np.dtype)
    assert isinstance(Mine().state_dtype, np.dtype)


def test_a_game_of_more_actions_than_a_search_takes_is_refused():
    huge = _broken(mnk.Rules, num_actions=2**15)
    with pytest.raises(AssertionError, match="num_actions is 32768; allowed: a whole number from 1 to 32,767"):
        games.check(huge)
    with pytest.raises(Refusal, match="32,768 actions"):
        tree.allocate(huge, 1, 2)


@pytest.mark.parametrize("base, members, reason", BROKEN.values(), ids=BROKEN)
def test_check_finds_the_broken_invariant(base, members, reason):
    with pytest.raises(AssertionError, match=reason):
        games.check(_broken(base, **members))


class Grudge(mnk.Rules):
    """Tic-tac-toe in which the middle may not be taken right after a corner was. Nothing but the state tells."""

    def __init__(self):
        super().__init__()
        self.state_size = 3  # the last one: the cell of the newest move, counted from 1

    def apply(self, state, action):
        put(state, 0, action)
        change_sides(state, 1)
        state[2] = action + 1

    def legal_actions(self, state, legal):
        num = 0
        for cell in range(9):
            legal[cell] = is_empty(state, 1, cell)
            num += legal[cell]
        if num > 1 and (state[2] == 1 or state[2] == 3 or state[2] == 7 or state[2] == 9):
            legal[4] = False

    def current_player(self, state):
        return (count(state[0]) + count(state[1])) & 1


def test_legal_moves_that_the_planes_do_not_show_are_found():
    with pytest.raises(AssertionError, match="have different legal moves"):
        games.check(Grudge())


def test_views_that_do_not_belong_together_are_found():
    for view in (np.roll(np.arange(9), 1), np.arange(8), np.zeros(9, np.int32)):
        with pytest.raises(AssertionError, match="other_view"):
            games.check(_broken(mnk.Rules, other_view=view))


def test_turned_tables_that_do_not_belong_together_are_found():
    """Tic-tac-toe's turns in another order for the actions: each is a permutation, the pairs are wrong."""
    order = [0, 3, 2, 1, 4, 5, 6, 7]
    with pytest.raises(AssertionError, match="does not map boards"):
        games.check(_broken(mnk.Rules, symmetry_actions=TICTACTOE.symmetry_actions[order], action_kinds=0))


# What a message says: the method, what came, the state.


def _raises(self, states, *more):
    if (np.bitwise_count(states).sum(axis=1) == 2).any():
        raise KeyError("two stones")
    return mnk.Rules.legal(self, states)


def _message(game):
    with pytest.raises(AssertionError) as caught:
        games.check(game)
    return str(caught.value)


@pytest.mark.parametrize(
    "method, wrong, came",
    [
        ("legal", lambda self, s: mnk.Rules.legal(self, s).tolist(), "list"),
        ("planes", lambda self, s: None, "NoneType"),
        ("to_play", lambda self, s: mnk.Rules.to_play(self, s).tolist(), "list"),
        ("terminal", lambda self, s: mnk.Rules.terminal(self, s)[0], "bool (64,)"),
        ("terminal", lambda self, s: tuple(part.tolist() for part in mnk.Rules.terminal(self, s)), "list"),
        ("play", lambda self, s, a: list(mnk.Rules.play(self, s, a)), "list"),
        ("initial", lambda self, n: [[0, 0]] * n, "list"),
        ("show", lambda self, s: 7, "int"),
        ("action_to_text", lambda self, s, a: int(a), "int"),
        ("text_to_action", lambda self, s, text: text, "'a3'"),
        ("key", lambda self, s: s.tolist(), "list"),
        ("canonical_key", lambda self, s: mnk.Rules.key(self, s), "uint64 (64,)"),
        ("lead", lambda self, s: 0.0, "float"),
        ("ownership", lambda self, s, player: [], "list"),
        ("board", lambda self, s: "X", "str"),
    ],
)
def test_a_result_of_another_type_is_reported_with_its_method(method, wrong, came):
    text = _message(_broken(mnk.Rules, **{method: wrong}))
    first, second, *_ = text.splitlines()
    assert first.startswith(method) and f" returned {came}" in first and second.startswith("  expected: ")


def test_an_exception_is_reported_with_its_method_and_the_state_that_raises_it():
    text = _message(_broken(mnk.Rules, legal=_raises))
    first, *rest = text.splitlines()
    assert first.startswith("legal raises an error: ") and "KeyError: 'two stones'" in first
    assert sum("".join(rest[1:]).count(stone) for stone in "XO") == 2


@pytest.mark.parametrize(
    "method",
    [
        "initial",
        "play",
        "terminal",
        "to_play",
        "planes",
        "show",
        "board",
        "lead",
        "key",
        "ownership",
        "canonical_key",
        "action_to_text",
        "text_to_action",
    ],
)
def test_an_exception_in_any_method_is_reported_with_its_name(method):
    def fails(self, *given):
        raise IndexError("out of the board")

    assert _message(_broken(mnk.Rules, **{method: fails})).startswith(f"{method} raises an error: ")


def test_a_state_that_show_cannot_draw_is_reported_as_numbers():
    def fails(self, *given):
        raise IndexError("out of the board")

    assert "\n    [0, 0]" in _message(_broken(mnk.Rules, show=fails))


def test_a_value_out_of_range_is_reported_with_its_state():
    text = _message(_broken(connect4.Rules, terminal=_loses_twice))
    assert text.startswith("terminal (value) returned -2.0") and "to move:\n" in text and "1 2 3 4 5 6 7" in text


def test_a_symmetry_that_does_not_exist_is_reported():
    def canonical_key(self, states):
        keys, symmetry = mnk.Rules.canonical_key(self, states)
        return keys, symmetry + 8

    assert _message(_broken(mnk.Rules, canonical_key=canonical_key)).startswith("canonical_key (symmetry) returned 8")


def test_a_value_that_is_no_number_is_reported():
    def terminal(self, states):
        ended, value = mnk.Rules.terminal(self, states)
        return ended, np.where(ended, np.float32(np.nan), value)

    assert "returned nan" in _message(_broken(mnk.Rules, terminal=terminal))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_planes_that_are_not_finite_are_reported_with_plane_value_and_state(number):
    def planes(self, states):
        planes = mnk.Rules.planes(self, states).astype(np.float32)
        planes[np.bitwise_count(states).sum(axis=1) == 1, 1, 0, 2] = number
        return planes

    text = _message(_broken(mnk.Rules, planes=planes, planes_dtype=np.dtype(np.float32)))
    assert text.startswith(f"planes returned {number} in plane 1, row 0, column 2") and "planes are not finite" in text
    assert text.split("to move:")[1].count("X") == 1


def test_a_game_that_is_too_long_is_reported_with_the_method_that_is_likely_wrong():
    def all_legal(self, states):
        return np.ones((len(states), 9), bool)

    def longer(self, states):
        return np.zeros(len(states), bool), np.zeros(len(states), np.float32)

    text = _message(_broken(mnk.Rules, legal=all_legal, terminal=longer))
    assert "longer than max_plies = 9" in text and "legal allowed all 9 actions in every state" in text
    assert "terminal ended none of the games" in text and "X" in text.split("to move:")[1]
    text = _message(_broken(connect4.Rules, max_plies=25))
    assert "legal allowed" not in text and "max_plies is too low" in text


class OnePlayer(mnk.Rules):
    """Tic-tac-toe in which the second player's stones are never set: the first one fills the board alone."""

    def play(self, states, actions):
        return super().play(states, actions)[:, ::-1].copy()

    def to_play(self, states):
        return np.zeros(len(states), np.int8)


def test_a_game_in_which_player_1_never_moves_has_a_warning():
    [warning] = games.check(OnePlayer())
    assert warning.startswith("this game seems to have one player: player 1 never moves")


def test_a_game_in_which_player_1_never_chooses_has_a_warning():
    class Passes(Ways):
        def legal(self, states):
            return np.stack([np.ones(len(states), bool), self.to_play(states) == 0], axis=1)

    [warning] = games.check(Passes(6))
    assert warning.startswith("this game seems to have one player: player 1 has never more than one legal action")
    assert games.check(Ways(6, twice=True)) == []
