"""python -m az_mpi gomocup: the protocol of Gomocup, in memory and as a process."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import loaded_player, make_run

from az_mpi import games
from az_mpi.play.gomocup import GomocupEngine
from az_mpi.play.line_engine import Serving
from az_mpi.play.lines import Lines
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session

ROOT = Path(__file__).parents[2]
QUICK = Limit(simulations=20)


class Channel:
    def __init__(self, game="mnk(m=9,n=9,k=5)", limit=QUICK, on_batch=lambda: None):
        read, self.write_end = os.pipe()
        self.said = []
        self.session = Session(loaded_player(game, on_batch))
        self.engine = GomocupEngine(Serving(lambda: self.session, limit, Lines(read)), self.said.append)

    def say(self, *lines):
        """Return the answers to some lines; all but the first are there before it is answered."""
        self.said.clear()
        os.write(self.write_end, "".join(f"{line}\r\n" for line in lines[1:]).encode())
        self.engine.answer(lines[0])
        return list(self.said)

    def cell(self, *lines):
        [answer] = self.say(*lines)
        column, row = map(int, re.fullmatch(r"(\d+),(\d+)", answer).groups())
        return column, row

    def stones(self):
        board = self.session.game.board(self.session.state)
        return {
            (column, row): int(board.players[row, column])
            for row, column in board.cells()
            if board.players[row, column] >= 0
        }


def test_a_game_is_begun_played_and_begun_again():
    channel = Channel()
    assert channel.say("START 9") == ["OK"] and channel.say("RECTSTART 9,9") == ["OK"]
    first = channel.cell("BEGIN")
    free = next((column, 0) for column in range(9) if (column, 0) != first)
    second = channel.cell(f"TURN {free[0]},{free[1]}")
    assert channel.stones() == {first: 0, free: 1, second: 0}
    assert channel.say(f"TAKEBACK {second[0]},{second[1]}") == ["OK"] and channel.stones() == {first: 0, free: 1}
    assert channel.say(f"TAKEBACK {first[0]},{first[1]}") == ["OK"] and list(channel.stones()) == [free]
    assert channel.say("PLAY 8,8") == ["8,8"]
    assert channel.say("RESTART") == ["OK"] and channel.stones() == {}
    assert 'name="az_mpi"' in channel.say("ABOUT")[0]
    assert channel.say("END") == [] and channel.engine.is_over


def test_a_board_is_set_up_and_the_winning_move_is_found():
    channel = Channel(limit=Limit(simulations=200))
    rows = [f"{column},3,1" for column in range(4)] + [f"{column},5,2" for column in range(4)]
    assert channel.cell("BOARD", *rows, "DONE") == (4, 3)
    assert channel.session.over and channel.say("TURN 8,8")[0].startswith("ERROR")
    rows = [f"{column},3,2" for column in range(4)] + [f"{column},5,1" for column in range(4)]
    assert channel.cell("BOARD", *rows, "DONE") == (4, 5)


def test_columns_come_first_and_rows_count_from_the_top():
    channel = Channel("mnk(m=7,n=5,k=4)")
    assert channel.say("START 7")[0].startswith("ERROR unsupported size") and channel.say("RECTSTART 7,5") == ["OK"]
    channel.say("PLAY 6,4")
    assert channel.session.played() == ["g1"] and channel.say("PLAY 4,6")[0].startswith("ERROR")


@pytest.mark.parametrize(
    "line", ["START", "START x", "START 9 9", "TURN", "TURN 9,9", "TURN a,b", "TURN 1", "TAKEBACK 0,0", "PLAY -1,0"]
)
def test_a_wrong_command_is_an_error_and_changes_nothing(line):
    channel = Channel()
    channel.say("PLAY 3,3")
    assert channel.say(line)[0].startswith("ERROR") and channel.stones() == {(3, 3): 0}
    assert channel.say("TURN 3,3") == ["ERROR there is a stone already"]
    assert channel.say("HELLO there") == ["UNKNOWN command HELLO"]
    for rows in (["0,0,1", "0,0,2"], ["0,0,7"], ["x"], ["99,0,1"]):
        assert channel.say("BOARD", *rows, "DONE")[0].startswith("ERROR") and channel.stones() == {(3, 3): 0}


def test_lines_of_nonsense_never_end_the_gomocup_engine():
    channel, rng = Channel(limit=Limit(simulations=1)), random.Random(1)
    words = "START RECTSTART TURN BEGIN INFO TAKEBACK PLAY 3,3 9 rule 1 0 timeout_turn max_memory x , 5,5 \x00".split(
        " "
    )
    for _ in range(200):
        channel.say(" ".join(rng.choices(words, k=rng.randrange(1, 5))))
    assert channel.say("START 9") == ["OK"]


def test_times_are_obeyed(clock):
    channel = Channel(limit=Limit(), on_batch=clock.batches(0.01))
    for lines, longest_s in (
        (["INFO timeout_turn 1000"], 1.0),
        (["INFO timeout_turn 5000", "INFO time_left 8000"], 0.4),
        (["INFO timeout_turn 0", "INFO time_left 2147483647"], 0.1),
    ):
        channel.say("RESTART")
        for line in lines:
            assert channel.say(line) == []
        begun = clock.now
        channel.cell("BEGIN")
        assert longest_s / 10 < clock.now - begun <= longest_s


@pytest.mark.parametrize("last", ["END\r\n", "End\r\n", ""])
def test_a_long_search_ends_soon_if_only_the_end_follows(clock, last):
    channel = Channel(limit=Limit(seconds=60), on_batch=clock.batches(0.002))
    os.write(channel.write_end, f"BEGIN\r\n{last}".encode())
    os.close(channel.write_end)
    begun = clock.now
    channel.engine.run()
    assert clock.now - begun < 1 and re.fullmatch(r"\d,\d", channel.said[-1])


def test_the_rule_of_exactly_five_can_be_asked_for():
    channel = Channel()
    rows = [f"{column},0,1" for column in (0, 1, 2, 3, 5)]
    assert channel.say("INFO rule 0") == [] and channel.say("INFO what 3") == [] and channel.say("INFO x") == []
    assert channel.say("INFO rule 1")[0].startswith("MESSAGE") and channel.session.game.exact
    channel.session.restart()
    cells = [int(row.split(",")[0]) for row in rows]
    for cell in cells:
        channel.session.play(cell)
        channel.session.play(40 + 2 * len(channel.session.actions))
    channel.session.play(4)
    assert not channel.session.over  # six in a row
    assert "renju" in channel.say("INFO rule 4")[0]


def test_another_game_is_refused():
    assert Channel("connect4").say("START 7") == ["ERROR this network plays connect4, not Gomoku"]


@pytest.mark.process
def test_the_process_plays_a_game(tmp_path):
    run = make_run(tmp_path / "run", "mnk(m=7,n=7,k=4)")
    command = [sys.executable, "-m", "az_mpi", "gomocup", run, "--simulations", "8", "--level", "5"]
    lines = "ABOUT\nSTART 7\nINFO timeout_turn 500\nBEGIN\nTURN 0,0\nEND\n"
    done = subprocess.run(command, cwd=ROOT, input=lines, text=True, capture_output=True)
    about, ok, *moves = done.stdout.splitlines()
    assert done.returncode == 0 and "az_mpi" in about and ok == "OK"
    assert all(re.fullmatch(r"[0-6],[0-6]", move) or move.startswith("ERROR there is a stone") for move in moves)


def test_programs_without_exact_rules_play_as_before():
    assert games.make("gomoku").name == "gomoku" and games.make("mnk(m=15,n=15,k=5,exact=True)").exact
