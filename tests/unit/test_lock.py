"""One folder, one job: real processes that start at once, die, sleep, and are taken over."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from az_mpi.core.problems import NotNow, Refusal
from az_mpi.storage import lock
from az_mpi.storage.lock import Lock, LockHeld, LockLost, look, me

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
LONG_S = 60
# Says that it is ready, waits for its standard input's first byte, tries, says how it went, and if it has the lock
# keeps it until its standard input ends.
PROGRAM = """
import sys, time
from az_mpi.storage import lock
dead = lock.look(sys.argv[1]) if "early" in sys.argv else None
print("ready", flush=True)
sys.stdin.read(1)
begun = time.monotonic()
try:
    held = lock.Lock.take(sys.argv[1], [lock.me()], 7, dead)
    print("runs", flush=True)
    sys.stdin.read()
    held.release()
except lock.LockHeld as error:
    print(f"{time.monotonic() - begun:.3f} {error}", flush=True)
"""


@pytest.fixture
def start():
    """Return start(run, *words): a process that is ready to take the lock. All are killed at the end."""
    started = []

    def begin(run, *words):
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", PROGRAM, str(run), *words],
            cwd=ROOT,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def go(processes):
    """Let processes that are ready try at once and return what each says."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.stdout.readline() for process in processes]


def holder(run):
    """Return the content of the only lock there is."""
    [path] = (run / "lock").iterdir()
    return json.loads(path.read_text())


def die(process):
    process.kill()
    process.wait()


def make_foreign(run, beats=True):
    """Let the lock look as if its process were on a host of which nothing is known here."""
    [path] = (run / "lock").iterdir()
    content = json.loads(path.read_text())
    content["host"] = content["ranks"][0]["host"] = "far"
    content["ranks"][0]["place"] = "another kernel"
    path.write_text(json.dumps(content))
    return path


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path):
    held = Lock.take(tmp_path / "run", [me()], 3)
    content = holder(tmp_path / "run")
    assert content["pid"] == os.getpid() and content["start"] == 3 and content["token"] == held.token
    assert content["host"] == os.uname().nodename and len(held.token) == 32
    assert held.still_ours()
    held.check()
    with pytest.raises(LockHeld) as refused:
        Lock.take(tmp_path / "run", [me()], 4)
    assert isinstance(refused.value, Refusal)
    for word in (f"process {os.getpid()} on {os.uname().nodename}", "start 3", str(tmp_path / "run"), "--logdir"):
        assert word in str(refused.value)
    held.release()
    assert not (tmp_path / "run" / "lock").exists()
    assert not held.still_ours()
    Lock.take(tmp_path / "run", [me()], 4).release()


@pytest.mark.parametrize("before, num", [("nothing", 100), ("dead", 100), ("torn", 10)])
def test_of_100_that_start_at_once_exactly_one_runs(start, tmp_path, before, num):
    run = tmp_path / "run"
    if before == "dead":
        first = start(run)
        assert go([first]) == ["runs\n"]
        die(first)
    if before == "torn":
        (run / "lock").mkdir(parents=True)
        (run / "lock" / "000004.json").write_text('{"host": ')
    processes = [start(run) for _ in range(num)]
    said = go(processes)
    winners = [process for process, line in zip(processes, said) if line == "runs\n"]
    assert len(winners) == 1
    losses = [line for line in said if line != "runs\n"]
    assert all(f"process {winners[0].pid} on" in line for line in losses)
    assert max(float(line.split()[0]) for line in losses) < 5 + lock.LOOK_S * (before == "torn")
    assert holder(run)["pid"] == winners[0].pid
    winners[0].stdin.close()
    assert winners[0].wait(LONG_S) == 0 and not (run / "lock").exists()


