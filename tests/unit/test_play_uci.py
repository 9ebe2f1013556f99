"""python -m az_mpi uci: the Universal Chess Interface, in memory, and in a process with python-chess as client."""

import itertools
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import engine_process, make_run
from uci_channel import Channel

from az_mpi.play import uci
from az_mpi.player.limits import Limit

pyspiel = pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
ROOT = Path(__file__).parents[2]
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


def played(channel):
    return [
        channel.engine.moves.word(state, action)
        for state, action in zip(channel.session.states, channel.session.actions)
    ]


def test_a_limit_for_training_ends_no_game_against_a_program(tmp_path):
    run = make_run(tmp_path / "run", "openspiel:chess(max_plies=4)")
    with engine_process(sys.executable, "-m", "az_mpi", "uci", run, "--simulations", "4") as engine:
        for moves in ("e2e4 e7e5 g1f3 b8c6", "e2e4 e7e5 g1f3 b8c6 f1b5"):
            engine.stdin.write(f"position startpos moves {moves}\ngo\n")
            engine.stdin.flush()
            best = next(line for line in iter(engine.stdout.readline, "") if line.startswith("bestmove"))
            assert re.match(r"bestmove [a-h][1-8][a-h][1-8]", best)


def test_the_answer_to_uci_names_the_engine_and_its_options():
    said = Channel().say("uci", "isready")
    assert said[0].startswith("id name az_mpi") and said[-2:] == ["uciok", "readyok"]
    assert "option name UCI_Variant type combo default chess var chess" in said


def test_uci_positions_are_played_from_their_beginning():
    channel = Channel()
    assert channel.say("position startpos moves e2e4 e7e5 g1f3") == []
    assert played(channel) == ["e2e4", "e7e5", "g1f3"]
    channel.say("position startpos moves e2e4 e7e5 g1f3 b8c6 f1c4 f8c5 e1g1")
    assert played(channel)[-1] == "e1g1" and channel.session.to_play == 1  # castled
    channel.say(f"position fen {START} moves d2d4")
    assert played(channel) == ["d2d4"]
    channel.say("position startpos")
    assert played(channel) == []


def test_the_search_tree_is_kept_while_uci_positions_continue_the_game():
    channel = Channel(limit=Limit(simulations=200))
    move = channel.best()
    channel.say(f"position startpos moves {move}")
    assert channel.session.simulations > 0
    channel.say("position startpos moves h2h4")
    assert move != "h2h4" and channel.session.simulations == 0


def test_a_search_continues_where_each_line_about_it_is_late(monkeypatch):
    """This is so on a machine that is so busy that a line is always due."""
    monkeypatch.setattr(uci, "INFO_S", 0.0)
    channel = Channel()
    said = channel.say("go nodes 20")
    assert channel.session.simulations >= 20 and len(said) > 2


def test_promotion_is_written_with_the_piece():
    moves = "a2a4 b7b5 a4b5 b8c6 b5b6 a8b8 b6b7 c6e5"
    channel = Channel()
    channel.say(f"position startpos moves {moves}")
    legal = {channel.engine.moves.word(channel.session.state, a) for a in channel.session.legal().values()}
    assert {"b7c8q", "b7c8n", "b7c8r", "b7c8b"} <= legal
    assert channel.say(f"position startpos moves {moves} b7c8n") == [] and played(channel)[-1] == "b7c8n"


def test_mate_in_one_is_found_and_reported_as_mate():
    """Fool's mate: d8h4."""
    channel = Channel(limit=Limit(simulations=400))
    channel.say("position startpos moves f2f3 e7e5 g2g4")
    said = channel.say("go nodes 400")
    assert said[-1].startswith("bestmove d8h4") and any(
        "score mate 1 " in line and line.endswith(" pv d8h4") for line in said
    )
    channel.say("position startpos moves f2f3 e7e5 g2g4 d8h4")
    assert channel.say("go") == ["bestmove 0000"]


def test_a_uci_search_obeys_the_limits_of_go(clock):
    channel = Channel(on_batch=clock.batches(0.002), limit=Limit())
    channel.say("position startpos")
    limits = {"go movetime 200": 0.2, "go wtime 6000 btime 1 winc 0": 0.3, "go wtime 900 movestogo 1": 0.6}
    for line, most_s in limits.items():
        channel.session.restart()
        begun = clock.now
        channel.say(line)
        assert most_s / 4 < clock.now - begun <= most_s, line
    channel.session.restart()
    channel.say("go nodes 30")
    assert channel.session.simulations == 30
    channel.session.restart()
    channel.say("setoption name Simulations value 12", "go")
    assert channel.session.simulations == 12


