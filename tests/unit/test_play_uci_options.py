"""python -m az_mpi uci: options, positions from a FEN, drawn games that continue, and what `go` looks for."""

import collections
import re

import pytest
from uci_channel import Channel

from az_mpi.player import levels
from az_mpi.player.limits import Limit

chess = pytest.importorskip("chess", reason="optional; it could not be installed here")
pytest.importorskip("pyspiel", reason="optional; it could not be installed here")

KIWIPETE = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"
BACK_AND_FORTH = "g1f3 g8f6 f3g1 f6g8".split()


def infos(said):
    """Return the last line about each place in the order of moves: {place: line}."""
    return {int(re.search(r" multipv (\d+)", line)[1]): line for line in said if line.startswith("info depth")}


def legal_words(channel):
    return {channel.engine.moves.word(channel.session.state, a) for a in channel.session.legal().values()}


@pytest.mark.parametrize(
    "fen",
    [
        KIWIPETE,
        KIWIPETE.replace(" w ", " b "),
        "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
        "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
        "rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 3",
        "4k3/8/8/8/8/8/8/4K2R w K - 97 80",
    ],
)
def test_a_position_from_a_fen_has_the_moves_that_python_chess_allows(fen):
    channel, board = Channel(), chess.Board(fen)
    assert channel.say(f"position fen {fen}") == []
    assert legal_words(channel) == {move.uci() for move in board.legal_moves}
    move = channel.best("go nodes 4")
    board.push_uci(move)
    assert channel.say(f"position fen {fen} moves {move}") == []
    assert legal_words(channel) == {move.uci() for move in board.legal_moves}


def test_castling_is_also_understood_as_the_king_taking_the_rook():
    for move, king in (("e1h1", "G1"), ("e1a1", "C1"), ("e1g1", "G1")):
        channel = Channel()
        assert channel.say(f"position fen {KIWIPETE} moves {move}") == []
        board = chess.Board(channel.session.game.state_to_text(channel.session.state))
        assert board.king(chess.WHITE) == getattr(chess, king)


def test_a_game_continues_after_a_third_repetition():
    """Only the arbiter knows whether a player claims the draw."""
    channel, board = Channel(), chess.Board()
    for number in range(6):
        moves = BACK_AND_FORTH * number
        assert channel.say("position startpos" + " moves ".join(["", " ".join(moves)] if moves else [""])) == []
        said = channel.say("go nodes 20")
        assert chess.Move.from_uci(said[-1].split()[1]) in board.legal_moves
        assert any(line.startswith("info depth") for line in said)
    assert channel.say(f"position startpos moves {' '.join(BACK_AND_FORTH * 3)} e2e4 e7e5") == []
    board.push_uci("e2e4")
    board.push_uci("e7e5")
    assert legal_words(channel) == {move.uci() for move in board.legal_moves}


def test_a_game_continues_after_50_moves_without_progress():
    channel = Channel()
    board = chess.Board("4k3/8/8/8/8/8/8/R3K3 w Q - 99 80")
    for move in ("a1b1", "e8d8", "b1b2"):
        assert channel.say(f"position fen {board.fen()}") == []
        assert chess.Move.from_uci(channel.best("go nodes 8")) in board.legal_moves
        board.push_uci(move)
    assert board.halfmove_clock == 102
    start = "position fen 4k3/8/8/8/8/8/8/R3K3 w Q - 99 80 moves "
    assert channel.say(f"{start}a1b1 e8d8 b1b2") == []
    assert chess.Move.from_uci(channel.best("go nodes 8")) in board.legal_moves


@pytest.mark.parametrize("game", ["openspiel:chess", "chess"])
def test_a_game_continues_where_no_mate_is_possible(game):
    """The arbiter ends it, if it does: a legal move is played to the end of the moves that it sends."""
    channel = Channel(game)
    fen = "8/8/3k4/8/8/2p5/2K5/8 w - - 0 1"
    board, moves = chess.Board(fen), ["c2c3"]
    board.push_uci(moves[0])
    assert board.is_insufficient_material()
    for _ in range(12):
        assert channel.say(f"position fen {fen} moves {' '.join(moves)}") == []
        moves.append(channel.best("go nodes 8"))
        board.push_uci(moves[-1])
    assert "illegal move c3c8" in channel.say(f"position fen {fen} moves c2c3 d6d5 c3c8")[0]
    channel.say(f"position fen {fen}")
    assert any("info depth" in line for line in channel.say("go nodes 8"))


def test_an_infinite_search_of_a_game_that_is_over_waits_for_stop():
    channel = Channel("chess")
    channel.send("isready\nstop\n")
    channel.say("position fen 8/8/3k4/8/8/2K5/8/8 w - - 0 1")
    said = channel.say("go infinite")
    assert said[0] == "readyok" and said[1].startswith("bestmove c3")


