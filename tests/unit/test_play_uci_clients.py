"""python -m az_mpi uci with python-chess as the client: whole games by its rules, on the clock, and as bots call it."""

import itertools
import sys
import time
from pathlib import Path

import pytest
from helpers import make_run
from marks import slow

pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
engine_module = pytest.importorskip("chess.engine", reason="optional; it could not be installed here")
chess = pytest.importorskip("chess", reason="optional; it could not be installed here")

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
OPENINGS = (
    "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3",
    "rnbqkb1r/pppppp1p/5np1/8/2PP4/8/PP2PPPP/RNBQKBNR w KQkq - 0 3",
    "4k3/pppppppp/8/8/8/8/PPPPPPPP/4K3 b - - 0 1",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("uci") / "run", "openspiel:chess(max_plies=300)")


def opened(run, *options):
    command = [sys.executable, "-m", "az_mpi", "uci", str(run), *options]
    return engine_module.SimpleEngine.popen_uci(command, cwd=ROOT, timeout=60)


def test_bots_find_the_options_that_their_usual_settings_name(run):
    """These are the settings that come with lichess-bot. python-chess refuses an option that is missing."""
    with opened(run) as engine:
        settings = {"Move Overhead": 100, "Threads": 4, "Hash": 512, "SyzygyPath": "./syzygy/", "UCI_ShowWDL": True}
        engine.configure(settings)
        board = chess.Board()
        reply = engine.play(
            board,
            engine_module.Limit(white_clock=3, black_clock=3, white_inc=1, black_inc=1),
            info=engine_module.INFO_ALL,
            ponder=True,
        )
        assert reply.move in board.legal_moves and {"score", "wdl", "pv", "nps", "hashfull"} <= reply.info.keys()
        board.push(reply.move)
        board.push(reply.ponder if reply.ponder in board.legal_moves else next(iter(board.legal_moves)))
        reply = engine.play(board, engine_module.Limit(time=0.2), root_moves=list(board.legal_moves)[:2])
        assert reply.move in list(board.legal_moves)[:2]


def test_an_analysis_board_shows_several_moves(run):
    with opened(run) as engine:
        board = chess.Board(OPENINGS[0])
        rows = engine.analyse(board, engine_module.Limit(nodes=200), multipv=4)
        assert [row["multipv"] for row in rows] == [1, 2, 3, 4]
        assert len({row["pv"][0] for row in rows}) == 4 and all(row["pv"][0] in board.legal_moves for row in rows)
        with engine.analysis(board) as analysis:
            begun = time.monotonic()
            for info in analysis:
                if "pv" in info or time.monotonic() - begun > 20:
                    break


def play(engines, board, clock_s, increment_s, plies_max):
    """Play a game on the clock, without claims of draws; return the seconds that are left of each clock."""
    left = {colour: clock_s for colour in chess.COLORS}
    game = object()
    while not board.outcome() and board.ply() < plies_max:
        limit = engine_module.Limit(
            white_clock=left[chess.WHITE], black_clock=left[chess.BLACK], white_inc=increment_s, black_inc=increment_s
        )
        begun, mover = time.monotonic(), board.turn
        reply = engines[mover].play(board, limit, game=game)
        left[mover] += increment_s - (time.monotonic() - begun)
        assert reply.move in board.legal_moves
        board.push(reply.move)
    return left


@pytest.mark.parametrize(
    "clock_s, increment_s, num_games, plies_max", [(4.0, 0.4, 1, 60), slow(1.0, 0.1, 6, 400), slow(10.0, 0.1, 2, 400)]
)
def test_games_on_the_clock_are_played_to_their_end(run, clock_s, increment_s, num_games, plies_max):
    """Both sides are this engine, which plays on after repetitions, as the arbiter does not end the game for them."""
    with opened(run) as first, opened(run) as second:
        for engine in (first, second):
            engine.play(chess.Board(), engine_module.Limit(nodes=2))  # it has loaded the network
        for fen in itertools.islice(itertools.cycle(OPENINGS), num_games):
            left = play({chess.WHITE: first, chess.BLACK: second}, chess.Board(fen), clock_s, increment_s, plies_max)
            assert min(left.values()) > 0
