"""python -m az_mpi match and ladder over several ranks: the same games as on one rank, one message, one verdict."""

import json
import shlex
import signal
import subprocess
import sys
import time

import pytest
from helpers import make_run
from jobs import ROOT, SMALL, SMOKE, command

pytestmark = pytest.mark.mpi

ENGINE = ROOT / "tests/unit/programs_engine.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("match") / "run", "tictactoe", (1, 2, 3), best=(5,))


def engine(*words):
    return "gtp:" + shlex.join(map(str, (sys.executable, "-S", ENGINE, "gtp", *words)))


def start(ranks, *arguments):
    words, environment = command(ranks, ["-m", "az_mpi", *arguments])
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def play(mpirun):
    """Return play(ranks, *arguments, status=0): (standard output, standard error) of a command on that many ranks."""

    def play(ranks, *arguments, status=0):
        done = mpirun(ranks, "-m", "az_mpi", *arguments, status=status)
        return done.stdout, done.stderr

    return play


@pytest.fixture
def match(play):
    """Return match(ranks, *arguments): the result of a match."""
    return lambda ranks, *arguments: json.loads(play(ranks, "match", *arguments, "--json")[0])


def test_two_ranks_play_and_save_the_games_of_one(run, match, tmp_path):
    sides = f"{run}@000001", f"{run}@best", "--games", 14, "--games_file"
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    assert match(1, *sides, one) == match(2, *sides, two)
    assert one.read_text() == two.read_text() and len(one.read_text().splitlines()) == 14


def test_all_ranks_stop_a_decided_sequential_test_together(match):
    result = match(3, "rollout", "random", "--game", "connect4", "--games", 600, "--simulations", 30, "--sprt", 0, 50)
    assert result["sprt"]["accepted"] == "H1" and result["num_games"] < 600 and result["num_games"] % 24 == 0


def test_a_missing_engine_ends_all_ranks_with_one_message(run, play):
    out, err = play(2, "match", run, "gtp:no_such_engine", status=2)
    assert not out and err.count("there is no program") == 1
    _, err = play(2, "match", run, "--games", "x", status=2)
    assert err.count("error:") == 1


def test_each_rank_has_an_engine_and_none_is_left(run, match, tmp_path):
    result = match(2, run, engine("dies", 3, tmp_path / "told"), "--games", 8)
    assert result["num_games"] == 8 and result["num_forfeits"] > 0
    pids = [line for line in (tmp_path / "told").read_text().splitlines() if line.isdigit()]
    assert len(pids) >= 4  # one in each rank's check, and one at least in its games
    due = time.monotonic() + 5
    while any(is_there(pid) for pid in pids) and time.monotonic() < due:
        time.sleep(0.05)
    assert not any(is_there(pid) for pid in pids)


def is_there(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupted_match_prints_the_result_so_far_and_saves_its_games(tmp_path):
    """mpirun gives its ranks a quarter of a second, and prints no more of what they say. A job in the background of a
    shell, as tests may be, ignores SIGINT: TERM does the same."""
    words = ["rollout", "random", "--game", "connect4", "--games", 1000, "--simulations", 200]
    process = start(2, "match", *words, "--games_file", tmp_path / "x.pgn")
    for line in process.stderr:
        if "of 1000 games" in line and " 0 of" not in line:
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode and "interrupted" in err and "all games" in err and "Elo" in err
    assert (tmp_path / "x.pgn").read_text().count("[Result ") > 0


def test_a_ladder_that_is_complete_plays_no_match_again_on_two_ranks(run, play):
    out, _ = play(2, "ladder", run, "--games", 4, "--simulations", 8)
    assert out.count("0000") == 4
    before = (run / "ladder.json").read_text()
    again, err = play(2, "ladder", run, "--games", 4, "--simulations", 8)
    assert again == out and "match 1" not in err
    assert json.loads((run / "ladder.json").read_text()) == json.loads(before)


@pytest.fixture
def learn(mpirun):
    """Return learn(folder, opponent, *more, status=0): the standard error of a run of two ranks with one opponent."""

    def learn(folder, opponent, *more, status=0):
        options = ["--config_file", SMOKE, "--logdir", folder, *SMALL]
        options += ["--set", f"evaluate.opponents={json.dumps([opponent])}"]
        return mpirun(2, "run_dist.py", *options, *more, status=status).stderr

    return learn


def test_a_run_is_measured_against_an_engine(learn, tmp_path):
    name = f"gtp(command={engine('plays', 0, tmp_path / 'told').removeprefix('gtp:')!r})"
    learn(tmp_path / "run", name, "--set", "evaluate.num_games=8")
    results = [json.loads(path.read_text()) for path in sorted((tmp_path / "run/evaluations").iterdir())]
    assert results and all(result["matches"][name]["num_games"] == 8 for result in results)
    pids = [line for line in (tmp_path / "told").read_text().splitlines() if line.isdigit()]
    assert len(pids) >= 4 and not any(map(is_there, pids))  # each rank's check, and its games


def test_a_run_whose_opponent_is_missing_is_refused(learn, tmp_path):
    err = learn(tmp_path / "run", "uci(command='no_such_engine')", status=2)
    assert err.count("there is no program") == 1 and not (tmp_path / "run/starts").exists()
