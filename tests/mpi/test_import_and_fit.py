"""Importing over ranks, training on the games alone, and what a run does next."""

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from game_texts import write
from helpers import make_config
from jobs import SMALL, SMOKE, columns
from jobs import records as metrics

from az_mpi import games
from az_mpi.records.game_records import GameRecord
from az_mpi.storage import checkpoint, imports, run_folder

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return files of games of tic-tac-toe: some are small, one takes several units, one holds games with faults."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(1)
    game = games.make("tictactoe")

    def records(num):
        for _ in range(num):
            states, moves = game.initial(1), []
            while not game.terminal(states)[0][0]:
                moves.append(int(rng.choice(np.flatnonzero(game.legal(states)[0]))))
                states = game.play(states, np.array(moves[-1:]))
            value = float(game.terminal(states)[1][0])
            yield GameRecord(moves, value if game.to_play(states)[0] == 0 else -value, ("a", "b"))

    for name, num in (("a.pgn", 40), ("b.jsonl", 30), ("c.pgn", 20)):
        write(folder / name, game, list(records(num)))
    text = (folder / "c.pgn").read_text().replace("1. a1", "1. z9")
    (folder / "c.pgn").write_text(text)
    return sorted(folder.iterdir())


@pytest.fixture
def imported(mpirun, files, tmp_path):
    """Return imported(ranks, folder): a run's folder into which that many ranks have imported the files."""

    def imported(ranks, name):
        words = "import", *files, "--game", "tictactoe", "--logdir", tmp_path / name
        mpirun(ranks, "-c", SMALL_UNITS, *words)
        return tmp_path / name

    return imported


SMALL_UNITS = """\
import sys
import time
from az_mpi import __main__ as program
from az_mpi.records import import_command as command
command.UNIT_BYTES, command.UNIT_BYTES_LEAST = 700, 300
store = command.Import._store


def slowly(self, record, place):  # on one rank, so that root is done before it
    time.sleep(0.0 if self.world.is_root else 0.02)
    store(self, record, place)


command.Import._store = slowly
sys.exit(program.obey(sys.argv[1:]))
"""


def test_any_number_of_ranks_gives_the_same_segments(imported):
    one, two, three = (imported(ranks, f"run{ranks}") for ranks in (1, 2, 3))
    names = [path.name for path in sorted((one / "games").glob("*.h5"))]
    assert len(names) > 10, "there are several units for each rank"
    for other in (two, three):
        assert [path.name for path in sorted((other / "games").glob("*.h5"))] == names
        for name, column in columns(one).items():
            assert np.array_equal(column, columns(other)[name]), name
        assert (other / "imports/001-left-out.txt").read_text() == (one / "imports/001-left-out.txt").read_text()
        assert json.loads((other / "imports/001.json").read_text()) == json.loads(
            (one / "imports/001.json").read_text()
        )
    entry = json.loads((one / "imports/001.json").read_text())
    assert entry["num_games"] + entry["num_left_out"] == 90 and 0 < entry["num_left_out"] < 20


def test_files_without_a_game_that_fits_end_all_ranks_with_status_2(mpirun, tmp_path):
    (tmp_path / "x.pgn").write_text("1. q9 1-0\n")
    words = "-m", "az_mpi", "import", tmp_path / "x.pgn", "--game", "tictactoe", "--logdir", tmp_path / "run"
    done = mpirun(2, *words, status=2)
    assert done.stdout.count("illegal move") == 1
    assert mpirun(2, *words[:-2], status=2).stderr.count("error:") == 1


ROOT_ELSEWHERE = """\
import os
import sys
from az_mpi import __main__ as program
from az_mpi.records import import_command as command
folder, look = sys.argv.pop(), command.Import._look


def from_elsewhere(self, paths):
    if self.world.is_root:
        os.chdir(folder)
    look(self, paths)


command.Import._look = from_elsewhere
sys.exit(program.obey(sys.argv[1:]))
"""


def test_a_file_that_one_rank_does_not_see_is_refused_on_all(mpirun, files, tmp_path):
    """Its games would be missing, and could not come in later: the run would have the file already."""
    words = "import", files[0].name, "--game", "tictactoe", "--logdir", tmp_path / "run"
    done = mpirun(2, "-c", ROOT_ELSEWHERE, *words, files[0].parent, status=2)
    assert done.stderr.count("error: a.pgn cannot be read: No such file") == 1 and "on rank 1 of 2" in done.stderr
    assert not (tmp_path / "run/imports").exists()


def records_of(run, kind):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def newest(run):
    return checkpoint.read(checkpoint.find(run / "checkpoints")[-1]).progress


