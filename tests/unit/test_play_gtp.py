"""python -m az_mpi gtp: the Go Text Protocol, version 2, in memory."""

import os
import random
import re
import threading
import time

import pytest
from helpers import loaded_player

from az_mpi import __version__
from az_mpi.play import gtp
from az_mpi.play.limits import Limit
from az_mpi.play.lines import LINE_BYTES_MAX, Lines
from az_mpi.play.session import Session

GO = "go(size=5,komi=7)"
QUICK = Limit(simulations=8)


class Channel:
    """An engine whose input stays open: what `say` writes is answered in this process."""

    def __init__(self, game=GO, limit=QUICK, on_batch=lambda: None, **settings):
        read, self.write_end = os.pipe()
        self.said = []
        session = Session(loaded_player(game, on_batch, **settings))
        self.engine = gtp.GtpEngine(session, limit, Lines(read), self.said.append)
        self.session = session

    def send(self, data):
        os.write(self.write_end, data if isinstance(data, bytes) else data.encode())

    def say(self, line):
        """Return the answer to one line: (its first character, the rest without the blank line)."""
        self.said.clear()
        self.engine.answer(line)
        said = "".join(self.said)
        assert said.endswith("\n\n") and "\n\n" not in said[:-2], said
        return said[0], said[1:-2].strip(" ")

    def good(self, line):
        status, text = self.say(line)
        assert status == "=", (line, text)
        return text

    def bad(self, line):
        status, text = self.say(line)
        assert status == "?", (line, text)
        return text

    def moves(self):
        return self.session.played()


def talk(text, game=GO):
    """Return the answers to a whole input."""
    channel = Channel(game)
    threading.Thread(target=lambda: (channel.send(text), os.close(channel.write_end))).start()
    channel.engine.run()
    return "".join(channel.said)


def test_administration():
    channel = Channel()
    assert [channel.good(name) for name in ("protocol_version", "name", "version")] == ["2", "az_mpi", __version__]
    listed = channel.good("list_commands").split("\n")
    assert set(listed) >= set(
        "protocol_version name version known_command list_commands quit boardsize clear_board komi play genmove undo "
        "showboard time_settings time_left final_score reg_genmove lz-analyze kata-analyze".split())
    assert {channel.good(f"known_command {name}") for name in listed} == {"true"}
    assert channel.good("known_command what") == "false"
    assert channel.bad("what") == "unknown command"


def test_lines_are_read_as_the_protocol_says():
    """Ids, comments, tabs, control characters, ends of lines; empty lines get no answer."""
    said = talk("1 name\n\n  \n# all\n12\tname # said twice\r\n\x01na\x07me\n  007   name\nname")
    assert said == "=1 az_mpi\n\n=12 az_mpi\n\n= az_mpi\n\n=007 az_mpi\n\n= az_mpi\n\n"
    assert talk("3 what\n4\n1name\nquit\nname\n") == "?3 unknown command\n\n?4 unknown command\n\n" \
        "? unknown command\n\n=\n\n"


def test_a_line_without_end_is_cut():
    said = talk("name " + "x" * 3 * LINE_BYTES_MAX + "\n5 name\n")
    assert said == "? syntax error\n\n=5 az_mpi\n\n"
    assert talk(bytes(range(128, 256)) + b"\n6 name\n").endswith("=6 az_mpi\n\n")


def test_a_game_of_go():
    channel = Channel()
    assert channel.good("boardsize 5") == channel.good("komi 7") == channel.good("komi 7.0") == ""
    assert channel.good("play black C3") == channel.good("play W d3") == channel.good("play b pass") == ""
    assert channel.good("showboard") == "\n5 . . . . .\n4 . . . . .\n3 . . X O .\n2 . . . . .\n1 . . . . .\n  A B C D E"
    assert channel.good("final_score") == "W+7"
    vertex = channel.good("genmove w")
    assert channel.moves() == ["C3", "D3", "pass", vertex]
    for _ in range(4):
        channel.good("undo")
    assert channel.moves() == [] and channel.bad("undo") == "cannot undo"
    vertex = channel.good("reg_genmove b")
    assert vertex in channel.session.legal() and channel.moves() == []
    channel.good("play b c3")
    assert channel.good("final_score") == "B+18"
    channel.good("clear_board")
    assert channel.moves() == [] and channel.bad("undo")


