"""python -m az_mpi play: a person at the terminal, scripted."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import loaded_player, make_run

from az_mpi import games
from az_mpi.__main__ import main as program
from az_mpi.games.board_data import Board
from az_mpi.play import terminal
from az_mpi.player import levels
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session

ROOT = Path(__file__).parents[2]


def test_white_begins_in_chess_alone():
    sides = {
        name: [terminal.seats_of(colour, games.make(name)) for colour in ("first", "second", "black", "white")]
        for name in ("othello", "go(size=5)")
    }
    assert sides == dict.fromkeys(sides, [{0}, {1}, {0}, {1}])
    pytest.importorskip("pyspiel")
    chess = games.make("openspiel:chess")
    assert [terminal.seats_of(colour, chess) for colour in ("first", "second", "black", "white")] == [
        {0},
        {1},
        {1},
        {0},
    ]


def table(game, human=0, simulations=30):
    return terminal.Terminal(Session(loaded_player(game)), Limit(simulations), {human}, f"a game of {game}")


def typed(table, text, monkeypatch, capsys):
    """Type lines at a table; return what it printed."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with pytest.raises((EOFError, terminal.Quit)):
        table.run()
    return capsys.readouterr().out


def drawn(game, *moves):
    session = Session(loaded_player(game))
    for move in moves:
        session.play(session.find(move))
    return session.drawing()


def test_boards_are_drawn_with_names_and_the_last_move():
    assert drawn("tictactoe", "a1", "b3") == "3 .(O).\n2 . . .\n1 X . .\n  a b c"
    assert drawn("connect4", "4", "4").splitlines()[-3:] == [" . . .(O). . .", " . . . X . . .", " 1 2 3 4 5 6 7"]
    assert drawn("othello(size=4)", "a2").splitlines()[1] == "2(X)X X ."
    *board, edges = drawn("hex(size=3)", "a1", "c3").splitlines()
    assert board == ["1 X . .", " 2 . . .", "  3 . .(O)", "     a b c"]
    assert edges == "X joins top and bottom, O joins left and right"
    assert drawn("go(size=10,komi=7)", "K1").splitlines()[9:] == [" 1 . . . . . . . . .(X)", "   A B C D E F G H J K"]


def test_pieces_of_several_kinds_are_drawn_with_their_kinds():
    board = Board(np.array([[1, -1], [0, 0]], np.int8), ("k.", "KQ"), beside="in hand: a pawn")
    assert board.named_text() == " k .\n K Q\nin hand: a pawn"


def test_a_game_without_boards_is_drawn_as_it_shows_itself(monkeypatch):
    session = Session(loaded_player("tictactoe"))
    session.game = type("Text", (), {"board": lambda self, state: None, "show": lambda self, state: "as it is"})()
    assert session.drawing() == "as it is"


def test_a_limit_that_is_for_training_ends_no_game_with_a_person(tmp_path, monkeypatch, capsys):
    """Both pass: that is the end, not the third move."""
    run = make_run(tmp_path / "run", "go(size=3,max_plies=3)")
    monkeypatch.setattr(sys, "stdin", io.StringIO("b2\na1\nc3\n"))
    assert program(["play", str(run), "--simulations", "2"]) == 0
    said = capsys.readouterr().out
    assert "game is over" not in said and "has won" not in said and "You win" not in said


def test_a_game_is_played_through(monkeypatch, capsys):
    """The network thinks all moves alike; its search sees what wins."""
    said = typed(table("tictactoe", simulations=300), "b2\nc3\nb1\nb3\na2\na1\nc1\na3\nc2\n", monkeypatch, capsys)
    assert "game is over" in said and "You win" not in said
    game = table("connect4", human=1)
    said = typed(game, "1\n2\n", monkeypatch, capsys)
    assert game.session.actions[1::2] == [0, 1] and len(game.session.actions) == 5  # the network began


def test_illegal_moves_are_answered_and_change_nothing(monkeypatch, capsys):
    game = table("tictactoe")
    said = typed(game, "b5\nundoo\n\n   \n\x1b[31m\n9" + "9" * 5000 + "\n", monkeypatch, capsys)
    assert game.session.actions == []
    assert "b5: no legal move here" in said and "b3" in said and "command undo" in said and "\x1b" not in said


def test_undo_takes_back_the_answer_too(monkeypatch, capsys):
    game = table("tictactoe")
    typed(game, "b2\na1\na2\na3\nc3\nb1\nundo\nundo\nundo\nundo\nundo\nundo\n", monkeypatch, capsys)
    assert game.session.actions == []
    game = table("tictactoe", human=1)
    said = typed(game, "undo\n", monkeypatch, capsys)
    assert "no move of yours" in said and len(game.session.actions) == 1
    typed(game, "\n".join(f"{column}{row}" for column in "abc" for row in "123") + "\nundo\n", monkeypatch, capsys)
    assert len(game.session.actions) % 2 == 1 and not game.session.over