def test_a_fit_trains_on_the_games_and_self_play_continues(imported, run_dist):
    run = imported(2, "run")
    entry = json.loads((run / "imports/001.json").read_text())
    said = run_dist(2, run, *SMALL, "--mode", "fit", "--epochs", 3, "--held_out", 0.2).stdout
    page = (run / "report.html").read_text()
    assert f"report in {run / 'report.html'}" in said and "Fit to stored games" in page
    assert f"<dt>Training steps</dt><dd>{newest(run).step}</dd>" in page
    assert f"<dt>Games</dt><dd>{entry['num_games']}</dd>" in page
    assert len(re.findall(r"  training: \d+ of \d+ positions\n", said)) == 2, "after a third and two thirds"
    found = newest(run)
    assert (found.iteration, found.phase, found.num_games) == (1, "play", entry["num_games"])
    assert found.num_positions == entry["num_positions"] and found.samples_due == 0
    epochs = records_of(run, "fit")
    assert [row["epoch"] for row in epochs] == [1, 2, 3] and epochs[2]["policy_loss"] < epochs[0]["policy_loss"]
    held = epochs[0]["held_out"]
    assert (
        0 < held["policy_top1"] < held["policy_top5"] <= 1
        and held["num_positions"] == epochs[2]["held_out"]["num_positions"]
    )
    trained = entry["num_positions"] - held["num_positions"]
    assert abs(found.step * 32 - 3 * trained) < 3 * 32, "an epoch has as many samples as there are positions"
    run_dist(1, run, *SMALL)  # of 2 iterations: one is the fit
    after = newest(run)
    assert after.iteration == 2 and after.num_games == entry["num_games"] + 16 and after.step > found.step
    assert [row["iteration"] for row in records_of(run, "iteration")] == [2]


def test_a_fit_saves_from_time_to_time_and_says_what_it_leaves_out(mpirun, files, tmp_path):
    """The configuration has room for 100 positions. Each look at the clock finds that a checkpoint is due."""
    run, config = tmp_path / "run", tmp_path / "small.json"
    config.write_text(
        json.dumps(json.loads(Path(SMOKE).read_text()) | {"replay": {"window_min": 10, "window_max": 100}})
    )
    mpirun(2, "-m", "az_mpi", "import", *files, "--config_file", config, "--logdir", run)
    program = (
        "import sys\nfrom az_mpi.run import fit\nfit.SAVE_EVERY_S, fit.CALL_STEPS_MAX = 0.0, 1\n"
        "import run_dist\nsys.exit(run_dist.main(sys.argv[1:]))\n"
    )
    words = "--config_file", config, "--logdir", run, "--mode", "fit", "--set", "train.batch_size=32"
    said = mpirun(2, "-c", program, *words).stdout
    assert re.search(r"the fit takes the newest 100 of \d+ positions, for which replay.window_max has room", said), said
    assert said.count("saved: ") >= 3, "three steps before the last one"
    assert newest(run).phase == "play"


def test_a_fit_on_one_and_two_ranks_holds_out_the_same_games(imported, run_dist):
    figures = []
    for ranks in (1, 2):
        run = imported(ranks, f"fit{ranks}")
        run_dist(ranks, run, *SMALL, "--mode", "fit", "--minutes", 0.02)
        assert newest(run).iteration == 1
        figures.append(records_of(run, "fit")[-1]["held_out"]["num_positions"])
    assert figures[0] == figures[1]


def test_a_run_plays_on_with_imported_games_in_its_window(imported, run_dist, mpirun):
    run = imported(1, "run")
    entry = json.loads((run / "imports/001.json").read_text())
    run_dist(2, run, *SMALL)
    found = newest(run)
    assert (found.iteration, found.num_games) == (2, entry["num_games"] + 16)
    assert "nothing is wrong" in mpirun(1, "-m", "az_mpi", "verify", run).stdout
    mpirun(1, "-m", "az_mpi", "games", run, "--output", run / "all.jsonl")
    lines = (run / "all.jsonl").read_text().splitlines()
    assert len(lines) == found.num_games
    words = "-m", "az_mpi", "import", run / "all.jsonl", "--game", "tictactoe", "--logdir", Path(f"{run}-again")
    mpirun(1, *words)
    again, before = columns(Path(f"{run}-again")), columns(run)
    for name in ("positions/action", "positions/value", "positions/state", "games/outcome"):
        assert np.array_equal(again[name], before[name]), name
    assert np.allclose(again["positions/root_value"], before["positions/root_value"], atol=1e-5)


def test_a_fit_that_ends_by_max_steps_is_measured_and_another_one_is_refused(imported, run_dist):
    run = imported(1, "run")
    words = *SMALL, "--set", "train.batch_size=8", "--mode", "fit", "--epochs", 5, "--max_steps", 3
    run_dist(2, run, *words)
    assert [row["epoch"] for row in metrics(run, "fit")] == [1] and newest(run).step == 3
    done = run_dist(2, run, *words, status=2)
    assert done.stderr.count("the run has taken 3 steps, and train.max_steps allows 3\n  raise it") == 1
    assert (newest(run).step, newest(run).iteration) == (3, 1)


