"""Seeing a run of real ranks: every state, a rank that stops and comes back, a job that is killed, one that fails."""

import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.mpi

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "programs" / "watched_rank.py"
RANKS = 3
OPTIONS = [
    "--config_file",
    "configs/smoke.json",
    "--set",
    "evaluate.every=0",
    "--set",
    "report.tensorboard=false",
    "--set",
    "checkpoint.every=1000000",
]


def start(folder, *options):
    """Start watched_rank.py on three ranks; return mpirun's process."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PYTHONPATH=str(ROOT))
    command = [
        Path(sys.executable).parent / "mpirun",
        "-np",
        RANKS,
        "-H",
        f"localhost:{RANKS}",
        "--bind-to",
        "none",
        sys.executable,
        PROGRAM,
        *OPTIONS,
        "--logdir",
        folder,
        *options,
    ]
    return subprocess.Popen(
        [str(word) for word in command], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill(job):
    """Kill mpirun and all its ranks, as a power cut would."""
    everyone = [*psutil.Process(job.pid).children(recursive=True), job] if job.poll() is None else []
    for process in reversed(everyone):  # mpirun first: it would say something
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    job.wait()


def rank_process(job, rank):
    for process in psutil.Process(job.pid).children(recursive=True):
        if str(PROGRAM) in process.cmdline() and process.environ()["OMPI_COMM_WORLD_RANK"] == str(rank):
            return process
    raise AssertionError(f"no rank {rank}")


def now(folder):
    """Return what status.json holds."""
    return json.loads((folder / "status.json").read_text())


def states(folder):
    """Return the ranks' states in status.json, [] before there is one."""
    return [row["state"] for row in now(folder)["ranks"]] if (folder / "status.json").exists() else []


def wait_until(condition, job, seconds=150):
    until = time.monotonic() + seconds
    while not condition():
        assert job.poll() is None and time.monotonic() < until
        time.sleep(0.05)


def status(folder, *options):
    """Return what `python -m az_mpi status` prints."""
    command = [sys.executable, "-m", "az_mpi", "status", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def test_status_shows_every_state_of_a_rank_and_a_killed_job_as_offline(tmp_path):
    folder = tmp_path / "run"
    job = start(folder, "--set", "iterations=1000000")
    try:
        seen = [set() for _ in range(RANKS)]

        def all_seen():
            for rank, state in enumerate(states(folder)):
                seen[rank].add(state)
            return all({"Active", "Training", "Syncing"} <= one for one in seen)

        wait_until(all_seen, job)
        victim = rank_process(job, 2)
        victim.send_signal(signal.SIGSTOP)
        wait_until(lambda: states(folder)[2] == "Offline", job)
        assert "Offline" not in states(folder)[:2]
        while_stopped = json.loads(status(folder, "--json"))
        assert (while_stopped["job"], while_stopped["workers_active"]) == ("running", 2)
        victim.send_signal(signal.SIGCONT)
        wait_until(lambda: "Offline" not in states(folder), job)
        totals = ("games_per_s", "model_sync_s", "network_mb_per_min", "staleness", "time_left_s")
        wait_until(lambda: None not in [now(folder)[name] for name in totals], job)  # known after some iterations
        text = status(folder)
        assert "Workers active   3/3" in text and "start 1, running" in text
        for name in ("Games/second", "Model sync time", "Network MB/min", "Staleness"):
            [line] = [line for line in text.splitlines() if line.startswith(name)]
            assert float(line[len(name) :].split()[0]) >= 0
    finally:
        kill(job)
    killed = time.monotonic()
    dead = json.loads(status(folder, "--json"))
    assert time.monotonic() - killed < 10
    assert dead["job"] == "dead" and [row["state"] for row in dead["ranks"]] == ["Offline"] * RANKS


def test_the_status_of_a_failed_rank_is_error(tmp_path):
    folder = tmp_path / "run"
    job = start(folder, "--set", "iterations=1000000")
    try:
        wait_until(lambda: "Active" in states(folder), job)
        (tmp_path / "fail").touch()
        assert job.wait(120) == 70
    finally:
        kill(job)
    failed = json.loads(status(folder, "--json"))
    assert [row["state"] for row in failed["ranks"]] == ["Offline", "Offline", "Error"]
    assert failed["job"] == "failed" and len(failed["failures"]) == 1
    assert failed["failures"][0].endswith("ZeroDivisionError: a fault in the test")
    assert "ERROR rank 2 on" in (folder / "logs" / "run.log").read_text()


class Page(HTMLParser):
    """The text of every table cell, and every address that a page refers to."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.addresses, self._in_cell = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        self._in_cell = tag == "td"
        self.cells += [""] * self._in_cell

    def handle_endtag(self, tag):
        self._in_cell = False

    def handle_data(self, data):
        if self._in_cell:
            self.cells[-1] += data


def test_a_run_leaves_its_status_a_report_and_one_tensorboard_folder_a_start(mpirun, tmp_path):
    folder = tmp_path / "run"
    for iterations in (1, 2):
        options = ["--config_file", "configs/smoke.json", "--logdir", folder, "--set", f"iterations={iterations}"]
        done = mpirun(2, "run_dist.py", *options)
        assert f"report in {folder / 'report.html'}" in done.stdout
    assert "start 2, finished" in status(folder) == (folder / "status.txt").read_text() + "\n"
    page = Page((folder / "report.html").read_text())
    assert page.addresses == []
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    played = [record for record in records if record["kind"] == "iteration"]
    for record in played:
        place = next(
            i
            for i, cell in enumerate(page.cells)
            if page.cells[i : i + 3]
            == [str(record["iteration"]), str(record["num_games"]), f"{record['num_positions']:,}"]
        )
        assert page.cells[place + 3] == f"{record['mean_length']:.1f}"
    boards = sorted((folder / "tensorboard").iterdir())
    assert [board.name for board in boards] == ["start-1", "start-2"]
    assert [len(list(board.iterdir())) for board in boards] == [1, 1]  # of root alone
