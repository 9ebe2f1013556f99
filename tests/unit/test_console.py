"""Progress lines, tables and summaries as people see them."""

import logging
import os
import pty
import subprocess
import sys

from az_mpi.report import console, summary


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage().strip())


def progress_lines(updates, shown=True):
    logger, lines = logging.Logger("test"), Lines()
    logger.addHandler(lines)
    progress = console.ProgressBar(logger, shown, "self-play", "games")
    progress.on_terminal = False
    for done, total in updates:
        progress.update(done, total)
    progress.close()
    return lines.lines


def test_a_file_gets_a_line_each_quarter_and_none_at_the_end():
    lines = progress_lines([(done, 100) for done in range(101)])
    assert lines == [f"self-play: {done} of 100 games" for done in (25, 50, 75)]


def test_a_jump_gives_one_line():
    assert progress_lines([(60, 100), (60, 100), (61, 100)]) == ["self-play: 60 of 100 games"]


def test_only_root_shows_progress():
    assert progress_lines([(50, 100)], shown=False) == []


def test_a_table_has_aligned_columns():
    assert console.table([("rank", "host"), (0, "node-with-a-name"), (10, "b")]) == [
        "rank  host", "0     node-with-a-name", "10    b"]


def on_terminal(launched, output):
    """Return what a process says that mpirun's shell would start, its output a terminal or a pipe."""
    program = "import sys; from az_mpi.report import console; sys.stderr.write(str(console.on_terminal()))"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    environment = dict(os.environ)
    environment.pop("OMPI_COMM_WORLD_RANK", None)
    if launched:
        environment["OMPI_COMM_WORLD_RANK"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", launcher], stdout=output, stderr=subprocess.PIPE, text=True, env=environment, check=True)
    return done.stderr


def test_the_launchers_output_decides_whether_there_is_a_terminal():
    ours, theirs = pty.openpty()
    assert on_terminal(True, theirs) == on_terminal(False, theirs) == "True"
    assert on_terminal(True, subprocess.PIPE) == on_terminal(False, subprocess.PIPE) == "False"
    os.close(ours)
    os.close(theirs)


def test_evaluation_lines_name_every_figure():
    match = {"wins": 77, "draws": 5, "losses": 18, "score": 0.795, "score_low": 0.706, "score_high": 0.862}
    bounded = match | {"elo": 235.4, "elo_low": 152.2, "elo_high": 319.0}
    open_ended = match | {"elo": None, "elo_low": None, "elo_high": None}
    solver = {"positions_num": 4520, "overall": 0.875, "random_overall": 0.5, "where_moves_differ": None,
              "random_where_moves_differ": None}
    assert summary.evaluation_lines({"matches": {"rollout": bounded, "random": open_ended}, "solver": solver}) == [
        "  against rollout: 77 won, 5 drawn, 18 lost; score 0.795 [0.706, 0.862], Elo +235 [+152, +319]",
        "  against random: 77 won, 5 drawn, 18 lost; score 0.795 [0.706, 0.862]",
        "  moves that keep the exact value, 4,520 positions: 87.5 % of all (random mover 50.0 %), "
        "- where moves differ (random mover -)",
    ]