def test_a_fit_completes_an_import_that_was_killed_before_its_segments_had_their_names(imported, run_dist):
    run = imported(1, "run")
    names = [path.name for path in (run / "games").glob("*.h5")]
    (run / "games" / imports.WAITING).mkdir()
    for name in names:
        (run / "games" / name).rename(run / "games" / imports.WAITING / name)
    entry = imports.entries(run)[0]
    (run / "imports/001.json").unlink()
    imports.commit(run, run / "imports/001.json", entry, {name: name for name in names}, lambda: None)
    run_dist(1, run, *SMALL, "--mode", "fit", "--epochs", 1)
    assert newest(run).num_games == entry["num_games"] and newest(run).step > 0


def test_a_fit_without_games_is_refused_and_writes_nothing(run_dist, tmp_path):
    done = run_dist(2, tmp_path / "run", "--mode", "fit", status=2)
    assert done.stderr.count("holds no games") == 1 and not (tmp_path / "run").exists()


def test_a_new_run_begins_with_other_weights_on_all_ranks(run_dist, tmp_path):
    folder = tmp_path / "first"
    run_folder.prepare(folder, make_config("tictactoe"), ["here"], fresh=False)
    run_dist(1, tmp_path / "a", *SMALL)
    weights = checkpoint.read(checkpoint.find(tmp_path / "a/checkpoints")[-1]).model
    words = *SMALL, "--from", tmp_path / "a", "--set", "network.blocks=2", "--set", "network.channels=16"
    done = run_dist(2, tmp_path / "b", *words, "--set", "checkpoint.keep=9")
    assert "widened: 1 block" in done.stdout and "it computes what that network does" in done.stdout
    first = checkpoint.read(checkpoint.find(tmp_path / "b/checkpoints")[0])
    assert first.progress.iteration == 0
    assert np.array_equal(first.model["stem.weight"][:8], weights["stem.weight"])
    (tmp_path / "a").rename(tmp_path / "moved")
    assert "is not used" in run_dist(2, tmp_path / "b", *words).stdout


def test_the_hours_of_earlier_starts_count_after_a_fit(imported, run_dist):
    run = imported(1, "run")
    words = [*SMALL, "--set", "train.hours=10", "--mode", "fit", "--minutes", 0.01]
    run_dist(1, run, *words)
    first = newest(run)
    assert 0 < first.hours < 1
    told = {"kind": "checkpoint", "iteration": first.iteration, "step": first.step, "hours": 5.0}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(told) + "\n")
    run_dist(2, run, *words)
    assert newest(run).step > first.step and 5 < newest(run).hours < 6


def test_a_checkpoint_that_a_signal_asks_for_says_how_much_of_the_fit_is_done(imported, start_mpirun):
    """Else the fit would begin again from there with the checkpoint's weights."""
    run = imported(1, "run")
    words = "--config_file", SMOKE, "--logdir", run, *SMALL, "--mode", "fit", "--epochs", 1
    process = start_mpirun(
        1, "run_dist.py", *words, "--set", "train.batch_size=1", "--set", "network.blocks=8", fork=True
    )
    due, asked = time.monotonic() + 120, False
    while not list((run / "checkpoints").glob("*/state.json")) and process.poll() is None and time.monotonic() < due:
        time.sleep(0.05)
        if not asked and (run / "status.json").exists():
            status = json.loads((run / "status.json").read_text())
            if status["phase"] == "fit" and status["progress"]["done"] > 0:
                process.send_signal(signal.SIGUSR1)
                asked = True
    told = (run / "fit.json").exists()
    process.send_signal(signal.SIGUSR2)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 75 and asked and told, output


def test_a_fit_that_is_stopped_continues_where_it_was(imported, start_mpirun, run_dist):
    run = imported(1, "run")
    words = "--config_file", SMOKE, "--logdir", run, *SMALL, "--mode", "fit", "--minutes", 10
    process = start_mpirun(2, "run_dist.py", *words, fork=True)
    due = time.monotonic() + 120
    while not (run / "fit.json").exists() and process.poll() is None and time.monotonic() < due:
        time.sleep(0.05)
    status, states = {}, set()  # rank 1 is as its last heartbeat said, which can be from before the training
    while not (status.get("time_left_s") and states == {"Training"}) and process.poll() is None:
        assert time.monotonic() < due, status
        time.sleep(0.2)
        status = json.loads((run / "status.json").read_text())
        states = {row["state"] for row in status["ranks"]}
    assert status["phase"] == "fit" and 60 < status["time_left_s"] < 1200, status
    assert status["progress"]["unit"] == "positions" and states == {"Training"}, status
    process.send_signal(signal.SIGUSR2)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 75 and "stopped after iteration 0" in output, output
    stopped, told = newest(run), json.loads((run / "fit.json").read_text())
    assert (stopped.iteration, stopped.phase) == (0, "train") and told["iteration"] == 0
    assert told["saves"][-1]["step"] == stopped.step and 0 < told["saves"][-1]["minutes"] < 10
    said = run_dist(1, run, *SMALL, "--mode", "fit", "--minutes", told["saves"][-1]["minutes"] + 0.01).stdout
    found = newest(run)
    assert (found.iteration, found.phase) == (1, "play") and found.step > stopped.step and "are done" in said
    assert not (run / "fit.json").exists()
