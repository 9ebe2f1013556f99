"""Files of games come into a run by `import` and out by `games`: whole, once, and as they were."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from game_texts import random_records, write
from helpers import make_config

from az_mpi import games
from az_mpi.__main__ import obey
from az_mpi.core.players import from_mover
from az_mpi.core.problems import Refusal
from az_mpi.records import game_files, import_command
from az_mpi.records.game_records import GameRecord
from az_mpi.storage import imports, lock, run_folder, segment

KINDS = Path(__file__).with_name("kinds.py")


def importing(tmp_path, capsys, *words):
    status = obey(["import", *map(str, words), "--logdir", str(tmp_path / "run")])
    told = capsys.readouterr()
    return status, told.out + told.err


def test_files_with_faults_are_counted_and_the_others_come_in(tmp_path, capsys):
    game = games.make("connect4")
    write(tmp_path / "good.pgn", game, random_records(game, 3))
    (tmp_path / "empty.pgn").write_text("")
    (tmp_path / "wide.pgn").write_bytes("1. 4 1-0".encode("utf-16"))
    (tmp_path / "packed.pgn").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "bytes.pgn").write_bytes(bytes(1000))
    (tmp_path / "long.pgn").write_bytes(b'[Event "x"]\n\n' + b"4 " * 2**20)
    (tmp_path / "latin.pgn").write_bytes('[Event "é"]\n\n1. {} 1-0\n'.format(next(iter("d"))).encode("latin-1"))
    (tmp_path / "half.pgn").write_text((tmp_path / "good.pgn").read_text()[:-30])
    names = ["good", "empty", "wide", "packed", "bytes", "long", "latin", "half", "missing"]
    status, told = importing(tmp_path, capsys, *(tmp_path / f"{name}.pgn" for name in names), "--game", "connect4")
    assert status == 0
    listed = (tmp_path / "run/imports/001-left-out.txt").read_text()
    for name in ("empty", "wide", "packed", "bytes", "long", "half", "missing"):
        assert f"{name}.pgn: " in listed, name
    assert "good.pgn" not in listed and "half.pgn: game 3: " in listed
    entry = json.loads((tmp_path / "run/imports/001.json").read_text())
    by_file = {file["name"].rpartition("/")[2]: file["num_games"] for file in entry["files"]}
    assert by_file["good.pgn"] == 3 and by_file["half.pgn"] == 2 and by_file["long.pgn"] == 0
    assert entry["num_left_out"] == len(listed.splitlines()) == sum(entry["reasons"].values())
    found = [segment.read(path, game) for _, path in segment.paths(tmp_path / "run/games")]
    assert sum(len(record.games) for record in found) == entry["num_games"]


def test_a_file_that_is_there_already_is_noticed_whatever_its_name(tmp_path, capsys):
    game = games.make("tictactoe")
    write(tmp_path / "a.pgn", game, random_records(game, 3))
    (tmp_path / "b.pgn").write_bytes((tmp_path / "a.pgn").read_bytes())
    status, told = importing(tmp_path, capsys, tmp_path / "a.pgn", tmp_path / "b.pgn", "--game", "tictactoe")
    assert status == 0 and "in the run already" in told
    status, told = importing(tmp_path, capsys, tmp_path / "b.pgn", "--game", "tictactoe")
    assert status == 0 and re.search("imported.* 0 games", told)
    write(tmp_path / "c.pgn", game, random_records(game, 2, seed=5))
    assert importing(tmp_path, capsys, tmp_path / "c.pgn", "--game", "tictactoe")[0] == 0
    found = [segment.read(path, game) for _, path in segment.paths(tmp_path / "run/games")]
    ids = np.concatenate([record.games["id"] for record in found])
    assert len(ids) == len(set(ids.tolist())) == 5, "of two imports, each game has an id of its own"
    assert {path.name[:6] for _, path in segment.paths(tmp_path / "run/games")} == {"000000"}


@pytest.mark.parametrize("number, status", [(errno.EIO, 75), (errno.EACCES, 2)])
def test_a_file_that_breaks_off_brings_in_nothing_and_comes_in_later(tmp_path, capsys, monkeypatch, number, status):
    game, games_in = games.make("tictactoe"), game_files.games_in
    write(tmp_path / "a.pgn", game, random_records(game, 3))

    def broken(file, part):
        yield next(games_in(file, part))
        raise OSError(number, "the disk is gone")

    words = tmp_path / "a.pgn", "--game", "tictactoe"
    with monkeypatch.context() as patch:
        patch.setattr(game_files, "games_in", broken)
        found, told = importing(tmp_path, capsys, *words)
    assert found == status and "a.pgn cannot be read: the disk is gone" in told and "Traceback" not in told
    assert not segment.paths(tmp_path / "run/games")
    assert importing(tmp_path, capsys, *words)[0] == 0
    [entry] = imports.entries(tmp_path / "run")
    assert entry["num_games"] == 3


def test_a_file_that_cannot_be_looked_at_now_ends_the_import(tmp_path, capsys, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, "the disk is gone")

    game = games.make("tictactoe")
    for name in ("a.pgn", "b.pgn"):
        write(tmp_path / name, game, random_records(game, 3, seed=ord(name[0])))
    words = tmp_path / "a.pgn", tmp_path / "b.pgn", "--game", "tictactoe"
    with monkeypatch.context() as patch:
        patch.setattr(game_files, "open", broken, raising=False)
        status, told = importing(tmp_path, capsys, *words)
    assert status == 75 and "a.pgn cannot be read: the disk is gone" in told and "Traceback" not in told
    assert not imports.entries(tmp_path / "run") and importing(tmp_path, capsys, *words)[0] == 0


def test_games_of_two_games_do_not_meet_in_one_folder(tmp_path, capsys):
    game = games.make("othello(size=6)")
    write(tmp_path / "a.sgf", game, random_records(game, 2))
    assert importing(tmp_path, capsys, tmp_path / "a.sgf", "--game", "othello(size=6)")[0] == 0
    status, told = importing(tmp_path, capsys, tmp_path / "a.sgf", "--game", "othello")
    assert status == 2 and "imported games are of othello(size=6), not of othello\n" in told
    with pytest.raises(Refusal, match="not of connect4"):
        imports.check_game(tmp_path / "run", "connect4")


def test_an_import_that_another_job_is_doing_is_left_alone(tmp_path, capsys):
    game, folder = games.make("tictactoe"), tmp_path / "run/games" / imports.WAITING
    write(tmp_path / "a.pgn", game, random_records(game, 2))
    folder.mkdir(parents=True)
    held = lock.Lock.take(tmp_path / "run", [lock.me()], "none (import)")
    try:
        status, told = importing(tmp_path, capsys, tmp_path / "a.pgn", "--game", "tictactoe")
    finally:
        held.release()
    assert status == 2 and "another job runs here" in told and folder.is_dir()
    assert importing(tmp_path, capsys, tmp_path / "a.pgn", "--game", "tictactoe")[0] == 0
    assert not folder.exists(), "what an import that was killed has left is removed"


@pytest.mark.long
def test_an_import_that_ends_anywhere_brings_in_all_games_or_none_and_never_twice(tmp_path, capsys, monkeypatch):
    """Each change of a name in turn is the last thing that the import does to the disk."""
    game, run = games.make("tictactoe"), tmp_path / "run"
    records = random_records(game, 60)
    write(tmp_path / "a.pgn", game, records[:20])
    write(tmp_path / "b.pgn", game, records[20:])
    monkeypatch.setattr(import_command, "UNIT_BYTES", 8192)
    monkeypatch.setattr(import_command, "UNIT_BYTES_LEAST", 8192)
    assert importing(tmp_path, capsys, tmp_path / "a.pgn", "--game", "tictactoe")[0] == 0
    shutil.copytree(run, tmp_path / "before")
    seen, num_changes = set(), 0

    def ends_after(num):
        num_left = num

        def limited(change):
            def do(*given, **how):
                nonlocal num_left
                if "games" in str(given[-1]) or "imports" in str(given[-1]):
                    num_left -= 1
                    if num_left < 0:
                        raise OSError(errno.EIO, "the disk is gone")
                return change(*given, **how)

            return do

        for place, name in ((os, "rename"), (os, "replace"), (shutil, "rmtree")):
            patch.setattr(place, name, limited(getattr(place, name)))
        return importing(tmp_path, capsys, tmp_path / "b.pgn", "--game", "tictactoe")

    def stored():
        found = [segment.read_games(path, game) for _, path in segment.paths(run / "games")]
        assert len(set(np.concatenate(found)["id"].tolist())) == sum(map(len, found))
        return sum(map(len, found)), sum(entry["num_games"] for entry in imports.entries(run))

    while "whole" not in seen:
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "before", run)
        with monkeypatch.context() as patch:
            status, told = ends_after(num_changes)
        if status == 0:
            assert stored() == (60, 60)
            seen.add("whole")
        else:
            assert "the disk is gone" in told and "Traceback" not in told
        if num_changes % 2:  # a start of training completes it, too
            run_folder.prepare(run, make_config("tictactoe"), ["here"], fresh=False)
            assert stored() in ((20, 20), (60, 60))
            seen.add(stored()[0])
        assert importing(tmp_path, capsys, tmp_path / "b.pgn", "--game", "tictactoe")[0] == 0
        assert stored() == (60, 60) and not (run / "games" / imports.WAITING).exists()
        num_changes += 1
    assert seen == {20, 60, "whole"} and num_changes > 8


def test_an_import_that_has_lost_its_lock_makes_no_links(tmp_path, capsys, monkeypatch):
    game, link_all = games.make("tictactoe"), segment.link_all
    write(tmp_path / "a.pgn", game, random_records(game, 2))

    def lost(*given, **named):
        shutil.rmtree(tmp_path / "run/lock")
        link_all(*given, **named)

    monkeypatch.setattr(segment, "link_all", lost)
    status, told = importing(tmp_path, capsys, tmp_path / "a.pgn", "--game", "tictactoe")
    assert (
        status == 2 and "the run's folder was renamed or removed" in told and not (tmp_path / "run/games.h5").exists()
    )


def test_nothing_that_fits_and_wrong_options_end_with_status_2(tmp_path, capsys):
    (tmp_path / "a.pgn").write_text("1. x 1-0\n")
    status, told = importing(tmp_path, capsys, tmp_path / "a.pgn", "--game", "connect4")
    assert status == 2 and "illegal move" in told and not segment.paths(tmp_path / "run/games")
    assert importing(tmp_path, capsys, tmp_path / "a.pgn")[0] == 2
    run_folder.prepare(tmp_path / "run", make_config("connect4"), ["here"], fresh=False)
    status, told = importing(tmp_path, capsys, tmp_path / "a.pgn", "--game", "tictactoe")
    assert status == 2 and "is a run of connect4" in told


def test_a_game_that_begins_elsewhere_is_left_out_of_sgf(tmp_path, capsys):
    """SGF as it is written here has no stones set up: another program would read other positions."""
    game = games.make("othello")
    state = game.play(game.initial(1), game.legal(game.initial(1)).argmax(1))[0]
    [record] = random_records(game, 1)
    states, moves = [state], []
    while not game.terminal(states[-1][None])[0][0]:
        moves.append(int(game.legal(states[-1][None])[0].argmax()))
        states.append(game.play(states[-1][None], np.array(moves[-1:]))[0])
    write(
        tmp_path / "a.jsonl",
        game,
        [record, GameRecord(moves, record.result, ("x", "y"), start=game.state_to_text(state))],
    )
    run_folder.prepare(tmp_path / "run", make_config("othello"), ["here"], fresh=False)
    assert importing(tmp_path, capsys, tmp_path / "a.jsonl")[0] == 0
    assert obey(["games", str(tmp_path / "run"), "--output", str(tmp_path / "b.sgf")]) == 0
    assert "left out: 1 that begin" in capsys.readouterr().err
    assert (tmp_path / "b.sgf").read_text().count("(;") == 1


@pytest.mark.parametrize(
    "name, suffix, text",
    [
        ("chess", ".pgn", '[Result "1/2-1/2"]\n\n1. e4 e5 1/2-1/2\n'),
        ("go(size=5)", ".sgf", "(;GM[1]SZ[5]KM[7]RE[B+3.5];B[aa];W[bb])\n"),
    ],
)
def test_nobody_says_how_a_game_ended_that_its_players_ended(tmp_path, capsys, name, suffix, text):
    """The file of an agreed draw says nothing of adjudication, and that of a game that was counted of resigning."""
    (tmp_path / f"a{suffix}").write_text(text)
    assert importing(tmp_path, capsys, tmp_path / f"a{suffix}", "--game", name)[0] == 0
    run_folder.prepare(tmp_path / "run", make_config(name), ["here"], fresh=False)
    assert obey(["games", str(tmp_path / "run"), "--output", str(tmp_path / f"b{suffix}")]) == 0
    written = (tmp_path / f"b{suffix}").read_text()
    assert "Termination" not in written and "GC[" not in written and "+R]" not in written
    assert '[Result "1/2-1/2"]' in written or "RE[B+]" in written


@pytest.mark.parametrize("name", ["Digits", "Rain", "Pig", "Trio"])
def test_games_of_every_kind_come_in_and_are_written_as_they_were(tmp_path, capsys, name):
    """One player, chance, and three players: the moves of chance are replayed, and are no positions to train on."""
    text = f"{KINDS}:{name}"
    game, run = games.make(text), tmp_path / "run"
    records = random_records(game, 5)
    write(tmp_path / "a.jsonl", game, records)
    assert importing(tmp_path, capsys, tmp_path / "a.jsonl", "--game", text)[0] == 0
    run_folder.prepare(run, make_config(text), ["here"], fresh=False)
    assert obey(["games", str(run), "--output", str(tmp_path / "b.jsonl")]) == 0
    before, after = (
        [json.loads(line) for line in (tmp_path / file).read_text().splitlines()] for file in ("a.jsonl", "b.jsonl")
    )
    same = ("moves", "result", "results", "score", "values")
    assert [[row.get(key) for key in same] for row in after] == [[row.get(key) for key in same] for row in before]
    [found] = [segment.read(path, game) for _, path in segment.paths(run / "games")]
    first_player = [record.results or [record.result, -record.result] for record in records]
    for row, record, results in zip(found.games, records, first_player):
        of_game, drawn = (part[part["game"] == row["id"]] for part in (found.positions, found.chance))
        moves = np.full(len(record.moves), -1)
        moves[of_game["ply"]], moves[drawn["ply"]] = of_game["action"], drawn["outcome"]
        assert moves.tolist() == record.moves and len(of_game) + len(drawn) == len(moves)
        assert (len(drawn) > 0) == bool(game.num_outcomes) and row["outcome"] == np.float32(results[0])
        expected = from_mover(np.tile(np.float32(results), (len(of_game), 1)), of_game["to_play"])
        assert (of_game["value"] == (expected if game.num_players > 2 else expected[:, 0])).all()


def test_games_of_a_run_are_chosen_by_number_length_result_and_iteration(tmp_path, capsys):
    game, run = games.make("tictactoe"), tmp_path / "run"
    write(tmp_path / "a.jsonl", game, random_records(game, 30))
    assert importing(tmp_path, capsys, tmp_path / "a.jsonl", "--game", "tictactoe")[0] == 0
    run_folder.prepare(run, make_config("tictactoe"), ["here"], fresh=False)
    before = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]

    def written(*words, status=0):
        file = tmp_path / "out.jsonl"
        file.unlink(missing_ok=True)
        assert obey(["games", str(run), "--output", str(file), *words]) == status, capsys.readouterr().err
        return [json.loads(line) for line in file.read_text().splitlines()] if not status else []

    def moves(rows):
        return [row["moves"] for row in rows]

    assert moves(written()) == moves(before) and [row["number"] for row in written()] == list(range(1, 31))
    assert moves(written("--last", "4")) == moves(before[-4:])
    assert moves(written("--result", "1-0")) == moves([row for row in before if row["result"] == 1])
    assert moves(written("--result", "1-0", "--last", "2")) == moves([row for row in before if row["result"] == 1][-2:])
    longest = sorted((len(row["moves"]) for row in before), reverse=True)[:5]
    assert sorted((len(row["moves"]) for row in written("--longest", "5")), reverse=True) == longest
    assert len(written("--iteration", "0")) == 30 and written("--iteration", "3", status=2) == []
    assert written("--best", "1", status=2) == [], "two players"
    assert written("--output", str(tmp_path / "a.jsonl"), status=2) == [], "a file that is there stays"
    [(_, whole)] = segment.paths(run / "games")
    segment.path_of(run / "games", 5, 0).write_bytes(whole.read_bytes().replace(b"tictactoe", b"tictactoo"))
    capsys.readouterr()
    assert moves(written()) == moves(before) and capsys.readouterr().err.count("its games are missing") == 1


def test_the_best_games_of_one_player_are_chosen(tmp_path, capsys):
    game, run = games.make("2048(max_plies=40)"), tmp_path / "run"
    write(tmp_path / "a.jsonl", game, random_records(game, 12))
    assert importing(tmp_path, capsys, tmp_path / "a.jsonl", "--game", "2048(max_plies=40)")[0] == 0
    run_folder.prepare(run, make_config("2048(max_plies=40)"), ["here"], fresh=False)
    before = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert obey(["games", str(run), "--output", str(tmp_path / "best.jsonl"), "--best", "3"]) == 0
    best = [json.loads(line) for line in (tmp_path / "best.jsonl").read_text().splitlines()]
    assert sorted(row["score"] for row in best) == sorted(row["score"] for row in before)[-3:]
