"""Boards that are read out of OpenSpiel's texts: whose pieces lie where, in every game that has a board."""

import numpy as np
import pytest

from az_mpi import games
from az_mpi.games import openspiel_boards
from az_mpi.games.base import CHANCE
from az_mpi.games.board_data import NO_CELL, NOBODY

pytest.importorskip("pyspiel", reason="optional; it could not be installed here")

AS_TEXT = set("dots_and_boxes hive maedn mancala nim nine_mens_morris oware pig quoridor twixt yacht".split())


def after(name, *words):
    """Return the board after moves from the start of a game of OpenSpiel."""
    game = games.make(f"openspiel:{name}")
    state = game.initial(1)
    for word in words:
        state = game.play(state, np.array([game.text_to_action(state[0], word)]))
    return game.board(state[0])


def drawn(board):
    return [
        "".join(board.mark(row, column)[-1] for column in range(board.players.shape[1]))
        for row in range(len(board.players))
    ]


def test_chess_has_whites_pieces_at_the_bottom_and_they_are_light_and_those_of_who_began():
    board = after("chess", "e4", "Nf6")
    assert drawn(board) == [
        "rnbqkb.r",
        "pppppppp",
        ".....n..",
        "........",
        "....P...",
        "........",
        "PPPP.PPP",
        "RNBQKBNR",
    ]
    assert board.light == 0 and board.name(4, 4) == "e4" and board.name(2, 5) == "f6"
    assert (board.players[6:] <= 0).all() and (board.players[:2] != 0).all()
    assert set("kqrbnpKQRBNP") <= set(board.figures)


@pytest.mark.parametrize(
    "name, words, lines, named",
    [
        (
            "breakthrough",
            ["f7e6", "a2a3"],
            ["XXXXXXXX", "XXXXX.XX", "....X...", "........", "........", "O.......", ".OOOOOOO", "OOOOOOOO"],
            {(2, 4): "e6", (5, 0): "a3"},
        ),
        (
            "checkers",
            ["a3b4"],
            [".O.O.O.O", "O.O.O.O.", ".O.O.O.O", "........", ".X......", "..X.X.X.", ".X.X.X.X", "X.X.X.X."],
            {(4, 1): "b4"},
        ),
        ("clobber(rows=2,columns=4)", ["a1a2"], ["XXOX", ".OXO"], {(0, 0): "a2"}),
        ("othello", ["f5"], ["........"] * 3 + ["...OX...", "...XXX.."] + ["........"] * 3, {(4, 5): "f5"}),
        (
            "go(board_size=5)",
            ["B_b2", "W_e5"],
            ["....O", ".....", ".....", ".X...", "....."],
            {(3, 1): "B2", (0, 4): "E5"},
        ),
        ("hex(board_size=3)", ["b1", "c3"], [".X.", "...", "..O"], {(0, 1): "b1", (2, 2): "c3"}),
        ("y(board_size=3)", ["b1", "a3"], [".X.", ".. ", "O  "], {(0, 1): "b1", (2, 0): "a3"}),
        ("havannah(board_size=2)", ["b2", "a1"], [" O.", ".X.", ".. "], {}),
        ("connect_four", ["x3", "o3"], ["......."] * 4 + ["...O...", "...X..."], {}),
        ("pentago", ["a1t"], ["......"] * 6, None),
    ],
)
def test_boards_by_hand(name, words, lines, named):
    board = after(name, *words)
    if named is None:  # a quarter of the board turns after the move
        assert (board.players == 0).sum() == 1 and (board.players == 1).sum() == 0
        return
    assert drawn(board) == lines
    assert {cell: board.name(*cell) for cell in named} == named


def test_arrows_of_amazons_are_nobodys_and_gaps_are_no_cells():
    board = after("amazons", "X_From_(7,_1)", "X_To_(6,_1)", "X_Shoot:_(7,_1)")
    assert [tuple(cell) for cell in np.argwhere(board.players == NOBODY).tolist()] == [(6, 0)]
    assert board.players[5, 0] == 0 and (board.players == 0).sum() == (board.players == 1).sum() == 4
    board = after("ultimate_tic_tac_toe", "Choose_local_board_4", "Local_board_4:_x(1,0)")
    assert board.players.shape == (11, 11) and (board.players == NO_CELL).sum() == 121 - 81
    assert board.players[5, 4] == 0 and board.beside == "Forced board: 3"


