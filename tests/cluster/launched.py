"""python -m az_mpi launch on the hosts of tests: a run that is long enough to be disturbed, and what it leaves."""

import json
import subprocess
import time
from pathlib import Path

import h5py

ROOT = Path(__file__).resolve().parents[2]
SMOKE = [
    "--",
    "--config_file",
    "configs/smoke.json",
    "--logdir",
    "run",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.tensorboard=false",
    "--set",
    "train.replay_ratio=0.1",
]
# Far more games than are played before the run is asked to stop. A resumed run may have a smaller quota.
LONG, SHORT = [*SMOKE, "--num_games", 200000, "--set", "exchange.every_s=0.5"], [*SMOKE, "--num_games", 40]


class Launch:
    """A `python -m az_mpi launch` under way on a host, started in `checkout`."""

    def __init__(self, machine, checkout, host, words, program=("-m", "az_mpi", "launch")):
        self.machine, self.folder = machine, checkout
        self.killed_at = None
        name = f"{host}-{len(list(checkout.parent.glob('*.out')))}"
        self.pid, self.output = checkout.parent / f"{name}.pid", checkout.parent / f"{name}.out"
        script = 'echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@"'
        command = machine.command("sh", "-c", script, self.pid, "python", *program, *words, host=host, cwd=checkout)
        with open(self.output, "w") as file:
            self.process = subprocess.Popen(
                command, env=machine.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        self.wait_for(self.pid.exists)

    def text(self):
        return self.output.read_text()

    def wait_for(self, condition):
        deadline = time.monotonic() + 200
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, self.text()
            time.sleep(0.1)

    def wait_for_games(self):
        """Wait until the run has games on disk, beyond those that it began with."""
        before = len(segments(self.folder))
        self.wait_for(lambda: len(segments(self.folder)) > before + 1)

    def kill(self, name):
        self.killed_at = time.monotonic()
        self.machine.run("kill", f"-{name}", self.pid.read_text().strip())

    def ends(self, status):
        """Wait until it ends with this status and return what it has said. Prints how long after `kill` that is."""
        assert self.process.wait(200) == status, self.text()
        if self.killed_at:
            print(f"ended {time.monotonic() - self.killed_at:.1f} s after the signal")
        assert "\0" not in self.text(), "Open MPI puts one behind each of its messages"
        return self.text()


def segments(checkout):
    return sorted((checkout / "run/games").glob("*.h5"))


def ids(checkout):
    """Return the ids of all games on disk, each of which is there once."""
    found = []
    for path in segments(checkout):
        with h5py.File(path) as file:
            found += file["games/id"][:].tolist()
    assert len(set(found)) == len(found)
    return set(found)


def status_hosts(checkout):
    """Return (how the run ended, the host of each rank) as RUN/status.json tells."""
    values = json.loads((checkout / "run/status.json").read_text())
    return values["job"], [row["host"] for row in values["ranks"]]
