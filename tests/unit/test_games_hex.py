"""Hex: drawn boards, the swap, small boards solved, OpenSpiel."""

import functools

import numpy as np
import pytest
from referee import NUM_GAMES, agree, perft

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.evaluate.solver import enumerate_all

HEX, FOUR, SWAP = games.make("hex"), games.make("hex(size=4)"), games.make("hex(size=4,swap=True)")


def played(game, words):
    states = game.initial(1)
    for word in words.split():
        states = game.play(states, np.array([game.text_to_action(states[0], word)]))
    return states


@pytest.mark.parametrize("name", ["hex(size=2)", "hex(size=3,swap=True)", "hex(size=5)", "hex", "hex(swap=True)"])
def test_check_accepts_many_sizes(name):
    assert games.check(games.make(name), num_games=8) == []


def test_a_chain_from_top_to_bottom_wins_for_who_began():
    """A cell touches two in the row above (its column, the next one) and two below (its column, the one before)."""
    states = played(FOUR, "c1 a1 c2 a2 b3 d3")
    assert FOUR.show(states[0]) == "O . X .\n O . X .\n  . X . O\n   . . . ." and not FOUR.terminal(states)[0][0]
    won, not_won = played(FOUR, "c1 a1 c2 a2 b3 d3 a4"), played(FOUR, "c1 a1 c2 a2 b3 d3 c4")
    assert [part.tolist() for part in FOUR.terminal(won)] == [[True], [-1.0]]
    assert [part.tolist() for part in FOUR.terminal(not_won)] == [[False], [0.0]]


def test_a_chain_from_left_to_right_wins_for_the_other_player():
    """Downhill on the diagonal a1 b2 the cells do not touch; uphill, a2 b1, they do."""
    won = played(FOUR, "a1 a2 b4 b2 c4 c1 a4 d1")
    assert [part.tolist() for part in FOUR.terminal(won)] == [[True], [-1.0]]
    not_won = played(FOUR, "d1 a1 b4 b2 a4 c3 a3 d4")
    assert FOUR.terminal(not_won)[0].tolist() == [False]


def test_both_players_see_themselves_go_from_top_to_bottom():
    """The stone on b3 of the board is on c2 for who sees rows and columns exchanged."""
    states = played(FOUR, "b3")
    assert FOUR.show(states[0]) == ". . . .\n . . . .\n  . X . .\n   . . . ."
    own, other = FOUR.planes(states)[0]
    assert not own.any() and np.argwhere(other).tolist() == [[1, 2]]
    assert FOUR.action_to_text(states[0], 1) == "a2" and not FOUR.legal(states)[0, 4 + 2]
    own, other = FOUR.planes(played(FOUR, "b3 d1"))[0]
    assert np.argwhere(own).tolist() == [[2, 1]] and np.argwhere(other).tolist() == [[0, 3]]


def test_swapping_makes_the_first_stone_the_other_players_on_the_mirrored_cell():
    before, after = played(SWAP, "b3"), played(SWAP, "b3 swap")
    assert SWAP.show(after[0]) == ". . . .\n . . O .\n  . . . .\n   . . . ." and SWAP.to_play(after).tolist() == [0]
    # It is the position of before, seen by the other player: only the plane that says who may swap differs.
    assert (SWAP.planes(before)[0, :2] == SWAP.planes(after)[0, :2]).all()
    assert SWAP.planes(before)[0, 2].all() and not SWAP.planes(after)[0, 2].any()
    assert SWAP.canonical_key(before)[0] != SWAP.canonical_key(after)[0]


def test_only_the_second_move_may_be_a_swap():
    may = [SWAP.legal(played(SWAP, words))[0, 16] for words in ("", "b3", "b3 swap", "b3 b4", "b3 swap a1", "b3 b4 a1")]
    assert may == [False, True, False, False, False, False]
    assert FOUR.num_actions == 16 and SWAP.num_actions == SWAP.max_plies == 17
    assert perft(SWAP, 3) == [16, 16 * 16, 16 * 15 * 14 + 16 * 15]


def test_three_by_three_is_solved_with_and_without_the_swap():
    """With the swap no opening wins: the other player takes the stone if it would."""
    for name, wins in (("hex(size=3)", {"c1", "a2", "b2", "c2", "a3"}), ("hex(size=3,swap=True)", set())):
        game = games.make(name)
        solved = enumerate_all(game)
        [start] = solved.action_values[(solved.states == game.initial(1)).all(axis=1)]
        won = {game.action_to_text(game.initial(1)[0], a) for a in np.flatnonzero(start == 1)}
        assert won == wins


def test_winning_openings_of_four_by_four_are_the_short_diagonal():
    """Solved by a search over sets of stones that asks the game which sets join two sides."""
    sets = np.arange(2**16, dtype=np.uint64)
    nothing = np.zeros_like(sets)
    top = FOUR.terminal(np.stack([nothing, sets, nothing + np.uint64(1)], axis=1))[0].tolist()
    left = FOUR.terminal(np.stack([nothing, sets, nothing], axis=1))[0].tolist()

    @functools.cache
    def wins(own, other, joined, joined_other):
        """Whether who is to move wins."""
        for cell in (1 << k for k in (5, 6, 9, 10, 3, 12, 1, 2, 4, 7, 8, 11, 13, 14, 0, 15)):
            if not (own | other) & cell:
                after = own | cell
                if (top if joined else left)[after] or not wins(other, after, joined_other, joined):
                    return True
        return False

    won = {FOUR.action_to_text(FOUR.initial(1)[0], k) for k in range(16) if not wins(0, 1 << k, False, True)}
    assert won == {"d1", "c2", "b3", "a4"}


@pytest.mark.parametrize(
    "name, theirs",
    [("hex(size=4)", "hex(board_size=4)"), ("hex", "hex"), ("hex(size=5,swap=True)", "hex(board_size=5,swap=true)")],
)
@NUM_GAMES
def test_openspiel_agrees(name, theirs, num_games):
    game = games.make(name)
    actions = np.tile(np.arange(game.num_actions), (2, 1))
    actions[:, : game.cells] = game.order
    agree(game, theirs, lambda state, player, ours, other: actions[player, ours], num_games)


def test_names_and_cells():
    names = "hex", "hex(size=4)", "hex(swap=True)", "hex(size=4,swap=True)"
    assert [games.make(name).name for name in names] == list(names)
    start = HEX.initial(1)[0]
    assert [HEX.action_to_text(start, cell) for cell in (0, 10, 11, 120)] == ["a1", "k1", "a2", "k11"]
    board = HEX.board(start)
    assert board.shape == "hex" and board.columns[-1] == "k" and board.rows == tuple(str(k) for k in range(1, 12))


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("size=20", "size is 20; allowed: a whole number from 2 to 19"),
        ("size=1", "size is 1; allowed"),
        ("swap=1", "swap is 1; allowed: True or False"),
    ],
)
def test_what_it_does_not_take_is_refused(arguments, said):
    with pytest.raises(Refusal, match=said):
        games.make(f"hex({arguments})")