def test_what_the_network_did_not_learn_is_unacceptable():
    channel = Channel()
    channel.good("play b c3")
    assert channel.bad("boardsize 9") == channel.bad("boardsize 0") == channel.bad("rectangular_boardsize 5 6") \
        == "unacceptable size"
    assert channel.bad("komi 6.5") == "unacceptable komi" and channel.moves() == ["C3"]
    assert channel.good("boardsize 5") == "" and channel.moves() == []
    connect4 = Channel("connect4")
    assert connect4.good("boardsize 7") == connect4.good("rectangular_boardsize 7 6") == connect4.good("komi 6.5") == ""
    assert connect4.bad("boardsize 6")


def test_moves_out_of_turn_in_go_are_preceded_by_a_pass():
    channel = Channel()
    channel.good("play w c3")  # White begins
    channel.good("play w d3")
    assert channel.moves() == ["pass", "C3", "pass", "D3"]
    channel.good("undo")
    assert channel.moves() == ["pass", "C3"]
    vertex = channel.good("genmove w")
    assert channel.moves() == ["pass", "C3", "pass", vertex]
    channel.good("undo")
    assert channel.bad("play w c3").startswith("illegal move") and channel.moves() == ["pass", "C3"]
    channel.good("reg_genmove w")
    assert channel.moves() == ["pass", "C3"]
    channel.good("play b pass")
    assert channel.bad("play b d4").startswith("illegal move") and len(channel.moves()) == 3  # two passes end the game


def test_after_the_end_of_a_game_only_passes_are_answered():
    channel = Channel()
    for move in ("b c3", "w pass", "b pass"):
        channel.good(f"play {move}")
    assert channel.session.over and channel.good("final_score") == "B+18"
    assert channel.good("genmove w") == channel.good("reg_genmove b") == "pass"
    channel.good("play b pass")
    assert channel.bad("play w a1").startswith("illegal move") and channel.bad("lz-analyze 10")
    for _ in range(3):  # both passes after the end, and the one that ended it
        channel.good("undo")
    assert channel.moves() == ["C3", "pass"]


def test_moves_out_of_turn_where_nobody_may_pass_are_illegal():
    for game, vertex in (("gomoku", "c3"), ("hex(size=4)", "a1"), ("connect4", "D1"), ("othello", "d3")):
        channel = Channel(game)
        assert channel.bad(f"play w {vertex}").startswith("illegal move") and channel.bad("genmove white")
        assert channel.bad("play b pass") and channel.moves() == []


def test_gomoku_has_the_letters_of_the_protocol():
    """Which leaves out I: its J is the game's own i."""
    channel = Channel("gomoku")
    for colour, vertex in (("b", "H8"), ("w", "J8"), ("b", "P15")):
        channel.good(f"play {colour} {vertex}")
    assert channel.moves() == ["h8", "i8", "o15"] and channel.bad("play w I9") == "illegal move"
    assert channel.good("showboard").endswith("A B C D E F G H J K L M N O P")
    vertex = channel.good("genmove w")
    assert re.fullmatch(r"[A-HJ-P]\d+", vertex)


