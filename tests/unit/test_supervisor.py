"""How launch supervises a training: after which ends another job follows, on which hosts, and after how long.

A program that does what a list says, with an entry for each job, takes mpirun's place; one that runs commands on this
machine takes ssh's.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from pathlib import Path

import pytest

from az_mpi.launch import hosts, mpi_job, supervisor
from az_mpi.launch.host_pool import HostPool
from az_mpi.launch.mpirun import Mpirun
from az_mpi.launch.request_files import RequestFiles
from az_mpi.launch.supervisor import Supervisor
from az_mpi.launch.transport import Ssh
from az_mpi.liveness.watchdog import ENDED_EARLY

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
# A job does what its entry says: it writes `job` into status.json, commits a segment, prints, runs until USR2, ends.
MPIRUN = f"""#!{sys.executable}
import json, os, pathlib, signal, sys, time
if "--version" in sys.argv: print("mpirun (Open MPI) 5.0.11"); sys.exit()
here = pathlib.Path(__file__).parent
run = here / "run"
plan = json.loads((here / "plan").read_text())
(here / "plan").write_text(json.dumps(plan[1:]))
does = plan[0]
with open(here / "lines", "a") as file: file.write(json.dumps(sys.argv[1:]) + "\\n")
launch = next(word.partition("=")[2] for word in sys.argv if word.startswith("AZ_MPI_LAUNCH="))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75))
if does.get("deaf"): signal.signal(signal.SIGTERM, signal.SIG_IGN)
(run / "games").mkdir(parents=True, exist_ok=True)
if "job" in does:
    np = int(sys.argv[sys.argv.index("-np") + 1])
    status = dict(job=does["job"], launch=launch, iteration=0, ranks=[dict(host="h")] * np)
    (run / "status.new").write_text(json.dumps(status)); (run / "status.new").rename(run / "status.json")
if does.get("commits"):
    (run / "games" / f"{{len(plan):06d}}-000.h5").touch()
