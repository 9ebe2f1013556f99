"""Native chess: its moves, results, planes and the numbers of its positions."""

import chess
import numpy as np
import pytest

from az_mpi import games
from az_mpi.games.base import after, described_planes
from az_mpi.games.chess_state import EARLIER, FLAGS
from az_mpi.games.perft import perft, random_plies
from az_mpi.games.random_games import random_games

CHESS, CHESS960 = games.make("chess"), games.make("chess(chess960=True)")
# The usual six positions, with the published numbers of move sequences of 1, 2, … plies.
PERFT = {
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1": [20, 400, 8902, 197281, 4865609],
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1": [48, 2039, 97862, 4085603, 193690690],
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1": [14, 191, 2812, 43238, 674624, 11030083],
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1": [6, 264, 9467, 422333, 15833292],
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8": [44, 1486, 62379, 2103487, 89941194],
    "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10": [46, 2079, 89890, 3894594, 164075551],
}
# Of Chess960, as published with the engine "Stockfish" for its tests.
PERFT960 = {
    "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9": [21, 528, 12189, 326672, 8146062],
    "2nnrbkr/p1qppppp/8/1ppb4/6PP/3PP3/PPP2P2/BQNNRBKR w HEhe - 1 9": [21, 807, 18002, 667366, 16253601],
}


@pytest.mark.long
@pytest.mark.parametrize("fen", PERFT)
def test_the_numbers_of_move_sequences_are_the_published_ones(fen):
    state = CHESS.text_to_state(fen)
    assert [perft(CHESS, state, plies) for plies in (1, 2, 3)] == PERFT[fen][:3]


@pytest.mark.parametrize("fen", PERFT960)
def test_the_numbers_of_move_sequences_of_chess960_are_the_published_ones(fen):
    state = CHESS960.text_to_state(fen)
    assert [perft(CHESS960, state, plies) for plies in (1, 2, 3)] == PERFT960[fen][:3]


@pytest.mark.slow
@pytest.mark.parametrize(("game", "fen"), [(CHESS, fen) for fen in PERFT] + [(CHESS960, fen) for fen in PERFT960])
def test_the_numbers_of_long_move_sequences_are_the_published_ones(game, fen):
    numbers = (PERFT | PERFT960)[fen]
    assert numbers[-1] > 4e6 and perft(game, game.text_to_state(fen), len(numbers)) == numbers[-1]


def played(text, fen="", game=CHESS):
    """Return the state after moves from a FEN, or from the start."""
    state = game.text_to_state(fen) if fen else game.initial(1)[0]
    for word in text.split():
        state = game.play(state[None], np.array([game.text_to_action(state, word)]))[0]
    return state


def result(state, game=CHESS):
    """Return None while a game is in play, else its value for the player to move."""
    ended, value = game.terminal(state[None])
    return float(value[0]) if ended[0] else None


@pytest.mark.parametrize(("num_games", "num_ends"), [(3, 1), pytest.param(60, 4, marks=pytest.mark.slow)])
def test_random_games_have_the_moves_the_ends_and_the_fen_of_python_chess(num_games, num_ends):
    """Many of them end by a repetition, by 50 moves, stalemate, mate and bare kings; python-chess says when a draw may
    be claimed."""
    ends = set()
    rng = np.random.default_rng(3)
    for _ in range(num_games):
        board, state = chess.Board(), CHESS.initial(1)[0]
        while (value := result(state)) is None:
            assert not board.is_game_over(claim_draw=False) and not board.is_repetition(3)
            words = {CHESS.action_to_text(state, int(a)): int(a) for a in np.flatnonzero(CHESS.legal(state[None])[0])}
            assert set(words) == {board.san(move) for move in board.legal_moves}
            assert CHESS.state_to_text(state) == board.fen() and CHESS.to_play(state[None])[0] == (not board.turn)
            word = sorted(words)[rng.integers(len(words))]
            assert CHESS.text_to_action(state, word) == words[word]
            state = CHESS.play(state[None], np.array([words[word]]))[0]
            board.push_san(word)
            if len(board.move_stack) == CHESS.max_plies:
                break
        if len(board.move_stack) < CHESS.max_plies:
            outcome = board.outcome(claim_draw=False)
            assert (value == -1) == board.is_checkmate()
            is_draw = board.is_repetition(3) or board.is_fifty_moves()
            assert outcome or is_draw
            ends.add(outcome.termination.name if outcome else "REPEATED" if board.is_repetition(3) else "FIFTY")
        else:
            assert CHESS.is_cut(state)
    assert len(ends) >= num_ends, ends


