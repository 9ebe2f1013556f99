"""python -m az_mpi analyse: queries of KataGo's analysis engine, many positions at a time, and games in files."""

import json
import os
import queue
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from game_texts import random_records, write
from helpers import loaded_player, make_run

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games import vertices
from az_mpi.games.base import legal_words
from az_mpi.play import analyse, analysis_file
from az_mpi.play.analyse import Analyser
from az_mpi.player import loaded_player as loaded_player_module
from az_mpi.player import pool as pool_module
from az_mpi.player.limits import Limit
from az_mpi.player.session import TREE_BYTES, Session, node_bytes

GO = "go(size=5,komi=7)"
ROOT = Path(__file__).parents[2]
CHESS_PGN = """[White "x"]

1. e4 d5 2. Bb5 Bd7 +- 3. Bxd7 Qxd7 4. Nf3 f5 5. 0-0 c5 6. e5 c4 7. d4 cxd3 e.p. 1-0

[White "y"]

1. a3 *
"""


class Engine:
    """An analyser in this process."""

    def __init__(self, game=GO, at_once=8, report_as="black", on_batch=lambda: None, visits=30):
        self.said = []
        self.analyser = Analyser(loaded_player(game, on_batch), visits, at_once, report_as, self.said.append)

    def ask(self, *queries):
        """Return the answers to some queries, once all of them are there."""
        self.said.clear()
        for query in queries:
            self.analyser.take(query if isinstance(query, str) else json.dumps(query))
        self.analyser.finish()
        return list(self.said)


def moves_of(words):
    return [["BW"[k % 2], word] for k, word in enumerate(words.split())]


def test_each_turn_that_a_query_names_gets_an_answer():
    query = {
        "id": "one",
        "moves": moves_of("C3 D3 C2"),
        "rules": "tromp-taylor",
        "komi": 7,
        "boardXSize": 5,
        "boardYSize": 5,
        "analyzeTurns": [0, 1, 3],
        "maxVisits": 40,
        "includePolicy": True,
        "analysisPVLen": 2,
    }
    answers = Engine().ask(query)
    assert sorted(answer["turnNumber"] for answer in answers) == [0, 1, 3]
    for answer in answers:
        root, moves = answer["rootInfo"], answer["moveInfos"]
        assert answer["id"] == "one" and answer["isDuringSearch"] is False and root["visits"] == 40
        assert root["currentPlayer"] == "BW"[answer["turnNumber"] % 2] and 0 <= root["winrate"] <= 1
        assert sum(move["visits"] for move in moves) == 40
        assert [move["order"] for move in moves] == list(range(len(moves)))
        assert all(move["pv"][0] == move["move"] and len(move["pv"]) <= 2 for move in moves)
        legal = [share for share in answer["policy"] if share >= 0]
        assert len(answer["policy"]) == 26 and sum(legal) == pytest.approx(1)
        assert len(legal) == 26 - answer["turnNumber"]
    [last] = Engine().ask({"id": "last", "moves": moves_of("C3")})
    assert last["turnNumber"] == 1


def test_an_answer_is_what_a_search_of_that_position_alone_finds():
    """However many positions are searched at a time."""
    words = "C3 D3 C2 D2 B4"
    query = {"id": "q", "moves": moves_of(words), "analyzeTurns": list(range(6)), "maxVisits": 60}
    session = Session(loaded_player(GO))
    found = {}
    for turn in range(6):
        session.restart()
        for word in words.split()[:turn]:
            session.play(session.find(word))
        session.think(Limit(simulations=60))
        tried = [move for move in session.moves() if move.visits]
        found[turn] = [(session.line([move.action])[0], move.visits) for move in tried]
    for at_once in (1, 4, 64):
        answers = Engine(at_once=at_once).ask(query)
        assert {a["turnNumber"]: [(m["move"], m["visits"]) for m in a["moveInfos"]] for a in answers} == found


