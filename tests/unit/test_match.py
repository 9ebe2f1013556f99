"""python -m az_mpi match and ladder, on one rank; the files of games; sequential tests and ratings."""

import argparse
import errno
import json
import math
import re
import shutil

import numpy as np
import pytest
from helpers import make_run

from az_mpi import games
from az_mpi.__main__ import main
from az_mpi.core.printing import OutputFailed
from az_mpi.core.problems import Refusal
from az_mpi.evaluate import ladder, match, rating
from az_mpi.evaluate.tally import Played
from az_mpi.games.base import legal_words, positions
from az_mpi.games.random_games import random_actions
from az_mpi.records import game_records
from az_mpi.records.game_records import GameRecord

TICTACTOE = games.make("tictactoe")


def moves_of(game, *words):
    state, moves = game.initial(1)[0], []
    for word in words:
        moves.append(game.text_to_action(state, word))
        state = game.play(state[None], np.array(moves[-1:]))[0]
    return moves


def random_game(game, seed):
    """Return (the moves of a random game, its result for the player who began)."""
    rng, states, moves = np.random.default_rng(seed), game.initial(1), []
    while not game.terminal(states)[0][0]:
        moves += random_actions(game.legal(states), rng.random(1)).tolist()
        states = game.play(states, np.array(moves[-1:]))
    value = float(game.terminal(states)[1][0])
    return moves, -value if game.to_play(states)[0] else value


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with the untrained networks 1, 2, 3 and, as the best one, 5."""
    return make_run(tmp_path_factory.mktemp("match") / "run", "tictactoe", (1, 2, 3), best=(5,))


def play(capsys, *arguments):
    """Return (status, what was printed on standard output)."""
    status = main([str(word) for word in arguments])
    return status, capsys.readouterr().out


# sequential tests and ratings


def test_the_log_likelihood_ratio_is_the_one_by_hand():
    """Where pairs score 0.25 or 0.75, the expected score says how likely either is: 0.5 (Elo 0), 0.64 (Elo 100)."""
    s = 1 / (1 + 10 ** (-100 / 400))
    high, low = (s - 0.25) / 0.5, (0.75 - s) / 0.5
    ratio = rating.log_likelihood_ratio([0, 10, 0, 20, 0], 0, 100)
    assert ratio == pytest.approx(20 * math.log(high / 0.5) + 10 * math.log(low / 0.5), rel=1e-2)
    # Four pairs of one win each: most likely at 0.64 is that others are won twice, 1 - 2 (0.64 - 0.5) are not.
    ratio = rating.log_likelihood_ratio([0, 0, 4, 0, 0], 0, 100)
    assert ratio == pytest.approx(4 * math.log(1 - 2 * (s - 0.5)), rel=2e-2)


def test_the_ratio_has_the_sign_of_the_better_hypothesis():
    assert rating.log_likelihood_ratio([0, 0, 0, 0, 30], 0, 50) > rating.SPRT_BOUND
    assert rating.log_likelihood_ratio([30, 0, 0, 0, 0], 0, 50) < -rating.SPRT_BOUND
    mirrored = rating.log_likelihood_ratio([3, 4, 9, 6, 2], -20, 20)
    assert rating.log_likelihood_ratio([2, 6, 9, 4, 3], -20, 20) == pytest.approx(-mirrored)
    assert rating.SPRT_BOUND == pytest.approx(2.944, abs=1e-3)


def test_the_sequential_test_errs_as_rarely_as_it_claims():
    """Pairs of games between equal players, at random: within 2,000 pairs it accepts H1 in about one of 20 matches."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(100):
        pairs = np.zeros(5, int)
        for scores in rng.integers(0, 5, (400, 5)):
            pairs += np.bincount(scores, minlength=5)
            ratio = rating.log_likelihood_ratio(pairs, 0, 40)
            if abs(ratio) >= rating.SPRT_BOUND:
                wrong += ratio > 0
                break
    assert wrong <= 12


def test_openings_that_decide_their_games_are_no_evidence():
    """A is 50 Elo better and wins both games of one opening in seven; of all others each side wins one."""
    rng, wrong = np.random.default_rng(1), 0
    twice = 2 * rating.expected_score(50) - 1
    for _ in range(100):
        pairs, ratio = [0] * 5, 0.0
        while abs(ratio) < rating.SPRT_BOUND:
            pairs[4 if rng.random() < twice else 2] += 1
            ratio = rating.log_likelihood_ratio(pairs, 0, 50)
        wrong += ratio < 0
    assert wrong <= 15


