"""FEN, UCI and algebraic notation of native chess, and positions of other games as text."""

import chess
import numpy as np
import pytest

from az_mpi import games
from az_mpi.games.base import after
from az_mpi.games.random_games import random_games
from az_mpi.games.uci_moves import ChessMoves, uci_moves

CHESS, CHESS960 = games.make("chess"), games.make("chess(chess960=True)")
START = CHESS.initial(1)[0]


def move(state, text, game=CHESS):
    return game.play(state[None], np.array([game.text_to_action(state, text)]))[0]


@pytest.mark.parametrize(
    "fen",
    [
        "r3k2r/8/8/8/8/8/8/R3K2R b Kq - 3 12",
        "rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 3",
        "8/8/8/8/8/8/k7/7K w - - 99 400",
        "4k3/8/8/8/8/8/8/RR2K3 w Q - 0 1",
    ],
)
def test_a_fen_is_read_and_written(fen):
    assert CHESS.state_to_text(CHESS.text_to_state(fen)) == fen == chess.Board(fen).fen()


@pytest.mark.parametrize("fen", ["1r2k1r1/8/8/8/8/8/8/1R2K1R1 w KQkq - 0 1", "4k3/8/8/8/8/8/8/RR2K3 w B - 0 1"])
def test_a_fen_of_chess960_needs_the_option(fen):
    assert CHESS960.state_to_text(CHESS960.text_to_state(fen)) == fen == chess.Board(fen, chess960=True).fen()
    with pytest.raises(ValueError, match="chess960=True"):
        CHESS.text_to_state(fen)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("4k3/8/8/8/8/8/8/4K3 w KQkq - 0 1", "4k3/8/8/8/8/8/8/4K3 w - - 0 1"),  # no rooks
        ("4k3/8/8/8/4P3/8/8/4K3 b - e3 0 1", "4k3/8/8/8/4P3/8/8/4K3 b - - 0 1"),  # nothing takes there
        ("4k3/8/8/8/8/8/8/4K3 w - -", "4k3/8/8/8/8/8/8/4K3 w - - 0 1"),
        ('4k3/8/8/8/8/8/8/4K3 w - - bm Kd2; id "x";', "4k3/8/8/8/8/8/8/4K3 w - - 0 1"),
        ("4k3/8/8/8/8/8/8/4K3", "4k3/8/8/8/8/8/8/4K3 w - - 0 1"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w HAha - 0 1", "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"),
    ],
)
def test_what_a_fen_need_not_say_is_filled_in_and_what_cannot_be_is_passed_over(given, meant):
    assert CHESS.state_to_text(CHESS.text_to_state(given)) == meant


@pytest.mark.parametrize(
    ("fen", "why"),
    [
        ("", "no pieces in FEN"),
        ("8/8/8/8/8/8/8 w - - 0 1", "no pieces in FEN"),
        ("9/8/8/8/8/8/8/4K2k w - - 0 1", "no pieces in FEN"),
        ("xxxxxxxx/8/8/8/8/8/8/4K2k w - - 0 1", "no pieces in FEN"),
        ("8/8/8/8/8/8/8/8 w - - 0 1", "White has 0 kings"),
        ("kk6/8/8/8/8/8/8/7K w - - 0 1", "Black has 2 kings"),
        ("4k3/8/8/8/8/8/8/P3K3 w - - 0 1", "White has a pawn on the first or last rank"),
        ("4k3/8/8/8/8/8/4R3/4K3 w - - 0 1", "not to move is in check"),
        ("8/8/8/3k4/4K3/8/8/8 w - - 0 1", "kings are beside each other"),
        ("4k3/8/8/8/8/8/8/4K3 x - - 0 1", "no side to move"),
        ("4k3/8/8/8/8/8/8/4K3 w XX - 0 1", "no rights to castle"),
        ("4k3/8/8/8/8/8/8/4K3 w - e9 0 1", "no rights to castle and no square"),
    ],
)
def test_a_position_that_cannot_be_played_is_refused_with_the_reason(fen, why):
    with pytest.raises(ValueError, match=why):
        CHESS.text_to_state(fen)