def test_winning_rates_are_of_the_side_that_was_chosen():
    query = {"id": "q", "moves": moves_of("C3")}
    black, white, mover = (Engine(report_as=side).ask(query)[0] for side in ("black", "white", "sidetomove"))
    for part in (lambda a: a["rootInfo"]["winrate"], lambda a: a["moveInfos"][0]["winrate"]):
        assert part(black) == pytest.approx(1 - part(white)) and part(mover) == pytest.approx(part(white))


@pytest.mark.long
def test_stones_komi_and_limits_of_moves_are_obeyed():
    engine = Engine()
    handicap = {"id": "h", "initialStones": [["B", "B2"], ["B", "D4"]], "moves": [["W", "C3"]], "analyzeTurns": [0, 1]}
    answers = {answer["turnNumber"]: answer for answer in engine.ask(handicap)}
    assert [answers[k]["rootInfo"]["currentPlayer"] for k in (0, 1)] == ["W", "B"]
    assert engine.ask({"id": "w", "moves": [], "initialPlayer": "W"})[0]["rootInfo"]["currentPlayer"] == "W"
    passes = [["B", "C3"], ["W", "pass"], ["B", "pass"]]
    over = {k: engine.ask({"id": "k", "moves": passes, "komi": k})[0]["rootInfo"] for k in (24.5, 25.5)}
    assert [over[k]["winrate"] for k in over] == [1, 0] and over[24.5]["isOver"]
    allowed = {"id": "a", "moves": [], "allowMoves": [{"player": "B", "moves": ["A1", "B1"], "untilDepth": 1}]}
    [answer] = engine.ask(allowed)
    assert {move["move"] for move in answer["moveInfos"]} == {"A1", "B1"}
    avoided = {"id": "a", "moves": [], "avoidMoves": [{"player": "B", "moves": ["c3", "pass"], "untilDepth": 9}]}
    [answer] = engine.ask(avoided | {"maxVisits": 200})
    assert {"C3", "pass"}.isdisjoint(move["move"] for move in answer["moveInfos"])
    [answer] = engine.ask({"id": "r", "moves": [["B", "A1"], ["B", "B1"], ["B", "C1"], ["W", "D1"]]})
    assert answer["rootInfo"]["currentPlayer"] == "B"


def test_the_words_of_a_limit_are_looked_up_at_once(monkeypatch):
    looked = []
    monkeypatch.setattr(vertices, "legal_words", lambda *of: looked.append(of) or legal_words(*of))
    engine, words = Engine(visits=2), [f"{column}{row}" for column in "ABCDE" for row in "12345"]
    avoided = [{"player": "B", "moves": words, "untilDepth": 1}]
    looked.clear()
    [answer] = engine.ask({"id": "a", "moves": [], "avoidMoves": avoided})
    assert [move["move"] for move in answer["moveInfos"]] == ["pass"] and len(looked) == 1


@pytest.mark.parametrize(
    "query, field",
    [
        ({"moves": [["B", "Z9"]]}, "moves"),
        ({"moves": [["B", "C3"], ["W", "C3"]]}, "moves"),
        ({"moves": [["X", "C3"]]}, "moves"),
        ({"moves": "C3"}, "moves"),
        ({"moves": [], "boardXSize": 19}, "boardXSize"),
        ({"moves": [], "analyzeTurns": [1]}, "analyzeTurns"),
        ({"moves": [], "maxVisits": 0}, "maxVisits"),
        ({"moves": [], "maxVisits": "9"}, "maxVisits"),
        ({"moves": [], "komi": 1e9}, "komi"),
        ({"moves": [], "initialStones": [["B", "C3"], ["B", "C3"]]}, "initialStones"),
        ({"moves": [], "initialPlayer": "X"}, "initialPlayer"),
        ({"moves": [], "priorities": [1, 2]}, "priorities"),
        ({"moves": [], "allowMoves": [{"player": "B", "moves": ["Z1"], "untilDepth": 1}]}, "allowMoves"),
        ({"moves": [], "initialPosition": "8/8/8/8/8/8/8/8 w - - 0 1"}, "initialPosition"),
        ({"action": "dance"}, "action"),
    ],
)
def test_a_wrong_query_is_answered_with_the_field_that_is_wrong(query, field):
    engine = Engine()
    [answer] = engine.ask({"id": "bad"} | query)
    assert answer["id"] == "bad" and answer["field"] == field and answer["error"]
    assert engine.ask({"id": "good", "moves": []})[0]["moveInfos"]


