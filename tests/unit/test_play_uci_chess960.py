"""Chess960 by UCI: positions in X-FEN and Shredder-FEN, both ways to write castling, whole games with programs."""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from helpers import make_run
from uci_channel import Channel

from az_mpi import games
from az_mpi.evaluate.engine_opponents import UciPlayer
from az_mpi.games.base import after

engine_module = pytest.importorskip("chess.engine", reason="optional; it could not be installed here")
chess = pytest.importorskip("chess", reason="optional; it could not be installed here")

ROOT = Path(__file__).parents[2]
ON = "setoption name UCI_Chess960 value true"
NETWORKS = "chess(chess960=True)", "chess"
KINGS_BESIDE = "4k3/8/8/8/8/8/8/1R3K1R w HB - 0 1"
STOCKFISH = shutil.which("stockfish", path=f"{os.environ['PATH']}:/usr/games")
needs_stockfish = pytest.mark.skipif(not STOCKFISH, reason="Stockfish is not installed (apt install stockfish)")


def legal_words(channel):
    return {channel.engine.moves.word(channel.session.state, a) for a in channel.session.legal().values()}


def at(channel, place, moves=()):
    """Let an engine take a position; return its legal moves."""
    assert channel.say(f"position {place}" + " moves ".join(["", " ".join(moves)] if moves else [""])) == []
    return legal_words(channel)


@pytest.fixture(scope="module", params=NETWORKS)
def channel(request):
    channel = Channel(request.param)
    assert channel.say(ON) == []
    return channel


def test_the_option_is_offered_for_networks_of_chess_and_of_chess960(channel):
    assert "option name UCI_Chess960 type check default false" in channel.say("uci")


def test_startpos_is_the_start_of_chess(channel):
    words = {move.uci() for move in chess.Board().legal_moves}
    for place in ("startpos", f"fen {chess.STARTING_FEN}", f"fen {chess.STARTING_FEN.replace('KQkq', 'HAha')}"):
        assert at(channel, place) == words
        assert channel.best("go nodes 4") in words


def test_castling_is_written_as_the_option_says():
    channel = Channel(NETWORKS[0])
    usual = "fen r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
    assert {"e1g1", "e1c1"} <= at(channel, usual) and not {"e1h1", "e1a1"} & legal_words(channel)
    assert channel.say(ON) == []
    assert {"e1h1", "e1a1"} <= legal_words(channel) and not {"e1g1", "e1c1"} & legal_words(channel)
    for moves in (["e1h1", "e8a8"], ["e1g1", "e8c8"]):
        at(channel, usual, moves)
        assert channel.session.game.state_to_text(channel.session.state).startswith("2kr3r/8/8/8/8/8/8/R4RK1 w - -")


@pytest.mark.parametrize("rights", ["HB", "KQ"])
def test_rooks_are_named_by_their_columns_or_as_the_outermost(channel, rights):
    assert {"f1h1", "f1b1", "f1g1"} <= at(channel, f"fen {KINGS_BESIDE.replace('HB', rights)}")
    at(channel, f"fen {KINGS_BESIDE.replace('HB', rights)}", ["f1b1"])
    assert channel.session.game.state_to_text(channel.session.state).startswith("4k3/8/8/8/8/8/8/2KR3R b - -")


def test_a_network_of_chess_takes_such_positions_only_with_the_option():
    channel = Channel("chess")
    assert "illegal position" in channel.say(f"position fen {KINGS_BESIDE}")[0]
    assert channel.say("go")[-1] == "bestmove 0000"
    channel.say(ON)
    assert {"f1h1", "f1b1"} <= at(channel, f"fen {KINGS_BESIDE}")


def test_the_moves_of_random_games_are_those_of_python_chess(channel):
    rng = random.Random(4)
    for shredder in (True, False):
        board = chess.Board.from_chess960_pos(rng.randrange(960))
        place, moves = f"fen {board.fen(shredder=shredder)}", []
        while not board.is_game_over(claim_draw=True) and len(moves) < 120:
            words = {board.uci(move, chess960=True) for move in board.legal_moves}
            assert at(channel, place, moves) == words
            castling = [board.uci(move, chess960=True) for move in board.legal_moves if board.is_castling(move)]
            moves.append(castling[0] if castling else rng.choice(sorted(words)))
            board.push_uci(moves[-1])


def test_the_position_stays_where_the_option_or_the_threads_change():
    channel = Channel("chess")
    words = at(channel, "startpos", ["e2e4", "e7e5"])
    for line in (ON, "setoption name Threads value 2"):
        channel.say(line)
        assert legal_words(channel) == words
    assert "g1f3" in words and at(channel, "startpos", ["e2e4", "e7e5", "g1f3"]) != words


@pytest.mark.process
@needs_stockfish
def test_whole_games_of_chess960_with_stockfish(tmp_path):
    """python-chess is the arbiter, and sends Shredder-FEN; it raises an exception for a move that is illegal."""
    run = make_run(tmp_path / "run", NETWORKS[0])
    ours = [sys.executable, "-m", "az_mpi", "uci", str(run)]
    popen = engine_module.SimpleEngine.popen_uci
    rng = random.Random(2)
    limit = engine_module.Limit(nodes=20)
    with popen(ours, cwd=ROOT, timeout=60) as engine, popen(STOCKFISH, timeout=60) as other:
        for game, number in enumerate((313, 692)):
            board = chess.Board.from_chess960_pos(number)
            while not (castling := [move for move in board.legal_moves if board.is_castling(move)]):
                board.push(rng.choice(list(board.legal_moves)))
            reply = engine.play(board, limit, game=game, root_moves=castling)
            assert reply.move in castling
            board.push(reply.move)
            while not board.is_game_over(claim_draw=True) and board.ply() < 400:
                mover = engine if board.turn == (game % 2 == 0) else other
                board.push(mover.play(board, limit, game=game).move)
            assert board.is_game_over(claim_draw=True)


@needs_stockfish
def test_a_program_as_an_opponent_is_given_the_start_position_and_the_option():
    game = games.make(NETWORKS[0])
    player = UciPlayer(game, STOCKFISH, seconds=0, nodes=50)
    state, actions = game.initial(1)[0], []
    try:
        for _ in range(60):
            action = player.move(actions, 0)
            assert game.legal(state[None])[0][action]
            actions.append(307 if not actions else action)
            state = after(game, actions)
            if game.terminal(state[None])[0][0]:
                break
    finally:
        player.stop()