def test_connect_four_has_a_vertex_for_the_cell_that_the_piece_falls_to():
    channel = Channel("connect4")
    assert channel.bad("final_score").startswith("cannot score")
    for move in ("b D1", "w d2", "b D", "w 4", "b d5"):
        channel.good(f"play {move}")
    assert channel.moves() == ["4"] * 5
    assert channel.bad("play w d5") and channel.bad("play w d1") and channel.bad("play w h1")
    assert channel.good("showboard").split("\n")[1:4] == [" . . . . . . .", " . . .(X). . .", " . . . O . . ."]
    vertex = channel.good("genmove w")
    assert vertex in ("A1", "B1", "C1", "D6", "E1", "F1", "G1")
    for colour in "bw" * 3:
        channel.say(f"play {colour} a")
    for move in ("clear_board", "play b 1", "play w 2", "play b 1", "play w 2", "play b 1", "play w 2", "play b 1"):
        channel.good(move)
    assert channel.good("final_score") == "B+1"


def test_othello_has_its_own_vertices_and_passes():
    channel = Channel("othello(size=4)")
    assert channel.good("boardsize 4") == "" and channel.good("final_score") == "0"
    assert channel.good("play black a2") == ""  # rows from the top
    assert channel.good("showboard").split("\n")[2] == "2(X)X X ."
    end = 0
    while not channel.session.over:
        colour = "bw"[channel.session.to_play]
        must_pass = "pass" in channel.session.legal()
        assert (channel.good(f"genmove {colour}") == "pass") == must_pass
        end += 1
    lead = channel.session.game.lead(channel.session.state[None])[0]
    assert channel.good("final_score") == (f"{'B' if lead > 0 else 'W'}+{abs(lead):g}" if lead else "0")


def test_a_forced_pass_in_othello_may_be_left_out():
    """Programs differ in whether they send it."""
    channel, rng = Channel("othello(size=4)"), random.Random(0)
    while "pass" not in channel.session.legal():
        if channel.session.over:
            channel.good("clear_board")
        channel.good(f"play {'bw'[channel.session.to_play]} {rng.choice(list(channel.session.legal()))}")
    passes, before = channel.session.to_play, len(channel.moves())
    vertex = channel.good(f"genmove {'bw'[1 - passes]}")
    assert channel.moves()[before:] == ["pass", vertex]


def test_hex_knows_the_swap_by_both_names():
    for name in ("swap-pieces", "swap", "SWAP"):
        channel = Channel("hex(size=4,swap=True)")
        channel.good("play b a1")
        channel.good(f"play w {name}")
        assert channel.moves() == ["a1", "swap"]
    channel = Channel("hex(size=2)")
    for move in ("b a1", "w b1", "b a2"):
        channel.good(f"play {move}")
    assert channel.good("final_score") == "B+1"


def test_any_other_game_is_played_in_its_own_words():
    channel = Channel("breakthrough(rows=5,columns=9)")
    channel.good("rectangular_boardsize 9 5")
    channel.good("play b i1i2")
    assert channel.good("genmove w") == channel.moves()[-1]
    assert channel.good("showboard").endswith("a b c d e f g h i")