def test_random_games_are_those_of_openspiel():
    from az_mpi.games.uci_moves import uci_moves

    other = games.make("openspiel:chess")
    moves, others = uci_moves(CHESS), uci_moves(other)
    rng = np.random.default_rng(5)
    for _ in range(2):
        state, theirs = CHESS.initial(1)[0], other.initial(1)[0]
        while result(state) is None:
            assert result(theirs, other) is None
            legal = {moves.word(state, int(a)): int(a) for a in np.flatnonzero(CHESS.legal(state[None])[0])}
            known = {others.word(theirs, int(a)): int(a) for a in np.flatnonzero(other.legal(theirs[None])[0])}
            assert legal.keys() == known.keys()
            word = sorted(legal)[rng.integers(len(legal))]
            state = CHESS.play(state[None], np.array([legal[word]]))[0]
            theirs = other.play(theirs[None], np.array([known[word]]))[0]
        white = result(state) * (1 - 2 * int(CHESS.to_play(state[None])[0]))
        assert result(theirs, other) == white  # at the end, White counts as the player to move there


def test_random_games_of_chess960_have_the_moves_of_python_chess():
    from az_mpi.games.uci_moves import uci_moves

    moves, rng = uci_moves(CHESS960), np.random.default_rng(7)
    num_castled = 0
    for number in (0, 518, 959, *rng.integers(960, size=4).tolist()):
        state = played(str(number), game=CHESS960)
        board = chess.Board.from_chess960_pos(number)
        while result(state, CHESS960) is None and len(board.move_stack) < 80:
            legal = {moves.word(state, int(a)): int(a) for a in np.flatnonzero(CHESS960.legal(state[None])[0])}
            assert set(legal) == {board.uci(move) for move in board.legal_moves}
            assert CHESS960.state_to_text(state) == board.fen()
            castling = [board.uci(move) for move in board.legal_moves if board.is_castling(move)]
            num_castled += bool(castling)
            word = castling[0] if castling else sorted(legal)[rng.integers(len(legal))]
            assert moves.find(state, word) == legal[word]
            state = CHESS960.play(state[None], np.array([legal[word]]))[0]
            board.push_uci(word)
    assert num_castled > 3


def test_every_start_position_of_chess960_is_that_of_python_chess():
    states = CHESS960.play(CHESS960.initial(960), np.arange(960))
    texts = [CHESS960.state_to_text(state) for state in states]
    assert texts == [chess.Board.from_chess960_pos(number).fen() for number in range(960)]
    assert texts[518] == CHESS.state_to_text(CHESS.initial(1)[0])


@pytest.mark.parametrize(
    ("moves", "num"),
    [
        ("Nf3 Nf6 Ng1 Ng8 Nf3 Nf6 Ng1 Ng8", 8),
        ("Nf3 Nf6 Ng1 Ng8 Nf3 Nf6 Ng1 Rg8 Nf3 Rh8 Ng1 Ng8", 0),  # Black's right to castle is gone
        ("e4 Nf6 Nf3 Ng8 Ng1 Nf6 Nf3 Ng8 Ng1", 9),  # no pawn could take e4 en passant
        ("Nc3 Nf6 Nb5 Ng8 Nd4 Nf6 Nb3 Ng8 Na1", None),  # an own piece is there
    ],
)
def test_the_third_time_of_a_position_ends_the_game(moves, num):
    """num: the ply after which the game is a draw, 0: after none; None: the last move is not legal."""
    words = moves.split()
    if num is None:
        with pytest.raises(ValueError):
            played(moves)
        return
    ends = [k for k in range(1, len(words) + 1) if result(played(" ".join(words[:k]))) is not None]
    assert ends == ([num] if num else [])


