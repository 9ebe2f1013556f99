"""Lines and chains that have won a game: drawn boards, and the ends of random games."""

import numpy as np
import pytest

from az_mpi import games
from az_mpi.games.winning_cells import HEX_NEIGHBOURS, chain, lines


def stones(*rows):
    return np.array([["XO".find(cell) for cell in row] for row in rows], np.int8)


@pytest.mark.parametrize(
    "rows, k, cells",
    [
        (("XXX.", "OO..", "...."), 3, [(0, 0), (0, 1), (0, 2)]),
        (("O.X.", "OX..", "X..."), 3, [(0, 2), (1, 1), (2, 0)]),
        (("O...", "XO..", "X.O."), 3, [(0, 0), (1, 1), (2, 2)]),
        (("O.XX", "O.X.", "O..."), 3, [(0, 0), (1, 0), (2, 0)]),
        (("XXXX", "....", "...."), 3, [(0, 0), (0, 1), (0, 2), (0, 3)]),  # longer than it needs to be
        (("XXX.", "X...", "X..."), 3, [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]),  # two lines at once
        (("XX.X", "OO.O", "...."), 3, []),
    ],
)
def test_lines_by_hand(rows, k, cells):
    assert list(lines(stones(*rows), k)) == cells


@pytest.mark.parametrize(
    "rows, cells",
    [
        (("XXXX.X", "O..O.X", "OOOO.X"), [(0, 5), (1, 5), (2, 5)]),
        (("OOOO..", "....X.", ".....X"), []),
        ((".XXX..", "......", "OOO..."), [(0, 1), (0, 2), (0, 3), (2, 0), (2, 1), (2, 2)]),
    ],
)
def test_longer_lines_do_not_win_where_k_is_exact(rows, cells):
    assert list(lines(stones(*rows), 3, exact=True)) == cells
    won = games.make("mnk(m=6,n=3,k=3,exact=True)").winning_cells(stones(*rows))
    assert list(won) == cells


@pytest.mark.parametrize(
    "rows, cells",
    [
        (("X.", "X."), [(0, 0), (1, 0)]),
        ((".X", "X."), [(0, 1), (1, 0)]),  # a cell touches the one below it to the left
        (("X.", ".X"), []),
        (("OO", ".."), [(0, 0), (0, 1)]),
        (("XXX", "XOO", "XOX"), [(0, 0), (1, 0), (2, 0)]),  # a shortest one
    ],
)
def test_chains_by_hand(rows, cells):
    assert list(chain(stones(*rows))) == cells


@pytest.mark.parametrize(
    "name, least", [("tictactoe", 3), ("connect4", 4), ("mnk(m=6,n=5,k=4)", 4), ("hex(size=5)", 5)]
)
def test_the_cells_that_won_are_the_winners_and_hang_together(name, least):
    game, wins = games.make(name), 0
    for seed in range(20):
        rng, state = np.random.default_rng(seed), game.initial(1)
        while not game.terminal(state)[0][0]:
            assert game.board(state[0]).won == ()
            state = game.play(state, rng.choice(np.flatnonzero(game.legal(state)[0]), 1))
        board, value = game.board(state[0]), game.terminal(state)[1][0]
        assert len(board.won) >= least if value else board.won == ()
        loser = game.to_play(state)[0]
        assert all(board.players[cell] == 1 - loser for cell in board.won)
        beside = [{(r + dr, c + dc) for dr, dc in [*HEX_NEIGHBOURS, (1, 1), (-1, -1)]} for r, c in board.won]
        assert all(near & set(board.won) for near in beside)
        wins += bool(value)
    assert wins >= 10


@pytest.mark.long
def test_othello_and_go_are_won_by_no_line():
    for name in ("othello(size=4)", "go(size=3,komi=0,max_plies=20)", "breakthrough(rows=4,columns=3)"):
        game, rng = games.make(name), np.random.default_rng(0)
        state = game.initial(1)
        while not game.terminal(state)[0][0]:
            state = game.play(state, rng.choice(np.flatnonzero(game.legal(state)[0]), 1))
        assert game.board(state[0]).won == ()
