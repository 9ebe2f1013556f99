"""python -m az_mpi gtp: komi, handicap, rules, SGF, scores, times, and what analysis leaves out."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from gtp_channel import Channel

from az_mpi.games import go_positions
from az_mpi.player.limits import Limit

GNUGO = shutil.which("gnugo", path=f"{os.environ['PATH']}:/usr/games")


@pytest.mark.process
def test_any_komi_counts_and_another_one_than_the_networks_is_told_once(capsys):
    channel = Channel()
    assert channel.good("get_komi") == "7"
    channel.good("play b c3")
    for komi, score in (("0.5", "B+24.5"), ("-3", "B+28"), ("30", "W+5"), ("25", "0"), ("7", "B+18")):
        assert channel.good(f"komi {komi}") == "" and channel.good("get_komi") == komi
        assert channel.good("final_score") == score and channel.session.to_play == 1
    assert capsys.readouterr().err.count("the network learned with 7") == 1
    assert channel.bad("komi 1000") == "unacceptable komi" and channel.bad("komi x") == "syntax error"
    connect4 = Channel("connect4")
    assert connect4.good("komi 6.5") == "" and connect4.good("get_komi") == "6.5"


def test_the_search_counts_with_the_komi_of_the_game():
    """Both have passed: with 25.5 points for White, Black, who owns all of the board, has lost."""
    for komi, value in ((24.5, 1.0), (25.5, -1.0)):
        channel = Channel(limit=Limit(simulations=30))
        for line in ("play b c3", "play w pass", f"komi {komi}"):
            channel.good(line)
        channel.session.think(Limit(simulations=30))
        [passing] = [
            m
            for m in channel.session.moves()
            if channel.session.game.action_to_text(channel.session.state, m.action) == "pass"
        ]
        assert passing.exact and passing.value == value or not passing.visits
        channel.good("play b pass")
        assert channel.session.result == value


@pytest.mark.skipif(not GNUGO, reason="GNU Go is not installed (apt install gnugo)")
@pytest.mark.parametrize("size", [5, 7, 8, 9, 12, 13, 19])
def test_a_fixed_handicap_is_where_gnu_go_has_it(size):
    numbers = range(1, 11)
    asked = "".join(f"boardsize {size}\nclear_board\nfixed_handicap {number}\n" for number in numbers)
    done = subprocess.run([GNUGO, "--mode", "gtp"], input=asked, text=True, capture_output=True, check=True)
    theirs = [text[1:].split() if text[0] == "=" else None for text in done.stdout.strip().split("\n\n")[2::3]]
    channel = Channel(f"go(size={size},komi=7)")
    for number, points in zip(numbers, theirs, strict=True):
        channel.good("clear_board")
        status, text = channel.say(f"fixed_handicap {number}")
        assert (sorted(text.split()) if status == "=" else None) == (points and sorted(points)), (size, number)


def test_after_a_handicap_white_moves():
    channel = Channel("go(size=9,komi=7)")
    assert len(channel.good("fixed_handicap 4").split()) == 4 and channel.session.to_play == 1
    assert channel.bad("fixed_handicap 4") == "board not empty"
    vertex = channel.good("genmove w")
    assert channel.session.to_play == 0 and channel.moves() == [vertex]
    channel.good("undo")
    assert channel.bad("undo") == "cannot undo"
    channel.good("clear_board")
    points = channel.good("place_free_handicap 7").split()
    assert len(set(points)) == 7 and sorted(channel.good("final_status_list alive").split()) == sorted(points)
    channel.good("clear_board")
    assert channel.good("set_free_handicap A1 j9 E5") == "" and channel.session.to_play == 1
    assert sorted(channel.good("final_status_list alive").split()) == ["A1", "E5", "J9"]
    channel.good("clear_board")
    for wrong in ("A1", "A1 A1", "A1 Z9", "A1 pass", ""):
        assert channel.bad(f"set_free_handicap {wrong}") == "bad vertex list"
    assert channel.bad("fixed_handicap 12") and channel.bad("place_free_handicap 1") and channel.moves() == []
    assert Channel("othello").bad("fixed_handicap 2") == "only Go has a handicap"


def test_a_move_that_only_superko_forbids_is_taken_from_the_other_program():
    """Some positions ago the board was as a stone of White on A1 would make it."""
    channel = Channel()
    channel.good("play b c3")
    session, game = channel.session, channel.session.game
    state, hashes = session.state.copy(), 3 * game.words + 1
    a1 = channel.engine.vertices.point("A1")
    state[hashes + 5] = game.play(state[None], np.array([a1]))[0][hashes]
    session.restart(go_positions.turned(game, go_positions.turned(game, state, 0), 1))
    assert "A1" not in session.legal() and channel.good("play w a1") == ""
    assert channel.good("final_status_list alive") == "C3 A1"


def test_ko_and_suicide_stay_illegal():
    channel = Channel()
    for move in ("b c2", "b b3", "b c4", "w d2", "w e3", "w d4", "w c3", "b d3"):
        channel.good(f"play {move}")
    assert channel.good("showboard").split("\n")[3] == "3 . X .(X)O"
    assert channel.bad("play w c3") == "illegal move"  # it would take back at once
    channel.good("play w a1")
    channel.good("play b a2")
    assert channel.good("play w c3") == ""  # the board has changed
    for move in ("clear_board", "play b a2", "play b b1"):
        channel.good(move)
    assert channel.bad("play w a1") == "illegal move"  # suicide


def test_sgf_is_loaded_and_printed(tmp_path):
    path = tmp_path / "game.sgf"
    path.write_text(
        "(;GM[1]FF[4]SZ[5]KM[0.5]HA[2]AB[aa][ee]PL[W]C[a \\] comment](;W[cc];B[];W[dd](;B[bb])(;B[ab]))(;W[ab]))"
    )
    channel = Channel()
    assert channel.good(f"loadsgf {path}") == "" and channel.good("get_komi") == "0.5"
    assert channel.session.to_play == 1 and [made.vertex for made in channel.engine.made] == ["c3", "pass", "d2", "b4"]
    assert sorted(channel.good("final_status_list alive").split()) == ["A5", "B4", "C3", "D2", "E1"]
    printed = channel.good("printsgf")
    for part in ("SZ[5]", "KM[0.5]", "HA[2]", "AB[aa][ee]", ";W[cc];B[];W[dd];B[bb]"):
        assert part in printed
    copy = tmp_path / "copy.sgf"
    assert channel.good(f"printsgf {copy}") == "" and channel.bad(f"printsgf {copy}").startswith("cannot write")
    drawing = channel.good("showboard")
    channel.good("clear_board")
    channel.good(f"loadsgf {copy}")
    assert channel.good("showboard") == drawing
    channel.good(f"loadsgf {path} 3")
    assert [made.vertex for made in channel.engine.made] == ["c3", "pass"]
    assert channel.good(f"loadsgf {path} 0") == "" and channel.engine.made == []
    path.write_text("(;GM[1]SZ[5]KM[6,5])")
    assert channel.good(f"loadsgf {path}") == "" and channel.good("get_komi") == "6.5"


@pytest.mark.parametrize(
    "game, moves", [("othello", "d3 c3 c4"), ("gomoku", "H8 J8 A15"), ("hex(size=4,swap=True)", "a1 swap-pieces b2")]
)
def test_other_games_go_through_sgf(tmp_path, game, moves):
    channel = Channel(game)
    for ply, move in enumerate(moves.split()):
        channel.good(f"play {'bw'[ply % 2]} {move}")
    played = channel.moves()
    assert channel.good(f"printsgf {tmp_path}/game.sgf") == ""
    channel.good("clear_board")
    channel.good(f"loadsgf {tmp_path}/game.sgf")
    assert channel.moves() == played


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "(;GM[1]SZ[9];B[aa])",
        "(;GM[2];B[aa])",
        "(;SZ[5];B[aa];W[aa])",
        "(;SZ[5];B[aa];AB[bb])",
        "(;SZ[5];B[zz])",
        "\0" * 9,
    ],
)
def test_a_file_that_is_no_such_game_changes_nothing(tmp_path, text):
    (tmp_path / "bad.sgf").write_text(text)
    channel = Channel()
    channel.good("play b c3")
    assert channel.bad(f"loadsgf {tmp_path}/bad.sgf").startswith("cannot load file")
    assert channel.bad(f"loadsgf {tmp_path}/none.sgf") and channel.bad("loadsgf") == "syntax error"
    assert channel.moves() == ["C3"] and len(channel.engine.made) == 1


def test_rules_that_count_by_area_are_taken():
    channel = Channel()
    rules = json.loads(channel.good("kata-get-rules"))
    assert (rules["scoring"], rules["ko"], rules["suicide"]) == ("AREA", "POSITIONAL", False)
    for words in ("chinese", "tromp-taylor", '{"scoring": "AREA", "ko": "SIMPLE"}'):
        assert channel.good(f"kata-set-rules {words}") == ""
    for words in ("japanese", "", '{"scoring": "TERRITORY"}', "{"):
        assert channel.bad(f"kata-set-rules {words}")


def test_lists_of_stones_commands_and_times():
    channel = Channel()
    channel.good("play b c3")
    assert channel.good("final_status_list dead") == channel.good("final_status_list seki") == ""
    assert channel.good("final_status_list alive") == "C3" and channel.bad("final_status_list what")
    known = channel.good("list_commands").split()
    rows = [line.split("/") for line in channel.good("gogui-analyze_commands").splitlines()]
    assert rows and all(len(row) == 3 and row[2].split()[0] in known for row in rows)
    assert re.fullmatch(r"\d+\.\d+", channel.good("cputime")) and channel.good("kgs-game_over") == ""
    for words in ("none", "absolute 300", "byoyomi 300 30 5", "canadian 300 30 5"):
        assert channel.good(f"kgs-time_settings {words}") == ""
    for words in ("", "what", "absolute", "byoyomi 1 2", "canadian 1 2 x"):
        assert channel.bad(f"kgs-time_settings {words}") == "syntax error"


def test_analysis_looks_at_the_moves_that_are_allowed_alone(clock):
    channel = Channel(on_batch=clock.batches(0.002, *((0.4 * k, lambda: channel.send("\n")) for k in (1, 2, 3, 4))))

    def shown(words):
        lines = channel.good(f"lz-analyze {words}").strip().split("\n")
        channel.engine.lines.next()
        return set(re.findall(r"info move (\w+)", lines[-1]))

    assert shown("b 5 allow b C3,d3,e3 1") == {"C3", "D3", "E3"}
    assert shown("b 5 avoid b c3,pass 1 avoid w a1 3 avoid b D3 9").isdisjoint({"C3", "D3", "pass"})
    assert shown("w 5 allow w a1 1") == {"A1"}
    vertex = channel.good("kata-genmove_analyze b 5 allow b b2,a1 1").split()[-1]
    assert vertex in ("B2", "A1") and channel.moves() == [vertex]
    for words in ("allow", "allow b", "allow b c3", "avoid x c3 1", "avoid b c3 x"):
        assert channel.bad(f"lz-analyze {words}") == "syntax error"
    assert channel.bad(f"lz-analyze allow w {vertex} 1") == "no legal move is allowed"