def test_lines_of_nonsense_never_end_the_analyser():
    engine, rng = Engine(visits=2), random.Random(2)
    for line in ("", "{", "[]", "3", '{"id": 3}', '{"moves": []}', "[" * 100_000, '{"id":"x","moves":[[[]]]}'):
        if line:
            assert "error" in engine.ask(line)[0], line[:20]
    values = [None, 0, -1, 1e300, "x", [], {}, [[]], [None], ["B"], [["B", 3]], [["B", "C3"]], [{"player": "B"}], True]
    keys = "moves initialStones initialPlayer rules komi analyzeTurns maxVisits avoidMoves allowMoves priority"
    keys = [*keys.split(), "reportDuringSearchEvery"]
    for _ in range(150):
        answers = engine.ask({"id": "x"} | {key: rng.choice(values) for key in rng.sample(keys, 3)})
        assert not any("internal" in answer.get("error", "") for answer in answers), answers


def test_what_the_engine_leaves_out_is_told():
    answers = Engine().ask({"id": "w", "moves": [], "includeOwnership": True, "somethingNew": 1, "rules": "japanese"})
    assert {answer["field"] for answer in answers[:-1]} == {"includeOwnership", "somethingNew", "rules"}
    assert all(answer["warning"] and answer["id"] == "w" for answer in answers[:-1]) and answers[-1]["moveInfos"]
    for bonus, scoring, fields in (("0", "AREA", []), ("N-1", "TERRITORY", ["whiteHandicapBonus", "rules"])):
        query = {"id": "w", "moves": [], "whiteHandicapBonus": bonus, "rules": {"scoring": scoring}}
        assert [answer["field"] for answer in Engine(visits=2).ask(query)[:-1]] == fields


def test_a_query_can_be_given_up_and_others_come_first():
    engine = Engine(at_once=1)
    query = {"moves": moves_of("C3 D3"), "analyzeTurns": [0, 1, 2]}
    answers = engine.ask(
        query | {"id": "later"},
        query | {"id": "given up"},
        query | {"id": "first", "priority": 5},
        {"id": "t", "action": "terminate", "terminateId": "given up", "turnNumbers": [0, 1]},
        {"id": "v", "action": "query_version"},
        {"id": "c", "action": "clear_cache"},
    )
    by_id = [answer["id"] for answer in answers]
    assert by_id[:5] == ["given up", "given up", "t", "v", "c"] and all(a["noResults"] for a in answers[:2])
    assert by_id[5:] == ["first"] * 3 + ["later"] * 3 + ["given up"]
    engine.analyser.take(json.dumps(query | {"id": "a", "maxVisits": 1000}))
    engine.analyser.step()
    engine.analyser.step()
    assert len(engine.ask({"id": "x", "action": "terminate_all"})) == 4


def test_reports_are_sent_during_a_search(clock):
    engine = Engine(on_batch=clock.batches(0.01))
    answers = engine.ask({"id": "q", "moves": [], "maxVisits": 100, "reportDuringSearchEvery": 0.25})
    assert [answer["isDuringSearch"] for answer in answers] == [True] * (len(answers) - 1) + [False]
    visits = [answer["rootInfo"]["visits"] for answer in answers]
    assert 2 <= len(answers) <= 6 and visits == sorted(visits) and visits[-1] == 100


