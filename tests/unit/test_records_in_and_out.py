"""Games of other programs: what each reader takes and leaves out, and that what is written comes in again unchanged."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import make_config

from az_mpi import games
from az_mpi.__main__ import obey
from az_mpi.core.players import from_mover, of_players
from az_mpi.core.problems import Refusal
from az_mpi.games import chance
from az_mpi.games.random_games import random_actions
from az_mpi.records import game_files, import_command
from az_mpi.records.game_records import GameRecord, Thought, write
from az_mpi.records.pawns import pawns_of, value_of
from az_mpi.records.replaying import MoveWords, replay
from az_mpi.records.written_game import WrittenGame
from az_mpi.storage import imports, lock, run_folder, segment

KINDS = Path(__file__).with_name("kinds.py")
FORMATS = [
    ("connect4", ".pgn"),
    ("connect4", ".jsonl"),
    ("othello(size=6)", ".sgf"),
    ("othello(size=6)", ".pgn"),
    ("go(size=5)", ".sgf"),
    ("go(size=5)", ".jsonl"),
    ("hex(size=5)", ".sgf"),
    ("mnk(m=7,n=6,k=4)", ".sgf"),
    ("breakthrough", ".pgn"),
    ("openspiel:chess(max_plies=60)", ".pgn"),
    ("chess(max_plies=80)", ".pgn"),
    ("chess(max_plies=80)", ".jsonl"),
]


def random_records(game, num, seed=1):
    """Return random games to their end by the rules, with values for the player to move."""
    rng, records = np.random.default_rng(seed), []
    for _ in range(num):
        states, moves, thoughts = game.initial(1), [], []
        while not game.terminal_at(states, len(moves))[0][0]:
            if chance.due(game, states)[0]:
                action = chance.draw(game, states, rng.random(1))
                thoughts.append(None)
            else:
                action = random_actions(game.legal(states), rng.random(1))
                thoughts.append(Thought(float(rng.uniform(-0.9, 0.9)), ((int(action[0]), 0.75),)))
            moves.append(int(action[0]))
            states = game.play(states, action)
        value = game.terminal_at(states, len(moves))[1]
        results = of_players(game.num_players, value, game.to_play(states))[0].tolist()
        more = {"results": results} if game.num_players != 2 else {}
        more |= {"score": float(game.score(states)[0])} if game.score_name else {}
        names = ("x", "y", "z")[: game.num_players]
        records.append(GameRecord(moves, results[0], names, thoughts=thoughts, **more))
    return records


def read_file(game, path, part_bytes=2**30):
    """Return what a file holds, as (the record, why each game is left out)."""
    file = game_files.look(path)
    parts = [part for unit in game_files.units([file.num_bytes], part_bytes) for part in unit]
    texts = [text for part in parts for text in game_files.games_in(file, part)]
    read = game_files.FORMATS[file.format].read
    written = [WrittenGame(fault=fault) if fault else read(text, game) for text, fault in texts]
    return replay(game, written, MoveWords(game))


@pytest.mark.parametrize("name, suffix", FORMATS)
def test_what_is_written_comes_in_again_unchanged(tmp_path, name, suffix):
    game = games.make(name)
    records = random_records(game, 4)
    write(tmp_path / f"games{suffix}", game, records)
    found, faults = read_file(game, tmp_path / f"games{suffix}")
    assert faults == [""] * 4
    ends = np.cumsum(found.games["length"])[:-1]
    actions, values = (np.split(found.positions[column], ends) for column in ("action", "root_value"))
    assert [part.tolist() for part in actions] == [record.moves for record in records]
    assert found.games["outcome"].tolist() == [record.result for record in records]
    for part, record in zip(values, records):
        assert np.allclose(part, [thought.value for thought in record.thoughts], atol=0.002)
    assert (found.policy["action"] == found.positions["action"]).all() and (found.policy["probability"] == 1).all()
    sign = 1 - 2 * found.positions["to_play"].astype(int)
    assert (found.positions["value"] == sign * np.repeat(found.games["outcome"], found.games["length"])).all()
    assert (game.to_play(found.positions["state"]) == found.positions["to_play"]).all()


@pytest.mark.parametrize("name, suffix", [("othello(size=6)", ".sgf"), ("connect4", ".pgn"), ("connect4", ".jsonl")])
def test_the_size_of_parts_changes_nothing(tmp_path, name, suffix):
    """Every game is read once, wherever a part begins: within its tags, its moves or a comment."""
    game = games.make(name)
    write(tmp_path / f"games{suffix}", game, random_records(game, 12))
    whole, _ = read_file(game, tmp_path / f"games{suffix}")
    for part_bytes in (100, 777, 5000):
        parts, faults = read_file(game, tmp_path / f"games{suffix}", part_bytes)
        assert faults == [""] * 12 and parts.positions.tobytes() == whole.positions.tobytes()


def test_pawns_and_values_are_inverse():
    assert value_of(pawns_of(0.37)) == pytest.approx(0.37) and value_of(0) == 0
    assert value_of(1e9) == pytest.approx(1) and abs(pawns_of(1.0)) < 100


CHESS = """\
[Event "a \\"b\\""]
[White "A"]
[Result "1-0"]

