"""What Sabaki 0.60 and gogui-twogtp 1.6.0 send to an engine, recorded from Sabaki's library for GTP, @sabaki/gtp, and
from twogtp in November 2026."""

import threading

import pytest
from gtp_channel import LoadingChannel

ANALYSED_S = 2.0  # until the next command: the first report of an analysis is due after 0.5

# Sabaki sends the first four at once, komi before the size, and a command that interrupts an analysis. Where it goes
# to another variation it takes moves back if that is shorter, else it begins again.
GAME = """
name
version
protocol_version
list_commands
komi {komi}
boardsize {size}
clear_board
kata-genmove_analyze B 50
play W A1
play B B2
kata-analyze W 50
protocol_version
undo
play B A2
kata-analyze W 50
protocol_version
genmove W
clear_board
play B C3
play W pass
play B pass
clear_board
set_free_handicap C3 G7
play W E5
"""


@pytest.mark.process
def test_a_game_as_sabaki_sends_it_is_answered_on_two_sizes():
    channel = LoadingChannel("zoo:go9")
    for komi, size in ((6.5, 9), (7.5, 13)):
        lines = GAME.format(komi=komi, size=size).split("\n")[1:-1]
        for line, following in zip(lines, [*lines[1:], ""]):
            if line.startswith("kata-analyze"):
                threading.Timer(ANALYSED_S, channel.send, [following + "\n"]).start()
            said = channel.say(line)
            if line.startswith("kata-analyze"):
                assert channel.engine.lines.next() == following  # which has ended the analysis
            assert said.startswith("="), (line, said)
            if "analyze" in line:
                assert "info move " in said and " winrate 0." in said and " pv " in said
            if line.startswith("kata-genmove"):
                vertex = said.splitlines()[-1].removeprefix("play ")
                assert vertex in channel.engine.vertices.all(channel.engine.session.states[-2])
                if vertex in ("A1", "B2", "A2"):  # what follows would be illegal
                    channel.say("undo")
        assert channel.say("get_komi") == f"= {komi}" and channel.engine.go.planes_shape[1] == size
    assert channel.say("rectangular_boardsize 13 9").startswith("? unacceptable size")


# The other engine is Black. Komi comes once, and the size before each game.
TWOGTP = """
protocol_version
name
version
list_commands
boardsize 9
clear_board
komi 7.5
cputime
{game}
{game}
cputime
quit
"""
GAME_OF_TWOGTP = """boardsize 9
clear_board
play B E5
genmove w
play B pass
genmove w
final_score"""


@pytest.mark.process
def test_two_games_as_gogui_twogtp_sends_them_are_answered_and_keep_the_komi():
    channel = LoadingChannel("zoo:go9")
    said = {}
    for line in TWOGTP.format(game=GAME_OF_TWOGTP).split("\n")[1:-1]:
        said[line] = channel.say(line)
        assert said[line].startswith("="), (line, said[line])
    assert channel.engine.is_over and float(said["cputime"].removeprefix("=")) > 0
    assert said["final_score"].split("+")[1].endswith(".5")
