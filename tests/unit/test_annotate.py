"""analyse --file FILE --output FILE: games of people come out again with what a search thinks of each position."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import loaded_player, make_run

from az_mpi.__main__ import obey
from az_mpi.core.problems import Refusal
from az_mpi.play.analyse import Analyser
from az_mpi.play.annotate import annotate

ROOT = Path(__file__).parents[2]
GO = "go(size=5,komi=7)"


def annotated(folder, game, source, text, output, visits=30):
    """Write `text` to a file named `source`, annotate it, and return (what is in `output`, what was said)."""
    (folder / source).write_text(text)
    said = annotate(loaded_player(game, lambda: None), visits, 8, folder / source, folder / output)
    return (folder / output).read_text(), said


def analysed(game, moves, visits=30, **more):
    """Return the answer of `analyse` about the position after these moves, as JSON."""
    said = []
    analyser = Analyser(loaded_player(game, lambda: None), visits, 8, "black", said.append)
    analyser.take(json.dumps({"id": "q", "moves": moves, **more}))
    analyser.finish()
    return said[-1]


def test_each_position_has_the_value_that_analyse_finds_there(tmp_path):
    text, said = annotated(tmp_path, "connect4", "a.txt", "4 4 4 3 2 *\n", "b.jsonl")
    game = json.loads(text)
    assert game["moves"] == "4 4 4 3 2".split() and game["result"] is None
    assert len(game["values"]) == 6  # with the last position, since the game is not over
    for k, value in enumerate(game["values"]):
        answer = analysed("connect4", game["moves"][:k])
        assert value * (1 - 2 * (k % 2)) == pytest.approx(answer["rootInfo"]["utility"], abs=1e-5)
    assert said.startswith("1 game, 6 positions, ")


def test_a_win_in_one_move_is_the_best_move_of_its_position(tmp_path):
    text, _ = annotated(tmp_path, "connect4", "a.pgn", '[White "Ann"]\n\n1. 4 1 2. 4 1 3. 4 2 *\n', "b.jsonl", 100)
    game = json.loads(text)
    assert game["values"][-1] == 1 and list(game["best"][-1]) == ["4"]
    assert game["players"] == ["Ann", "?"]


def test_pgn_keeps_its_tags_moves_and_results(tmp_path):
    tags = '[Event "Club"]\n[Site "Rome"]\n[Date "1924.02.30"]\n[White "Ann \\"A\\" X"]\n[Black "Bob"]\n'
    tags += '[WhiteElo "1500"]\n'
    games = f'{tags}[Result "1-0"]\n\n1. e4 {{good}} e5 (1... c5) 2. Nf3 1-0\n\n{tags}[Result "*"]\n\n1. d4 *\n'
    text, said = annotated(tmp_path, "chess", "a.pgn", games, "b.pgn", 10)
    first, second = text.split("\n\n[Event")
    for line in tags.splitlines():
        assert line in first and line.removeprefix("[Event") in second
    assert '[Annotator "az_mpi"]' in first and '[Result "1-0"]' in first and '[Result "*"]' in second
    assert first.count("%eval") == 4 and second.count("%eval") == 2  # before each move and after the last one
    assert re.sub(r"\{[^}]*\}|\d+\.+|\s+", " ", first.split("\n\n")[1]).split() == ["e4", "e5", "Nf3", "1-0"]
    assert second.rstrip().endswith("*") and said.startswith("2 games, 6 positions")


def test_sgf_keeps_its_tags_and_is_counted_with_its_komi(tmp_path):
    """Black has the whole board after a pass of White: 25 points are a win by passing with komi 7, but not with 25."""
    values = {}
    for komi in (7, 25):
        game = f"(;GM[1]SZ[5]KM[{komi}]PB[A]PW[B]EV[C\\]]RE[W+R];B[cc];W[])"
        text, _ = annotated(tmp_path, GO, f"{komi}.sgf", game, f"{komi}-out.sgf", 60)
        for tag in (f"KM[{komi}]", "PB[A]", "PW[B]", "EV[C\\]]", "RE[W+R]", "AN[az_mpi]"):
            assert tag in text
        values[komi] = float(re.search(r"W\[\]SBKV\[([\d.]+)\]", text)[1])
    assert values[7] == 100 and values[25] < 100


def test_a_game_with_an_illegal_move_is_left_out_with_its_number(tmp_path, capsys):
    text, said = annotated(tmp_path, "connect4", "a.txt", "4 4 *\n9 *\n3 3 *\n", "b.jsonl")
    assert [json.loads(line)["moves"] for line in text.splitlines()] == [["4", "4"], ["3", "3"]]
    assert said.endswith("; 1 game left out") and "game 2: illegal move: number 1, 9" in capsys.readouterr().err
    with pytest.raises(Refusal, match="no game of connect4"):
        annotated(tmp_path, "connect4", "c.txt", "9 *\n", "d.jsonl")
    assert not (tmp_path / "d.jsonl").exists()


def test_a_game_that_begins_elsewhere_is_not_written_as_sgf(tmp_path, capsys):
    game = loaded_player("othello", lambda: None).game
    start = game.state_to_text(game.play(game.initial(1), game.legal(game.initial(1)).argmax(1))[0])
    word = game.action_to_text(state := game.text_to_state(start), int(game.legal(state[None])[0].argmax()))
    line = json.dumps({"game": "othello", "moves": [word], "start": start, "result": None})
    with pytest.raises(Refusal):
        annotated(tmp_path, "othello", "a.jsonl", line, "b.sgf")
    assert "begins at another position" in capsys.readouterr().err
    text, _ = annotated(tmp_path, "othello", "a.jsonl", line, "c.jsonl")
    assert json.loads(text)["start"] == start


def test_the_name_of_the_game_is_that_of_the_run_so_that_its_own_files_fit(tmp_path):
    """A search looks beyond the limit of plies, which is a part of the name."""
    name = "chess(max_plies=80)"
    line = json.dumps({"game": name, "moves": ["e4", "e5"], "result": 0.5, "event": "Club", "players": ["Ann", None]})
    text, _ = annotated(tmp_path, name, "a.jsonl", line, "b.jsonl", 10)
    game = json.loads(text)
    assert (game["game"], game["event"], game["players"], game["result"]) == (name, "Club", ["Ann", "?"], 0.5)
    again, _ = annotated(tmp_path, name, "b.jsonl", text, "c.jsonl", 10)
    assert json.loads(again)["moves"] == ["e4", "e5"]


def test_a_result_in_points_is_counted_with_the_komi_of_the_file(tmp_path):
    """Black won by 3.5 with komi 0.5; with the 7 of the network White would have won."""
    text, _ = annotated(tmp_path, GO, "a.sgf", "(;SZ[5]KM[0,5]RE[B+3.5]DT[1846-09-11];B[cc];W[dd])", "b.pgn", 10)
    assert '[Result "1-0"]' in text and '[Date "1846-09-11"]' in text and '[Komi "0,5"]' in text
    text, _ = annotated(tmp_path, GO, "c.sgf", "(;SZ[5]KM[-3];B[cc];W[];B[])", "d.sgf", 10)
    assert "RE[B+28]" in text  # by the rules: 25 points and 3


def test_a_komi_that_cannot_be_meant_leaves_a_game_out(tmp_path, capsys):
    with pytest.raises(Refusal):
        annotated(tmp_path, GO, "a.sgf", "(;SZ[5]KM[375];B[cc])", "b.sgf")
    assert "game 1: its komi cannot be counted" in capsys.readouterr().err


@pytest.mark.parametrize("result", ["1-0", "1/2-1/2", "*"])
def test_nothing_is_said_about_how_a_game_of_people_ended(tmp_path, result):
    text, _ = annotated(tmp_path, "chess", "a.pgn", f'[Result "{result}"]\n\n1. e4 e5 {result}\n', "b.pgn", 5)
    assert "Termination" not in text and '[Date "????.??.??"]' in text
    (tmp_path / "b.pgn").unlink()
    told = f'[Result "{result}"]\n[Termination "time forfeit"]\n\n1. e4 e5 {result}\n'
    text, _ = annotated(tmp_path, "chess", "a.pgn", told, "b.pgn", 5)
    assert text.count("Termination") == 1 and '"time forfeit"' in text


def test_names_in_another_encoding_are_read_as_the_file_says(tmp_path):
    game = "(;SZ[5]CA[GB18030]PB[\u5433\u6e05\u6e90];B[cc])".encode("gb18030")
    (tmp_path / "a.sgf").write_bytes(game)
    annotate(loaded_player(GO, lambda: None), 5, 8, tmp_path / "a.sgf", tmp_path / "b.sgf")
    text = (tmp_path / "b.sgf").read_text(encoding="utf-8")
    assert "PB[\u5433\u6e05\u6e90]" in text and "CA[UTF-8]" in text


def test_a_folder_that_may_not_be_written_to_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("4 *\n")
    with pytest.raises(Refusal, match="nothing was written"):
        annotate(loaded_player("connect4", lambda: None), 5, 8, tmp_path / "a.txt", Path("/proc/b.jsonl"))


def test_more_games_than_a_part_holds_come_out_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr("az_mpi.play.annotate.PART_BYTES", 100)
    lines = [f"{1 + k % 7} {1 + k // 7 % 7} *" for k in range(60)]
    text, _ = annotated(tmp_path, "connect4", "a.txt", "\n".join(lines), "b.jsonl", 2)
    assert [" ".join(json.loads(line)["moves"]) + " *" for line in text.splitlines()] == lines


def test_a_file_that_is_there_or_of_another_kind_or_without_games_to_write_is_refused(tmp_path, capsys):
    run = make_run(tmp_path / "run", GO)
    (tmp_path / "a.sgf").write_text("(;SZ[5];B[cc];W[dd])")
    (tmp_path / "b.sgf").write_text("kept")
    for words, fault in (
        (["--output", tmp_path / "c.sgf"], "--file"),
        (["--file", tmp_path / "a.sgf", "--output", tmp_path / "b.sgf"], "is there already"),
        (["--file", tmp_path / "a.sgf", "--output", tmp_path / "b.doc"], ".jsonl"),
        (["--file", tmp_path / "missing.sgf", "--output", tmp_path / "c.sgf"], "missing.sgf"),
    ):
        assert obey(["analyse", str(run), *map(str, words)]) == 2
        assert fault in capsys.readouterr().err
    assert (tmp_path / "b.sgf").read_text() == "kept" and not (tmp_path / "c.sgf").exists()


@pytest.mark.process
def test_the_process_writes_the_file(tmp_path):
    run = make_run(tmp_path / "run", GO)
    (tmp_path / "a.sgf").write_text("(;SZ[5];B[cc];W[dd])")
    words = ["--simulations", "8", "--file", tmp_path / "a.sgf", "--output", tmp_path / "b.sgf"]
    command = [sys.executable, "-m", "az_mpi", "analyse", run, *words]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0 and done.stdout.startswith("1 game, 3 positions")
    assert (tmp_path / "b.sgf").read_text().count("SBKV") == 3


def test_a_command_that_is_interrupted_ends_without_a_traceback(monkeypatch, capsys):
    """Whatever it was doing, such as the analysis of a file of games."""

    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("az_mpi.play.analyse.main", interrupted)
    assert obey(["analyse", "zoo:connect4", "--file", "a.pgn", "--output", "b.pgn"]) == 130
    assert capsys.readouterr() == ("", "")