def test_kings_of_checkers_and_promoted_pieces_of_shogi_have_a_kind_of_their_own():
    board = openspiel_boards.read("8.+.*\n7o...\n6....\n5.8.+\n abcd\n", games.make("openspiel:checkers").game, False)
    assert drawn(board) == [".O.k", "X...", "....", ".K.O"] and {"K", "k"} == set(board.figures)
    shogi = games.make("openspiel:shogi").game
    board = openspiel_boards.read("lnsgk4/9/9/9/4+P4/9/9/9/4K4 b P3p 128", shogi, False)
    assert board.symbols[4][4] == "+P" and board.players[4, 4] == 0 and board.beside == "in hand: P3p"
    assert board.name(8, 4) == "5i"


def test_the_boards_of_games_with_dice_show_the_pieces_of_who_began_alike():
    """Backgammon: O begins after a throw of 2 and 1, and has the pieces of player 0; five of them stand on two points.
    A sixth one on a point becomes a number."""
    game = games.make("openspiel:backgammon")
    for outcome, own in ((0, "x"), (1, "o")):
        state = game.play(game.initial(1), np.array([outcome]))[0]
        text = str(game.live(state)).splitlines()
        board = game.board(state)
        assert board.players.shape == (11, 13) and (board.players[:, 6] == NO_CELL).all()
        for row in (0, 10):
            cells = [-1 if sign == "." else int(sign != own) for sign in text[1 + row].replace("|", "")]
            assert np.delete(board.players[row], 6).tolist() == cells
        assert (board.players == 0).sum() == (board.players == 1).sum() == 15
        off, names = {"x": ("X 0, O 0", ("12/13", "", "1/24")), "o": ("O 0, X 0", ("13/12", "", "24/1"))}[own]
        assert board.beside == f"dice 1 2; borne off: {off}; X began"
        assert (board.columns[0], board.columns[6], board.columns[12]) == names  # as who is to move counts the points
    heap = "|......|" + "......|\n"
    text = (
        "|6.....|......|\n" + "|o.....|......|\n" * 4 + "|      |      |\n" + heap * 5
    ) + "Bar: oo\nScores, X: 1, O: 2"
    on_the_bar = (
        "on the bar: X 0, O 2; borne off: X 1, O 2; X began",
        "on the bar: O 0, X 2; borne off: O 1, X 2; X began",
    )
    for begins, owner, beside in ((0, 1, on_the_bar[0]), (1, 0, on_the_bar[1])):
        board = openspiel_boards.read(text, game.game, False, begins)
        assert board.players[0, 0] == owner and board.symbols[0][0] == "6" and board.beside == beside


@pytest.mark.parametrize("num_players", [2, 3, 4, 6])
def test_the_board_of_chinese_checkers_has_ten_pieces_of_every_player_all_game_long(num_players):
    game = games.make(f"openspiel:chinese_checkers(players={num_players}, max_plies=60)")
    rng, states = np.random.default_rng(0), game.initial(1)
    while not game.terminal(states)[0][0]:
        players = game.board(states[0]).players
        assert [(players == player).sum() for player in range(num_players)] == [10] * num_players
        assert (players.shape, (players != NO_CELL).sum()) == ((17, 17), 121)
        states = game.play(states, np.array([rng.choice(np.flatnonzero(game.legal(states)[0]))]))


def test_banqi_gives_the_colour_of_the_first_piece_to_player_0():
    rows = "? s ? ? ? ? ? ?\n" + "? ? ? ? ? ? ? ?\n" * 3
    for colour, owner in (("Black", 0), ("Red", 1)):
        board = openspiel_boards.read(f"{rows}Player: 1 (P0={colour})", games.make("openspiel:banqi").game, False)
        assert board.players[0, :3].tolist() == [NOBODY, owner, NOBODY] and board.symbols[0][1] == "s"