def test_where_no_move_is_left_there_is_no_best_move():
    channel = Channel()
    for fen in ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "R5k1/5ppp/8/8/8/8/8/4K3 b - - 0 1"):  # stalemate, mate
        channel.say(f"position fen {fen}")
        assert channel.say("go nodes 8") == ["bestmove 0000"]


def test_several_best_moves_are_reported_with_their_chances():
    channel = Channel()
    channel.say("setoption name MultiPV value 3", "setoption name uci_showwdl value true", "position startpos")
    lines = infos(channel.say("go nodes 200"))
    firsts = [re.search(r" pv (\w+)", lines[place])[1] for place in (1, 2, 3)]
    assert sorted(lines) == [1, 2, 3] and len(set(firsts)) == 3
    for line in lines.values():
        wins, draws, losses = map(int, re.search(r" wdl (\d+) (\d+) (\d+) ", line).groups())
        cp = int(re.search(r" score cp (-?\d+) ", line)[1])
        assert wins + draws + losses == 1000 and (wins > losses) == (cp > 0) or abs(cp) < 2
        assert 0 <= int(re.search(r" hashfull (\d+) ", line)[1]) <= 1000
    channel.say("setoption name MultiPV value 1", "setoption name UCI_ShowWDL value false")
    said = channel.say("go nodes 300")
    assert sorted(infos(said)) == [1] and not any(" wdl " in line for line in said)


def test_a_proven_result_has_a_certain_chance():
    channel = Channel(limit=Limit(simulations=400))
    channel.say("setoption name UCI_ShowWDL value true", "position startpos moves f2f3 e7e5 g2g4")
    assert " score mate 1 wdl 1000 0 0 " in infos(channel.say("go"))[1]


def test_only_the_moves_that_a_client_names_are_searched():
    channel = Channel()
    channel.say("position startpos moves f2f3 e7e5 g2g4", "setoption name MultiPV value 9")  # d8h4 would mate
    said = channel.say("go nodes 100 searchmoves a7a6 d8g5 infinity")
    assert channel.best("go searchmoves b8c6 nodes 50") == "b8c6"
    assert said[-1].split()[1] in ("a7a6", "d8g5")
    shown = {re.search(r" pv (\w+)", line)[1] for line in infos(said).values()}
    assert shown == {"a7a6", "d8g5"} and not any("mate 1" in line for line in said)
    assert "searchmoves: illegal move e2e4" in channel.say("go nodes 50 searchmoves e2e4")[0]
    assert channel.said[-1].startswith("bestmove d8h4")  # as without searchmoves


def test_a_search_for_a_depth_ends_with_a_line_of_that_length():
    channel = Channel(limit=Limit())
    for depth in (1, 3):
        channel.say("position startpos", "setoption name Clear Hash")
        said = channel.say(f"go depth {depth}")
        assert int(re.search(r"info depth (\d+)", infos(said)[1])[1]) >= depth
    assert channel.session.simulations < 400


@pytest.mark.parametrize(
    "fen, mate",
    [
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", 1),
        ("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 2),  # a classic: Ra6
        ("7k/8/4K3/6Q1/8/8/8/8 w - - 0 1", 2),
    ],
)
def test_a_search_for_a_mate_finds_the_shortest_one(fen, mate):
    channel = Channel(limit=Limit())
    channel.say(f"position fen {fen}")
    said = channel.say(f"go mate {mate} nodes 60000")
    assert f" score mate {mate} " in infos(said)[1]


def test_limited_strength_has_fewer_simulations_and_other_moves():
    channel = Channel(limit=Limit(simulations=200))
    channel.say("setoption name UCI_LimitStrength value true", f"setoption name UCI_Elo value {levels.ELO_LEAST}")
    moves = collections.Counter()
    for _ in range(12):
        channel.say("ucinewgame", "position startpos")
        moves[channel.best("go")] += 1
        assert channel.session.simulations == 1
    assert len(moves) > 3
    channel.say("setoption name UCI_AnalyseMode value true")
    assert len({(channel.say("ucinewgame"), channel.best("go"))[1] for _ in range(3)}) == 1
    assert channel.session.simulations == 200
    channel.say("setoption name UCI_AnalyseMode value false", f"setoption name UCI_Elo value {levels.ELO_FULL}")
    channel.say("ucinewgame")
    assert channel.best("go") and channel.session.simulations == 200


def test_the_size_of_the_tree_and_the_threads_may_be_chosen():
    channel = Channel(limit=Limit())
    channel.say("position startpos", "setoption name Hash value 16")
    channel.say("go nodes 2000")
    filled = infos(channel.said)[1]
    assert int(re.search(r" hashfull (\d+) ", filled)[1]) > 0
    channel.say("position startpos moves e2e4", "setoption name Threads value 1")
    assert channel.threads == []
    said = channel.say("setoption name Threads value 1000")
    assert "are used" in said[0] and len(channel.threads) == 1
    assert (
        chess.Move.from_uci(channel.best("go nodes 4"))
        in chess.Board("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1").legal_moves
    )
