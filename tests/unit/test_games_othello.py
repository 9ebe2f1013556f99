"""Othello: drawn boards, counts known from elsewhere, OpenSpiel."""

import numpy as np
import pytest
from helpers import after, stones
from referee import NUM_GAMES, agree, perft, same

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.bitboards import packed

OTHELLO, FOUR = games.make("othello"), games.make("othello(size=4)")
PERFT = [4, 12, 56, 244, 1396, 8200, 55092, 390216]


def drawn(game, drawing, player=0):
    """Return the state of a drawing with `player` to move, [1, 3]."""
    sets = [packed(np.array(stones(drawing)).reshape(-1) == who)[0] for who in ("XO" if player == 0 else "OX")]
    return np.array([[*sets, player]], np.uint64)


def played(game, words):
    states = game.initial(1)
    for word in words.split():
        states = game.play(states, np.array([game.text_to_action(states[0], word)]))
    return states


@pytest.mark.parametrize("size", [4, 6, 8])
def test_check_accepts_every_size(size):
    assert games.check(games.make(f"othello(size={size})"), num_games=16) == []


def test_the_number_of_games_is_as_known():
    assert perft(OTHELLO, 7) == PERFT[:7]


@pytest.mark.slow
def test_the_number_of_longer_games_is_as_known():
    assert perft(OTHELLO, 9) == [*PERFT, 3005288]


@NUM_GAMES
def test_openspiel_agrees(num_games):
    assert agree(OTHELLO, "othello", same, num_games) > 58


def test_the_start_and_the_first_move():
    start = """
        . . . . . . . .
        . . . . . . . .
        . . . . . . . .
        . . . O X . . .
        . . . X O . . .
        . . . . . . . .
        . . . . . . . .
        . . . . . . . ."""
    assert OTHELLO.show(OTHELLO.initial(1)[0]).split() == start.split()
    assert (
        OTHELLO.show(played(OTHELLO, "d3")[0]).split()
        == start.replace(". . . . . . . .\n        . . . O X", ". . . X . . . .\n        . . . X X").split()
    )


def test_a_stone_turns_enclosed_stones_in_all_eight_directions():
    """The run to the left ends at the edge, the one to the lower left at an empty cell: these do not turn."""
    before = drawn(
        OTHELLO,
        """
        X . . X . . X .
        . O . O . O . .
        . . O O O . . .
        O O O . O O O X
        . . O O O . . .
        . O . O . O . .
        . . . X . . X .
        . . . . . . . .""",
    )
    after_it = OTHELLO.play(before, np.array([OTHELLO.text_to_action(before[0], "d4")]))
    assert (
        OTHELLO.show(after_it[0]).split()
        == """
        X . . X . . X .
        . X . X . X . .
        . . X X X . . .
        O O O X X X X X
        . . O X X . . .
        . O . X . X . .
        . . . X . . X .
        . . . . . . . .""".split()
    )


def test_no_run_goes_over_the_edge():
    """Row by row, O's stones at the right edge are followed by X's at the left one."""
    states = drawn(
        FOUR,
        """
        . O X .
        . . . O
        X . . .
        . . . .""",
    )
    assert [FOUR.action_to_text(states[0], a) for a in np.flatnonzero(FOUR.legal(states)[0])] == ["a1"]


def test_who_has_no_move_passes_and_only_then():
    """X has no stone beside O's; O encloses X's with a3 or d1."""
    board = """
        O X X .
        X . . .
        . . . .
        . . . ."""
    first, second = drawn(FOUR, board), drawn(FOUR, board, player=1)
    assert np.flatnonzero(FOUR.legal(first)[0]).tolist() == [16] and not FOUR.terminal(first)[0][0]
    assert FOUR.action_to_text(first[0], 16) == "pass" and FOUR.text_to_action(first[0], "PASS") == 16
    passed = FOUR.play(first, np.array([16]))
    assert (passed == second).all() and FOUR.to_play(passed).tolist() == [1]
    assert [FOUR.action_to_text(passed[0], a) for a in np.flatnonzero(FOUR.legal(passed)[0])] == ["d1", "a3"]


@pytest.mark.parametrize(
    "board, first",
    [
        ("X X X X  X X X X  X X . .  . . . .", 1),  # O has no stone left
        ("X X X X  O O O O  X X X X  O O O O", 0),
        ("X X X X  O O O O  X X X O  O O O O", -1),
        ("O O O .  O O O .  O O O .  . . . X", -1),  # empty cells, and no stone encloses another
    ],
)
def test_where_nobody_can_move_the_majority_wins(board, first):
    cells = np.array(board.split()).reshape(4, 4)
    drawing = "\n".join(" ".join(row) for row in cells)
    for player in (0, 1):
        ended, value = FOUR.terminal(drawn(FOUR, drawing, player))
        assert ended.tolist() == [True] and value.tolist() == [first if player == 0 else -first]


def test_what_othello_does_not_take_is_refused():
    for arguments in ("size=5", "size='8'", "size=8.0", "sizes=8"):
        with pytest.raises(Refusal, match="allowed: 4, 6, 8|takes no argument sizes; did you mean size?"):
            games.make(f"othello({arguments})")


def test_the_name_makes_the_game_again():
    for name in ("othello", "othello(size=6)"):
        assert games.make(games.make(name).name).name == name
    assert OTHELLO.num_actions == 65 and len(after(OTHELLO, [19])) == 1
