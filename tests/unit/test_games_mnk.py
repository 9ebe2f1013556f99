"""m,n,k-games: every line and no other one, results, names, OpenSpiel. Tic-tac-toe is in test_games.py, too."""

from itertools import combinations

import numpy as np
import pytest
from helpers import after
from referee import NUM_GAMES, agree, perft, same

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.bitboards import packed

GOMOKU, SMALL = games.make("gomoku"), games.make("mnk(m=5,n=4,k=3)")


def with_stones(game, sets):
    """Return states in which the player who moved last has the stones of each set of cells, and the other one none."""
    cells = np.zeros((len(sets), game.num_actions), bool)
    for row, cells_of in zip(cells, sets):
        row[list(cells_of)] = True
    return np.concatenate([np.zeros((len(sets), game.words), np.uint64), packed(cells)], axis=1)


def lines(m, n, k):
    starts = [(c, r, dc, dr) for c in range(m) for r in range(n) for dc, dr in ((1, 0), (0, 1), (1, 1), (-1, 1))]
    return {
        frozenset((r + i * dr) * m + c + i * dc for i in range(k))
        for c, r, dc, dr in starts
        if 0 <= c + (k - 1) * dc < m and r + (k - 1) * dr < n
    }


@pytest.mark.parametrize("name", ["gomoku", "mnk(m=5,n=4,k=3)", "mnk(m=4,n=4,k=4)", "mnk(m=7,n=9,k=4)"])
def test_check_accepts_many_sizes(name):
    assert games.check(games.make(name), num_games=8) == []


def test_of_all_sets_of_three_cells_just_the_lines_win():
    threes = list(combinations(range(20), 3))
    ended, value = SMALL.terminal(with_stones(SMALL, threes))
    assert {frozenset(threes[i]) for i in np.flatnonzero(ended)} == lines(5, 4, 3)
    assert (value == -ended.astype(float)).all()


def test_of_all_evenly_spaced_sets_of_five_cells_just_the_572_lines_of_gomoku_win():
    """Those that run over the right edge into the next row do not."""
    sets = [frozenset(range(cell, cell + 5 * step, step)) for step in (1, 14, 15, 16) for cell in range(225 - 4 * step)]
    ended, value = GOMOKU.terminal(with_stones(GOMOKU, sets))
    won = {sets[i] for i in np.flatnonzero(ended)}
    assert won == lines(15, 15, 5) and len(won) == 572 and (value == -ended.astype(float)).all()


def test_more_than_five_in_a_row_win_and_four_do_not():
    ended, _ = GOMOKU.terminal(with_stones(GOMOKU, [range(60, 66), range(60, 64), [60, 61, 62, 64, 65]]))
    assert ended.tolist() == [True, False, False]


def test_a_full_board_without_a_line_is_a_draw():
    game = games.make("mnk(m=4,n=3,k=4)")
    moves = [0, 1, 2, 3, 5, 4, 7, 6, 8, 9, 10, 11]  # XOXO, OXOX, XOXO
    for num in range(12):
        assert not game.terminal(after(game, moves[:num]))[0][0]
    states = after(game, moves)
    assert [part.tolist() for part in game.terminal(states)] == [[True], [0.0]] and not game.legal(states).any()


@pytest.mark.parametrize(
    "name, theirs",
    [
        ("tictactoe", "tic_tac_toe"),
        ("gomoku", "gomoku"),
        *(2 * [name] for name in ("mnk(m=5,n=4,k=3)", "mnk(m=4,n=7,k=4)")),
    ],
)
@NUM_GAMES
def test_openspiel_agrees(name, theirs, num_games):
    agree(games.make(name), theirs, same, num_games)


def test_tictactoe_is_played_as_before():
    """Segments of old runs hold states of two numbers of 16 bits, where cell k from the top left is bit k."""
    game = games.make("tictactoe")
    assert (game.name, game.state_dtype, game.state_size, game.solver) == ("tictactoe", np.uint16, 2, "enumerate")
    assert after(game, [0, 4, 8]).tolist() == [[1 << 4, 1 | 1 << 8]]
    assert perft(game, 9) == [9, 72, 504, 3024, 15120, 54720, 148176, 200448, 127872]


def test_names_and_cells():
    assert [games.make(f"mnk(m={m},n={n},k={k})").name for m, n, k in ((3, 3, 3), (15, 15, 5), (5, 4, 3))] == [
        "tictactoe",
        "gomoku",
        "mnk(m=5,n=4,k=3)",
    ]
    assert [GOMOKU.action_to_text(None, cell) for cell in (0, 14, 112, 224)] == ["a15", "o15", "h8", "o1"]
    assert [SMALL.action_to_text(None, cell) for cell in (0, 4, 19)] == ["a4", "e4", "e1"]
    assert SMALL.show(after(SMALL, [1, 19])[0]) == ". X . . .\n. . . . .\n. . . . .\n. . . . O"


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("m=2", "m is 2; allowed: a whole number from 3 to 19"),
        ("m=4,n=4,k=5", "k is 5; allowed: a whole number from 3 to 4"),
        ("n=True", "n is True"),
        ("k=3.0", "k is 3.0"),
        ("rows=3", "takes no argument rows"),
    ],
)
def test_what_it_does_not_take_is_refused(arguments, said):
    with pytest.raises(Refusal, match=said):
        games.make(f"mnk({arguments})")


@pytest.mark.parametrize("m, n, k", [(5, 5, 3), (4, 9, 3), (15, 15, 5), (8, 8, 5), (4, 4, 3), (19, 19, 5)])
def test_exact_rules_let_just_k_in_a_row_win(m, n, k):
    """Compared with a count along all lines, on random stones."""
    game = games.make(f"mnk(m={m},n={n},k={k},exact=True)")
    rng = np.random.default_rng(m * n + k)
    for density in (0.3, 0.5, 0.7, 0.8, 0.9):
        for _ in range(60):
            stones = rng.random((n, m)) < density
            state = game.with_stones(np.zeros(m * n, bool), stones.reshape(-1))
            ended, value = game.terminal(state[None])
            assert (value[0] == -1) == _has_row_of(stones, k), stones
            assert ended[0] == (value[0] == -1 or stones.all())


def _has_row_of(stones, k):
    """Return whether a row, column or diagonal has k stones in a row with none before and after them."""
    height, width = stones.shape
    rows = [*stones, *stones.T]
    for board in (stones, stones[:, ::-1]):
        rows += [np.diagonal(board, offset) for offset in range(-height + 1, width)]
    texts = ["".join("x" if stone else " " for stone in row) for row in rows]
    return any(len(run) == k for text in texts for run in text.split())


def test_exact_rules_are_named_and_six_do_not_win():
    game = games.make("mnk(m=15,n=15,k=5,exact=True)")
    assert game.name == "mnk(m=15,n=15,k=5,exact=True)"
    for length, wins in ((4, False), (5, True), (6, False), (7, False)):
        stones = np.zeros(225, bool)
        stones[30 : 30 + length] = True
        ended, value = game.terminal(game.with_stones(np.zeros(225, bool), stones)[None])
        assert (ended[0], value[0]) == (wins, -1.0 if wins else 0.0)
    with pytest.raises(Exception, match="exact is 1"):
        games.make("mnk(m=15,n=15,k=5,exact=1)")