def test_2048_has_a_piece_for_each_tile():
    rows = "    2    0    0 1024\n" + "    0    0    0    0\n" * 3
    board = openspiel_boards.read(rows, games.make("openspiel:2048").game, False)
    assert board.text() == "X . . X\n" + "\n".join([". . . ."] * 3) and board.symbols[0][3] == "1024"


def test_a_text_of_another_form_is_no_board():
    for name, text in (("chess", "8/8 w"), ("breakthrough", "no board"), ("checkers", "8.+\n7.+.\n ab\n"), ("y", "?")):
        board = openspiel_boards.read(text, games.make(f"openspiel:{name}").game, False)
        assert board is None or board.players.shape == (2, 8), name


@pytest.mark.parametrize("name", sorted(openspiel_boards.FORMS))
def test_pieces_that_a_move_puts_down_belong_to_the_mover(name):
    """In random games; a quarter that turns in Pentago moves pieces of both."""
    game, rng = games.make(f"openspiel:{name}"), np.random.default_rng(1)
    state = game.initial(1)
    board, num_put = game.board(state[0]), 0
    for _ in range(60):
        mover = int(game.to_play(state)[0])
        odds = game.chances(state)[0] if mover == CHANCE else game.legal(state)[0]
        state = game.play(state, rng.choice(np.flatnonzero(odds), 1))
        before, board = board, game.board(state[0])
        assert board.players.shape == before.players.shape and board.players.dtype == np.int8
        assert ((board.players == NO_CELL) == (before.players == NO_CELL)).all()
        filled = board.filled_since(before)
        assert name == "pentago" or mover == CHANCE or all(board.players[cell] in (mover, NOBODY) for cell in filled)
        num_put += len(filled)
        if game.terminal(state)[0][0]:
            break
    assert num_put >= (1 if name in ("cliff_walking", "cursor_go") else 5)


def test_every_game_that_fits_has_a_board_or_is_known_to_be_a_text():
    import pyspiel

    from az_mpi.games.openspiel_fit import misfit

    fitting = {
        kind.short_name
        for kind in pyspiel.registered_games()
        if kind.default_loadable and misfit(pyspiel.load_game(kind.short_name)) is None
    }
    assert fitting - set(openspiel_boards.FORMS) == AS_TEXT


@pytest.mark.parametrize(
    "name, k",
    [
        ("connect_four", 4),
        ("tic_tac_toe", 3),
        ("mnk(m=4,n=4,k=3)", 3),
        ("gomoku(size=5,connect=4)", 4),
        ("pentago", 5),
        ("hex(board_size=4)", 4),
    ],
)
def test_the_winning_cells_belong_to_the_winner(name, k):
    game, found = games.make(f"openspiel:{name}"), 0
    for seed in range(6):
        rng, state = np.random.default_rng(seed), game.initial(1)
        while not game.terminal(state)[0][0]:
            assert not game.board(state[0]).won
            state = game.play(state, rng.choice(np.flatnonzero(game.legal(state)[0]), 1))
        board, value = game.board(state[0]), float(game.terminal(state)[1][0])
        winner = int(game.to_play(state)[0]) if value > 0 else 1 - int(game.to_play(state)[0])
        owners = {int(board.players[cell]) for cell in board.won}
        assert owners == ({winner} if value else set()) or name == "pentago"  # where both may win at once
        assert not value or len(board.won) >= k
        found += bool(board.won)
    assert found


def test_only_a_limit_cuts_a_game():
    game = games.make("openspiel:chess(max_plies=4)")
    for words, is_cut in ((["f3", "e5", "g4", "Qh4#"], False), (["f3", "e5", "g4", "h5"], True)):
        state = game.initial(1)
        for word in words:
            state = game.play(state, np.array([game.text_to_action(state[0], word)]))
        assert game.terminal(state)[0][0] and game.is_cut(state[0]) == is_cut