def test_two_players_differ_by_their_score():
    """75 of 100 points, with the drawn game that is added 75.5 of 101."""
    elo, error = rating.bradley_terry(np.array([[0, 25], [75, 0.0]]))
    assert elo.tolist() == [0, pytest.approx(rating.elo(75.5 / 101))] and error[0] == 0
    share = 75.5 / 101
    assert error[1] == pytest.approx(400 / math.log(10) / math.sqrt(101 * share * (1 - share)))


def test_rate_finds_the_ratings_that_made_the_points():
    """Three players whose points are what their ratings let expect; the last one's errors add up along the chain."""
    true, points = np.array([0, 120, 210]), np.zeros((3, 3))
    for i, j in ((0, 1), (1, 2)):
        points[i, j] = 1e6 * rating.expected_score(true[i] - true[j])
        points[j, i] = 1e6 - points[i, j]
    elo, error = rating.bradley_terry(points)
    assert elo == pytest.approx(true, abs=0.01) and 0 == error[0] < error[1] < error[2]


def test_a_player_who_wins_all_games_has_a_finite_rating():
    elo, error = rating.bradley_terry(np.array([[0, 0], [20, 0.0]]))
    assert 300 < elo[1] < 1500 and np.isfinite(error).all()


def test_players_are_linked_by_their_own_matches_and_by_those_of_others():
    """a and c have met b; d and e have met only each other; f has met nobody."""
    pairs = [("a", "b"), ("d", "e"), ("c", "b")]
    assert rating.connected(pairs, "a") == rating.connected(pairs, "c") == {"a", "b", "c"}
    assert rating.connected(pairs, "e") == {"d", "e"} and rating.connected(pairs, "f") == {"f"}


@pytest.mark.parametrize("num", [2, 3, 7, 40])
def test_all_players_of_a_ladder_are_linked_by_neighbours(num):
    pairs = ladder.meetings(num)
    assert pairs[: num - 1] == [(k, k + 1) for k in range(num - 1)] and len(set(pairs)) == len(pairs)
    assert all(0 <= i < j < num for i, j in pairs) and len(pairs) <= num * math.ceil(math.log2(num))


# files of games


def test_a_game_of_go_as_sgf():
    """Row and column are counted from the top left; the pass is empty. White has 7 points more than Black's none."""
    game = games.make("go(size=5,komi=7)")
    record = GameRecord(moves_of(game, "C4", "A1", "pass", "pass"), -1.0, ("me", "a]b"))
    text = game_records.to_sgf(game, record)
    assert text.startswith("(;GM[1]FF[4]") and "SZ[5]" in text and "KM[7]" in text and "PW[a\\]b]" in text
    assert ";B[cb];W[ae];B[];W[])" in text.replace("\n", "") and "RE[W+7]" in text


@pytest.mark.parametrize(
    "name,words,shown",
    [
        ("hex(size=3,swap=True)", ["b2", "swap", "a1"], ";B[b2];W[swap-pieces];B[a1]"),
        ("othello", ["d3", "c3"], ";B[dc];W[cc]"),
        ("gomoku", ["a1", "o15"], ";B[ao];W[oa]"),
    ],
)
def test_games_other_than_go_as_sgf(name, words, shown):
    game = games.make(name)
    assert shown in game_records.to_sgf(game, GameRecord(moves_of(game, *words), 0.0, ("x", "y"))).replace("\n", "")


def test_the_record_of_a_game_that_was_given_up_says_why():
    record = GameRecord([4], 1.0, ("x", 'y"'), "gtp engine has ended")
    assert all(part in game_records.to_sgf(TICTACTOE, record) for part in ("RE[B+F]", "GC[gtp engine has ended]"))
    assert "RE[B+R]" in game_records.to_sgf(TICTACTOE, record._replace(note="resigned"))
    text = game_records.to_pgn(TICTACTOE, record)
    assert '[Termination "gtp engine has ended"]' in text and '[Black "y\\""]' in text and text.endswith("1. b2 1-0\n")


