"""What versions up to 1.0.0 called otherwise is still read: keys of files and configurations, options, users' files."""

import shutil
from pathlib import Path

import pytest
from helpers import make_config

from az_mpi.config import command_line
from az_mpi.config import load as configuration
from az_mpi.core import files
from az_mpi.core.earlier_names import modern, starts_folder
from az_mpi.core.registry import SINKS
from az_mpi.report import run_data
from az_mpi.storage import checkpoint, run_folder
from az_mpi.telemetry import metrics, status_command

OLD = Path(__file__).parents[1] / "data" / "run_of_0823929"
SINK = """
from az_mpi.report.callbacks import Callback
from az_mpi.report.sinks import Sink

class Own(Sink):
    def __init__(self, folder, attempt):
        self.folder, self.attempt = folder, attempt
"""


@pytest.mark.parametrize(
    "name, now",
    [
        ("games_num", "num_games"),
        ("games_asked_num", "num_games_asked"),
        ("attempt", "start"),
        ("num_games", "num_games"),
        ("step", "step"),
        ("_num", "_num"),
    ],
)
def test_a_name_of_an_earlier_version_is_renamed_and_others_stay(name, now):
    assert modern(name) == now


def test_a_configuration_with_earlier_keys_is_that_with_the_new_ones(tmp_path):
    old = {"game": "connect4", "selfplay": {"games_num": 7}, "evaluate": {"games_num": 12}}
    new = {"game": "connect4", "selfplay": {"num_games": 7}, "evaluate": {"num_games": 12}}
    assert configuration.validate(old, "old") == configuration.validate(new, "new")
    set_old = configuration.validate({"game": "connect4"}, "", {"selfplay.games_num": 7, "evaluate.games_num": 12})
    assert set_old == configuration.validate(new, "new")


def test_the_earlier_option_sets_the_new_key():
    given = command_line.parse(["--config_file", "x.json", "--games_num", "9"])
    assert given.overrides == {"selfplay.num_games": 9}


def test_a_folder_of_an_earlier_version_says_the_same_by_the_new_names(tmp_path):
    progress = checkpoint.read(OLD / "checkpoints/000002").progress
    assert (progress.num_games, progress.num_positions) == (32, 200)
    status = status_command.read(OLD)
    assert status["num_games"] == 32 and status["start"] == 1 and status["ranks"][0]["num_games"] == 16
    assert all("games_num" not in record for record in metrics.read(OLD / "metrics.jsonl"))
    data = run_data.load(OLD)
    assert [start["number"] for start in data.starts] == [1] and data.config["selfplay.num_games"] > 0
    assert sum(record["num_games"] for record in data.iterations) == 32
    assert files.read_json(OLD / "evaluations/000002.json")["solver"]["num_positions"] == 4520


def test_a_new_start_of_an_old_run_is_written_where_the_old_ones_are(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    config = run_folder.recorded_config(tmp_path / "run")
    assert run_folder.prepare(tmp_path / "run", config, ["here"], False) == 2
    assert starts_folder(tmp_path / "run").name == "attempts" and not (tmp_path / "run" / "starts").exists()
    run_folder.prepare(tmp_path / "new", make_config(), ["here"], False)
    assert [path.name for path in (tmp_path / "new" / "starts").iterdir()] == ["001.json"]


def test_a_users_sink_that_imports_and_takes_the_earlier_names_is_made(tmp_path):
    (tmp_path / "own.py").write_text(SINK)
    made = SINKS.make(f"{tmp_path}/own.py:Own", folder=tmp_path, start=3)
    assert (made.folder, made.attempt) == (tmp_path, 3)
