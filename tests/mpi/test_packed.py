"""A pack: the ranks of a host start from one copy on its own disk, or from the checkout where that cannot be."""

import gzip
import io
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import jobs
import pytest
import system_calls

from az_mpi.launch import packed

pytestmark = pytest.mark.mpi
NUM_MODULES = 50
RUN_DIST = """
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
for k in range(50):
    __import__(f"modules.m{k}")
if "--wait" in sys.argv:
    import time
    print("waits", flush=True)
    time.sleep(60)
words = ["from", os.path.dirname(os.path.abspath(__file__)), *sys.argv[1:], os.environ["AZ_MPI_COMMIT"]]
os.write(1, (" ".join(words) + "\\n").encode())
"""


@pytest.fixture
def pack(tmp_path, monkeypatch):
    """Return a function that writes a pack of a small program with 50 modules: name -> its path. The checkout has the
    same program."""
    monkeypatch.setenv("AZ_MPI_LOCAL", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    checkout = tmp_path / "checkout"
    program = {f"modules/m{k}.py": "x = 1\n" for k in range(NUM_MODULES)} | {"run_dist.py": RUN_DIST}
    for name, text in program.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    settle = "def settle(checkout): pass\n"
    site = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"

    def write(name, kib=100, settle=settle, cut=0):
        text = packed.START.read_text()
        values = {"NAME": name, "KIB": str(kib), "PYTHON": sys.executable, "CHECKOUT": str(checkout), "COMMIT": "abc"}
        values |= {"HOME": str(Path(os.path.realpath(sys.executable)).parent), "SITE_PACKAGES": site}
        values |= {"BASE_PYTHON": os.path.realpath(sys.executable)}
        for key, value in values.items():
            text = text.replace(f"@{key}@", shlex.quote(value))
        text = packed.sized(text)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w|") as archive:
            members = {f"program/{place}": content for place, content in program.items()}
            members |= {"program/az_mpi/__init__.py": "", "program/az_mpi/launch/__init__.py": ""}
            members |= {"program/az_mpi/launch/packed.py": settle, f"venv/{site}/empty.py": ""}
            for place, content in members.items():
                info = tarfile.TarInfo(place)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content.encode()))
        content = gzip.compress(buffer.getvalue(), 1)
        path = tmp_path / f"{name}.pack"
        path.write_bytes(text.encode() + content[: len(content) - cut])
        path.chmod(0o755)
        return path

    write.local, write.checkout = tmp_path / "local" / f"az_mpi-{os.getuid()}", checkout
    return write


def run(*words, **variables):
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, env=os.environ | variables, timeout=120
    )


def test_the_ranks_of_a_host_open_the_pack_and_not_the_files_of_the_checkout(pack, tmp_path):
    if why := system_calls.missing():
        pytest.fail(why)
    path, calls = pack("one"), tmp_path / "calls"
    words, environment = jobs.command(6, ["--a b"], python=(*trace(calls), path))
    done = subprocess.run(words, capture_output=True, text=True, env=environment | os.environ, timeout=200)
    copy = pack.local / "one" / "program"
    assert done.stdout.splitlines() == [f"from {copy} --a b abc"] * 6, done.stderr
    opened = [
        line for trace in tmp_path.glob("calls.*") for line in trace.read_text().splitlines() if " = -1 " not in line
    ]
    assert sum(str(pack.checkout) in line for line in opened) == 0
    assert sum(f'"{path}"' in line and "openat" in line for line in opened) <= 2 * 6  # the shell; of one rank tail too
    assert sum(f"{copy}/modules" in line and ".py" in line for line in opened) >= 6 * NUM_MODULES
    assert sum("O_CREAT" in line and "/modules/m7.py" in line for line in opened) == 1  # unpacked once


def trace(calls):
    return "strace", "-ff", "-qq", "-e", "trace=open,openat", "-o", calls


def test_a_second_job_uses_the_copy_and_another_pack_replaces_what_nobody_uses(pack):
    first, second = pack("first"), pack("second")
    run(first)
    made = (pack.local / "first" / "ready").stat().st_mtime_ns
    assert run(first).stdout.startswith(f"from {pack.local / 'first'}")
    assert (pack.local / "first" / "ready").stat().st_mtime_ns == made
    job = subprocess.Popen([first, "--wait"], stdout=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "waits\n"
    assert run(second).stdout.startswith(f"from {pack.local / 'second'}")
    assert (pack.local / "first" / "ready").exists()  # a job runs from it
    job.kill()
    job.wait()
    run(pack("third"))
    assert sorted(place.name for place in pack.local.iterdir() if place.is_dir()) == ["third"]


def test_a_copy_that_a_killed_rank_left_half_made_is_made_again(pack):
    path = pack("half")
    (pack.local / "half" / "program").mkdir(parents=True)
    (pack.local / "half.new").mkdir()
    pack.local.chmod(0o700)
    assert run(path).stdout.startswith(f"from {pack.local / 'half'}")
    assert not (pack.local / "half.new").exists()


@pytest.mark.parametrize(
    "how, said",
    [
        ({"kib": 10**12}, "needs"),
        ({"cut": 200}, "it could not be unpacked there"),
        ({"settle": "raise OSError('noexec')\n"}, "programs do not run there"),
    ],
)
def test_without_room_or_rights_all_ranks_start_from_the_checkout_and_one_says_why(pack, how, said):
    words, environment = jobs.command(3, ["x"], python=(pack("lost", **how),))
    done = subprocess.run(words, capture_output=True, text=True, env=environment | os.environ, timeout=120)
    assert done.stdout.splitlines() == [f"from {pack.checkout} x abc"] * 3
    assert done.stderr.count("its ranks start from") == 1 and said in done.stderr
    assert not (pack.local / "lost").exists() and not (pack.local / "lost.new").exists()


def test_a_folder_of_another_user_or_a_link_is_not_used(pack, tmp_path):
    pack.local.symlink_to(tmp_path)
    done = run(pack("link"))
    assert done.stdout.startswith(f"from {pack.checkout}") and "is not a folder of this user" in done.stderr
    pack.local.unlink()
    if os.getuid() == 0:
        pack.local.mkdir()
        os.chown(pack.local, 12345, 12345)
        assert "is not a folder of this user" in run(pack("strange")).stderr


def test_a_copy_can_be_entered_by_its_user_alone(pack):
    run(pack("mine"))
    assert pack.local.stat().st_mode & 0o777 == 0o700


def test_ranks_that_wait_continue_where_the_one_that_unpacks_is_killed(pack, tmp_path):
    """A rank that holds the lock without unpacking stands for it."""
    path = pack("held")
    pack.local.mkdir(mode=0o700)
    holder = subprocess.Popen(["flock", "-x", pack.local / "held.lock", "sleep", "60"], start_new_session=True)
    time.sleep(0.5)
    waiting = subprocess.Popen([path], stdout=subprocess.PIPE, text=True)
    time.sleep(1.0)
    assert waiting.poll() is None
    os.killpg(holder.pid, signal.SIGKILL)
    assert waiting.communicate(timeout=60)[0].startswith(f"from {pack.local / 'held'}")
    holder.wait()
