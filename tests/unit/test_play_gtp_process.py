"""python -m az_mpi gtp as other programs see it: a process that starts, answers, plays GNU Go and ends in time."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gtp_channel import malformed
from helpers import engine_process, make_run
from marks import slow

from az_mpi.__main__ import main as program

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
END_S = 1.0
GNUGO, RHINO = (shutil.which(name, path=f"{os.environ['PATH']}:/usr/games") for name in ("gnugo", "gtp-rhino"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("gtp") / "run", "go(size=5,komi=7)")


class Engine:
    """A GTP engine in a process of its own."""

    takes_passes = True  # else it knows by itself who must pass, as some engines for Othello do

    def __init__(self, *command):
        self.process = engine_process(*command)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def write(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def read(self):
        """Return an answer: (its first character, the rest)."""
        lines = []
        while (line := self.process.stdout.readline()) != "\n":
            assert line, f"it has left: {self.process.stderr.read()}"
            lines.append(line)
        text = "".join(lines)
        return text[0], text[1:].strip()

    def ask(self, line):
        self.write(line + "\n")
        status, text = self.read()
        assert status == "=", (line, text)
        return text


def start(run, *options):
    engine = Engine(sys.executable, "-m", "az_mpi", "gtp", run, *options)
    assert engine.ask("name") == "az_mpi" and engine.ask("showboard")  # it has loaded the network
    return engine


def leave(engine, how):
    """End an engine; return its exit status and the seconds that it took."""
    begun = time.monotonic()
    if how == "quit":
        engine.write("quit\n")
    elif how == "end":
        engine.process.stdin.close()
        engine.process.stdin = None
    else:
        engine.process.send_signal(how)
    return engine.process.wait(60), time.monotonic() - begun


QUIT, END, TERM, INT = ("quit", 0), ("end", 0), (signal.SIGTERM, -15), (signal.SIGINT, 0)
IDLE, SEARCHES, ANALYSES = "", "genmove b\n", "lz-analyze 10\n"


@pytest.mark.parametrize(
    "how, status, busy",
    [
        (*QUIT, IDLE),
        (*END, SEARCHES),
        (*TERM, ANALYSES),
        (*INT, SEARCHES),
        (*QUIT, ANALYSES),
        *(
            slow(*how, busy)
            for how, busy in [
                (END, IDLE),
                (TERM, IDLE),
                (INT, IDLE),
                (QUIT, SEARCHES),
                (TERM, SEARCHES),
                (END, ANALYSES),
                (INT, ANALYSES),
            ]
        ),
    ],
)
def test_it_ends_within_a_second(run, how, status, busy):
    """It does so when idle, in a search of minutes, and in an analysis without end."""
    with start(run, "--seconds", "300") as engine:
        engine.write(busy)
        time.sleep(0.3)
        left, seconds = leave(engine, how)
        assert left == status and seconds < END_S


def test_malformed_lines_never_end_the_gtp_process(run):
    rng = random.Random(1)
    with start(run) as engine:
        for _ in range(200):
            engine.write(malformed(rng) + "\n")
            status, text = engine.read()
            assert status == "?" and text
        assert engine.ask("genmove b")
        assert leave(engine, "quit")[0] == 0


def test_gtp_answers_all_commands_of_a_file(run):
    """Regression tests run an engine like this. At the end of input every command has its answer, and none is lost."""
    commands = "1 play b c3\n2 genmove w\n3 showboard\n4 lz-analyze 10\n5 what"
    done = subprocess.run(
        [sys.executable, "-m", "az_mpi", "gtp", run, "--simulations", "5"],
        cwd=ROOT,
        input=commands,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.count("\n\n") == 5
    assert [text.split()[0] for text in done.stdout.strip().split("\n\n")] == ["=1", "=2", "=3", "=4", "?5"]
    assert (
        subprocess.run(
            [sys.executable, "-m", "az_mpi", "gtp", run], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True
        ).returncode
        == 0
    )


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert program(["gtp", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "not a run" in said.err and said.out == ""


def play_match(ours, theirs, game_index, plies_max):
    """Play one game, in which `ours` begins if the index is even; return its moves. An engine that takes a move of the
    other one for illegal answers with an error, which fails the test."""
    for engine in (ours, theirs):
        engine.ask("clear_board")
    moves = []
    while moves[-2:] != ["pass", "pass"] and len(moves) < plies_max:
        colour = ("black", "white")[len(moves) % 2]
        mover, other = (ours, theirs) if (len(moves) + game_index) % 2 == 0 else (theirs, ours)
        vertex = mover.ask(f"genmove {colour}").lower()
        assert vertex != "resign"
        if vertex != "pass" or other.takes_passes:
            other.ask(f"play {colour} {vertex}")
        moves.append(vertex)
    return moves


@pytest.mark.skipif(not GNUGO, reason="GNU Go is not installed (apt install gnugo)")
def test_a_match_with_gnu_go_that_judges_every_move(run):
    """GNU Go also has the same stones on its board in the end."""
    gnugo = GNUGO, "--mode", "gtp", "--level", "1", "--chinese-rules", "--play-out-aftermath"
    with start(run, "--simulations", "30") as ours, Engine(*gnugo) as theirs:
        for command in ("boardsize 5", "komi 7"):
            assert ours.ask(command) == theirs.ask(command) == ""
        num_moves = 0
        for game_index in range(4):
            num_moves += len(play_match(ours, theirs, game_index, 49))
            for colour, symbol in (("black", "X"), ("white", "O")):
                assert sorted(theirs.ask(f"list_stones {colour}").split()) == stones(ours.ask("showboard"), symbol)
            assert ours.ask("final_score")[:2] in ("B+", "W+", "0")
        assert num_moves > 40


@pytest.mark.skipif(not RHINO, reason="GRhino is not installed (apt install grhino)")
def test_a_match_with_grhino_that_judges_every_move_of_othello(tmp_path):
    """GRhino also counts the same discs in the end."""
    with start(make_run(tmp_path / "run", "othello"), "--simulations", "10") as ours, Engine(RHINO) as theirs:
        theirs.takes_passes = False
        for game_index in range(2):
            assert len(play_match(ours, theirs, game_index, 140)) > 12
            assert ours.ask("final_score") == theirs.ask("final_score")


def stones(drawing, whose):
    """Return the vertices of one colour's stones in the reply to showboard, sorted."""
    *rows, letters = drawing.split("\n")
    found = []
    for row in rows:
        number, cells = row[:1], row[1:].replace("(", " ").replace(")", " ").split()
        found += [f"{letter}{number}" for letter, cell in zip(letters.split(), cells) if cell == whose]
    return sorted(found)
