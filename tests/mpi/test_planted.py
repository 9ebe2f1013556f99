"""Foreign files in a run's folder end no start, and a folder may have any name in any locale."""

import os

import pytest
from jobs import SMALL, SMOKE

pytestmark = pytest.mark.mpi


def test_a_run_starts_beside_pipes_and_huge_files_in_its_folder(mpirun, tmp_path, monkeypatch):
    """The locale is ASCII, in which Python knows the folder's name as bytes only."""
    monkeypatch.setenv("LC_ALL", "POSIX")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:strict")
    run = tmp_path / "läuft 中文"
    start = ["run_dist.py", "--config_file", SMOKE, "--logdir", run, *SMALL, "--num_games", 8]
    done = mpirun(2, *start, "--set", "iterations=1", timeout=120)
    assert "Traceback" not in done.stdout + done.stderr and (run / "report.html").exists()
    pipes = ["metrics.jsonl", "logs/run.log", "starts/001.json", "games/000001-000.h5", "evaluations/000009.json"]
    for name in pipes:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
    (run / "games/000000-001.h5").touch()
    os.truncate(run / "games/000000-001.h5", 2**36)  # 64 GiB of nothing
    done = mpirun(2, *start, "--set", "iterations=2", timeout=120)
    said = done.stdout + done.stderr
    assert "complete: iteration 2 of 2, 16 games" in said and "Traceback" not in said
    for name in ("metrics.jsonl", "run.log"):
        assert f"{name}: not a plain file" in said
    for name in ("games/000001-000.h5", "games/000000-001.h5", "starts/001.json"):
        assert (run / f"{name}.damaged").exists(), name