@pytest.mark.parametrize(
    "game, name, text, num, last",
    [
        (GO, "a.sgf", "(;GM[1]SZ[5]KM[6.5]AB[bb]PL[W];W[cc];B[dd](;W[aa])(;W[ab]))", 4, "B"),
        ("connect4", "a.txt", "4 4 4 3", 5, "B"),
        ("connect4", "b.pgn", '[White "x"]\n\n1. 4 {good} 4 2. 4! (2. 1 1) 3 1-0\n', 5, "B"),
        ("othello", "c.sgf", "(;GM[2]SZ[8];B[dc];W[cc];B[cd])", 4, "W"),
        (GO, "d.sgf", "(;GM[1]SZ[5]KM[6,5];B[cc])", 2, "W"),
        (GO, "e.sgf", "(;GM[1]SZ[5]KM[];B[cc])", 2, "W"),
        ("chess", "f.pgn", CHESS_PGN, 15, "B"),
    ],
)
def test_every_position_of_a_game_in_a_file_is_analysed(tmp_path, game, name, text, num, last):
    engine = Engine(game, visits=5)
    answers = engine.ask(analysis_file.query(tmp_path / name, text, engine.analyser.player.game))
    assert len(answers) == num and {answer["turnNumber"] for answer in answers} == set(range(num))
    assert next(a for a in answers if a["turnNumber"] == num - 1)["rootInfo"]["currentPlayer"] == last


@pytest.mark.parametrize(
    "game, text, moves",
    [
        ("connect4", "D1 D2 4!", ["D1", "D2", "D3"]),
        ("connect4", '[White "x"]\n\n1. 4 4 *', ["D1", "D2"]),
        ("gomoku", "K10 a1", ["K10", "A1"]),
        ("gomoku", '[White "x"]\n\n1. k10 *', ["L10"]),
        ("connect4", '; exported by x\n[White "x"]\n\n1. 4 4 *', ["D1", "D2"]),
        ("connect4", '% exported by x\n\n[White "x"]\n\n1. 4 {\n% 3} 4\n% 4\n *', ["D1", "D2"]),
        ("connect4", '; exported by x\n[White "x"]\n\n*', []),
    ],
)
def test_words_are_vertices_where_a_file_has_no_tags_and_comments_before_tags_are_no_game(game, text, moves):
    assert analysis_file.query(Path("a.txt"), text, games.make(game))["moves"] == moves


@pytest.mark.parametrize("text", ["", "; a comment", "% a comment\n", "{}\n*\n"])
def test_a_file_without_a_game_is_refused(text):
    with pytest.raises(Refusal, match="it has no game"):
        analysis_file.query(Path("a.txt"), text, games.make("connect4"))


def test_a_file_with_the_name_of_the_runs_own_game_is_analysed(tmp_path, capfd, monkeypatch):
    """The analysis looks beyond the limit of plies, which is a part of the name."""
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    player = loaded_player("openspiel:mancala(max_plies=20)")
    [record] = random_records(player.game, 1)
    write(tmp_path / "a.pgn", player.game, [record])
    monkeypatch.setattr(loaded_player_module, "load_player", lambda _: player)
    monkeypatch.setattr(analyse, "find_network", lambda *_: None)
    monkeypatch.setattr(analyse, "end_on_interrupt", lambda: None)
    assert analyse.main(["run", "--simulations", "2", "--file", str(tmp_path / "a.pgn")]) == 0
    assert len(capfd.readouterr().out.splitlines()) == len(record.moves) + 1


def test_chess_is_analysed_from_a_fen_and_from_pgn():
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    engine = Engine("openspiel:chess(max_plies=200)", visits=4)
    fen = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"
    [answer] = engine.ask({"id": "f", "initialPosition": fen, "moves": ["e2e4", "Ke7"]})
    assert answer["rootInfo"]["currentPlayer"] == "B" and answer["turnNumber"] == 2
    text = f'[FEN "{fen}"]\n[SetUp "1"]\n\n1. e4 Ke7 2. e5 *'
    assert len(engine.ask(analysis_file.query(Path("a.pgn"), text, engine.analyser.player.game))) == 4