def test_a_position_whose_pawn_could_be_taken_en_passant_is_another_one():
    fen = "4k3/8/8/8/5p2/8/4P3/4K2R w - - 0 1"
    shuffle = "Kd8 Rg1 Ke8 Rh1 Kd8 Rg1 Ke8 Rh1"
    assert result(played(f"e4 {shuffle}", fen)) is None
    assert result(played(f"e4 {shuffle} Kd8 Rg1 Ke8 Rh1", fen)) is not None  # the third time without the right
    pinned = "4k3/8/8/8/K4p1r/8/4P3/7R w - - 0 1"  # fxe3 would leave the rank open: it is Black's own rook, and legal
    assert " e3 " in CHESS.state_to_text(played("e4", pinned))
    pinned = "8/8/8/8/R4p1k/8/4P3/4K3 w - - 0 1"  # here it is White's, and the king would be in check
    assert " - " in CHESS.state_to_text(played("e4", pinned))


def test_two_pieces_that_change_places_do_not_repeat_a_position_unless_they_are_alike():
    """All squares are filled again as they were: only the kinds tell."""
    alike = "4k3/8/8/8/8/8/8/N2NK3 w - - 0 1"
    other = "4k3/8/8/8/8/8/8/B2NK3 w - - 0 1"
    exchange_other = "Nc3 Ke7 Bb2 Ke8 Nb5 Ke7 Bc1 Ke8 Na3 Ke7 Bd2 Ke8 Nb1 Ke7 Bc3 Ke8"
    state = played("Nc3 Ke7 Nb3 Ke8 Na1 Ke7 Nd1 Ke8", alike)
    assert state[FLAGS] >> np.uint64(32) & np.uint64(3) == 1
    assert played(exchange_other, other)[FLAGS] >> np.uint64(32) & np.uint64(3) == 0


def test_fifty_moves_count_from_a_fen_and_a_mate_comes_first():
    fen = "7k/8/5K2/6Q1/8/8/8/8 w - - {} 80"
    assert result(played("Qh5+", fen.format(98))) is None and result(played("Qh5+", fen.format(99))) == 0
    assert result(played("Qg7#", fen.format(99))) == -1
    assert CHESS.state_to_text(played("Qg7#", fen.format(99))).endswith(" 100 80")


@pytest.mark.parametrize(
    ("fen", "ends"),
    [
        ("7k/8/8/8/8/8/8/K7 w - - 0 1", True),
        ("7k/8/8/8/8/8/8/KN6 w - - 0 1", True),
        ("7k/8/8/8/8/8/8/KNN5 w - - 0 1", False),
        ("6nk/8/8/8/8/8/8/KN6 w - - 0 1", False),
        ("5b1k/8/8/8/8/8/8/K1B5 w - - 0 1", True),
        ("6bk/8/8/8/8/8/8/K1B5 w - - 0 1", False),
        ("7k/7p/8/8/8/8/8/K7 w - - 0 1", False),
        ("7k/8/8/8/8/8/8/KQ6 w - - 0 1", False),
    ],
)
def test_too_little_material_for_a_mate_is_a_draw(fen, ends):
    assert (result(CHESS.text_to_state(fen)) == 0) == ends == chess.Board(fen).is_insufficient_material()


def test_a_drawn_position_can_be_played_on_without_its_past():
    state = played("Nf3 Nf6 Ng1 Ng8 Nf3 Nf6 Ng1 Ng8")
    assert result(state) == 0 and result(CHESS.without_past(state)) is None
    assert CHESS.state_to_text(CHESS.without_past(state)) == CHESS.state_to_text(CHESS.initial(1)[0])[:-1] + "5"


@pytest.mark.long
def test_a_limit_of_plies_is_a_draw_or_counts_the_pieces():
    ahead, words = games.make("chess(max_plies=3,truncated='material')"), "e4 d5 exd5"
    assert result(played(words, game=ahead), ahead) == -0.5 and ahead.is_cut(played(words, game=ahead))
    plain = games.make("chess(max_plies=3)")
    assert result(played(words, game=plain), plain) == 0 and plain.untruncated().max_plies > 1000
    assert result(played(words, game=plain), plain.untruncated()) is None


