"""Files of games: what each reader takes and leaves out, and that what is written comes in again unchanged."""

import json
from pathlib import Path

import numpy as np
import pytest
from game_texts import fault_of, random_records, read_file, write

from az_mpi import games
from az_mpi.games import mnk
from az_mpi.games.guard import guarded
from az_mpi.records import game_files
from az_mpi.records.game_records import GameRecord, Thought, to_pgn, to_sgf
from az_mpi.records.pawns import pawns_of, value_of
from az_mpi.records.replaying import MoveWords, replay
from az_mpi.records.written_game import WrittenGame

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


def test_a_sign_that_tells_two_moves_apart_is_read():
    """In shogi `+` promotes, in either order of the two words; in chess a sign may be missing."""
    game = games.make("openspiel:shogi")
    for order in (("8h2b", "8h2b+"), ("8h2b+", "8h2b")):
        words, state = MoveWords(game), game.initial(1)
        for word in ("7g7f", "3c3d"):
            state = game.play(state, words.find(state, [word]))
        for word in order:
            assert game.action_to_text(state[0], words.find(state, [word])[0]) == word
            for note in ("!", "?!"):
                assert game.action_to_text(state[0], words.find(state, [word + note])[0]) == word
        assert words.find(state, ["8h2b#"])[0] == -1, "it may be either of two moves"


@pytest.mark.parametrize("name, suffix", [("othello(size=6)", ".sgf"), ("connect4", ".pgn"), ("connect4", ".jsonl")])
def test_the_size_of_parts_changes_nothing(tmp_path, name, suffix):
    """Every game is read once, wherever a part begins: within its tags, its moves or a comment."""
    game = games.make(name)
    write(tmp_path / f"games{suffix}", game, random_records(game, 12))
    whole, _ = read_file(game, tmp_path / f"games{suffix}")
    for part_bytes in (100, 777, 5000):
        parts, faults = read_file(game, tmp_path / f"games{suffix}", part_bytes)
        assert faults == [""] * 12 and parts.positions.tobytes() == whole.positions.tobytes()


@pytest.mark.parametrize("part_bytes", [60, 2**20])
def test_a_byte_order_mark_before_the_tags_changes_nothing(tmp_path, part_bytes):
    """Files that were joined have one in their middle, too."""
    text = '\ufeff[Event "x"]\n[Variant "tictactoe"]\n[Result "1-0"]\n\n1. b2 1-0\n\n'
    (tmp_path / "a.pgn").write_text(text * 3)
    record, faults = read_file(games.make("tictactoe"), tmp_path / "a.pgn", part_bytes)
    assert faults == [""] * 3 and len(record.games) == 3


def test_a_tree_that_is_not_closed_spoils_no_other_game(tmp_path):
    head, moves = "(;GM[1]SZ[5]RE[B+R]", ";B[aa](;W[bb]C[(;x])(;W[cc])"
    (tmp_path / "a.sgf").write_text(f"{head}{moves})\n{head}{moves}\n{head}{moves})\n{head}{moves})\n")
    record, faults = read_file(games.make("go(size=5)"), tmp_path / "a.sgf")
    assert faults == [""] * 4 and record.games["length"].tolist() == [2] * 4


@pytest.mark.parametrize(
    "head", ["AP[x]C[(;]PB[a]PW[b]RE[B+R]", "GaMe[1]SiZe[5]REsult[B+R]", "CA[UTF-8]KM[6.5]RE[B+R]SZ[5]"]
)
def test_games_are_found_anywhere_by_any_property_of_a_game(tmp_path, head):
    """Those in the later parts of a file, too."""
    size = "" if "i" in head or "SZ" in head else "SZ[5]"
    (tmp_path / "a.sgf").write_text(f"(;{head}{size};B[aa](;W[bb])(;W[cc]))\n" * 40)
    _, faults = read_file(games.make("go(size=5)"), tmp_path / "a.sgf", 200)
    assert faults == [""] * 40


def test_games_whose_beginnings_cannot_be_told_are_no_silent_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(game_files, "GAME_BYTES_MAX", 300)
    (tmp_path / "a.sgf").write_text("(;AP[x];B[aa]RE[B+R]SZ[5])\n" * 40)
    _, faults = read_file(games.make("go(size=5)"), tmp_path / "a.sgf", 200)
    assert faults[:-1] == [""] * (len(faults) - 1) and "nothing tells where the games after it begin" in faults[-1]


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
    wins = (
        (0, "B+3", -1),
        (0, "B+9.5", 1),
        (7, "W+2", -1),
        (0, "B+R", 1),
        (0, "B+7", 0),
        ("0,5", "B+3", -1),
        ("", "B+3", 1),
    )
    for komi, result, outcome in wins:
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
        ('{"moves": ["1"], "result": 1%s}' % ("0" * 400), "not readable"),
        ('{"moves": ["1"], "result": 0, "values": [-1%s]}' % ("0" * 400), "not readable"),
        ('{"moves": ["#%s"], "result": 0}' % ("1" * 5000), "illegal move"),
        ("[1]", "not readable"),
        ("[" * 100_000, "not readable"),
    ],
)
def test_a_line_that_does_not_fit_is_left_out_with_its_reason(line, reason):
    assert fault_of(games.make("connect4"), line, "jsonl").partition(":")[0] == reason


