"""games.check accepts the games and finds each broken invariant."""


import numpy as np
import pytest

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games import connect4, mnk, othello
from az_mpi.games.base import Board
from az_mpi.search import tree

CONNECT4, TICTACTOE = games.make("connect4"), games.make("tictactoe")
BOTH = pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=lambda game: game.name)


# games.check


@BOTH
def test_check_accepts_the_games(game):
    assert games.check(game, games_num=32, seed=3) == []


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
    "value out of range": (connect4.Rules, {"terminal": _loses_twice}, "out of"),
    "value while in play": (
        connect4.Rules,
        {"terminal": lambda self, s: (connect4.Rules.terminal(self, s)[0], np.full(len(s), 0.5, np.float32))},
        "not 0 in play",
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
        "uint8",
    ),
    "states of another type": (connect4.Rules, {"state_dtype": np.dtype(np.int32)}, "another shape or dtype"),
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
        "ownership is not int8",
    ),
    "ownership that does not turn": (
        othello.Rules,
        {"ownership": lambda self, s, player: othello.Rules.ownership(self, s, player)[:, ::-1]},
        "does not map owners",
    ),
    "points of the loser": (
        othello.Rules,
        {"lead": lambda self, s: -othello.Rules.lead(self, s)},
        "different winners",
    ),
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
    with pytest.raises(AssertionError, match="num_actions is 32,768; allowed: 1 to 32,767"):
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

    def initial(self, n):
        return np.zeros((n, 3), np.uint16)

    def play(self, states, actions):
        return np.column_stack([super().play(_stones(states), actions), actions + 1]).astype(np.uint16)

    def legal(self, states):
        legal = super().legal(_stones(states))
        legal[:, 4] &= ~np.isin(states[:, 2], (1, 3, 7, 9)) | (legal.sum(axis=1) == 1)
        return legal


def _stones(states):
    return np.ascontiguousarray(states[..., :2])


for name in ("terminal", "to_play", "planes", "canonical_key", "show", "board"):
    setattr(Grudge, name, lambda self, states, name=name: getattr(mnk.Rules, name)(self, _stones(states)))


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
