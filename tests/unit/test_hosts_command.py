"""python -m az_mpi hosts if no launch answers, and what it refuses. Answers of a launch are in test_supervisor.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from az_mpi.__main__ import main as program

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
STATUS = {
    "schema_version": 1,
    "run": "r",
    "game": "connect4",
    "start": 1,
    "job": "running",
    "count": 1,
    "written": "2026-01-01 00:00:00",
    "elapsed_s": 1.0,
    "phase": "play",
    "iteration": 0,
    "iterations": 2,
    "progress": None,
    "time_left_s": None,
    "num_games": 0,
    "num_positions": 0,
    "step": 0,
    "games_per_s": 0.0,
    "workers_active": 1,
    "num_workers": 1,
    "model_sync_s": None,
    "network_mb_per_min": None,
    "staleness": None,
    "failures": [],
    "ranks": [
        {
            "rank": 0,
            "host": "n1",
            "device": "cpu",
            "roles": "play",
            "state": "Active",
            "num_games": 0,
            "games_per_s": 0.0,
            "last_seen_s": 0.1,
        }
    ],
}


def test_a_run_without_a_launch_is_shown_and_cannot_be_changed(tmp_path, capsys):
    (tmp_path / "status.json").write_text(json.dumps(STATUS))
    assert program(["hosts", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "job: running; no launch supervises it\n  n1: 1 rank\n"
    before = sorted(tmp_path.iterdir())
    assert program(["hosts", str(tmp_path), "--add", "n2:1"]) == 2
    said = capsys.readouterr().err
    assert "no launch supervises" in said and "scancel" in said and sorted(tmp_path.iterdir()) == before


def test_a_job_being_started_is_not_shown_with_the_status_of_the_job_before(tmp_path, capsys):
    """The last job had one of its two ranks left, on a host that is lost; the next one begins on the other host."""
    (tmp_path / "status.json").write_text(json.dumps(STATUS))
    state = {
        "id": "x",
        "pid": 7,
        "host": "h",
        "answer": None,
        "ranks": 2,
        "num_restarts": 1,
        "up": False,
        "hosts": [{"host": "n2:2", "state": "in the next job"}, {"host": "n1:1", "state": "does not answer"}],
    }
    for up in (False, True):
        (tmp_path / "launch.json").write_text(json.dumps(state | {"up": up}))
        assert program(["hosts", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert said.splitlines()[1:] == ["  n2:2: in the next job", "  n1:1: does not answer"]
        assert ("1 of 2 ranks" in said, "running" in said) == (up, up)
        assert ("being started again, on 2 ranks" in said) == (not up)


@pytest.mark.parametrize(
    "status, text, shown",
    [
        (0, "restarting on n2:2: 2 ranks", "last answered request: restarting on n2:2: 2 ranks"),
        (2, "n3: no answer\n    start it", "last answered request, refused: n3: no answer\n    start it"),
    ],
)
def test_the_result_of_a_request_that_did_not_wait_is_shown(tmp_path, capsys, status, text, shown):
    (tmp_path / "status.json").write_text(json.dumps(STATUS))
    state = {"id": "x", "pid": 7, "host": "h", "ranks": 1, "num_restarts": 0}
    state |= {"hosts": [{"host": "n1:1", "state": "in the job"}], "answer": None}
    (tmp_path / "launch.json").write_text(json.dumps(state))
    assert program(["hosts", str(tmp_path), "--add", "n2:2", "--no_wait"]) == 0
    assert "shows its result" in capsys.readouterr().out
    request = json.loads((tmp_path / "launch-request.json").read_text())
    state["answer"] = {"id": request["id"], "status": status, "text": text}
    (tmp_path / "launch.json").write_text(json.dumps(state))
    assert program(["hosts", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(f"  n1:1: in the job\n{shown}\n")


@pytest.mark.parametrize(
    "words, says",
    [
        (["none"], "none/status.json"),
        (["none", "--restart"], "none/status.json"),
        (["none", "--add", "-oX=x:1"], "expected one argument"),
        (["none", "--add=-oX:1"], "no host was contacted"),
        (["none", "--add", "a b"], "--add"),
        (["none", "--remove", "a;b"], "--remove"),
        (["none", "--no_wait"], "--no_wait"),
    ],
)
def test_bad_requests_are_refused(words, says):
    done = subprocess.run([sys.executable, "-m", "az_mpi", "hosts", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_a_request_is_refused_if_its_launch_does_not_answer_or_another_one_waits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("az_mpi.launch.hosts_command.WAIT_S", 0.5)
    (tmp_path / "status.json").write_text(json.dumps(STATUS))
    (tmp_path / "launch.json").write_text(json.dumps({"id": "x", "pid": 7, "host": "h", "answer": None}))
    assert program(["hosts", str(tmp_path), "--restart"]) == 2
    assert "process 7 on h, does not answer" in capsys.readouterr().err
    assert not (tmp_path / "launch-request.json").exists()
    assert program(["hosts", str(tmp_path), "--restart", "--no_wait"]) == 0
    request = json.loads((tmp_path / "launch-request.json").read_text())
    assert request["launch"] == "x" and request["restart"] and program(["hosts", str(tmp_path), "--restart"]) == 2
    assert "another request is waiting" in capsys.readouterr().err