def test_what_a_game_of_ones_own_takes_for_a_move_is_played_where_it_is_legal_alone():
    """Its numbers are read, too, where it finds words many at a time."""
    own = {
        "text_to_action": lambda self, state, text: 4,
        "texts_to_actions": lambda self, states, texts: [-1] * len(texts),
    }
    for methods in ({"text_to_action": own["text_to_action"]}, own):
        game = guarded(type("Own", (mnk.Rules,), methods | {"__module__": __name__})())
        written = [WrittenGame(words, 1.0) for words in (["x", "#3"], ["y", "z"])]
        record, faults = replay(game, written, MoveWords(game))
        assert faults == ["", "illegal move: number 2, z"] and record.positions["action"].tolist() == [4, 3]


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


@pytest.mark.parametrize("key", ["game", "start", "values", "results", "tags", "event", "players", "note"])
def test_null_in_json_is_as_if_it_were_not_there(tmp_path, key):
    (tmp_path / "a.jsonl").write_text(f'{{"moves": ["4"], "result": 1, "{key}": null}}\n')
    assert read_file(games.make("connect4"), tmp_path / "a.jsonl")[1] == [""]


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


@pytest.mark.parametrize("name", ["openspiel:tic_tac_toe", "openspiel:nim", "odd"])
def test_moves_of_any_text_come_back_from_pgn(tmp_path, name):
    """Texts of OpenSpiel have brackets and spaces; others would be taken for numbers, results, comments or notes."""
    game = games.make("tictactoe" if name == "odd" else name)
    odd = ["1-0", "*", "1.5", "#4", "a}", "(b", "c d", "!?", "$1"]
    if name == "odd":
        game.action_to_text = lambda state, action: odd[action]
    records = random_records(game, 5)
    write(tmp_path / "a.pgn", game, records)
    found, faults = read_file(game, tmp_path / "a.pgn")
    assert faults == [""] * 5
    assert found.positions["action"].tolist() == [move for record in records for move in record.moves]
    told = [thought.value for record in records for thought in record.thoughts]
    assert np.allclose(found.positions["root_value"], told, atol=0.002)


def test_a_tag_of_pgn_is_one_line(tmp_path):
    record = GameRecord([4], 1.0, ("a\nb", "c"), "resigned", event='1\n[Result "0-1"]', tags={"Note": "x\r\n\r\ny"})
    write(tmp_path / "a.pgn", games.make("tictactoe"), [record])
    [(text, _)] = game_files.games_in(game_files.look(tmp_path / "a.pgn"), game_files.Part(0, 0, 2**20))
    written = game_files.FORMATS["pgn"].read(text, games.make("tictactoe"))
    assert written.names == ("a b", "c") and written.tags["Event"] == '1 [Result "0-1"]' and written.result == 1
    assert written.tags["Note"] == "x y"


def test_values_stay_with_their_positions_where_passes_are_put_in():
    """Files of Othello may leave out passes: the value of the position before one is that after the move before it."""
    game = games.make("othello(size=4)")
    record = next(one for one in random_records(game, 40) if 1 <= one.moves.count(16) <= 2 and one.moves[-1] != 16)
    lines = to_sgf(game, record).rstrip(")\n").split("\n")
    text = "\n".join(line for line in lines if not line.startswith((";B[]", ";W[]"))) + ")"
    [written] = [game_files.FORMATS["sgf"].read(text, game)]
    found, faults = replay(game, [written], MoveWords(game))
    assert faults == [""] and found.positions["action"].tolist() == record.moves
    told = [thought.value for thought in record.thoughts]
    # The value after a pass is not in the file: it is the result.
    expected = [found.positions["value"][k] if k and record.moves[k - 1] == 16 else told[k] for k in range(len(told))]
    assert np.allclose(found.positions["root_value"], expected, atol=0.002)


def test_moves_are_numbered_on_from_the_position_of_the_fen():
    game = games.make("chess")
    for mover, words in (("w", "12. Ka2 Kd7 13. Ka3"), ("b", "12... Kd7 13. Ka2 Kd6")):
        start = f"4k3/8/8/8/8/8/8/K7 {mover} - - 3 12"
        moves, state = [], game.text_to_state(start)
        for word in [word for word in words.split() if word[0] == "K"]:
            moves.append(game.text_to_action(state, word))
            state = game.play(state[None], np.array(moves[-1:]))[0]
        assert to_pgn(game, GameRecord(moves, 0.0, ("x", "y"), start=start)).endswith(f"\n\n{words} 1/2-1/2\n")


def test_a_game_of_chess960_is_written_with_its_start_position_and_comes_in_again(tmp_path):
    game, chess = games.make("chess(chess960=True)"), games.make("chess")
    [record] = random_records(game, 1)
    later = game.play(game.initial(1), np.array(record.moves[:1]))[0]
    cut = GameRecord(record.moves[1:5], 1.0, ("x", "y"), "resigned", start=game.state_to_text(later))
    write(tmp_path / "a.pgn", game, [record, cut])
    text = (tmp_path / "a.pgn").read_text()
    assert text.count('[Variant "Chess960"]') == text.count('[SetUp "1"]') == text.count('[FEN "') == 2
    found, faults = read_file(game, tmp_path / "a.pgn")
    assert faults == ["", ""] and found.positions["action"].tolist() == record.moves[1:] + record.moves[1:5]
    assert game.state_to_text(found.positions["state"][0]) == game.state_to_text(later)
    told = [thought.value for thought in record.thoughts[1:]]
    assert np.allclose(found.positions["root_value"][: len(told)], told, atol=0.002)
    assert set(read_file(chess, tmp_path / "a.pgn")[1]) == {"another game: Chess960"}


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