os.write(2, does.get("says", "").encode())
while does.get("runs"): time.sleep(0.02)
time.sleep(does.get("seconds", 0))
if "signal" in does: os.kill(os.getpid(), does["signal"])
sys.exit(does.get("status", 0))
"""
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2; shift 2
[ -e "$AWAY/$host" ] && { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
sh -c "$*" | sed "s/\\"host\\": \\"[^\\"]*\\"/\\"host\\": \\"$host\\"/"
"""
LOST = "PRTE has lost communication with a remote daemon.\n"
RUNNING, RUNS = {"job": "running"}, {"job": "running", "runs": True}
FINISHES = {"job": "finished", "status": 0}


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Return launch(plan, hosts="a:1", **options) -> (the exit status, the words after -H and -np of each job)."""
    for name, text in (("mpirun", MPIRUN), ("ssh", SSH)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("AWAY", str(tmp_path))
    monkeypatch.setattr(supervisor, "PAUSE_S", 0)
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setattr(supervisor, "ANSWER_S", 20)  # the tests share a busy machine

    def run(plan, given="a:1", read=None, hours=0.0, transport=None, **options):
        (tmp_path / "plan").write_text(json.dumps(plan))
        options = {
            "max_restarts": 3,
            "no_check": True,
            "survive": False,
            "gpus": None,
            "nodes": None,
            "np": None,
            "timeout": 20,
            "interface": None,
        } | options
        host_pool = HostPool(read or (lambda: hosts.parse(given)), options["nodes"], options["gpus"], options["np"])
        found = Mpirun(str(tmp_path / "mpirun"), "mpirun (Open MPI) 5.0.11", None)
        watch = Supervisor(
            Namespace(**options),
            ["x", "--fresh"],
            tmp_path / "run",
            found,
            host_pool,
            host_pool.wanted(),
            hours,
            transport or Ssh(),
        )
        status = watch.run(None)
        lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
        assert not (tmp_path / "run/launch.json").exists() and all(line[-2] == "x" for line in lines[:1])
        run.lines = lines
        return status, [(line[line.index("-H") + 1], int(line[line.index("-np") + 1])) for line in lines]

    run.folder = tmp_path
    return run


# Ends after which one more job is started, which finishes.
@pytest.mark.parametrize(
    "first",
    [
        {**RUNNING, "status": 0, "says": LOST},
        {**RUNNING, "status": 0},
        {"status": 0},
        {**RUNNING, "status": 137},
        {**RUNNING, "signal": signal.SIGKILL},
        {"signal": signal.SIGKILL},
        {**RUNNING, "status": 139},
        {"job": "stopped", "status": 75},
        {**RUNNING, "status": 1},
        {**RUNNING, "status": 70, "says": LOST},
        {"status": 1, "says": LOST},
        {"status": 1, "says": ENDED_EARLY},
        {"job": "starting", "status": 213},
    ],
)
def test_a_job_that_is_lost_is_started_again(launch, first, capfd):
    assert launch([first, FINISHES]) == (0, [("a:1", 1)] * 2)
    assert "launch: the job was lost" in capfd.readouterr().err
    assert ("--fresh" in launch.lines[1]) == ("job" not in first), "a run that has begun is not to be fresh again"


@pytest.mark.parametrize(
    "only, status",
    [
        (FINISHES, 0),
        ({**FINISHES, "status": 139}, 139),
        ({**FINISHES, "says": LOST}, 0),
        ({"status": 2}, 2),
        ({**RUNNING, "status": 2}, 2),
        ({**RUNNING, "status": 130}, 130),
        ({"job": "failed", "status": 70}, 70),
        ({**RUNNING, "status": 70}, 70),
        ({"status": 1}, 1),
        ({"status": 75}, 75),
        ({"status": 213}, 213),
    ],
)
def test_a_job_that_is_done_or_would_fail_again_is_not_started_again(launch, only, status):
    assert launch([only])[0] == status and len(launch.lines) == 1


def test_a_job_that_makes_no_progress_is_given_up(launch, capfd):
    assert launch([{**RUNNING, "status": 137}] * 4) == (75, [("a:1", 1)] * 4)
    assert "given up after 3 restarts in a row" in capfd.readouterr().err
    assert launch([{**RUNNING, "status": 137}], max_restarts=0)[0] == 75 and len(launch.lines) == 5


def test_a_disk_that_fails_for_a_moment_does_not_end_the_launch(launch, monkeypatch):
    """The folders that show how far the run has come cannot be read."""
    monkeypatch.setattr(supervisor.files, "names", lambda folder: fail_with_eio())
    lost = {**RUNNING, "status": 137}
    assert launch([lost, lost, FINISHES]) == (0, [("a:1", 1)] * 3)


def test_a_restart_that_is_refused_because_a_disk_fails_is_tried_again(launch):
    assert launch([{**RUNNING, "status": 137}, {"status": 75}, FINISHES]) == (0, [("a:1", 1)] * 3)


def test_a_machine_that_cannot_ask_hosts_for_a_moment_does_not_end_the_launch(launch, monkeypatch, capfd):
    """No process can be started, the sources cannot be read, or the current folder is away."""
    answers, ask = iter([fail_with_eio, fail_with_eio]), supervisor.check.ask
    monkeypatch.setattr(supervisor.check, "ask", lambda *given: next(answers, lambda: ask(*given))())
    assert launch([{**RUNNING, "status": 137}, FINISHES], no_check=False) == (0, [("a:1", 1)] * 2)
    assert capfd.readouterr().err.count("launch: [Errno 5] Input/output error") == 2


def test_a_request_whose_file_cannot_be_removed_is_taken_later(tmp_path, monkeypatch):
    requests = RequestFiles(tmp_path)
    requests.ask({"id": 1})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **named: fail_with_eio())
        assert requests.take() is None
    assert requests.take() == {"id": 1} and requests.take() is None


def fail_with_eio():
    raise OSError(5, "Input/output error")


def test_a_job_that_makes_progress_is_started_again_without_limit(launch):
    lost = {**RUNNING, "status": 137}
    plan = [lost, lost, lost, {**lost, "commits": True}, lost, lost, {**lost, "commits": True}, lost, FINISHES]
    assert launch(plan)[0] == 0 and len(launch.lines) == 9


def test_pauses_between_restarts_double_up_to_a_limit():
    assert [supervisor.pause(k) for k in (0, 1, 2, 3, 4, 8, 9, 10**3)] == [0, 0, 5, 10, 20, 300, 300, 300]


def test_max_hours_count_all_jobs_of_a_launch_together(launch, capfd):
    assert launch([{**RUNNING, "status": 137}, RUNS], hours=3 / 3600)[0] == 75
    assert "max_hours is nearly over" in capfd.readouterr().err and len(launch.lines) == 2
    (launch.folder / "lines").unlink()  # a job that ends by itself once they are over, between two ticks
    assert launch([{"job": "stopped", "status": 75, "seconds": 0.8}, FINISHES], hours=0.8 / 3600)[0] == 75
    assert len(launch.lines) == 1 and "is lost" not in capfd.readouterr().err


def test_hosts_that_do_not_answer_are_left_out(launch, capfd):
    (launch.folder / "b").touch()
    plan = [{**RUNNING, "status": 0, "says": LOST}, FINISHES]
    assert launch(plan, "a:1,b:2,c:1", no_check=False, np=4) == (0, [("a:1,b:2,c:1", 4), ("a:1,c:1", 2)])
    assert "launch: left out: b: ssh: connect to host b port 22: No route to host" in capfd.readouterr().err


def test_a_restart_waits_for_the_whole_timeout_only_if_no_host_answers(launch, monkeypatch):
    asked, ask = [], supervisor.check.ask

    def silent_at_first(hosts, found, folder, shell, timeout_s, *more):
        asked.append((timeout_s, f"ConnectTimeout={timeout_s}" in shell("a", [])))
        return ask(hosts, found, folder, shell, timeout_s, *more) if len(asked) != 2 else ({}, [])

    monkeypatch.setattr(supervisor.check, "ask", silent_at_first)
    lost = {**RUNNING, "status": 137}
    assert launch([lost, lost, FINISHES], no_check=False, timeout=600) == (0, [("a:1", 1)] * 3)
    assert asked == [(20, True), (20, True), (600, True)]


def test_an_internal_error_is_followed_by_a_restart_only_if_a_host_is_missing(launch):
    (launch.folder / "b").touch()
    assert launch([{**RUNNING, "status": 70}, FINISHES], "a:1,b:1", no_check=False)[0] == 0
    assert launch([{**RUNNING, "status": 70}], "a:1", no_check=False)[0] == 70


def test_a_spare_host_takes_the_place_of_a_lost_one(launch):
    (launch.folder / "a").touch()
    plan = [{**RUNNING, "status": 0, "says": LOST}, FINISHES]
    assert launch(plan, "a:2,b:2,c:2", no_check=False, nodes=2) == (0, [("a:2,b:2", 4), ("b:2,c:2", 4)])


def test_a_host_that_answers_again_is_used_again(launch, monkeypatch):
    monkeypatch.setattr(supervisor, "SEARCH_EVERY_S", 0.5)
    monkeypatch.setattr("az_mpi.launch.host_pool.SEARCH_EVERY_S", 0.5)
    away = launch.folder / "b"
    away.touch()
    monkeypatch.setattr(mpi_job, "say", lambda text: away.unlink(True) if "left out" in text else None)
    asked, ask = set(), supervisor.check.ask
    monkeypatch.setattr(supervisor.check, "ask", lambda *given: asked.add((given[4], bool(given[6]))) or ask(*given))
    plan = [{**RUNNING, "status": 0, "says": LOST}, RUNS, FINISHES]
    done = launch(plan, "a:1,b:1", no_check=False, timeout=600)
    assert done == (0, [("a:1,b:1", 2), ("a:1", 1), ("a:1,b:1", 2)])
    assert asked == {(20, True), (600, False)}  # a restart is short of time, and the search beside the run is not


def test_a_host_added_to_the_hostfile_is_used(launch, monkeypatch):
    """It is used once two reads have found it, and not while the line is incomplete."""
    monkeypatch.setattr(supervisor, "SEARCH_EVERY_S", 0.3)
    texts = iter(["a:1", "a:1", "a:1,b:", "a:1,b:1"])

    def read():
        return hosts.parse(next(texts, "a:1,b:1,c:2"))

    assert launch([RUNS, FINISHES], read=read, no_check=False) == (0, [("a:1", 1), ("a:1,b:1,c:2", 4)])


def test_a_host_that_answers_but_cannot_start_is_not_tried_again_at_once(launch, monkeypatch):
    """It is the same machine under another name: if it is asked alone, nothing is wrong with it."""
    monkeypatch.setattr(supervisor, "SEARCH_EVERY_S", 0.3)
    (launch.folder / "ssh").write_text(SSH.replace("shift 2\n", "shift 2; [ $host = alias ] && host=a\n"))
    texts = iter(["a:1"])
    plan = [RUNS, {**FINISHES, "seconds": 2}]
    assert launch(plan, read=lambda: hosts.parse(next(texts, "a:1,alias:1")), no_check=False) == (0, [("a:1", 1)] * 2)


def test_a_job_that_survived_lost_ranks_is_restarted_with_all(launch, monkeypatch):
    """Two ranks are started, and the status has one of them."""
    monkeypatch.setattr(supervisor, "SEARCH_EVERY_S", 0.3)
    text = MPIRUN.replace("* np", "* (1 if does.get('runs') else np)")
    (launch.folder / "mpirun").write_text(text)
    assert launch([RUNS, FINISHES], "a:2", survive=True) == (0, [("a:2", 2)] * 2)


def test_ranks_are_not_counted_as_lost_before_the_job_has_written_a_status(launch, monkeypatch, capfd):
    """The second job writes no status, so the file still has that of the first job, with one of two ranks."""
    monkeypatch.setattr(supervisor, "SEARCH_EVERY_S", 0.3)
    (launch.folder / "mpirun").write_text(MPIRUN.replace("* np", "* (1 if does.get('runs') else np)"))
    assert launch([RUNS, {"seconds": 1.5}, FINISHES], "a:2", survive=True)[0] == 0
    assert capfd.readouterr().err.count("1 of 2 ranks are lost") == 1


def test_a_signal_in_the_pause_between_two_jobs_ends_the_launch_with_75(launch, tmp_path):
    """The whole command is run, with a stand-in for mpirun that loses each job."""
    (tmp_path / "run").mkdir()
    (tmp_path / "plan").write_text(json.dumps([{**RUNNING, "status": 137}] * 9))
    (tmp_path / "python").symlink_to(sys.executable)
    code = f"import sys; sys.executable = {str(tmp_path / 'python')!r}\nfrom az_mpi.launch import launcher\n"
    words = ["--no_check", "--", "--config_file", str(ROOT / "configs/smoke.json"), "--logdir", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}sys.exit(launcher.main({words}))"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        said = ""
        while "waiting 5 s" not in said:
            said += process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 75 and "stopping; the same command resumes the run" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


class Meeting(Ssh):
    """A transport that knows which hosts are up. away: names of those that are not. told: signals for mpirun; each of
    them is given once."""

    knows = True

    def __init__(self, folder):
        self.folder, self.away, self.told = folder, set(), []

    def num_jobs(self):
        """Return how many jobs have begun."""
        path = self.folder / "lines"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def present(self, names):
        return set(names) - self.away

    def poll(self, names):
        self.happen(names)
        told, self.told = self.told, []
        return told, bool(self.away & names)


@pytest.mark.parametrize("first", [RUNS, {"runs": True}, {**RUNS, "deaf": True}])
def test_a_host_that_the_transport_reports_as_lost_is_left_out(launch, monkeypatch, first):
    """Also before the run has begun, and if mpirun ignores TERM."""
    monkeypatch.setattr(supervisor, "ENDS", ((0, signal.SIGTERM), (1, signal.SIGKILL)))
    transport = Meeting(launch.folder)
    transport.happen = lambda names: transport.away.update("b" if transport.num_jobs() else "")
    assert launch([first, FINISHES], "a:1,b:1", transport=transport) == (0, [("a:1,b:1", 2), ("a:1", 1)])


def test_a_host_that_the_transport_reports_as_back_is_used_without_a_check(launch, monkeypatch):
    monkeypatch.setattr(supervisor, "SEARCH_EVERY_S", 0.3)
    monkeypatch.setattr("az_mpi.launch.host_pool.SEARCH_EVERY_S", 0.3)
    transport = Meeting(launch.folder)

    def happen(names):
        transport.away = {"b"} if transport.num_jobs() == 1 else set() if names else transport.away

    transport.happen = happen
    plan = [RUNS, RUNS, FINISHES]
    assert launch(plan, "a:1,b:1", transport=transport) == (0, [("a:1,b:1", 2), ("a:1", 1), ("a:1,b:1", 2)])


def test_a_stop_from_another_node_ends_the_run(launch):
    transport = Meeting(launch.folder)
    begun = launch.folder / "run/status.json"
    transport.happen = lambda names: transport.told.extend([signal.SIGUSR2] if begun.exists() else [])
    assert launch([RUNS], transport=transport)[0] == 75 and len(launch.lines) == 1


def test_a_stop_from_another_node_between_two_jobs_ends_the_launch(launch, capfd):
    transport = Meeting(launch.folder)
    transport.happen = lambda names: transport.told.extend([] if names else [signal.SIGUSR2])
    with pytest.raises(SystemExit) as leaving:
        launch([{**RUNNING, "status": 137}] * 2, transport=transport)
    assert leaving.value.code == 75 and transport.num_jobs() == 1
    assert "stopping; the same command resumes the run" in capfd.readouterr().err


def test_a_run_that_never_begins_gets_at_most_three_restarts(launch):
    assert launch([{"status": 1, "says": ENDED_EARLY}] * 9, max_restarts=8)[0] == 75 and len(launch.lines) == 4


def ask(*words):
    """Run `python -m az_mpi hosts` and return (status, what it says)."""
    done = subprocess.run(
        [sys.executable, "-m", "az_mpi", "hosts", *map(str, words)], cwd=ROOT, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_requests_of_a_user_are_refused_or_restart_the_job_on_other_hosts(launch):
    """A thread is the user; each job runs until it is asked to stop."""
    (launch.folder / "gone").touch()
    run, lines, said, ended = launch.folder / "run", launch.folder / "lines", [], threading.Event()

    def wait_for_job(number):
        while not ((run / "launch.json").exists() and len(lines.read_text().splitlines()) >= number):
            if ended.wait(0.05):
                break

    def user():
        for job, words in (
            (1, ("--remove", "c")),
            (1, ("--add", "gone:2")),
            (1, ("--remove", "b")),
            (2, ("--add", "c:2")),
            (3, ("--restart",)),
        ):
            wait_for_job(job)
            said.append(ask(run, *words))
        wait_for_job(4)
        said.append(list(run.glob("launch-request*")))
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=user)
    thread.start()
    try:
        status, widths = launch([RUNS] * 4, "a:1,b:1", no_check=False)
    finally:
        ended.set()
        thread.join()
    assert status == 75 and widths == [("a:1,b:1", 2), ("a:1", 1), ("a:1,c:2", 3), ("a:1,c:2", 3)]
    assert said[0] == (2, "--remove c: not among the hosts of this run: a, b\n")
    assert said[1][0] == 2 and "gone: ssh: connect to host gone port 22: No route to host" in said[1][1]
    assert said[2:] == [
        (0, "restarting on a:1: 1 rank\n"),
        (0, "restarting on a:1,c:2: 3 ranks\n"),
        (0, "restarting on a:1,c:2: 3 ranks\n"),
        [],
    ]


def test_the_ranks_of_a_lost_job_are_killed_and_no_others():
    """The probe of a host finds them by a variable of their environment."""
    from az_mpi.launch import host_probe

    def rank(launch):
        return subprocess.Popen(
            [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
            stdout=subprocess.PIPE,
            env={**os.environ, "AZ_MPI_LAUNCH": launch},
        )

    ranks = [rank("ours"), rank("ours"), rank("ours-too")]
    try:
        for one in ranks:
            one.stdout.readline()
        assert host_probe._end("ours") == 0
        assert [one.wait(10) for one in ranks[:2]] == [-signal.SIGKILL] * 2 and ranks[2].poll() is None
    finally:
        for one in ranks:
            one.kill()
            one.communicate()


def test_no_host_is_shown_in_the_job_between_two_jobs(launch, monkeypatch):
    """Nor is it before the new job has written a status."""
    said, publish = [], RequestFiles.publish
    monkeypatch.setattr(RequestFiles, "publish", lambda files, content: said.append(content) or publish(files, content))
    assert launch([{**RUNNING, "status": 137}, FINISHES], "a:1,b:1", no_check=False)[0] == 0
    told = [(content["up"], [row["state"] for row in content["hosts"]]) for content in said]
    assert (False, ["in the next job"] * 2) in told
    assert all(up == ("in the job" in states) for up, states in told)