def test_moves_of_chess_may_lack_their_signs_in_queries():
    moves = ["e4", "e5", "Bc4", "Nc6", "Qh5", "Nf6"]
    limited = [{"player": "B", "moves": ["Qf7", "e1e2"], "untilDepth": 1}]
    engine = Engine("chess", visits=20)
    [answer] = engine.ask({"id": "a", "moves": moves, "allowMoves": limited})
    assert {move["move"] for move in answer["moveInfos"]} <= {"Qxf7#", "Ke2"} and not answer["rootInfo"]["isOver"]
    [answer] = engine.ask({"id": "o", "moves": [*moves, "Qf7"]})
    assert answer["rootInfo"]["isOver"]


def test_trees_together_take_no_more_memory_than_one_session_may(monkeypatch):
    """And a search for which there is no memory is an error of that query: the others are answered."""
    rooms, new_search = [], loaded_player_module.LoadedPlayer.new_search

    def counted(player, simulations, cache_bytes=0, num_trees=1):
        rooms.append((simulations, num_trees))
        if simulations > 900_000:
            raise MemoryError
        return new_search(player, simulations, cache_bytes, num_trees)

    monkeypatch.setattr(loaded_player_module.LoadedPlayer, "new_search", counted)
    engine = Engine(at_once=64)
    node = node_bytes(engine.analyser.player.game, engine.analyser.player.game.initial(1)[0])
    limited = {"allowMoves": [{"player": "B", "moves": ["A1"], "untilDepth": 1}]}
    queries = [{"id": str(visits), "moves": [], "maxVisits": visits} for visits in (20, 1_000_000, 100_000)]
    engine.analyser.take(json.dumps(queries[2]))
    engine.analyser.step()
    answers = engine.ask({"action": "terminate_all", "id": "t"}, *queries[:2], queries[1] | limited | {"id": "l"})
    assert all(num == 1 or num * room * node <= TREE_BYTES for room, num in rooms)
    assert rooms[0][1] > 1 and rooms[-1][0] < 64_000
    assert {a["id"]: a.get("field") for a in answers[2:]} == {"1000000": "maxVisits", "20": None, "l": "maxVisits"}


def test_after_a_large_search_there_are_many_trees_again_though_more_positions_always_wait(monkeypatch):
    engine, rooms = Engine(at_once=8), []
    start = engine.analyser.player.game.initial(1)[0]
    monkeypatch.setattr(pool_module, "TREE_BYTES", 600 * node_bytes(engine.analyser.player.game, start))
    new_search = loaded_player_module.LoadedPlayer.new_search

    def counted(player, simulations, cache_bytes=0, num_trees=1):
        rooms.append((simulations, num_trees))
        return new_search(player, simulations, cache_bytes, num_trees)

    monkeypatch.setattr(loaded_player_module.LoadedPlayer, "new_search", counted)
    for visits in (300, 290):
        engine.analyser.take(json.dumps({"id": "large", "moves": [], "maxVisits": visits}))
    for _ in range(400):
        engine.analyser.take(json.dumps({"id": "small", "moves": [], "maxVisits": 20}))
        engine.analyser.step()
    assert rooms == [(300, 2), (75, 8)]


def test_searches_that_share_no_batches_take_turns():
    """Each takes memory for its trees: those with other komis, and those of some moves alone."""
    engine, begun = Engine(visits=5), []
    allowed = [{"player": "B", "moves": ["A1", "B1"], "untilDepth": 1}]
    for about in ({}, {"komi": 1}, {"komi": 2}, {"allowMoves": allowed}, {"allowMoves": allowed}):
        engine.analyser.take(json.dumps({"id": "q", "moves": []} | about))
    while engine.analyser._is_busy():
        engine.analyser.step()
        begun.append([pool for pool in engine.analyser._pools.values() if len(pool) > len(pool.waiting)])
    assert max(map(len, begun)) == 2 and len(engine.said) == 5