@pytest.fixture
def clock(monkeypatch):
    """A clock of the test's own, which only simulations move on: now[0] seconds."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def slow_channel(clock, simulation_s=0.01):
    def take_time():
        clock[0] += simulation_s

    return Channel(limit=Limit(), on_batch=take_time)


def test_thinking_uses_the_time_and_never_more(clock):
    channel = slow_channel(clock)
    channel.good("reg_genmove b")
    assert channel.session.simulations == 50  # as in self-play, by default
    for settings, budget_s in (("0 1 5", 0.2), ("20 0 0", 20 / 12), ("0 4 10", 0.4), ("0 60 4", 15)):
        channel.good("clear_board")
        channel.good(f"time_settings {settings}")
        begun = clock[0]
        channel.good("genmove b")
        assert 0.75 * budget_s < clock[0] - begun <= budget_s
    channel.good("time_settings 100 0 0")
    for command, budget_s in (("time_left w 1 4", 0.25), ("time_left w 0 0", 0.021), ("time_left w -3 0", 0.021)):
        channel.good(command)
        begun = clock[0]
        channel.good("reg_genmove w")
        assert clock[0] - begun <= budget_s
    channel.good("time_settings 0 1 0")  # no limit
    channel.good("clear_board")
    channel.good("reg_genmove b")
    assert channel.session.simulations == 50


def test_on_a_busy_machine_time_is_kept_for_a_wait_as_long_as_the_last_one(clock):
    waits = [0.001] * 20 + [0.06]

    def take_time():
        clock[0] += waits.pop(0) if waits else 0.001

    channel, used = Channel(limit=Limit(), on_batch=take_time), []
    channel.good("time_settings 0 0.2 1")
    for _ in range(100):
        if channel.session.over:
            channel.good("clear_board")
        begun = clock[0]
        channel.good(f"genmove {'bw'[channel.session.to_play]}")
        used.append(clock[0] - begun)
    assert max(used) <= 0.2 - 0.02 + 1e-9
    assert 0.05 < max(used[1:5]) <= 0.2 - 2 * 0.05  # the last step and the answer may each wait as long
    assert max(used[-20:]) > 0.17  # long ago


def test_a_whole_game_by_absolute_time_is_never_lost_on_time(clock):
    channel = slow_channel(clock)
    channel.good("time_settings 10 0 0")
    used, player = [0.0, 0.0], 0
    while not channel.session.over:
        begun = clock[0]
        channel.good(f"genmove {'bw'[player]}")
        used[player] += clock[0] - begun
        player = 1 - player
    assert 3 < max(used) < 10, used


def test_the_clock_counts_the_engines_own_time(clock):
    """Programs need not send time_left."""
    channel = slow_channel(clock)
    channel.good("time_settings 10 0 0")
    spent = []
    for _ in range(8):
        begun = clock[0]
        channel.good("genmove b")
        spent.append(clock[0] - begun)
    assert spent[-1] < 0.8 * spent[0]


@pytest.mark.parametrize("command, winrate", [("lz-analyze", r"\d{1,5}"), ("kata-analyze", r"[01]\.\d+")])
def test_analysis_goes_on_until_something_comes_in(command, winrate):
    channel = Channel()
    channel.good("play b c3")
    timer = threading.Timer(0.5, channel.send, ["name\n"])
    timer.start()
    begun = time.monotonic()
    lines = channel.good(f"{command} 5").strip().split("\n")
    assert 0.4 < time.monotonic() - begun < 2 and len(lines) >= 3 and channel.moves() == ["C3"]
    assert channel.engine.lines.next() == "name"  # and is done next
    legal = channel.session.legal()
    counted = []
    for line in lines:
        rows = re.findall(rf"info move (\w+) visits (\d+) (?:utility \S+ )?winrate {winrate} prior (?:\S+) order (\d+) "
                          r"pv((?: \w+)+?)(?= info|$)", line)  # fmt: skip
        assert line.count("info ") == len(rows) and [row[2] for row in rows] == [str(k) for k in range(len(rows))]
        assert all(row[0] in legal and row[3].split()[0] == row[0] for row in rows)
        counted.append(sum(int(row[1]) for row in rows))
    assert counted == sorted(counted) and counted[-1] > counted[0] > 0


def test_analysis_takes_what_programs_ask_for():
    channel = Channel()
    channel.send("\n")  # what is waiting ends each of them
    for words in ("", "b", "w 10", "B 50 ownership true", "interval 20 maxmoves 3", "100 rootInfo true minmoves 1"):
        assert channel.good(f"kata-analyze {words}") == "\n" * 0
        assert channel.moves() == []  # for White a pass is played and taken back
    for words in ("x", "b x", "10 20", "ownership", "b 10 interval", "what true", "interval x", "b w", "-1"):
        assert channel.bad(f"lz-analyze {words}") == "syntax error"
    channel.engine.lines.next()
    threading.Timer(0.3, channel.send, ["\n"]).start()
    [line] = {text.count("info ") for text in channel.good("lz-analyze 5 maxmoves 2").strip().split("\n")}
    assert line == 2


def malformed(rng):
    """Return a line that is no valid command."""
    junk = "".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(1, 30))).replace("#", "")
    number = rng.choice(["9" * 400, "-1", "1e9", "nan", "inf", "1_0", "0x9", "", "٣", "5.5.5", "--", junk])
    name, count = rng.choice([("boardsize", 1), ("komi", 1), ("play", 2), ("genmove", 1), ("reg_genmove", 1),
                              ("time_settings", 3), ("time_left", 3), ("known_command", 1), ("name", 0), ("undo", 0),
                              ("quit", 0), ("showboard", 0), ("rectangular_boardsize", 2)])
    return rng.choice([
        f"x{junk}", f"x{junk} {number}", f"{name} " + "b " * (count + 1), f"{name}{junk}x", f"play {number} a1",
        f"play b x{junk}", f"play b {number}z", f"genmove x{number}", f"komi {number}x", f"boardsize x{number}",
        f"time_left b {number}x 1", f"time_settings 1 {number}x 1", f"lz-analyze x{junk}", f"kata-analyze b 1 {junk}",
        "play b" + " a1" * rng.randrange(2, 2000), f"{'7' * rng.randrange(1, 500)} x{junk}",
        f"{name.upper()} {number}", "\x7f\x00" * 5 + f"x{junk}"])  # fmt: skip


def test_malformed_lines_are_answered_with_an_error_and_change_nothing():
    channel, rng = Channel(), random.Random(5)
    channel.good("play b c3")
    for _ in range(600):
        line = malformed(rng)
        assert channel.bad(line), line
        assert channel.moves() == ["C3"], line
    for _ in range(200):  # any bytes at all
        line = bytes(rng.choice(b" \t0159abcdwBplayundo#-.\x00\x7f\xff\xc3") for _ in range(rng.randrange(80)))
        channel.said.clear()
        channel.engine.answer(line.decode("ascii", "replace"))
        said = "".join(channel.said)
        assert said == "" or said[0] in "=?" and said.endswith("\n\n")
    assert channel.good("name") == "az_mpi"


def test_a_mistake_in_the_rules_does_not_end_the_engine(monkeypatch, capsys):
    channel = Channel()
    monkeypatch.setattr(channel.session.game, "legal", lambda states: 1 / 0)
    assert channel.bad("play b c3").startswith("internal error") and "Traceback" in capsys.readouterr().err
    monkeypatch.undo()
    assert channel.good("play b c3") == ""
    monkeypatch.setattr(channel.session.game, "terminal", lambda states: (states[:1, 0] < 0, 1 / 0 * len(states)))
    assert channel.bad("genmove w").startswith("internal error")
    monkeypatch.undo()
    monkeypatch.setattr(channel.session, "think", lambda *how: 1 / 0)
    assert channel.good("lz-analyze b 5") == "" and channel.moves() == ["C3"]


@pytest.mark.parametrize("last", ["quit\n", "", "3 quit # that is all\n"])
def test_a_long_search_ends_soon_when_nothing_but_the_end_follows(last):
    channel = Channel(limit=Limit(seconds=60), on_batch=lambda: time.sleep(0.002))
    channel.send(f"genmove b\n{last}")
    os.close(channel.write_end)
    begun = time.monotonic()
    channel.engine.run()
    assert time.monotonic() - begun < 1 and re.match(r"= \w\d\n\n|= pass", "".join(channel.said))


@pytest.mark.parametrize("behind", ["name\nquit", "known_command quit"])
def test_what_else_follows_does_not_cut_a_search_short(behind):
    channel = Channel(limit=Limit(simulations=400), on_batch=lambda: time.sleep(0.002))
    channel.send(f"genmove b\n{behind}\n")
    channel.engine.answer(channel.engine.lines.next())
    assert len(channel.moves()) == 1 and channel.session.simulations >= 1
    begun = time.monotonic()
    channel.session.restart()
    channel.good("reg_genmove b")
    assert channel.session.simulations == 400 and time.monotonic() - begun > 0.8