def test_a_game_that_a_limit_cut_is_marked_in_its_record():
    """That does not depend on how the match counts it. A game that the rules ended on the last ply has no mark."""
    game = games.make("go(size=3,komi=0,max_plies=3)")
    cut, passed = (
        GameRecord(moves_of(game, *words.split()), 1.0, ("x", "y")) for words in ("B2 pass A1", "B2 pass pass")
    )
    assert '[Termination "adjudication"]' in game_records.to_pgn(game, cut) and "GC[" in game_records.to_sgf(game, cut)
    assert "Termination" not in game_records.to_pgn(game, passed) and "GC[" not in game_records.to_sgf(game, passed)
    unfinished = GameRecord(moves_of(TICTACTOE, "a1", "a2"), 0.0, ("x", "y"))  # of a game whose rules know no limit
    assert '[Termination "adjudication"]' in game_records.to_pgn(TICTACTOE, unfinished)
    assert '[Termination "resigned"]' in game_records.to_pgn(TICTACTOE, unfinished._replace(note="resigned"))


def test_a_chess_match_of_cut_games_and_its_pgn_have_the_same_score(capsys, tmp_path):
    """Games of 12 plies, which count for who has more material."""
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    name = "openspiel:chess(max_plies=12,truncated='material')"
    status, out = play(
        capsys, "match", "random", "random", "--game", name, "--games", 20, "--json", "--games_file", tmp_path / "x.pgn"
    )
    result, text = json.loads(out), (tmp_path / "x.pgn").read_text()
    first = sum(map(int, (result["as_first"][0], result["as_second"][2])))  # won by who began
    second = sum(map(int, (result["as_first"][2], result["as_second"][0])))
    assert status == 0 and (text.count('"1-0"'), text.count('"0-1"')) == (first, second) and first + second > 0
    assert text.count('[Termination "adjudication"]') == text.count("[Result ") == 20


def test_python_chess_reads_the_pgn_of_a_random_game():
    pgn = pytest.importorskip("chess.pgn", reason="python-chess is not installed")
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    import io

    game = games.make("openspiel:chess(max_plies=120)")
    moves, result = random_game(game, 3)
    read = pgn.read_game(io.StringIO(game_records.to_pgn(game, GameRecord(moves, result, ("a", "b")))))
    assert not read.errors and len(list(read.mainline_moves())) == len(moves)
    ours = game.action_to_text
    board, states = read.board(), positions(game, game.initial(1)[0], moves)
    for move, state, action in zip(read.mainline_moves(), states, moves):
        assert board.san(move).rstrip("+#") == ours(state, action).rstrip("+#")
        board.push(move)


@pytest.mark.parametrize("name,why", [("x.txt", "with .sgf, .pgn or .jsonl"), ("x.sgf", "write .pgn")])
def test_a_file_that_cannot_take_the_games_is_refused(tmp_path, name, why):
    with pytest.raises(Refusal, match=why):
        game_records.check_suffix(tmp_path / name, games.make("connect4"))


def test_a_file_of_games_is_not_overwritten(tmp_path):
    game_records.check_new(tmp_path / "games.pgn")
    for name in ("games.pgn", "folder.pgn"):
        (tmp_path / name).mkdir() if name.startswith("folder") else (tmp_path / name).write_text("games")
        with pytest.raises(Refusal, match="already"):
            game_records.check_new(tmp_path / name)


# matches


def test_a_match_of_two_networks(run, capsys, tmp_path):
    """A rollout search wins against an untrained network; the games that are saved add up to the same."""
    file = tmp_path / "games.pgn"
    status, out = play(
        capsys, "match", "rollout", f"{run}@000002", "--games", 40, "--simulations", 20, "--json", "--games_file", file
    )
    result = json.loads(out)
    assert status == 0 and result["num_games"] == result["wins"] + result["draws"] + result["losses"] == 40
    assert sum(result["as_first"]) == 20 and result["b"].endswith("@000002") and result["score"] > 0.5
    text = file.read_text()
    ends = re.findall(r'White "(.*)"]\n.*\n\[Result "(.*)"]', text)
    wins = sum(white == "rollout" and end == "1-0" or white != "rollout" and end == "0-1" for white, end in ends)
    assert len(ends) == 40 and wins == result["wins"]


@pytest.mark.long
def test_a_match_with_itself_and_its_table(run, capsys):
    status, out = play(capsys, "match", f"{run}@newest", f"{run}@best", "--games", 4)
    assert status == 0 and "all games" in out and "Elo" in out
    status, out = play(capsys, "match", run, run, "--games", 4)
    assert status == 0 and "(A)" in out and "score 0.500" in out  # each opening is played twice, alike
    status, out = play(capsys, "match", run, "random", "--games", 4, "--seconds", 0.02)
    assert status == 0 and "all games" in out