def test_planes_show_the_earlier_positions_as_the_player_to_move_sees_them():
    game = games.make("chess(history=8)")
    words = "e4 d5 e5 f5 exf6 Kd7 fxg7 Kc6 gxh8=Q Nf6 Nf3 Ng8 Be2 Nf6 O-O Ng8 Re1 Nf6 Rf1 Ng8 Re1".split()
    for num in range(len(words) + 1):
        state = played(" ".join(words[:num]), game=game)
        planes = game.planes(state[None])[0]
        for plies in range(9):
            shown = planes[13 * plies : 13 * plies + 13]
            if plies > num:
                assert not shown.any()
                continue
            before = played(" ".join(words[: num - plies]), game=game)
            expected = game.planes(before[None])[0, :13]
            if plies % 2:  # of the other player
                expected = expected[[*range(6, 12), *range(6), 12], ::-1]
            assert (shown == expected).all(), (num, plies)
    assert int(state[FLAGS] >> EARLIER) & 1 == 1 and planes[12].all()


def test_planes_are_described_and_show_rights_counts_and_the_square_en_passant():
    state = played("Ke3 a5", "r3k3/p7/8/1P6/8/4K3/8/8 w q - 38 30".replace("4K3/8/8", "8/4K3/8"))
    texts, rows = described_planes(CHESS)
    assert len(texts) == len(set(texts)) == CHESS.planes_shape[0] == 17 and "row 0 is the top row" in rows
    planes = CHESS.planes(state[None])[0]
    shown = {text: np.argwhere(plane).tolist() for text, plane in zip(texts, planes)}
    assert shown["pawns of the player to move"] == [[3, 1]] and shown["king of the other player"] == [[0, 4]]
    assert shown["rooks with which the other player may castle"] == [[0, 0]]
    assert shown["the square on which a pawn may be taken en passant"] == [[2, 0]]
    quiet = played("Ke3", "r3k3/p7/8/1P6/8/8/4K3/8 w q - 38 30")
    assert CHESS.planes(quiet[None])[0, 16].sum() == 39 * 64 // 100


def test_the_key_is_that_of_the_planes():
    """Of all positions of random games, and in games with and without history."""
    for name in ("chess", "chess(history=3)"):
        game = games.make(name)
        states = np.concatenate([states for states, _ in random_games(game, 12, np.random.default_rng(2))])
        keys = game.canonical_key(states)[0]
        planes = {planes.tobytes() for planes in game.planes(states)}
        pairs = set(zip(keys.tolist(), (planes.tobytes() for planes in game.planes(states))))
        assert len(pairs) == len(planes) == len(set(keys.tolist()))


def test_the_rules_are_the_same_as_plain_python():
    slow = type("Slow", (type(CHESS),), {"compiled": False})(history=1)
    game = games.make("chess(history=1)")
    for states, legal in random_games(game, 1, np.random.default_rng(4)):
        assert (slow.legal(states) == legal).all() and (slow.planes(states) == game.planes(states)).all()
        action = np.argmax(legal, axis=1)
        assert (slow.play(states, action) == game.play(states, action)).all()
        assert slow.terminal(states)[0][0] == game.terminal(states)[0][0]
        if (states[:, 6] >> np.uint64(16) & np.uint64(0xFFFF))[0] > 30:
            break


@pytest.mark.parametrize("name", ["chess", pytest.param("chess(chess960=True,history=1)", marks=pytest.mark.slow)])
def test_the_check_of_games_finds_nothing(name):
    assert games.check(games.make(name), num_games=4) == []


def test_the_board_shows_the_pieces_with_whites_first_rank_below():
    board = CHESS.board(played("e4"))
    assert board.symbols[0] == "rnbqkbnr" and board.symbols[4] == "    P   " and board.name(4, 4) == "e4"
    assert CHESS.show(played("e4")).splitlines()[0] == "8 r n b q k b n r"
    assert board.players[1].tolist() == [1] * 8 and board.players[7].tolist() == [0] * 8 and board.light == 0


def test_the_options_of_the_game_are_checked_and_named():
    name = "chess(chess960=True,history=2,max_plies=90,truncated='material')"
    assert games.make(name).name == name
    for wrong in ("history=9", "chess960=1", "truncated='win'", "max_plies=0"):
        with pytest.raises(Exception, match=wrong.partition("=")[0]):
            games.make(f"chess({wrong})")


def test_random_play_of_compiled_code_ends_games():
    assert random_plies(CHESS, 4000, seed=1) >= 4000 // CHESS.max_plies
    assert result(after(CHESS, [])) is None