def test_the_lock_of_a_killed_process_is_taken_over_at_once(start, tmp_path):
    for number in range(1, 4):
        process = start(tmp_path)
        assert go([process]) == ["runs\n"]
        assert [path.name for path in (tmp_path / "lock").iterdir()] == [f"{number:06d}.json"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    begun = time.monotonic()
    Lock.take(tmp_path, [me()], 1).release()
    assert time.monotonic() - begun < lock.LOOK_S / 2


def test_a_process_that_nobody_has_reaped_is_dead(start, tmp_path):
    process = start(tmp_path)
    assert go([process]) == ["runs\n"]
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table of processes
    assert look(tmp_path) == {"000001.json": holder(tmp_path)["token"]}


def test_another_process_of_the_same_number_is_not_the_holder(start, tmp_path):
    process = start(tmp_path)
    assert go([process]) == ["runs\n"]
    [path] = (tmp_path / "lock").iterdir()
    content = json.loads(path.read_text())
    content["ranks"][0]["started"] -= 1
    path.write_text(json.dumps(content))
    assert list(look(tmp_path)) == ["000001.json"]


def test_a_stopped_process_keeps_its_lock(start, tmp_path):
    process = start(tmp_path)
    assert go([process]) == ["runs\n"]
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(LockHeld, match=f"process {process.pid} "):
        look(tmp_path)


def test_a_holder_on_another_host_is_known_by_its_beat(tmp_path):
    held = Lock.take(tmp_path, [me()], 1)
    make_foreign(tmp_path)
    begun = time.monotonic()
    with pytest.raises(LockHeld, match="on far.*its lock is renewed"):
        look(tmp_path)
    assert time.monotonic() - begun < 5
    held.release()


def test_a_holder_on_another_host_whose_beat_stands_still_is_dead(start, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LOOK_S", 2.0)
    process = start(tmp_path)
    assert go([process]) == ["runs\n"]
    make_foreign(tmp_path)
    process.send_signal(signal.SIGSTOP)
    held = Lock.take(tmp_path, [me()], 2)
    assert holder(tmp_path)["pid"] == os.getpid()
    process.send_signal(signal.SIGCONT)
    process.stdin.close()  # it wakes up, ends, and takes nothing of ours with it
    assert process.wait(LONG_S) == 0
    assert held.still_ours() and holder(tmp_path)["token"] == held.token
    held.release()


def stand_still(run, monkeypatch, hang_s, **starter):
    """Leave the lock of a job elsewhere whose beat stands still. starter: who starts that job, by id."""
    for variable in ("AZ_MPI_LAUNCH", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(lock, "LOOK_S", 0.5)
    monkeypatch.setattr(lock, "TELL_S", 0.2)
    (run / "lock").mkdir()
    content = {
        "host": "far",
        "pid": 7,
        "start": 1,
        "token": "t",
        "since": "then",
        "hang_s": hang_s,
        "starter": {"launch": None, "slurm": None, "start": None} | starter,
        "ranks": [{"host": "far", "pid": 7, "place": "another kernel", "started": 1}],
    }
    (run / "lock" / "000001.json").write_text(json.dumps(content))


def seconds(run, said):
    begun = time.monotonic()
    assert look(run, said.append) == {"000001.json": "t"}
    return time.monotonic() - begun


def test_a_job_elsewhere_may_stand_still_as_long_as_it_allows_itself(tmp_path, monkeypatch):
    stand_still(tmp_path, monkeypatch, 2.0)
    said = []
    assert 2.0 < seconds(tmp_path, said) < 4.0
    assert len(said) == 1 and "process 7 on far had this run; looking for 2 s whether it lives" in said[0]


def test_a_job_elsewhere_that_may_hang_for_ever_is_waited_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LOOK_MAX_S", 2.0)
    stand_still(tmp_path, monkeypatch, 0.0)
    assert 2.0 < seconds(tmp_path, []) < 4.0


def test_a_job_that_waits_for_a_lock_can_be_stopped(tmp_path, monkeypatch):
    stand_still(tmp_path, monkeypatch, 60.0)

    def wait():
        raise NotNow("stopped")

    with pytest.raises(NotNow, match="stopped"):
        look(tmp_path, wait=wait)


def test_a_new_start_waits_for_a_repair(tmp_path):
    held = Lock.take(tmp_path, [me()], 1, brief=True)
    with pytest.raises(NotNow, match="another job runs here"):
        look(tmp_path)
    held.release()


@pytest.mark.parametrize(
    "ours, theirs, earlier",
    [
        ({"AZ_MPI_LAUNCH": "a"}, {"launch": "a"}, True),
        ({"AZ_MPI_LAUNCH": "a"}, {"launch": "b"}, False),
        ({"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": "2"}, {"slurm": "5", "start": "1"}, True),
        ({"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": "1"}, {"slurm": "5"}, True),
        ({"SLURM_JOB_ID": "5"}, {"slurm": "5"}, False),
        ({"SLURM_JOB_ID": "5"}, {"slurm": "6", "start": "1"}, False),
        ({}, {}, False),
    ],
)
def test_an_earlier_start_of_the_same_job_is_known(tmp_path, monkeypatch, ours, theirs, earlier):
    """Who starts it again knows that it is lost: its lock is looked at for LOOK_S only. Where it still lives, as on a
    host that is cut off, the new start is to be tried again, with status 75."""
    stand_still(tmp_path, monkeypatch, 2.0, **theirs)
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    assert (seconds(tmp_path, []) < 2.0) == earlier
    read, reads = lock._read, itertools.count()

    def beating(path):
        if next(reads) == 1:
            os.utime(path)
        return read(path)

    monkeypatch.setattr(lock, "_read", beating)
    with pytest.raises(LockHeld, match="process 7 on far.*its lock is renewed") as held:
        look(tmp_path)
    assert isinstance(held.value, NotNow) == earlier


def test_a_file_system_that_hangs_is_no_death(tmp_path, monkeypatch):
    """It hangs for the holder too, whose next beat comes a moment after this look."""
    stand_still(tmp_path, monkeypatch, 0.5)
    monkeypatch.setattr(lock, "SLOW_S", 0.1)
    read, hangs = lock._read, [0.0, 1.0, 0.0]

    def slow(path):
        time.sleep(hangs.pop(0) if hangs else 0.0)
        if not hangs:
            os.utime(path)
        return read(path)

    monkeypatch.setattr(lock, "_read", slow)
    with pytest.raises(LockHeld, match="its lock is renewed"):
        look(tmp_path)


def test_a_lock_says_who_starts_its_job_and_how_long_it_may_hang(tmp_path, monkeypatch):
    monkeypatch.setenv("AZ_MPI_LAUNCH", "a")
    held = Lock.take(tmp_path, [me()], 1, hang_s=30.0)
    assert holder(tmp_path)["starter"]["launch"] == "a" and holder(tmp_path)["hang_s"] == 30.0
    heir = Lock.take_over(tmp_path, [me()], 1, held.token, 20.0)
    assert holder(tmp_path)["starter"]["launch"] == "a" and holder(tmp_path)["hang_s"] == 20.0
    heir.release()


def test_a_job_that_slept_while_its_lock_was_taken_stops(tmp_path):
    mine = Lock.take(tmp_path, [me()], 1)
    [path] = (tmp_path / "lock").iterdir()
    token = holder(tmp_path)["token"]
    theirs = Lock.take(tmp_path, [me()], 2, {path.name: token})
    assert theirs.still_ours() and not mine.still_ours()
    with pytest.raises(LockLost, match=f"taken the run over .{os.getpid()} on"):
        mine.check()
    theirs.release()
    # Its number is given again, and that is not its own.
    again = Lock.take(tmp_path, [me()], 3)
    assert again.path == mine.path and again.still_ours() and not mine.still_ours()
    mine.release()
    assert again.still_ours()
    again.release()


def test_the_lock_of_a_job_whose_root_is_dead_passes_to_another_rank(start, tmp_path):
    root = start(tmp_path)
    assert go([root]) == ["runs\n"]
    [path] = (tmp_path / "lock").iterdir()
    content = json.loads(path.read_text())
    content["ranks"].append(me())
    path.write_text(json.dumps(content))
    die(root)
    with pytest.raises(LockHeld, match=f"process {os.getpid()} .*a rank of the job lives"):
        look(tmp_path)
    heir = Lock.take_over(tmp_path, [me()], 7, content["token"])
    assert heir.still_ours() and heir.token == content["token"] and holder(tmp_path)["pid"] == os.getpid()
    heir.release()
    with pytest.raises(LockLost, match="removed"):
        Lock.take_over(tmp_path, [me()], 7, content["token"])


@pytest.mark.parametrize("back", [False, True])
def test_a_renamed_folder_is_not_another_job(tmp_path, back):
    """Where it is gone the same command would begin a new run; where it is back it continues the old one."""
    run = tmp_path / "run"
    (run / "starts").mkdir(parents=True)
    mine = Lock.take(run, [me()], 1)
    run.rename(tmp_path / "moved")
    assert not mine.still_ours()
    if back:
        (tmp_path / "moved").rename(run)
    with pytest.raises(LockLost, match="renamed") as caught:
        mine.check()
    assert caught.value.resumable == back and "another job" not in str(caught.value)
    mine.release()


def test_a_folder_that_a_file_has_replaced_is_gone(tmp_path):
    mine = Lock.take(tmp_path / "run", [me()], 1)
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").write_text("")
    with pytest.raises(LockLost, match="renamed or removed"):
        mine.check()
    mine.release()


def test_a_job_that_lost_its_lock_does_not_get_it_back(start, tmp_path):
    root = start(tmp_path)
    assert go([root]) == ["runs\n"]
    token = holder(tmp_path)["token"]
    die(root)
    other = start(tmp_path)
    assert go([other]) == ["runs\n"]
    with pytest.raises(LockLost):
        Lock.take_over(tmp_path, [me()], 7, token)
    assert holder(tmp_path)["pid"] == other.pid


def test_two_that_have_both_judged_the_same_lock_dead(start, tmp_path):
    """Each has looked before either took it."""
    first = start(tmp_path)
    assert go([first]) == ["runs\n"]
    die(first)
    processes = [start(tmp_path, "early") for _ in range(8)]
    said = go(processes)
    assert sum(line == "runs\n" for line in said) == 1


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "lock").mkdir()
    (tmp_path / "target").write_text("kept")
    (tmp_path / "lock" / "000001.json").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        Lock.take(tmp_path, [me()], 1)
    assert (tmp_path / "target").read_text() == "kept"


def test_looking_writes_nothing(tmp_path):
    assert look(tmp_path / "none") == {} and not (tmp_path / "none").exists()