def test_an_interruption_counts_no_game_twice(world, capsys, monkeypatch):
    """A signal may come where the games of a round are known already, and still among those of the round."""
    monkeypatch.setattr(match.signal, "signal", lambda *_: None)
    monkeypatch.setattr(match.os, "_exit", lambda status: None)
    monkeypatch.delenv("OMPI_COMM_WORLD_RANK", raising=False)
    given = argparse.Namespace(games=4, sprt=None, json=True, games_file=None, seconds=0)
    made = match.Match(world, TICTACTOE, ["A", "B"], given)
    first, second, third = (Played(k, [0], [1.0, -1.0], "", 1.0) for k in range(3))
    made.played, made.round = [[first, second]], [[first, second, third]]
    made.interrupt()
    assert made.played == [[first, second, third]] and json.loads(capsys.readouterr().out)["num_games"] == 3


@pytest.fixture
def held(world, tmp_path):
    """A match on one rank with three ended games, which are to be saved, two of them of the round under way."""
    given = argparse.Namespace(games=4, sprt=None, json=True, games_file=tmp_path / "x.pgn", seconds=0)
    made = match.Match(world, TICTACTOE, ["A", "B"], given)
    for k in range(3):
        if k == 1:
            made._exchange()
        made._ended(0, Played(k, [0, 3, 1, 4, 2], [1.0, -1.0], "", 1.0))
    return made


def rounds(path):
    return re.findall(r'^\[Round "(\d+)"]', path.read_text(), re.MULTILINE)


def test_a_match_that_mpirun_kills_has_its_texts_of_games_ready(held, monkeypatch):
    """mpirun leaves a quarter of a second, in which there is no time to make the texts of many games."""
    monkeypatch.setattr(match.signal, "signal", lambda *_: None)
    monkeypatch.setattr(match.os, "_exit", lambda status: None)
    monkeypatch.setattr("az_mpi.liveness.watchdog.say", lambda *_: None)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setattr(game_records, "to_pgn", None)  # no text can be made any more
    held.interrupt()
    assert rounds(held.given.games_file) == ["1", "2", "3"]


