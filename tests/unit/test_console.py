"""Progress lines, tables and summaries as people see them."""

import logging
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time

import pytest

from az_mpi.telemetry import console, progress_bar, summary


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage().strip())


def progress_lines(updates, shown=True):
    logger, lines = logging.Logger("test"), Lines()
    logger.addHandler(lines)
    progress = progress_bar.ProgressBar(logger, shown, "self-play", "games")
    progress.on_terminal = False
    for done, total in updates:
        progress.update(done, total)
    progress.close()
    return lines.lines


def test_progress_without_a_terminal_is_a_line_each_quarter_and_none_at_the_end():
    lines = progress_lines([(done, 100) for done in range(101)])
    assert lines == [f"self-play: {done} of 100 games" for done in (25, 50, 75)]


def test_progress_that_jumps_over_two_quarters_is_one_line():
    assert progress_lines([(60, 100), (60, 100), (61, 100)]) == ["self-play: 60 of 100 games"]


def test_progress_is_shown_by_root_only():
    assert progress_lines([(50, 100)], shown=False) == []


def test_a_table_has_aligned_columns():
    assert console.table([("rank", "host"), (0, "node-with-a-name"), (10, "b")]) == [
        "rank  host",
        "0     node-with-a-name",
        "10    b",
    ]


def said(program, launched, output):
    """Run a program whose launcher's output is `output`, and return what it writes to standard error.

    launched: as by mpirun, which gives the program another output than its own.
    """
    own = "subprocess.PIPE" if launched else "None"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], stdout={own}, check=True)"
    environment = dict(os.environ)
    environment.pop("OMPI_COMM_WORLD_RANK", None)
    if launched:
        environment["OMPI_COMM_WORLD_RANK"] = "0"
    command = [sys.executable, "-c", launcher]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=environment, check=True).stderr


@pytest.mark.parametrize("launched", [True, False])
def test_the_output_of_the_launcher_decides_whether_there_is_a_terminal(launched):
    program = "import sys; from az_mpi.telemetry.progress_bar import on_terminal; sys.stderr.write(str(on_terminal()))"
    ours, theirs = pty.openpty()
    assert said(program, launched, theirs) == b"True"
    assert said(program, launched, subprocess.DEVNULL) == b"False"
    os.close(ours)
    os.close(theirs)


def test_a_bar_on_a_terminal_of_unknown_size_shows_its_share_and_is_removed_at_the_end():
    program = (
        "import logging; from az_mpi.telemetry import progress_bar; progress_bar.DRAW_EVERY_S = 0\n"
        "bar = progress_bar.ProgressBar(logging.Logger('test'), True, 'self-play', 'games')\n"
        "bar.update(0, 8); bar.update(4, 8); bar.close()"
    )
    ours, theirs = pty.openpty()  # 0 by 0, like the one that mpirun gives a rank
    said(program, False, theirs)
    assert select.select([ours], [], [], 0)[0], "nothing was drawn"
    none, half, removed = os.read(ours, 1 << 16).decode().split("\r")[1:]
    assert none == "self-play [........................] 0 of 8 games\x1b[K"
    assert re.match(r"self-play \[############\.{12}\] 4 of 8 games, [0-9.,]+/s, [0-9]+ s left", half)
    assert removed == "\x1b[K"
    os.close(ours)
    os.close(theirs)


ITERATION = {"num_games": 1200, "num_positions": 26400, "num_steps": 31, "train_s": 2.5, "policy_loss": 1.5}
PLAYED = {
    "num_games_asked": 1000,
    "games_per_s": 40.0,
    "simulations_per_s": 26000.4,
    "meanwhile_simulations_per_s": 1000.0,
    "cache_hit_rate": 0.5,
    "mean_length": 22.0,
    "first_player_score": 0.625,
    "play_s": 30.0,
}