def test_swap_changes_sides_and_new_begins_again(monkeypatch, capsys):
    game = table("tictactoe")
    said = typed(game, "b2\nswap\n", monkeypatch, capsys)
    assert game.humans == {1} and len(game.session.actions) == 3 and "You are O" in said
    typed(game, "new\nquit\n", monkeypatch, capsys)
    assert len(game.session.actions) == 1  # the network began


def test_a_word_that_names_a_move_and_a_command_is_the_move(monkeypatch, capsys):
    game = table("hex(size=3,swap=True)", human=1)
    typed(game, "swap\n", monkeypatch, capsys)
    assert game.session.played()[1] == "swap" and game.humans == {1}
    game = table("hex(size=3,swap=True)", human=1)
    typed(game, "/swap\n", monkeypatch, capsys)
    assert "swap" not in game.session.played() and game.humans == {0}


def test_hint_shows_what_the_search_expects(monkeypatch, capsys):
    game = table("tictactoe")
    for move in ("a1", "a2", "b1", "b2"):
        game.session.play(game.session.find(move))
    said = typed(game, "hint\nmoves\n", monkeypatch, capsys)
    best = said.partition("expected\n")[2].splitlines()[0].split()
    assert best[0] == best[-1] == "c1" and best[1:3] == ["100%", "+1.00!"]
    assert {"a3", "b3", "c3", "c2", "c1"} <= set(said.partition("expected\n")[2].split())


def test_a_level_is_kept_after_a_hint(monkeypatch, capsys):
    game = terminal.Terminal(Session(loaded_player("connect4")), Limit(simulations=100), {0}, "a game", levels.LEAST)
    assert "; 1 simulations," in typed(game, "hint\n4\n", monkeypatch, capsys)


def test_a_game_is_saved_and_no_other_file_is_lost(tmp_path, monkeypatch, capsys):
    path, other = tmp_path / "game.txt", tmp_path / "other.txt"
    other.write_text("mine")
    said = typed(
        table("tictactoe"),
        f"b2\nsave {path}\nsave {other}\nsave\nsave {tmp_path}/no/where\nsave {tmp_path}\n"
        f"save a\x00b\nundo\nsave {path}\n",
        monkeypatch,
        capsys,
    )
    assert other.read_text() == "mine" and "is there already" in said and "cannot be written" in said
    lines = dict(line.split(": ", 1) for line in path.read_text().splitlines())
    assert lines == {"game": "a game of tictactoe", "first": "you", "moves": "", "result": "unfinished"}
    game = table("tictactoe", human=1)
    for move in ("a1", "b1", "a2", "b2", "a3"):
        game.session.play(game.session.find(move))
    typed(game, f"save {tmp_path}/won.txt\n", monkeypatch, capsys)
    assert (tmp_path / "won.txt").read_text().splitlines()[1:] == [
        "first: the network",
        "moves: a1 b1 a2 b2 a3",
        "result: first wins",
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("play") / "run", checkpoints=(1, 2), best=(1,))


def test_play_loads_the_network_that_is_named(run, monkeypatch, capsys):
    for options in (
        [],
        ["--checkpoint", "best"],
        ["--checkpoint", "000001", "--simulations", "5"],
        ["--seconds", "0.05", "--colour", "second"],
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO("b2\n"))
        assert program(["play", str(run), *options]) == 0
        assert "The network plays" in capsys.readouterr().out


def test_wrong_options_of_play_are_refused(run, tmp_path, capsys):
    assert program(["play", str(tmp_path)]) == 2 and "not a run" in capsys.readouterr().err
    assert program(["play", str(run), "--checkpoint", "3"]) == 2 and "000002" in capsys.readouterr().err
    for options in (
        ["--simulations", "0"],
        ["--simulations", "x"],
        ["--seconds", "nan"],
        ["--seconds", "-1"],
        ["--colour", "green"],
        ["--what"],
    ):
        assert program(["play", str(run), *options]) == 2 and "play" in capsys.readouterr().err
    assert program(["play"]) == 2


@pytest.mark.process
def test_play_ends_cleanly_at_a_terminal(run):
    """By Ctrl-C and by Ctrl-D."""
    for last in (b"\x03", b"\x04"):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "az_mpi", "play", run],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        said, end = b"", time.monotonic() + 60
        while b"> " not in said and time.monotonic() < end:
            said += os.read(ours, 4096)
        time.sleep(1)  # Python's input() misses a Ctrl-C between its prompt and its wait
        os.write(ours, last)
        assert process.wait(20) == 0 and b"Traceback" not in said, said
        os.close(ours)


def _take_terminal():
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.process
def test_every_native_game_is_played(monkeypatch, capsys):
    for name in games.NAMES:
        if name in ("mnk", "go") or games.make(name).num_players == 1:
            continue  # as tictactoe, and larger than the others; test_play_kinds.py has those of one player
        game = table(name, human=1, simulations=4)
        typed(game, "hint\nundo\n", monkeypatch, capsys)
        begun = 4 if name == "backgammon" else 1  # a throw, two moves, and the next throw
        assert len(game.session.actions) == begun