def test_games_are_saved_where_the_result_cannot_be_printed(held, monkeypatch):
    def fail(text):
        raise OutputFailed(OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(match, "print_result", fail)
    with pytest.raises(OutputFailed):
        held.show()
    assert rounds(held.given.games_file) == ["1", "2", "3"]


def test_the_result_is_printed_where_the_games_cannot_be_saved(held, capsys):
    held.given.games_file.mkdir()
    with pytest.raises(Refusal, match="cannot be written"):
        held.show()
    assert json.loads(capsys.readouterr().out)["num_games"] == 1  # without those of the round under way


def test_games_are_saved_during_a_match_and_a_full_disk_does_not_end_it(tmp_path, capsys, monkeypatch):
    seen, write_file = [], match.write_file

    def write(path, text):
        seen.append(text.count("[Result "))
        if len(seen) == 2:
            raise Refusal(f"{path} cannot be written: No space left on device")
        write_file(path, text)

    monkeypatch.setattr(match, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(match, "SAVE_SHARE", 1e9)
    monkeypatch.setattr(match, "write_file", write)
    words = ["match", "random", "random", "--game", "tictactoe", "--games", "4", "--games_file", tmp_path / "x.pgn"]
    assert main([str(word) for word in words]) == 0
    assert seen[:4] == [1, 2, 3, 4] and rounds(tmp_path / "x.pgn") == ["1", "2", "3", "4"]
    assert capsys.readouterr().err.count("No space left on device; the match continues") == 1


def test_repeated_openings_are_reported(capsys):
    """Tic-tac-toe has 9 openings of one move."""
    for num_games, repeat in ((18, False), (20, False), (22, True)):
        words = ["match", "random", "random", "--game", "tictactoe", "--opening_plies", "1", "--games", str(num_games)]
        assert main(words) == 0
        assert ("there are 9 of 1 plies" in capsys.readouterr().err) == repeat


def test_a_sequential_test_stops_early(run, capsys):
    status, out = play(
        capsys,
        "match",
        "rollout",
        "random",
        "--game",
        "connect4",
        "--games",
        400,
        "--simulations",
        30,
        "--sprt",
        0,
        50,
        "--json",
    )
    result = json.loads(out)
    assert status == 0 and result["sprt"]["accepted"] == "H1" and result["num_games"] < 400
    assert result["sprt"]["log_likelihood_ratio"] >= result["sprt"]["bound"]


@pytest.mark.parametrize(
    "arguments,why",
    [
        (["random", "rollout"], "add --game"),
        (["nothing/here", "random"], "no such run"),
        (["RUN@000009", "random"], "has no network"),
        (["RUN", "random", "--game", "connect4"], "plays tictactoe"),
        (["RUN", "best"], "RUN@best"),
        (["RUN", "random", "--games", "3"], "even number"),
        (["RUN", "random", "--sprt", "5", "0"], "the smaller one first"),
        (["RUN", "gtp:no_such_engine"], "no program"),
        (["RUN", "random", "--sprt", "-1000000", "0"], "from -4000 to 4000"),
        (["RUN", "random", "--seed", "-1"], "from 0 to"),
        (["RUN", "random", "--games_file", "no/x.sgf"], "there is no folder no"),
        (["RUN", "mcts_bot"], "plays games of OpenSpiel"),
        (["RUN", "random", "--games_file", "x.doc"], ".sgf, .pgn or .jsonl"),
    ],
)
def test_wrong_arguments_of_a_match_are_refused(run, capsys, arguments, why):
    assert main(["match", *(word.replace("RUN", str(run)) if "RUN" in word else word for word in arguments)]) == 2
    assert why in capsys.readouterr().err


# ladders


def test_a_ladder_continues_where_it_ended(run, capsys, tmp_path):
    file = run / ladder.NAME
    status, out = play(capsys, "ladder", run, "--every", 2, "--games", 4, "--simulations", 8)
    before = json.loads(file.read_text())
    assert status == 0 and [row["name"] for row in before["ratings"]] == ["000001", "000003", "000005"]
    assert [(row["first"], row["second"]) for row in before["pairs"]] == [
        ("000001", "000003"),
        ("000003", "000005"),
        ("000001", "000005"),
    ]
    assert before["ratings"][0]["elo"] == 0 and before["ratings"][1]["num_games"] == 8
    status, out = play(capsys, "ladder", run, "--games", 4, "--simulations", 8)
    after = json.loads(file.read_text())
    assert status == 0 and after["pairs"][:3] == before["pairs"] and len(after["pairs"]) == 3 + 3
    assert [row["name"] for row in after["ratings"]] == ["000001", "000002", "000003", "000005"] and "000002" in out
    play(capsys, "ladder", run, "--games", 6, "--simulations", 8)
    more = json.loads(file.read_text())
    nums = {(row["first"], row["second"]): row["wins"] + row["draws"] + row["losses"] for row in more["pairs"]}
    assert nums.pop(("000001", "000005")) == 4 and set(nums.values()) == {6}  # four networks: 1, 2 places apart
    assert main(["ladder", str(run), "--simulations", "9"]) == 2
    assert "--fresh" in capsys.readouterr().err
    assert main(["ladder", str(run), "--games", "2", "--simulations", "9", "--fresh"]) == 0
    assert json.loads(file.read_text())["simulations"] == 9


def test_a_ladder_leaves_out_what_a_run_under_way_has_removed(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path / "run", "tictactoe", (1, 2, 3), best=(5,))
    meet = ladder.Ladder.meet

    def removing(self, i, j, *rest):
        if (i, j) == (0, 1):  # the first match: the oldest network is loaded by then, the next one is not
            shutil.rmtree(run / "checkpoints" / "000002")
        meet(self, i, j, *rest)

    monkeypatch.setattr(ladder.Ladder, "meet", removing)
    assert main(["ladder", str(run), "--games", "2", "--simulations", "8"]) == 0
    said = capsys.readouterr()
    data = json.loads((run / ladder.NAME).read_text())
    assert [row["name"] for row in data["ratings"]] == ["000001", "000003", "000005"]
    assert said.err.count("left out") == 3 and "no network 000002" in said.err and "000005" in said.out


def test_a_ladder_needs_two_networks(tmp_path, capsys):
    make_run(tmp_path / "one")
    assert main(["ladder", str(tmp_path / "one")]) == 2
    assert "has 1 network in checkpoints/ and best/: a ladder needs two" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["none", "empty", "zoo:othello"])
def test_a_ladder_of_what_is_no_run_is_refused_as_such(tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["ladder", name]) == 2
    said = capsys.readouterr().err
    assert f"{name}: holds no run" in said and "train longer" not in said


def test_a_finished_game_has_no_legal_words():
    states = TICTACTOE.initial(1)[0]
    *_, last = positions(TICTACTOE, states, [0, 3, 1, 4, 2, 5])  # X has the top row
    assert legal_words(TICTACTOE, last) == {} and len(legal_words(TICTACTOE, states)) == 9
