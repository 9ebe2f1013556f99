"""A file system that hangs: a real one (FUSE), whose server is stopped, as seen by one rank, by some, or by all."""

import json
import re
import subprocess
import time

import h5py
import pytest
from marks import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

HANG_S, ITERATIONS = 6.0, 20
OPTIONS = [
    "--config_file",
    "configs/smoke.json",
    "--logdir",
    "shared/run",
    "--num_games",
    60,
    "--set",
    f"iterations={ITERATIONS}",
]
for setting in (
    "train.replay_ratio=0.1",
    "exchange.every_s=0.5",
    "evaluate.opponents=[]",
    "report.tensorboard=false",
    "evaluate.solver_positions=0",
    f"fault.hang_s={HANG_S}",
):
    OPTIONS += ["--set", setting]


class Job:
    """Three ranks on one host and a run in the folder `shared` of a checkout. `behind`: the ranks that see that folder
    through a file system of their own, which can be stopped: its server `outer`, or the server `inner` behind it."""

    def __init__(self, machine, checkout, behind, mpirun=("--with-ft", "ulfm")):
        self.machine, self.checkout, self.output = machine, checkout, checkout / "output"
        self.do("mkdir real middle view shared; mount --bind real shared")
        self.servers = [self.serve("real", "middle"), self.serve("middle", "view")]
        words = ["mpirun", *mpirun, "--bind-to", "none"]
        for rank in range(3):
            own = ["unshare", "--mount", "sh", "-ec", 'mount --bind view shared; exec "$@"', "sh"] * (rank in behind)
            words += [":"] * (rank > 0) + ["-np", 1, "-H", "node1:3", *own, "python", "run_dist.py", *OPTIONS]
        with open(self.output, "w") as file:
            self.process = subprocess.Popen(
                machine.command(*words, host="node1", cwd=checkout),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=machine.environment,
            )

    def serve(self, source, place):
        server = subprocess.Popen(self.machine.command("bindfs", "-s", "-f", source, place, cwd=self.checkout))
        while f"/{place} fuse" not in self.do("cat /proc/mounts"):
            assert server.poll() is None
            time.sleep(0.05)
        return server

    def do(self, script):
        """Run a script in the checkout and return what it says."""
        done = self.machine.run("sh", "-ec", script, cwd=self.checkout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def said(self, text):
        return re.search(text, self.output.read_text())

    def wait_for(self, condition):
        deadline = time.monotonic() + 150
        while not condition():
            assert time.monotonic() < deadline, self.output.read_text()[-4000:]
            time.sleep(0.05)

    def hang(self, source="middle"):
        """Stop the server of the file system, or the one behind it, "real". No process gets an error.

        Where the first has taken a request and cannot answer it, the kernel lets nobody be killed who waits for that.
        So it is stopped while it waits for the next one: in system call 0, and without having read anything more since
        it was seen asleep there."""
        self.do(f"""pid=$(pgrep -f '^bindfs -s -f {source} ')
            waits() {{ read call rest </proc/$pid/syscall; [ "$call" = 0 ]; }}
            have_read() {{ head -1 /proc/$pid/io; }}
            while true; do
                before=$(have_read)
                if grep -q '^State:.S' /proc/$pid/status && waits; then
                    kill -STOP $pid
                    sleep 0.01
                    if waits && [ "$(have_read)" = "$before" ]; then break; fi
                    kill -CONT $pid
                fi
            done""")

    def answer(self):
        self.do("pkill -CONT bindfs")

    def end(self):
        """Return the exit status and what was said."""
        return self.process.wait(300), self.output.read_text()

    def check_whole(self):
        """Assert that the run is complete and that the segments hold the games that its checkpoint counts."""
        run, found = self.checkout / "real/run", []
        for path in (run / "games").glob("*.h5"):
            with h5py.File(path) as file:
                found += file["games/id"][:].tolist()
        state = json.loads((max((run / "checkpoints").iterdir()) / "state.json").read_text())
        assert len(found) == len(set(found)) == state["num_games"] and state["iteration"] == ITERATIONS


@pytest.fixture
def start(machine, checkout):
    """Return start(behind) -> Job; what is left of it at the end is removed."""
    jobs = []

    def start(behind, **options):
        jobs.append(Job(machine, checkout, behind, **options))
        return jobs[-1]

    yield start
    for job in jobs:
        job.do("pkill -KILL bindfs || true")
        if job.process.poll() is None:
            job.do("pkill -KILL prterun mpirun || true")
        job.process.wait(60)
        for server in job.servers:
            server.kill()  # nsenter, which is stopped when its child is
            server.wait()
        job.do("umount -l view middle shared")


@pytest.mark.parametrize("behind", [[0], slow([0, 1])])
def test_a_rank_whose_file_system_hangs_leaves_and_the_others_continue(start, behind):
    job = start(behind)
    job.wait_for(lambda: job.said(f"iteration 3 of {ITERATIONS}"))
    job.hang()
    hung = time.monotonic()
    job.wait_for(lambda: job.said("continuing after the loss of"))
    seconds = time.monotonic() - hung
    print(f"continuing {seconds:.1f} s after")
    status, output = job.end()
    assert status == 0, output
    for rank in behind:
        why = r"the run's folder has not answered for \d+ s, but answers rank \d"
        assert re.search(rf"rank {rank} on node1: {why}", output)
    job.check_whole()


def test_a_job_waits_where_the_file_system_hangs_for_all_ranks(start):
    job = start([0, 1, 2])
    job.wait_for(lambda: job.said(f"iteration 3 of {ITERATIONS}"))
    job.hang()
    time.sleep(3 * HANG_S)
    assert job.process.poll() is None
    job.answer()
    status, output = job.end()
    assert status == 0 and "killed" not in output and "continuing after" not in output, output
    job.check_whole()


@pytest.mark.slow
def test_a_job_whose_hung_rank_cannot_be_killed_ends_resumable(start):
    job = start([0])
    job.wait_for(lambda: job.said(f"iteration 3 of {ITERATIONS}"))
    job.hang("real")
    status, output = job.end()
    assert status == 75 and "has heard nothing from rank 0 on node1 for longer" in output, output
    job.answer()