@pytest.mark.parametrize("go", ["go infinite", "go ponder"])
def test_an_infinite_search_ends_with_stop_and_answers_isready(clock, go):
    lines = (0.3, lambda: channel.send("isready\n")), (1.2, lambda: channel.send("stop\n"))
    channel = Channel(on_batch=clock.batches(0.005, *lines))
    channel.say("position startpos")
    begun = clock.now
    said = channel.say(go)
    assert 1.2 <= clock.now - begun < 1.3 and "readyok" in said and said[-1].startswith("bestmove")
    infos = [line for line in said if line.startswith("info depth")]
    written = (
        r"info depth \d+ seldepth \d+ multipv 1 score (cp|mate) -?\d+ nodes \d+ nps \d+ hashfull \d+ time \d+ "
        r"pv( \w{4,5})+"
    )
    assert infos and all(re.fullmatch(written, line) for line in infos)


def test_after_ponderhit_a_search_lasts_as_long_as_the_clock_allows(clock):
    channel = Channel(on_batch=clock.batches(0.005, (0.5, lambda: channel.send("ponderhit\n"))), limit=Limit())
    channel.say("position startpos moves e2e4")
    begun = clock.now
    assert channel.say("go ponder movetime 1000")[-1].startswith("bestmove")
    assert 1.3 < clock.now - begun <= 1.5
    lines = (0.2, lambda: other.send("ponderhit\n")), (0.7, lambda: other.send("stop\n"))
    other = Channel(on_batch=clock.batches(0.005, *lines), limit=Limit())
    begun = clock.now
    other.say("position startpos", "go infinite")
    assert 0.7 <= clock.now - begun < 0.8  # only stop ends it


def test_ponderhit_is_heard_where_the_game_is_over():
    channel = Channel("tictactoe")
    channel.send("ponderhit\n")
    channel.say("position startpos moves a1 a2 b1 b2 c1")
    assert channel.say("go ponder") == ["bestmove 0000"]


def test_a_level_is_kept_after_pondering():
    """What was searched in the other player's time would make the move stronger than it was asked for."""
    channel = Channel("tictactoe", Limit())
    channel.send("ponderhit\n")
    channel.say("setoption name UCI_LimitStrength value true", "setoption name UCI_Elo value 600", "position startpos")
    channel.session.think(Limit(simulations=50))
    assert channel.say("go ponder")[-1].startswith("bestmove") and channel.session.simulations == 1


def test_a_command_directly_behind_stop_is_answered():
    channel = Channel(on_batch=lambda: time.sleep(0.001))
    channel.send("position startpos\ngo infinite\nstop\nposition startpos moves f2f3 e7e5 g2g4\ngo nodes 400\nquit\n")
    channel.engine.run()
    assert [line.split()[0] for line in channel.said if not line.startswith("info")] == ["bestmove", "bestmove"]
    assert channel.session.to_play == 1 and len(played(channel)) == 3


def test_a_search_without_time_left_still_has_a_move(monkeypatch):
    channel, seconds = Channel(limit=Limit()), itertools.count()
    channel.say("position startpos")
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    assert re.fullmatch(r"\w{4}", channel.best("go movetime 1"))


def test_an_infinite_search_that_is_complete_waits_for_stop():
    channel = Channel("tictactoe", Limit())
    channel.session.warm_up()  # a compiler would take all the time there is
    begun = time.monotonic()
    threading.Timer(0.7, lambda: channel.send("stop\n")).start()
    channel.say("position startpos moves a1 a2 b1 b2", "go infinite")
    assert time.monotonic() - begun > 0.6 and channel.said[-1].startswith("bestmove c1")