def test_the_analysis_of_many_positions_takes_far_fewer_batches_than_one_by_one():
    batches = [0]

    def count():
        batches[0] += 1

    nums = {}
    for at_once in (1, 16):
        batches[0] = 0
        engine = Engine(at_once=at_once, on_batch=count, visits=40)
        engine.ask({"id": "q", "moves": moves_of("C3 D3 C2 D2 B4 E4 A1 A5"), "analyzeTurns": list(range(9))})
        nums[at_once] = batches[0]
    assert nums[1] > 6 * nums[16]


@pytest.mark.parametrize("options", [[], ["--output", "new.sgf"]])
@pytest.mark.parametrize(
    "name, says",
    [
        ("missing.sgf", "No such file or directory"),
        ("folder.sgf", "not a plain file"),
        ("pipe.sgf", "not a plain file"),
        ("loop.sgf", "Too many levels of symbolic links"),
        ("plain.txt/a.sgf", "Not a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_before_the_network_is_loaded(tmp_path, name, says, options):
    (tmp_path / "folder.sgf").mkdir()
    os.mkfifo(tmp_path / "pipe.sgf")
    (tmp_path / "loop.sgf").symlink_to("loop.sgf")
    (tmp_path / "plain.txt").touch()
    with pytest.raises(Refusal, match=f"{name} cannot be read: {says}$"):
        analyse.main(["no_such_run", "--file", str(tmp_path / name), *options])


def test_a_link_to_a_file_that_is_not_utf_8_is_analysed(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(loaded_player_module, "load_player", lambda _: loaded_player(GO))
    monkeypatch.setattr(analyse, "find_network", lambda *_: None)
    monkeypatch.setattr(analyse, "end_on_interrupt", lambda: None)
    (tmp_path / "latin.sgf").write_bytes("(;SZ[5]PB[J\xfcrgen];B[cc])".encode("latin-1"))
    (tmp_path / "link.sgf").symlink_to("latin.sgf")
    assert analyse.main(["run", "--simulations", "4", "--file", str(tmp_path / "link.sgf")]) == 0
    assert {json.loads(line)["turnNumber"] for line in capfd.readouterr().out.splitlines()} == {0, 1}


@pytest.mark.process
def test_the_process_answers_all_queries_and_files(tmp_path):
    run = make_run(tmp_path / "run", GO)
    command = [sys.executable, "-m", "az_mpi", "analyse", str(run), "--simulations", "8"]
    asked = "".join(json.dumps({"id": str(k), "moves": moves_of("C3 D3")[:k]}) + "\n" for k in range(3))
    done = subprocess.run(command, cwd=ROOT, input=asked + "nonsense", text=True, capture_output=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and {a["id"] for a in answers if "id" in a} == {"0", "1", "2"} and len(answers) == 4
    (tmp_path / "game.sgf").write_text("(;SZ[5];B[cc];W[dd])")
    done = subprocess.run([*command, "--file", tmp_path / "game.sgf"], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3
    for text in ("(;SZ[9];B[cc])", "(;SZ[5];B[cc];W[cc])", "hello"):
        (tmp_path / "bad.sgf").write_text(text)
        done = subprocess.run([*command, "--file", tmp_path / "bad.sgf"], cwd=ROOT, text=True, capture_output=True)
        assert done.returncode == 2 and "bad.sgf" in done.stderr and "Traceback" not in done.stderr


def test_input_is_read_while_positions_are_searched():
    engine = Engine(on_batch=lambda: time.sleep(0.001), visits=400)
    lines: queue.SimpleQueue = queue.SimpleQueue()
    for line in (json.dumps({"id": "a", "moves": []}), json.dumps({"id": "v", "action": "query_version"}), None):
        lines.put(line)
    engine.analyser.serve(lines)
    assert [answer["id"] for answer in engine.said] == ["v", "a"]
