"""A long run's folder is thinned, and every command that reads it still works."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from jobs import ROOT, SMALL, columns, newest, records

pytestmark = pytest.mark.mpi

SETTINGS = ["selfplay.num_games=16", "replay.window_min=64", "replay.window_max=256", "evaluate.every=1"]
THINNED = ["storage.keep_windows=2", "checkpoint.keep_best=4", "checkpoint.keep=1"]


def words(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def az_mpi(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "az_mpi", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def pair(run_dist, tmp_path_factory):
    """Return the folders of a run that was thinned and of one that was not; each was resumed once."""
    folders = [tmp_path_factory.mktemp("long") / name for name in ("thinned", "whole")]
    for folder, more in zip(folders, (THINNED, [])):
        for iterations in (9, 12):
            done = run_dist(1, folder, *SMALL, *words(*SETTINGS, *more, f"iterations={iterations}"))
        assert "the checkpoint counts" not in done.stdout
    return folders


def test_a_thinned_run_makes_the_same_network_and_counts_all_its_games(pair):
    thinned, whole = pair
    for name in ("model.safetensors", "state.json"):
        assert (newest(thinned) / name).read_bytes() == (newest(whole) / name).read_bytes(), name
    assert json.loads((newest(thinned) / "state.json").read_text())["num_games"] == 12 * 16


def test_the_folder_of_a_thinned_run_has_two_windows_of_games_and_few_networks(pair):
    thinned, whole = pair
    stored, everything = columns(thinned), columns(whole)
    kept = len(stored["positions/game"])
    assert 2 * 256 <= kept <= 2 * 256 * 9 / 8 + 16 * 9 < len(everything["positions/game"])
    assert np.array_equal(stored["games/id"], everything["games/id"][-len(stored["games/id"]) :])
    assert [path.stem for path in sorted((thinned / "best").iterdir())] == ["000001", "000002", "000011", "000012"]
    assert len(list((whole / "best").iterdir())) == 12
    assert len(records(thinned, "evaluation")) == 12


def test_a_thinned_run_is_verified_reported_shown_and_rated(pair):
    thinned, _ = pair
    checked = json.loads(az_mpi("verify", thinned, "--json"))
    assert checked["whole"] and not any("the newest checkpoint counts" in note for note in checked["notes"])
    assert checked["num_games"] == len(columns(thinned)["games/id"])
    az_mpi("report", thinned)
    assert "192" in az_mpi("status", thinned)
    az_mpi("ladder", thinned, "--games", 2, "--simulations", 2)
    assert [row["name"] for row in json.loads((thinned / "ladder.json").read_text())["ratings"]][0] == "000001"


@pytest.mark.slow  # test_runs_in_trouble.py has runs that begin again, which are not thinned
def test_a_thinned_run_that_begins_again_without_a_checkpoint_counts_from_the_start(pair, run_dist, tmp_path):
    thinned, _ = pair
    run = tmp_path / "run"
    shutil.copytree(thinned, run)
    shutil.rmtree(newest(run))
    run_dist(1, run, *SMALL, *words(*SETTINGS, *THINNED, "iterations=2"), "--without_checkpoint")
    state = json.loads((newest(run) / "state.json").read_text())
    assert (state["iteration"], state["num_games"]) == (2, 32)
    again = run_dist(1, run, *SMALL, *words(*SETTINGS, *THINNED, "iterations=3"))
    assert "the checkpoint counts" not in again.stdout