def test_a_uci_command_that_cannot_be_done_is_reported_and_changes_nothing():
    channel = Channel()
    wrong = (
        "8/8/8/8/8/8/8/K7 w - - 0 1",  # one king
        "4k3/8/8/8/8/8/8/4K3 x - - 0 1",
        "4k3/8/8/8/8/8/4R3/4K3 w - - 0 1",  # White could take the king
        "4k3/8/8/8/8/8/8/4K2R w KQ - 0 1",
        "4k3/8/8/8/8/8/8/P3K3 w - - 0 1",
        "9/8/8/8/8/8/8/8 w - - 0 1",
        "4k3/8/8/8/8/8/8/....K3 w - - 0 1",
        "4k3",
        "",
    )
    for fen in wrong:
        assert channel.say(f"position fen {fen}")[0].startswith(f"info string illegal position fen {fen}".rstrip())
        assert channel.say("go")[-1] == "bestmove 0000"
    assert "illegal position" in channel.say("position")[0] and "illegal position" in channel.say("position x")[0]
    assert "illegal move e2e5" in channel.say("position startpos moves e2e5")[0]
    assert channel.say("go")[-1] == "bestmove 0000"
    channel.say("setoption name Threads value 2")  # makes the session again
    assert channel.threads and channel.say("go")[-1] == "bestmove 0000"
    assert "unknown command" in channel.say("hello there")[0]
    for option in (
        "Hash value 1",
        "Hash",
        "UCI_Elo value 1e3",
        "Ponder value 1",
        "None value 3",
        "UCI_Variant value go",
    ):
        assert "no option" in channel.say(f"setoption name {option}")[0]
    channel.say("position startpos")
    assert re.fullmatch(r"\w{4}", channel.best("go nodes 2"))


def test_lines_of_nonsense_never_end_the_uci_engine():
    rng, channel = random.Random(1), Channel(limit=Limit(simulations=2))
    words = [
        "position",
        "startpos",
        "moves",
        "e2e4",
        "go",
        "nodes",
        "2",
        "movetime",
        "-5",
        "fen",
        "setoption",
        "name",
        "value",
        "\x00",
        "stop",
        "uci",
        "isready",
        "9" * 30,
        "ucinewgame",
        "wtime",
        "ä",
        "0000",
    ]
    for _ in range(200):
        channel.say(" ".join(rng.choices(words, k=rng.randrange(8))))
    channel.say("position startpos")
    assert re.fullmatch(r"\w{4}", channel.best("go nodes 2"))


@pytest.mark.parametrize("how, status", [("quit", 0), ("end", 0), (signal.SIGTERM, -15), (signal.SIGINT, 0)])
def test_it_ends_within_a_second(tmp_path, how, status):
    """It does so in an infinite search."""
    with started(make_run(tmp_path / "run")) as process:
        process.stdin.write("position startpos\ngo infinite\n")
        process.stdin.flush()
        time.sleep(0.3)
        begun = time.monotonic()
        if how == "quit":
            process.stdin.write("quit\n")
            process.stdin.flush()
        elif how == "end":
            process.stdin.close()
        else:
            process.send_signal(how)
        assert process.wait(60) == status and time.monotonic() - begun < 1


def started(run):
    """Return a process that has answered "uci", and has loaded its network."""
    process = engine_process(sys.executable, "-m", "az_mpi", "uci", run)
    process.stdin.write("uci\nisready\n")
    process.stdin.flush()
    while process.stdout.readline() != "readyok\n":
        assert process.poll() is None, process.stderr.read()
    return process


@pytest.mark.long
def test_a_game_with_python_chess_that_judges_every_move(tmp_path):
    """Against random moves. Both sets of rules agree on legal moves, on who wins and on draws."""
    engine_module = pytest.importorskip("chess.engine", reason="optional; it could not be installed here")
    import chess

    run = make_run(tmp_path / "run", "openspiel:chess(max_plies=300)")
    rng, results = random.Random(3), set()
    with engine_module.SimpleEngine.popen_uci(
        [sys.executable, "-m", "az_mpi", "uci", str(run)], cwd=ROOT, timeout=60
    ) as engine:
        for colour in chess.COLORS:
            board = chess.Board()
            while not board.outcome(claim_draw=True) and board.ply() < 200:
                if board.turn == colour:
                    reply = engine.play(board, engine_module.Limit(nodes=20), game=colour)
                    assert reply.move in board.legal_moves
                    board.push(reply.move)
                else:
                    board.push(rng.choice(list(board.legal_moves)))
            results.add(board.ply())
    assert min(results) > 6
