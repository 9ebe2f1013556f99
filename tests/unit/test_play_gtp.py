"""python -m az_mpi gtp: the commands and lines of the Go Text Protocol, version 2, in memory."""

import os
import random
import re
import threading
import time

import pytest
from gtp_channel import GO, Channel, malformed

from az_mpi import __version__
from az_mpi.play.lines import LINE_BYTES_MAX
from az_mpi.player.limits import Limit


def talk(text, game=GO):
    """Return the answers to a whole input."""
    channel = Channel(game)
    threading.Thread(target=lambda: (channel.send(text), os.close(channel.write_end))).start()
    channel.engine.run()
    return "".join(channel.said)


def test_gtp_commands_of_administration():
    channel = Channel()
    assert [channel.good(name) for name in ("protocol_version", "name", "version")] == ["2", "az_mpi", __version__]
    listed = channel.good("list_commands").split("\n")
    assert set(listed) >= set(
        "protocol_version name version known_command list_commands quit boardsize clear_board komi play genmove undo "
        "showboard time_settings time_left final_score reg_genmove lz-analyze kata-analyze "
        "lz-genmove_analyze kata-genmove_analyze".split()
    )
    assert {channel.good(f"known_command {name}") for name in listed} == {"true"}
    assert channel.good("known_command what") == "false"
    assert channel.bad("what") == "unknown command"


def test_gtp_lines_are_read_as_the_protocol_says():
    """Ids, comments, tabs, control characters, ends of lines; empty lines get no answer."""
    said = talk("1 name\n\n  \n# all\n12\tname # said twice\r\n\x01na\x07me\n  007   name\nname")
    assert said == "=1 az_mpi\n\n=12 az_mpi\n\n= az_mpi\n\n=007 az_mpi\n\n= az_mpi\n\n"
    assert (
        talk("3 what\n4\n1name\nquit\nname\n") == "?3 unknown command\n\n?4 unknown command\n\n"
        "? unknown command\n\n= \n\n"
    )


def test_a_gtp_line_that_is_too_long_is_cut():
    said = talk("name " + "x" * 3 * LINE_BYTES_MAX + "\n5 name\n")
    assert said == "? syntax error\n\n=5 az_mpi\n\n"
    assert talk(bytes(range(128, 256)) + b"\n6 name\n").endswith("=6 az_mpi\n\n")


@pytest.mark.parametrize("command, winrate", [("lz-analyze", r"\d{1,5}"), ("kata-analyze", r"[01]\.\d+")])
def test_gtp_analysis_continues_until_there_is_input(clock, command, winrate):
    channel = Channel(on_batch=clock.batches(0.002, (0.5, lambda: channel.send("name\n"))))
    channel.good("play b c3")
    begun = clock.now
    lines = channel.good(f"{command} 5").strip().split("\n")
    assert 0.5 <= clock.now - begun < 0.6 and len(lines) >= 3 and channel.moves() == ["C3"]
    assert channel.engine.lines.next() == "name"  # and is done next
    legal = channel.session.legal()
    counted = []
    for line in lines:
        rows = re.findall(
            rf"info move (\w+) visits (\d+) (?:utility \S+ )?winrate {winrate} prior (?:\S+) order (\d+) "
            r"pv((?: \w+)+?)(?= info|$)",
            line,
        )
        assert line.count("info ") == len(rows) and [row[2] for row in rows] == [str(k) for k in range(len(rows))]
        assert all(row[0] in legal and row[3].split()[0] == row[0] for row in rows)
        counted.append(sum(int(row[1]) for row in rows))
    assert counted == sorted(counted) and counted[-1] > counted[0] > 0


def test_gtp_analysis_takes_the_arguments_of_known_programs(clock):
    channel = Channel(on_batch=clock.batches(0.002, (0.3, lambda: channel.send("\n"))))
    channel.send("\n")  # what is waiting ends each of them
    for words in ("", "b", "w 10", "B 50 ownership true", "interval 20 maxmoves 3", "100 rootInfo true minmoves 1"):
        assert channel.good(f"kata-analyze {words}") == "\n" * 0
        assert channel.moves() == []  # for White a pass is played and taken back
    for words in ("x", "b x", "10 20", "ownership", "b 10 interval", "what true", "interval x", "b w", "-1"):
        assert channel.bad(f"lz-analyze {words}") == "syntax error"
    for words in ("ownershipStdev true", "movesOwnershipStdev true", "noResultValue true"):
        assert channel.good(f"kata-analyze 10 {words}") == ""
    channel.engine.lines.next()
    [line] = {text.count("info ") for text in channel.good("lz-analyze 5 maxmoves 2").strip().split("\n")}
    assert line == 2