def test_an_iterations_line_has_its_games_rates_losses_and_seconds():
    assert summary.iteration_line(ITERATION | PLAYED) == (
        "  1,200 games (40.0/s), 1,000 asked for, 26,400 positions, 26,000 simulations/s (1,000/s meanwhile), 50 % "
        "from the cache, length 22.0, first player scores 0.62; 31 steps, policy loss 1.500; play 30.0 s, train 2.5 s"
    )


def test_the_line_of_an_iteration_that_was_resumed_in_its_training_has_no_rates_of_play():
    resumed = ITERATION | {"num_games": 0, "num_positions": 0}
    assert summary.iteration_line(resumed) == "  0 games, 0 positions; 31 steps, policy loss 1.500; train 2.5 s"


def test_evaluation_lines_name_every_figure():
    match = {"wins": 77, "draws": 5, "losses": 18, "score": 0.795, "score_low": 0.706, "score_high": 0.862}
    bounded = match | {"elo": 235.4, "elo_low": 152.2, "elo_high": 319.0}
    open_ended = match | {"elo": None, "elo_low": None, "elo_high": None}
    solver = {
        "num_positions": 4520,
        "overall": 0.875,
        "random_overall": 0.5,
        "where_moves_differ": None,
        "random_where_moves_differ": None,
    }
    assert summary.evaluation_lines({"matches": {"rollout": bounded, "random": open_ended}, "solver": solver}) == [
        "  against rollout: 77 won, 5 drawn, 18 lost; score 0.795 [0.706, 0.862], Elo +235 [+152, +319]",
        "  against random: 77 won, 5 drawn, 18 lost; score 0.795 [0.706, 0.862]",
        "  moves that keep the exact value, 4,520 positions: 87.5 % of all (random mover 50.0 %), "
        "- where moves differ (random mover -)",
    ]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_file_system_that_hangs_does_not_delay_the_run(tmp_path, monkeypatch, hangs):
    answers, write = threading.Event(), console._File.write
    monkeypatch.setattr(console, "LAST_LINES_S", 0.5 if hangs else 30)
    monkeypatch.setattr(console._File, "write", lambda file, text: answers.wait(30) and write(file, text))
    logger = console.start(False, "rank-003", tmp_path)
    begun = time.monotonic()
    for number in range(1000):
        logger.info("line %d", number)
    if not hangs:
        answers.set()
    console.start(False, "rank-004", tmp_path)  # closes the other
    assert time.monotonic() - begun < 15
    answers.set()
    if not hangs:
        lines = (tmp_path / "logs" / "rank-003.log").read_text().splitlines()
        assert [line.split(" INFO ")[1] for line in lines] == [f"line {number}" for number in range(1000)]


def test_an_exception_is_logged_with_its_traceback(tmp_path):
    logger = console.start(False, "rank-003", tmp_path)
    try:
        raise ZeroDivisionError("one by none")
    except ZeroDivisionError:
        logger.exception("what %s", "happened")
    console.start(False, "rank-004", tmp_path)
    text = (tmp_path / "logs" / "rank-003.log").read_text()
    assert "ERROR what happened" in text and text.count("Traceback") == 1 and "one by none" in text


def test_a_log_that_grows_without_end_keeps_its_newest_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(console, "LOG_BYTES_MAX", 2000)
    for part in range(2):  # a second start appends
        logger = console.start(False, "rank-003", tmp_path)
        for number in range(500 * part, 500 * part + 500):
            logger.info("line %d", number)
    console.start(False, "rank-004", tmp_path)
    old, new = (tmp_path / "logs" / name for name in ("rank-003.log.1", "rank-003.log"))
    numbers = [int(line.rpartition(" ")[2]) for line in (old.read_text() + new.read_text()).splitlines()]
    assert numbers == list(range(numbers[0], 1000)) and numbers[0] > 0
    assert 2000 <= old.stat().st_size < 2100 and new.stat().st_size < 2100
    assert len(list((tmp_path / "logs").glob("rank-003*"))) == 2
