"""A run whose user may not use its files for a while, such as one whose ticket (Kerberos) has ended."""

import os
import shutil
import subprocess
import time

import pytest
from jobs import ids

pytestmark = pytest.mark.mpi

OPTIONS = [
    "--config_file",
    "configs/smoke.json",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.tensorboard=false",
    "--set",
    "selfplay.deterministic=true",
]


@pytest.fixture
def start(start_mpirun, tmp_path):
    """Return start(*options, ranks=2): the running mpirun of a run in tmp_path/run. It has no more rights than files
    show."""
    rights = "-dac_override,-dac_read_search"
    prefix = ["setpriv", "--bounding-set", rights, "--inh-caps", rights] if os.geteuid() == 0 else []
    if prefix and not (shutil.which("setpriv") and subprocess.run([*prefix, "true"]).returncode == 0):
        pytest.skip("root may use every file, and setpriv (util-linux) cannot take that from it")

    def start(*options, ranks=2):
        return start_mpirun(ranks, "run_dist.py", *OPTIONS, "--logdir", tmp_path / "run", *options, prefix=prefix)

    return start


def test_a_run_pauses_while_it_has_no_right_to_write_and_then_continues(start, tmp_path):
    games, said = tmp_path / "run" / "games", ""
    process = start("--set", "storage.give_up_s=60")
    while not games.is_dir():
        assert process.poll() is None
        time.sleep(0.01)
    games.chmod(0o550)
    for line in process.stdout:
        said += line
        if "paused: " in line:
            games.chmod(0o750)
    assert process.wait(60) == 0, said
    assert "games cannot be written: Permission denied" in said and "give this user access" in said
    assert "the run continues" in said and "complete: iteration 2 of 2" in said
    found = ids(tmp_path / "run")
    assert len(found) == len(set(found)) > 0


def test_files_without_the_right_to_read_are_neither_damaged_nor_skipped(start, tmp_path):
    def listing():
        return sorted(path for path in (tmp_path / "run").rglob("*") if path.parent.name in ("games", "checkpoints"))

    said, _ = (process := start()).communicate(timeout=120)
    assert process.returncode == 0, said
    there = listing()
    go_on, model = ["--set", "iterations=3", "--set", "storage.give_up_s=2"], "checkpoints/000002/model.safetensors"
    for name, rights, options, ranks, status, words in (
        (model, 0, go_on, 2, 2, "Permission denied: "),
        (model, 0, [*go_on, "--without_checkpoint"], 1, 2, "Permission denied: "),
        (model, 0, ["--mode", "eval"], 1, 2, "/checkpoints cannot be read: Permission denied: model.safetensors ("),
        ("games/000000-000.h5", 0, go_on, 2, 75, "/games cannot be read: Permission denied: 000000-000.h5 ("),
        (".", 0o550, ["--mode", "selfplay"], 1, 2, "Permission denied: "),
    ):
        path = tmp_path / "run" / name
        before = path.stat().st_mode & 0o777
        path.chmod(rights)
        said, _ = (process := start(*options, ranks=ranks)).communicate(timeout=120)
        assert (process.returncode, words in said) == (status, True), said
        assert "Traceback" not in said and "resumed" not in said and "damaged" not in said and listing() == there
        path.chmod(before)
    said, _ = (process := start("--set", "iterations=3")).communicate(timeout=120)
    assert process.returncode == 0 and "complete: iteration 3 of 3" in said, said
    assert set(there) - set(listing()) <= {tmp_path / "run" / "checkpoints" / "000001"}  # no more are kept