1. e4 {[%eval 0.3] a comment (with brackets} e5 $1 (1... c5 2. Nf3 (2. d4 {no [%eval 5]} cxd4)) 2.Bc4?! ; to the end
{ [%eval #-3] } 2... Nc6 3. Qh5 Nf6?? 4. Qxf7# 1-0
"""


def fault_of(game, text, format="pgn"):
    read = game_files.FORMATS[format].read(text, game)
    return replay(game, [read], MoveWords(game))[1][0]


def test_variations_and_notes_are_passed_over_and_evals_become_values():
    game = games.make("openspiel:chess(max_plies=60)")
    written = game_files.FORMATS["pgn"].read(CHESS, game)
    assert list(written.words) == "e4 e5 Bc4 Nc6 Qh5 Nf6 Qxf7".split() and written.result == 1
    assert written.values == {1: pytest.approx(value_of(0.3)), 3: -1.0}
    record, faults = replay(game, [written], MoveWords(game))
    assert faults == [""]
    expected = [1, -value_of(0.3), 1, 1, 1, -1, 1]  # for the player to move: without a value, the result
    assert record.positions["root_value"].tolist() == pytest.approx(expected)
    assert record.positions["value"].tolist() == [1, -1, 1, -1, 1, -1, 1]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("1. e4 e5 2. Ke3 1-0", "illegal move: number 3, Ke3"),
        ("1. e4 e5 *", "no result"),
        ("1. e4 e5", "no result"),
        ("1-0", "no moves"),
        ("1. e4 1-0 e5", "moves after the result"),
        ('[Variant "Atomic"]\n\n1. e4 1-0', "another game: Atomic"),
        ("1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4. Qxf7# 0-1", "another result: -1, by the rules +1"),
        ("1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4. Qxf7# Ke7 1-0", "continues after move 7, where the rules end it"),
        ('[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]\n\n1. e4 1-0', "begins at another position"),
        ("1. e4 -- 1-0", "illegal move: number 2, --"),
        ("1. " + "Nf3 Nf6 Ng1 Ng8 " * 1 + "e4 " * 400 + "1-0", "illegal move: number 6, e4"),
    ],
)
def test_a_game_of_chess_that_does_not_fit_is_left_out_with_its_reason(text, reason):
    assert fault_of(games.make("openspiel:chess(max_plies=60)"), text) == reason


@pytest.mark.parametrize(
    "text, reason",
    [
        ("(;GM[1]SZ[19];B[aa])", "another size: 19"),
        ("(;GM[1];B[aa])", "another size: 19"),
        ("(;GM[2]SZ[5];B[aa])", "another game: GM[2]"),
        ("(;GM[1]SZ[5]HA[2]AB[bb][dd];W[cc]RE[B+R])", "begins at another position: stones are set up"),
        ("(;GM[1]SZ[5]RE[B+R];B[aa];W[aa])", "illegal move: number 2, #0"),
        ("(;GM[1]SZ[5]RE[B+R];B[aa];B[bb])", "illegal move: number 2 is out of turn"),
        ("(;GM[1]SZ[5]RE[Void];B[aa])", "no result"),
        ("(;GM[1]SZ[5]RE[B+R];B[aa];W[b", "not readable: the game is not whole"),
        ("(;GM[1]SZ[5]RE[B+R];B[zz])", "illegal move: number 1, zz"),
        ("nonsense", "not readable: no tree of SGF"),
    ],
)
def test_a_game_of_go_that_does_not_fit_is_left_out_with_its_reason(text, reason):
    assert fault_of(games.make("go(size=5)"), text, "sgf") == reason


def test_the_points_of_a_game_of_go_are_counted_with_the_komi_of_this_one():
    game = games.make("go(size=5,komi=7)")
    tree = "(;GM[1]SZ[5]KM[{}]RE[{}](;B[cc];W[cd](;B[bc])(;B[bd]));B[aa])"
    for komi, result, outcome in ((0, "B+3", -1), (0, "B+9.5", 1), (7, "W+2", -1), (0, "B+R", 1), (0, "B+7", 0)):
        record, faults = replay(
            game, [game_files.FORMATS["sgf"].read(tree.format(komi, result), game)], MoveWords(game)
        )
        assert faults == [""] and record.games["outcome"].tolist() == [outcome]
        assert len(record.positions) == 3, "the first variation is the main line"


@pytest.mark.parametrize(
    "line, reason",
    [
        ("{", "not readable"),
        ('{"moves": "abc"}', "not readable"),
        ('{"moves": [], "result": 0}', "no moves"),
        ('{"moves": ["1"], "result": 7}', "not readable"),
        ('{"moves": ["1"], "result": 0, "game": "go"}', "another game"),
        ('{"moves": ["1"], "result": 0, "values": ["x"]}', "not readable"),
        ('{"moves": ["1"], "result": 0, "start": "x"}', "begins at another position"),
        ("[1]", "not readable"),
        ("[" * 100_000, "not readable"),
    ],
)
def test_a_line_that_does_not_fit_is_left_out_with_its_reason(line, reason):
    assert fault_of(games.make("connect4"), line, "jsonl").partition(":")[0] == reason


def test_the_plain_form_takes_moves_with_and_without_numbers_and_a_result():
    game = games.make("tictactoe")
    words = [game.action_to_text(game.initial(1)[0], action) for action in (0, 3, 1, 4, 2)]
    lines = [
        " ".join(words),
        "1. {} {} 2. {} {} 3. {} 1-0".format(*words),
        f"{words[0]} 1/2-1/2",
        f"{words[0]} *",
        "x y",
    ]
    read = [game_files.FORMATS["plain"].read(line, game) for line in lines]
    record, faults = replay(game, read, MoveWords(game))
    assert faults[:4] == ["", "", "", "no result"] and faults[4].startswith("illegal move")
    assert record.games["outcome"].tolist() == [1, 1, 0]


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


@pytest.mark.parametrize("players", ["5", "true", '"Ann"', '["Ann", null]', "{}", "null"])
def test_players_of_any_kind_in_json_lose_no_game(tmp_path, players):
    (tmp_path / "a.jsonl").write_text(f'{{"moves": ["4"], "result": 1, "players": {players}}}\n')
    record, faults = read_file(games.make("connect4"), tmp_path / "a.jsonl")
    assert faults == [""] and len(record.games) == 1


@pytest.mark.parametrize("suffix", [".pgn", ".jsonl"])
def test_a_game_that_begins_elsewhere_is_written_with_its_start(tmp_path, suffix):
    """Here Black moves first: whose view a value has follows from the position."""
    game = games.make("chess")
    start = "4k3/8/8/8/8/8/3q4/K7 b - - 0 1"
    moves, state = [], game.text_to_state(start)
    for word in ("Kd7", "Kb1", "Kc6"):
        moves.append(game.text_to_action(state, word))
        state = game.play(state[None], np.array(moves[-1:]))[0]
    thoughts = [Thought(value) for value in (0.8, -0.7, 0.9)]
    write(tmp_path / f"x{suffix}", game, [GameRecord(moves, -1.0, ("x", "y"), "resigned", thoughts, start)])
    record, faults = read_file(game, tmp_path / f"x{suffix}")
    assert faults == [""] and record.positions["action"].tolist() == moves
    assert record.positions["value"].tolist() == [1, -1, 1] and record.games["outcome"].tolist() == [-1]
    assert record.positions["root_value"].tolist() == pytest.approx([0.8, -0.7, 0.9], abs=0.002)
    assert game.state_to_text(record.positions["state"][0]) == start


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


@pytest.mark.long
@pytest.mark.parametrize("name, suffix", [("othello(size=6)", ".sgf"), ("chess", ".pgn"), ("connect4", ".jsonl")])
def test_no_damage_to_a_file_ends_the_import(tmp_path, name, suffix):
    """Whatever a file holds, each game comes in or has a reason, and what comes in was played by the rules."""
    game, rng = games.make(name), np.random.default_rng(4)
    write(tmp_path / f"a{suffix}", game, random_records(game, 2, seed=7))
    content = bytearray((tmp_path / f"a{suffix}").read_bytes())
    for _ in range(120):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 6)):
            at = int(rng.integers(len(damaged)))
            kind = rng.integers(4)
            if kind == 0:
                damaged[at] = int(rng.integers(1, 256))
            elif kind == 1:
                del damaged[at : at + int(rng.integers(1, 50))]
            elif kind == 2:
                damaged[at:at] = bytes(rng.choice(list(b'[]{}()"\\;\n\r\t #*-01'), 3).tolist())
            else:
                damaged[at:at] = damaged[:at][-40:]
        (tmp_path / f"b{suffix}").write_bytes(damaged)
        record, faults = read_file(game, tmp_path / f"b{suffix}", 500)
        assert len(record.games) == faults.count("")
        assert game.legal(record.positions["state"])[np.arange(len(record.positions)), record.positions["action"]].all()
        assert np.isfinite(record.positions["root_value"]).all() and (np.abs(record.positions["root_value"]) <= 1).all()


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


def test_what_chance_cannot_draw_is_left_out_with_its_reason(tmp_path):
    """Rain puts its first two drops on different cells."""
    game = games.make(f"{KINDS}:Rain")
    read = game_files.FORMATS["jsonl"].read
    for words, reason in (
        (["1", "1"], "illegal move: number 2, 1"),
        (["7"], "illegal move: number 1, 7"),
        (["1", "2"], "no result"),
    ):
        assert replay(game, [read(json.dumps({"moves": words}), game)], MoveWords(game))[1] == [reason]
    done = read(json.dumps({"moves": ["1", "2"], "result": 0.5}), game)
    assert replay(game, [done], MoveWords(game))[1] == ["no moves"]


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
