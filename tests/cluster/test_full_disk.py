"""A run whose file system is full at any of its writes leaves no torn file and continues once there is space."""

import re
import subprocess
import time

import pytest
from marks import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PAGE = 4096  # bytes that a tmpfs gives at once
# Checkpoints and segments every few seconds, for as long as the test takes.
OPTIONS = ["--config_file", "configs/smoke.json", "--logdir", "disk/run", "--num_games", 60, "--set", "iterations=5000"]
for setting in (
    "train.replay_ratio=0.1",
    "exchange.every_s=0.5",
    "evaluate.opponents=[]",
    "report.tensorboard=false",
    "evaluate.solver_positions=0",
    "report.summary_frequency=1000",
):
    OPTIONS += ["--set", setting]
PAUSED, ON = "paused: ", "the files can be written again"


class Disk:
    """A tmpfs of a machine's own, as the folder `disk` of a checkout, and a run on it."""

    def __init__(self, machine, checkout, *starter):
        """starter: the words that start run_dist.py with its options."""
        self.machine, self.checkout, self.output = machine, checkout, checkout / "output"
        (checkout / "disk").mkdir()
        self.do("mount -t tmpfs -o size=200m none disk")
        words = [*starter, *OPTIONS]
        with open(self.output, "w") as file:
            self.process = subprocess.Popen(
                machine.command(*words, host="node1", cwd=checkout),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=machine.environment,
            )

    def do(self, script):
        """Run a script in the checkout and return what it says."""
        done = self.machine.run("sh", "-ec", script, cwd=self.checkout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def fill(self, pages):
        """Leave so many pages free."""
        self.do(f"cat /dev/zero >disk/ballast 2>/dev/null || truncate -s -{pages * PAGE} disk/ballast")

    def empty(self):
        self.do("rm disk/ballast")

    def said(self, text):
        return self.output.read_text().count(text)

    def wait_for(self, text, times):
        deadline = time.monotonic() + 120
        while self.said(text) < times:
            assert self.process.poll() is None and time.monotonic() < deadline, self.output.read_text()[-4000:]
            time.sleep(0.05)


@pytest.mark.parametrize("step", [20, slow(10), slow(1)])
def test_a_run_on_a_full_disk_pauses_at_any_write_and_continues_once_there_is_space(machine, checkout, step):
    """The free space grows from nothing to what an iteration writes (its segment and its checkpoint), so that another
    write is the first to find no space each time."""
    disk = Disk(machine, checkout, "mpirun", "-np", 2, "-H", "node1:2", "--bind-to", "none", "python", "run_dist.py")
    try:
        disk.wait_for("iteration 4 of", 1)
        sizes = disk.do("du -k --apparent-size disk/run/checkpoints/000003 disk/run/games/000002-000.h5")
        an_iteration = sum(int(size) for size in re.findall(r"^\d+", sizes, re.MULTILINE)) * 1024 // PAGE
        whole = disk.do("find disk/run/games -name '0*.h5' | wc -l")
        rounds = list(range(0, an_iteration + step, step))
        for number, pages in enumerate(rounds, 1):
            disk.fill(pages)
            disk.wait_for(PAUSED, number)
            disk.do("python -c 'import glob, h5py\nfor name in glob.glob(\"disk/run/games/0*.h5\"): h5py.File(name)'")
            disk.empty()
            disk.wait_for(ON, number)
        print(f"paused {len(rounds)} times, with 0 to {rounds[-1]} pages left")
    finally:
        disk.machine.run("pkill", "-USR2", "-x", "prterun", host="node1")
        disk.process.wait(60)
    text = disk.output.read_text()
    assert "Traceback" not in text and "stopped" in text, text[-4000:]
    assert int(disk.do("find disk/run/games -name '0*.h5' | wc -l")) > int(whole)
    assert "nothing is wrong" in disk.do("python -m az_mpi verify disk/run")


@pytest.mark.slow
def test_a_restart_on_a_full_disk_is_repeated_until_there_is_space(machine, checkout):
    """A job is lost while the disk is full. launch starts it again once there is space."""
    disk = Disk(machine, checkout, "python", "-m", "az_mpi", "launch", "--hosts", "node1:1,node2:1", "--")
    try:
        disk.wait_for("iteration 2 of", 1)
        disk.fill(0)
        machine.run("pkill", "-KILL", "-x", "prterun", host="node1")
        disk.wait_for("cannot be written to: No space left on device", 1)  # says launch
        disk.do("truncate -s -100K disk/ballast")
        disk.wait_for("MiB are free there, this run may need", 1)  # says the next job
        disk.empty()
        disk.wait_for("resumed after", 1)
        disk.wait_for("iteration 4 of", 1)
        machine.run("pkill", "-TERM", "-f", "^python -m az_mpi launch", host="node1")
        assert disk.process.wait(60) == 75
    finally:
        machine.run("pkill", "-KILL", "-f", "^python -m az_mpi launch", host="node1")
        disk.process.wait(60)
    text = disk.output.read_text()
    assert "the job was lost (mpirun ended with status 137)" in text
    assert "Traceback" not in text and "restart 2 of 10 in a row: waiting 5 s" in text, text[-4000:]
    assert "nothing is wrong" in disk.do("python -m az_mpi verify disk/run")
