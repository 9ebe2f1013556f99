"""Other programs as opponents in matches: real processes that speak GTP and UCI, good ones and bad ones."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scripted import Scripted

from az_mpi import games
from az_mpi.config import load
from az_mpi.core.problems import Refusal
from az_mpi.core.processes import limited
from az_mpi.core.registry import OPPONENTS
from az_mpi.evaluate import evaluation
from az_mpi.evaluate.arena import play_games, play_match
from az_mpi.evaluate.dice import Dice
from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import RandomPlayer
from az_mpi.evaluate.rating import summary
from az_mpi.telemetry.summary import evaluation_lines

pytestmark = pytest.mark.process

TICTACTOE = games.make("tictactoe")
PROGRAM = Path(__file__).parent / "programs_engine.py"
GNUGO, GNUBG, RHINO, STOCKFISH = (
    shutil.which(name, path=f"{os.environ['PATH']}:/usr/games") for name in ("gnugo", "gnubg", "gtp-rhino", "stockfish")
)


def command(*words):
    return shlex.join(map(str, (sys.executable, "-S", PROGRAM, *words)))


def make(protocol, *words, game=TICTACTOE, **more):
    """Return the opponent that the configuration names so."""
    arguments = ", ".join(f"{key}={value!r}" for key, value in {"command": command(protocol, *words), **more}.items())
    offers = dict.fromkeys(OPPONENTS.offers) | {"game": game, "seed": (1,)}
    return OPPONENTS.make(f"{protocol}({arguments})", **offers)


def play(engine, num_games=2, plies=0, other=None):
    starts = openings(TICTACTOE, num_games // 2, plies, (1,))
    return play_games(TICTACTOE, other or Scripted(True, []), engine, starts, np.arange(num_games))


def words(moves):
    return [TICTACTOE.action_to_text(TICTACTOE.initial(1)[0], action) for action in moves]


def told(file):
    return file.read_text().splitlines()


def gone(pid):
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("protocol", ["gtp", "uci"])
def test_a_program_plays_both_colours(protocol):
    """It takes the first empty cell of a1, b1, c1, a2, ...; the other one of c1, b1, a1, c2, ..."""
    engine = make(protocol, "plays")
    engine.check()
    ours_first, theirs_first = play(engine)
    assert words(ours_first.moves) == ["c1", "a1", "b1", "a2", "c2", "b2", "c3"] and ours_first.result == 1
    assert words(theirs_first.moves) == ["a1", "c1", "b1", "c2", "a2", "b2", "a3"] and theirs_first.result == -1
    assert not ours_first.note and not theirs_first.note


def test_a_gtp_program_gets_the_opening_and_then_only_new_moves(tmp_path):
    engine = make("gtp", "plays", 0, tmp_path / "told")
    [first, second] = play(engine, 2, 2)
    said = told(tmp_path / "told")
    assert said[1:4] == ["list_commands", "boardsize 3", "clear_board"]
    told_moves = [line.split()[2].lower() for line in said if line.startswith("play")]
    assert told_moves[:3] == words(first.moves)[:3] and said[4].startswith("play black")
    assert first.moves[:2] == second.moves[:2] and sum(line.startswith("genmove") for line in said) >= 4


class Strict(type(TICTACTOE)):
    """Rules that refuse moves onto cells that are taken."""

    def play(self, states, actions):
        assert self.legal(states)[np.arange(len(states)), actions].all(), "not a legal move"
        return super().play(states, actions)


def test_gtp_plays_legal_moves_alone():
    game = Strict(3, 3, 3)
    engine = make("gtp", "plays", game=game)
    play_games(game, Scripted(True, []), engine, openings(game, 1, 2, (1,)), np.arange(2))


def test_a_uci_program_gets_the_whole_line_each_time(tmp_path):
    engine = make("uci", "plays", 0, tmp_path / "told", options={"Skill": 3}, seconds=0, nodes=7)
    [first, _] = play(engine, 2, 2)
    said = told(tmp_path / "told")
    assert said[1:6] == [
        "uci",
        "setoption name Skill value 3",
        "setoption name UCI_Variant value tictactoe",
        "ucinewgame",
        "isready",
    ]
    assert said[6] == f"position startpos moves {' '.join(words(first.moves)[:3])}" and said[7] == "go nodes 7"


BAD = [
    ("dies", "has ended (status 3): out of ideas"),
    ("is_silent", "has not answered"),
    ("cheats", "no legal move"),
    ("babbles", "without an end"),
    ("eats", "has ended"),
]


@pytest.mark.parametrize("protocol", ["gtp", "uci"])
@pytest.mark.parametrize("how,why", BAD)
def test_a_bad_program_loses_its_game_and_leaves_no_process(protocol, how, why, tmp_path, caplog):
    """It plays one good move in each of its lives. It loses games 1, 3 and 2 in turn; game 0 ends by the rules."""
    answer_s = 0.5 if how == "is_silent" else 30
    engine = make(protocol, how, 1, tmp_path / "told", answer_s=answer_s, seconds=0.01, memory_gb=1.0)
    played = play(engine, 4, 2)
    assert not played[0].note and all(one.result == 1 and why in one.note for one in played[1:])
    assert sum(why in record.getMessage() for record in caplog.records) == 3
    pids = [line for line in told(tmp_path / "told") if line.isdigit()]
    assert len(pids) >= 2 and all(map(gone, pids))


def test_a_program_that_never_works_is_given_up(tmp_path):
    engine = make("gtp", "dies", 0, tmp_path / "told")
    played = play(engine, 10)
    assert [one.result for one in played] == [1.0] * 10 and "not started again" in played[-1].note
    assert sum(line.isdigit() for line in told(tmp_path / "told")) == 3


def test_an_evaluation_counts_the_games_of_a_program_that_has_failed(tmp_path, world):
    result = play_match(world, TICTACTOE, Scripted(True, []), make("gtp", "dies", 0, tmp_path / "told"), 10, 0, (1,))
    match = summary(result)
    assert match["wins"] == match["num_forfeits"] == 10
    [line] = evaluation_lines({"matches": {"gtp": match}})
    assert line.endswith("; 10 games lost or resigned before the end")
    without = summary(play_match(world, TICTACTOE, Scripted(True, []), make("gtp", "plays"), 2, 0, (1,)))
    assert "num_forfeits" not in without


def test_a_program_may_resign():
    played = play(make("gtp", "resigns", 1))
    assert [one.result for one in played] == [1.0, 1.0] and played[0].note == "resigned"


def test_a_program_may_answer_after_its_time():
    """answer_s counts from then on, so any number of seconds goes with it."""
    name = f"gtp(command={command('gtp', 'plays')!r}, seconds=90, answer_s=5)"
    config = load.validate({"game": "tictactoe", "evaluate": {"opponents": [name]}}, "test")
    [opponent] = evaluation.opponents(config, TICTACTOE).values()
    assert opponent.answer_s == 95


def test_programs_that_cannot_play_are_refused_at_the_start(tmp_path):
    own = command("gtp", "refuses")
    for name, why in (
        ("gtp(command='no_such_engine --fast')", "no program 'no_such_engine'"),
        (f"gtp(command={own!r})", "unacceptable size"),
        (f"gtp(command={command('gtp', 'dies')!r})", "out of ideas"),
        (f"gtp(command={command('gtp', 'plays')!r}, answer_s=-1)", "answer_s"),
        ("gtp(command='')", "no program"),
        ("gtp()", "needs command"),
        ("gtp(command=7)", "allowed: a text"),
        (f"uci(command={command('uci', 'plays')!r}, options={{'Skil': 3}})", "did you mean Skill"),
        (f"uci(command={command('uci', 'plays')!r}, options={{'Skill': 30}})", "from 0 to 9"),
        (f"uci(command={command('uci', 'plays')!r}, seconds=0)", "above 0 if seconds is 0"),
    ):
        config = load.validate({"game": "tictactoe", "evaluate": {"opponents": [name]}}, "test")
        with pytest.raises(Refusal, match=why.replace("(", r"\(")):
            evaluation.check_opponents(config, TICTACTOE)
    name = f"uci(command={command('uci')!r})"
    config = load.validate({"game": "connect4", "evaluate": {"opponents": [name]}}, "test")
    with pytest.raises(Refusal, match="plays chess, tictactoe"):
        evaluation.check_opponents(config, games.make("connect4"))
    config = load.validate({"game": "connect4", "evaluate": {"opponents": [], "solver": "othello"}}, "test")
    with pytest.raises(Refusal, match="solves Othello; game is connect4"):
        evaluation.check_opponents(config, games.make("connect4"))


def test_a_program_ends_with_its_opponent(tmp_path):
    engine = make("gtp", "plays", 0, tmp_path / "told")
    play(engine)
    pid = told(tmp_path / "told")[0]
    assert not gone(pid)
    del engine
    assert gone(pid)


def test_a_program_ends_with_a_rank_that_is_killed(tmp_path):
    """With SIGKILL, of which nothing is told."""
    code = (
        "import subprocess, sys, time; from az_mpi.core.processes import limited\n"
        "process = subprocess.Popen(limited(['sleep', '60'], 0), start_new_session=True)\n"
        "print(process.pid, flush=True); time.sleep(60)"
    )
    rank = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=PROGRAM.parents[2])
    pid = rank.stdout.readline()
    time.sleep(0.3)  # until it is `sleep`
    rank.send_signal(signal.SIGKILL)
    rank.wait()
    rank.stdout.close()
    due = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < due:
        time.sleep(0.01)
    assert gone(pid)


def test_memory_is_limited():
    ask = [sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"]
    assert int(subprocess.check_output(limited(ask, 2**32))) == 2**32


@pytest.mark.skipif(not GNUGO, reason="GNU Go is not installed (apt install gnugo)")
def test_gnu_go_beats_random_moves():
    game = games.make("go(size=5,komi=7)")
    rules = f"{GNUGO} --mode gtp --level 1 --chinese-rules --capture-all-dead"
    engine = OPPONENTS.make(f"gtp(command={rules!r})", **dict.fromkeys(OPPONENTS.offers) | {"game": game})
    engine.check()
    played = play_games(game, RandomPlayer((1,)), engine, openings(game, 1, 2, (1,)), np.arange(2))
    assert [(one.result, one.note) for one in played] == [(-1.0, ""), (-1.0, "")]
    othello = games.make("othello")
    engine = OPPONENTS.make(f"gtp(command={rules!r})", **dict.fromkeys(OPPONENTS.offers) | {"game": othello})
    with pytest.raises(Refusal, match="no legal move"):  # it plays Go there
        engine.check()


@pytest.mark.skipif(not GNUBG, reason="GNU Backgammon is not installed (apt install gnubg)")
@pytest.mark.parametrize("name", ["backgammon", "backgammon(gammons=True)", "openspiel:backgammon"])
def test_gnu_backgammon_beats_random_moves(name):
    if name.startswith("openspiel"):
        pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    game = games.make(name)
    options = dict.fromkeys(OPPONENTS.offers) | {"game": game}
    gnubg = OPPONENTS.make("benchmarks/others/gnubg.py:GnuBackgammon", **options)
    starts = openings(game, 2, 0, (1,))
    played = play_games(game, RandomPlayer((1,)), gnubg, starts, np.arange(4), dice=Dice((1,)))
    assert all(one.result < 0 for one in played)


@pytest.mark.skipif(not RHINO, reason="GRhino is not installed (apt install grhino)")
def test_grhino_beats_random_moves():
    game = games.make("othello")
    engine = OPPONENTS.make(f"gtp(command={RHINO!r})", **dict.fromkeys(OPPONENTS.offers) | {"game": game})
    engine.check()
    played = play_games(game, RandomPlayer((1,)), engine, openings(game, 1, 4, (1,)), np.arange(2))
    assert [(one.result, one.note) for one in played] == [(-1.0, ""), (-1.0, "")]


@pytest.mark.skipif(not STOCKFISH, reason="Stockfish is not installed (apt install stockfish)")
def test_stockfish_beats_random_moves():
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    game = games.make("openspiel:chess")
    name = f"uci(command={STOCKFISH!r}, options={{'UCI_Elo': 1400}}, seconds=0, nodes=200)"
    engine = OPPONENTS.make(name, **dict.fromkeys(OPPONENTS.offers) | {"game": game})
    engine.check()
    played = play_games(game, RandomPlayer((1,)), engine, openings(game, 1, 4, (1,)), np.arange(2))
    assert [(one.result, one.note) for one in played] == [(-1.0, ""), (-1.0, "")]