@pytest.mark.parametrize("style", ["lz", "kata"])
def test_genmove_analyze_reports_on_the_search_and_plays(clock, style):
    channel = Channel(limit=Limit(seconds=0.5), on_batch=clock.batches(0.002))
    *lines, last = channel.good(f"{style}-genmove_analyze b 10").strip().split("\n")
    counted = [sum(map(int, re.findall(r" visits (\d+)", line))) for line in lines]
    assert len(lines) >= 3 and counted == sorted(counted) and counted[-1] > counted[0] > 0
    assert last == f"play {channel.moves()[0]}" and len(channel.moves()) == 1
    [line, last] = channel.good(f"{style}-genmove_analyze 1000 maxmoves 2").strip().split("\n")  # white's turn
    assert line.count("info ") == 2 and last == f"play {channel.moves()[1]}"
    assert channel.bad(f"{style}-genmove_analyze x") == "syntax error" and len(channel.moves()) == 2
    # A report without moves is no empty line, which would end the reply.
    assert channel.good(f"{style}-genmove_analyze 10 maxmoves 0").strip() == f"play {channel.moves()[2]}"
    channel.good("undo")
    channel.good("undo")
    assert len(channel.moves()) == 1


def test_malformed_gtp_lines_are_errors_and_change_nothing():
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


def test_an_exception_in_the_rules_does_not_end_the_gtp_engine(monkeypatch, capsys):
    channel = Channel()
    monkeypatch.setattr(channel.session.game, "legal", lambda states: 1 / 0)
    assert channel.bad("play b c3").startswith("internal error") and "Traceback" in capsys.readouterr().err
    monkeypatch.undo()
    assert channel.good("play b c3") == ""
    monkeypatch.setattr(channel.session.game, "terminal", lambda states: (states[:1, 0] < 0, 1 / 0 * len(states)))
    assert channel.bad("genmove w").startswith("internal error")
    monkeypatch.undo()
    monkeypatch.setattr(type(channel.session), "think", lambda *how: 1 / 0)
    for command in ("lz-analyze", "lz-genmove_analyze"):
        assert channel.good(f"{command} b 5") == "" and channel.moves() == ["C3"]


def test_hexgui_gets_the_commands_and_replies_that_it_needs():
    """It names both sides of the board, wants a list of commands of its own, and reads "= " where a reply is empty."""
    channel = Channel()
    assert channel.good("hexgui-analyze_commands") == "" and channel.said == ["= \n\n"]
    channel.good("play b c3")
    assert channel.good("boardsize 5 5") == "" and channel.moves() == []
    assert (
        channel.bad("boardsize 5 4").startswith("unacceptable size")
        and channel.bad("boardsize 5 5 5") == "syntax error"
    )
    assert channel.bad("boardsize") == "syntax error"


@pytest.mark.parametrize("last", ["quit\n", "quit", "", "3 quit # that is all\n"])
def test_a_long_search_ends_soon_if_only_quit_or_the_end_of_input_follows(clock, last):
    channel = Channel(limit=Limit(seconds=60), on_batch=clock.batches(0.002))
    channel.send(f"genmove b\n{last}")
    os.close(channel.write_end)
    begun = clock.now
    channel.engine.run()
    assert clock.now - begun < 1 and re.match(r"= \w\d\n\n|= pass", "".join(channel.said))


@pytest.mark.parametrize("behind", ["name\nquit", "known_command quit"])
def test_a_search_is_completed_if_other_commands_follow(behind):
    channel = Channel(limit=Limit(simulations=400), on_batch=lambda: time.sleep(0.002))
    channel.send(f"genmove b\n{behind}\n")
    channel.engine.answer(channel.engine.lines.next())
    assert len(channel.moves()) == 1 and channel.session.simulations >= 1
    begun = time.monotonic()
    channel.session.restart()
    channel.good("reg_genmove b")
    assert channel.session.simulations == 400 and time.monotonic() - begun > 0.8
