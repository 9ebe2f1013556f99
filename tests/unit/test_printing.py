"""Standard streams that are closed, on a full disk, or without a reader."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from az_mpi.core import exit_codes

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as a user's
CHECK = ["run_dist.py", "--config_file", "configs/smoke.json", "--check_config"]
STATUS = ["-m", "az_mpi", "status", "tests/data/run_of_0823929", "--json"]
COMMANDS = [CHECK, ["run_dist.py", "--help"], ["-m", "az_mpi", "--help"], ["-m", "az_mpi", "status", "--help"]]
CLOSED = ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"]


def python(redirections, *words):
    """Return the finished process of Python with what a shell makes of its standard streams."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=BUFFERED, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("redirections", CLOSED)
def test_a_command_works_without_standard_streams(redirections):
    done = python(redirections, *(CHECK if redirections == CLOSED[-1] else STATUS))
    assert done.returncode == 0 and done.stderr == ""
    assert ">&-" in redirections.split() or json.loads(done.stdout)["game"] == "tictactoe"


def test_a_refusal_keeps_its_status_without_standard_streams():
    for redirections in ("2>&-", ">&- 2>&-", "2>/dev/full"):
        assert python(redirections, "run_dist.py", "--nonsense").returncode == exit_codes.USAGE
        assert python(redirections, "-m", "az_mpi", "nonsense").returncode == exit_codes.USAGE


# Opens a file after `prepare`, prints, and lets a child print. Its words: the file, and where to write what it sees.
OPENS = """
import json, os, subprocess, sys
from az_mpi.core import printing
printing.prepare()
with open(sys.argv[1], "w") as file:
    print("printed", flush=True)
    print("said", file=sys.stderr, flush=True)
    subprocess.run(["sh", "-c", "echo by a child; echo by a child >&2"])
    seen = [os.readlink(f"/proc/self/fd/{k}") for k in range(3)]
    json.dump([file.fileno(), seen, sys.stdin.read()], open(sys.argv[2], "w"))
"""


@pytest.mark.parametrize("redirections", CLOSED)
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path, redirections):
    done = python(
        redirections + " </dev/null" * ("<" not in redirections), "-c", OPENS, tmp_path / "file", tmp_path / "seen"
    )
    number, seen, read = json.loads((tmp_path / "seen").read_text())
    assert number > 2 and (tmp_path / "file").read_text() == "" and read == ""
    closed = [word in redirections.split() for word in ("<&-", ">&-", "2>&-")]
    assert [name == "/dev/null" for name in seen][1:] == closed[1:] and seen[0] == "/dev/null"
    assert done.stdout == ("" if closed[1] else "printed\nby a child\n")
    assert done.stderr == ("" if closed[2] else "said\nby a child\n")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_result_that_cannot_be_written_is_one_line_and_a_failure(words):
    done = python(">/dev/full", *words)
    assert done.returncode == exit_codes.RESUMABLE
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr


@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_whose_reader_has_left_ends_silently(words, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, *unbuffered, *words],
        cwd=ROOT,
        env=BUFFERED,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writing)
    assert done.returncode == exit_codes.UNREAD == 141 and done.stderr == b""


def test_a_reader_that_takes_all_sees_a_success():
    done = subprocess.run(
        f"{sys.executable} run_dist.py --help | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=ROOT,
        env=BUFFERED,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("usage: ") and done.stderr == "" and done.stdout.endswith("\n0\n")


# The program continues without standard output, prints again once there is space, and reports the status.
OUTLIVES = """
import os, sys
from az_mpi.core import printing
printing.prepare()
printing.outlive_output()
for k in range(3):
    print("lost", k, flush=True)
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 1)
print("there is room again", flush=True)
os._exit(printing.unwritten())
"""


def test_a_run_continues_without_its_output_says_so_once_and_prints_again_when_it_can(tmp_path):
    done = python(">/dev/full", "-c", OUTLIVES, tmp_path / "later")
    assert done.returncode == exit_codes.RESUMABLE and done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr
    assert (tmp_path / "later").read_text().endswith("there is room again\n")


@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
def test_output_that_does_not_block_waits_for_its_reader(unbuffered):
    """This happens where another program has set O_NONBLOCK on the pipe that both write to."""
    program = (
        "import os\nfrom az_mpi.core import printing\nprinting.prepare()\nos.set_blocking(1, False)\n"
        "print('x' * 300_000, flush=True)"
    )
    command = [sys.executable, *unbuffered, "-c", program]
    process = subprocess.Popen(command, cwd=ROOT, env=BUFFERED, stdout=subprocess.PIPE)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and len(said) == 300_001


@pytest.mark.parametrize("words", [[ROOT / "run_dist.py", "--check_config"], ["-m", "az_mpi", "launch", "--"]])
def test_a_current_folder_that_was_removed_is_one_block(tmp_path, words):
    script = f'mkdir "{tmp_path}/gone"; cd "{tmp_path}/gone"; rmdir "{tmp_path}/gone"; exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, *map(str, words), "--config_file", ROOT / "configs/smoke.json"]
    done = subprocess.run(command, env=BUFFERED | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == exit_codes.USAGE and done.stdout == ""
    assert done.stderr.startswith("the current folder cannot be used: ") and "Traceback" not in done.stderr