@pytest.mark.parametrize(
    ("fen", "texts", "name"),
    [
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "O-O 0-0 O-O+ e1g1 e1h1", "O-O"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1", "O-O-O 0-0-0 e8c8 e8a8", "O-O-O"),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1", "exd6 ed6 e5d6 exd6!? e5xd6", "exd6"),
        ("6k1/4P3/8/8/8/8/8/4K3 w - - 0 1", "e8=Q+ e8=Q e8Q e7e8q e8(Q)", "e8=Q+"),
        ("6k1/4P3/8/8/8/8/8/4K3 w - - 0 1", "e8=N e7e8n e8N", "e8=N"),
        ("R6R/8/8/8/8/8/4k3/7K w - - 0 1", "Rab8 Rab8+ a8b8 Ra8b8", "Rab8"),
        ("1k6/8/8/R7/8/8/8/R6K w - - 0 1", "R1a3 a1a3", "R1a3"),
        ("1k6/8/8/8/4Q2Q/8/8/3K3Q w - - 0 1", "Qh4e1 h4e1", "Qh4e1"),
        ("7k/5Q2/6K1/8/8/8/8/8 w - - 0 1", "Qg7# Qg7 Qg7+ f7g7", "Qg7#"),
    ],
)
def test_a_move_is_understood_as_people_write_it_and_has_one_name(fen, texts, name):
    state = CHESS.text_to_state(fen)
    actions = {CHESS.text_to_action(state, text) for text in texts.split()}
    assert len(actions) == 1 and CHESS.action_to_text(state, actions.pop()) == name
    board = chess.Board(fen)
    assert board.san(board.parse_san(name)) == name


@pytest.mark.parametrize("text", ["", "e5", "Ke2", "e7e8", "0000", "Nf3f3", "x", "O-O", "e2e4q", "N", "e4e5"])
def test_other_words_are_no_moves(text):
    with pytest.raises(ValueError, match="no legal move"):
        CHESS.text_to_action(START, text)
    assert uci_moves(CHESS).find(START, text) is None


def test_a_promotion_without_its_piece_is_no_move():
    state = CHESS.text_to_state("6k1/4P3/8/8/8/8/8/4K3 w - - 0 1")
    with pytest.raises(ValueError):
        CHESS.text_to_action(state, "e8")


def test_castling_is_written_as_the_kings_move_in_chess_and_on_to_the_rook_in_chess960():
    for game, word in ((CHESS, "e1g1"), (CHESS960, "e1h1")):
        state = game.text_to_state("4k3/8/8/8/8/8/8/4K2R w K - 0 1")
        moves = uci_moves(game)
        assert isinstance(moves, ChessMoves) and moves.word(state, game.text_to_action(state, "O-O")) == word
        assert moves.find(state, "e1g1") == moves.find(state, "e1h1") == game.text_to_action(state, "O-O")
    beside = CHESS960.text_to_state("4k3/8/8/8/8/8/8/5K1R w K - 0 1")
    moves = uci_moves(CHESS960)
    assert CHESS960.action_to_text(beside, moves.find(beside, "f1g1")) == "Kg1"
    assert CHESS960.action_to_text(beside, moves.find(beside, "f1h1")) == "O-O"


def test_a_drawn_game_may_continue_where_only_its_past_has_ended_it():
    state = START
    for word in "Nf3 Nf6 Ng1 Ng8 Nf3 Nf6 Ng1 Ng8".split():
        state = move(state, word)
    moves = uci_moves(CHESS)
    assert CHESS.terminal(state[None])[0][0] and not CHESS.terminal(moves.continued(state)[None])[0][0]
    assert moves.continued(CHESS.text_to_state("7k/8/8/8/8/8/8/K7 w - - 0 1")) is None


@pytest.mark.parametrize("name", ["othello", "othello(size=6)", "go(size=5)", "go", "chess"])
def test_positions_of_random_games_are_written_and_read_as_text(name):
    """What comes before a position is not in the text: the stones, who is to move, and the legal moves are, but for
    those that a ko or superko forbids."""
    game = games.make(name)
    for states, legal in random_games(game, 3, np.random.default_rng(6)):
        for state, may in zip(states, legal):
            again = game.text_to_state(game.state_to_text(state))
            assert again.dtype == state.dtype and again.shape == state.shape
            assert game.state_to_text(again) == game.state_to_text(state)
            assert (game.board(again).players == game.board(state).players).all()
            assert game.to_play(again[None]) == game.to_play(state[None])
            assert not (may & ~game.legal(again[None])[0]).any()


def test_the_first_positions_have_the_texts_of_the_page():
    assert games.make("othello").state_to_text(games.make("othello").initial(1)[0]) == "8/8/8/3ox3/3xo3/8/8/8 x"
    go = games.make("go(size=5)")
    assert go.state_to_text(after(go, [2, 25])) == "2x2/5/5/5/5 x 1"
    assert go.terminal(go.text_to_state("5/5/5/5/5 o 2")[None])[0][0]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("othello", "8/8 x", "no|not 8 rows"),
        ("othello", "8/8/8/8/8/8/8/8", "player to move"),
        ("go(size=5)", "xxxxx/xxxxx/xxxxx/xxxxx/xxxxx o", "no liberty|without a liberty"),
        ("go(size=5)", "xo3/o4/5/5/5 x", "no liberty|without a liberty"),
        ("go(size=5)", "5/5/5/5/5 x 3", "number of passes"),
        ("connect4", "7/7/7/7/7/7 x", "no form of its positions"),
    ],
)
def test_a_text_that_is_no_position_is_refused_with_the_reason(name, text, why):
    with pytest.raises(ValueError, match=why):
        games.make(name).text_to_state(text)
