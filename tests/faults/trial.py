"""One trial: a job with a fault is watched from outside. Where it did not end with 0, the same command is run again.

python tests/faults/trial.py SEED [--folder FOLDER]     a failing trial prints this command
"""

import argparse
import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import catalogue  # noqa: E402
import h5py  # noqa: E402
import invariants  # noqa: E402
import psutil  # noqa: E402
from template import Template  # noqa: E402

PROGRAM = Path(__file__).parent / "programs" / "faulty.py"
LAUNCHER = Path(sys.executable).parent / "mpirun"
BOUND_S = 240  # of a job, on a machine with too few cores for it
LEAVE_S = 15  # that what a job has started is given to go after mpirun
LOOK_S, THOROUGH_EVERY = 0.1, 10  # between two looks; of which every tenth is at memory and ports too
MARK = "AZ_MPI_TRIAL"  # in the environment of every process of a job that is not a rank of TEMPLATE's
ROOT_MAY_RUN = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TEMPLATE = Template(os.environ | ROOT_MAY_RUN | {"PYTHONPATH": str(ROOT)})
atexit.register(TEMPLATE.close)


@dataclass
class Job:
    """What was seen of one mpirun. visible: {segment's name: ids}, of all that were ever seen. events: of all ranks."""

    status: int | None = None  # None: it was not over in time
    seconds: float = 0.0
    ended: float = 0.0  # when mpirun had ended, by the clock of the events
    output: str = ""
    stacks: str = ""  # of a job that was not over in time
    events: list = field(default_factory=list)
    visible: dict = field(default_factory=dict)
    ports: set = field(default_factory=set)
    memory: set = field(default_factory=set)  # files in /dev/shm
    orphans: list = field(default_factory=list)  # what was still there LEAVE_S after mpirun
    files: list = field(default_factory=list)  # Open MPI's that were left, in /dev/shm and TMPDIR
    left: list = field(default_factory=list)  # ports, and segments that could not be read, in words

    def times(self, event):
        return [each["time"] for each in self.events if each["event"] == event]


@dataclass
class Outcome:
    """A trial, its jobs and its folder. again: the job that resumed, None where the first one ended with 0."""

    trial: object
    run: Path
    first: Job
    again: Job | None = None

    @property
    def injected(self):
        return len(self.first.times("fired"))

    @property
    def last(self):
        return self.again or self.first


def perform(trial, folder):
    """Run a trial in an empty folder and return its `Outcome`."""
    run = folder / "run"
    first = watch(trial, folder / "first", run, trial.injections)
    again = None
    if first.status != 0:
        again = watch(trial, folder / "again", run, ())
        again.visible = first.visible | again.visible
    return Outcome(trial, run, first, again)


def watch(trial, folder, run, injections, visible=None):
    """Start the trial's job with these injections, watch it until nothing of it is left, and return the `Job`.

    visible: segments that were seen before, which are not read again."""
    events, temporary = folder / "events", folder / "tmp"
    events.mkdir(parents=True)
    temporary.mkdir()
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"injections": [vars(i) for i in injections], "run": str(run), "events": str(events)}))
    words = [
        LAUNCHER,
        "--with-ft",
        "ulfm",
        "-np",
        trial.ranks,
        "-H",
        f"localhost:{trial.ranks}",
        "--bind-to",
        "none",
        *python_of(trial),
        PROGRAM,
        plan,
        "--config_file",
        ROOT / "configs" / "smoke.json",
        "--logdir",
        run,
    ]
    for name, value in trial.options.items():
        words += ["--set", f"{name}={value}"]
    environment = dict(
        TEMPLATE.environment,
        TMPDIR=str(temporary),
        TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"),
        **{MARK: str(folder)},
    )
    job, begun = Job(visible=dict(visible or {})), time.monotonic()
    with open(folder / "output", "w+") as output:
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            follow(job, process, folder, run, [i for i in injections if i.phase == "any"])
        finally:
            job.seconds = time.monotonic() - begun
            end(job, process, folder)
        output.seek(0)
        job.output = output.read()
    job.events = read_events(events)
    look_at_segments(job, run)
    look_for_rest(job, temporary)
    return job


def python_of(trial):
    """Return the words that start a rank. Where mpirun itself is the victim, ranks are Pythons of their own, since one
    of a template does not see its parent die."""
    return [sys.executable] if "mpirun" in trial.fault else TEMPLATE.words()


def follow(job, process, folder, run, late):
    """Look at a job until mpirun has ended or BOUND_S are over; act where the plan asks for it from outside."""
    begun, looks, stopped, acted_at, before = time.monotonic(), 0, {}, None, set(job.visible)
    while process.poll() is None and time.monotonic() - begun < BOUND_S:
        time.sleep(LOOK_S)
        events = read_events(folder / "events")
        for event in events:
            if event["event"] == "fired" and event["action"][0] == "stop" and event["action"][1]:
                stopped.setdefault(event["rank"], event["time"] + event["action"][1])
        pids = {event["rank"]: event["pid"] for event in events if event["event"] == "started"}
        for rank in [rank for rank, until in stopped.items() if until and time.time() > until]:
            os.kill(pids[rank], signal.SIGCONT)
            stopped[rank] = None
        if late and any(path.name not in before for path in (run / "games").glob("0*.h5")):
            acted_at = acted_at or time.monotonic()
            for injection in [i for i in late if time.monotonic() - acted_at > i.passage / 10]:
                late.remove(injection)
                strike(injection, process, pids, folder)
        look_at_segments(job, run)
        if looks % THOROUGH_EVERY == 0:
            look_at_processes(job, folder)
        looks += 1
    job.status, job.ended = process.poll(), time.time()


def strike(injection, process, pids, folder):
    """Do what an injection says, from outside."""
    line = {"event": "fired", "rank": injection.rank, "time": time.time(), "action": injection.action}
    with open(folder / "events" / "harness.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    for target in injection.action[1]:
        try:
            os.kill(process.pid if target == "mpirun" else pids[target], injection.action[2])
        except ProcessLookupError:
            pass


def end(job, process, folder):
    """Give what the job has started LEAVE_S to go, note what does not, and end it."""
    deadline = time.monotonic() + LEAVE_S
    while job.status is not None and processes(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = processes(folder)
    if job.status is None:
        job.stacks = stacks(folder)
    for one in left:
        try:
            if job.status is not None:
                job.orphans.append(f"{one.pid}: {' '.join(one.cmdline())[:200]}")
            one.kill()
        except psutil.NoSuchProcess:
            pass
    process.wait()
    psutil.wait_procs(left, 10)


def processes(folder):
    """Return the living processes of a job: those with its mark in their environment, as their parent may have ended,
    and the ranks of the template, which is of one job at a time."""
    parent, found = TEMPLATE.process and TEMPLATE.process.pid, []
    for process in psutil.process_iter():
        try:
            is_own = process.environ().get(MARK) == str(folder) or parent and process.ppid() == parent
            if is_own and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            pass
    return found


def stacks(folder):
    """Return where each rank of a job stands that was not over in time: it writes that itself when it is asked to."""
    for event in read_events(folder / "events"):
        if event["event"] == "started" and psutil.pid_exists(event["pid"]):
            os.kill(event["pid"], signal.SIGPROF)
    time.sleep(2.0)
    return "".join(f"\n{path.name}\n{path.read_text()}" for path in sorted((folder / "events").glob("*.stack")))


def look_at_processes(job, folder):
    for process in processes(folder):
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            job.memory |= {line.split(maxsplit=5)[5] for line in maps.splitlines() if " /dev/shm/" in line}
            sockets = process.net_connections("inet")
            job.ports |= {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}
        except (psutil.Error, OSError):
            pass


def look_at_segments(job, run):
    """Note the games of each segment the first time that it is seen. One that cannot be read is a torn one."""
    for path in (run / "games").glob("0*.h5"):
        if path.name not in job.visible:
            try:
                with h5py.File(path) as file:
                    job.visible[path.name] = file["games/id"][:].tolist()
            except (OSError, KeyError) as error:
                job.visible[path.name] = None
                job.left.append(f"{path.name} could be seen and not be read: {error}")


def look_for_rest(job, temporary):
    """Note what the job has left in memory, in its folder for temporary files, and which of its ports still listen; and
    give the memory back."""
    job.files = [str(path) for path in [*map(Path, sorted(job.memory)), *temporary.iterdir()] if path.exists()]
    for path in job.memory:
        Path(path).unlink(missing_ok=True)  # not to fill the memory in hours of trials
    deadline = time.monotonic() + LEAVE_S
    while (ports := job.ports & ownerless_ports()) and time.monotonic() < deadline:
        time.sleep(0.1)  # threads of a process that is dead already may have a moment to go
    job.left += [f"port {port} still listens" for port in sorted(ports)]


def ownerless_ports():
    """Return the ports that listen on behalf of no process; those of other programs may have been a job's before."""
    sockets = psutil.net_connections("inet")
    return {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN and socket.pid is None}


def read_events(folder):
    """Return the lines that the ranks have written, those that are whole, in the order of their times."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda event: event["time"])


def measure(outcome):
    """Return what a trial gave, JSON-able: what it was, what was broken, and how long it took."""
    trial, first = outcome.trial, outcome.first
    fired, going = first.times("fired"), first.times("continuing")
    noticed = [time for time in first.times("noticed") if fired and time >= fired[0]]
    result = {
        "seed": trial.seed,
        "fault": trial.fault,
        "phase": trial.phase,
        "ranks": trial.ranks,
        "victims": trial.victims,
        "injected": outcome.injected,
        "status": first.status,
        "again": outcome.again and outcome.again.status,
        "seconds": round(first.seconds, 2),
    }
    if fired and noticed and going and going[-1] >= fired[-1]:
        result["going_on_s"] = round(going[-1] - fired[-1], 3)  # from the last loss until its last survivor continues
        result["noticed_s"] = round(min(noticed) - fired[0], 3)  # from the first loss until a rank knows of it
    if fired and first.status == 75:
        result["left_s"] = round(first.ended - fired[-1], 3)  # until all is durable, and a moment more
    result["stored"] = len(invariants.stored(outcome.run))
    result["unstored_of_root"] = len(
        invariants.ids_of(outcome, "given", invariants.excused(outcome)) - set(invariants.stored(outcome.run))
    )
    return result | {"broken": invariants.check(outcome)}


def try_seed(seed, folder=None):
    """Run the trial of a seed and return what `measure` gives; the folder stays where something is broken."""
    with tempfile.TemporaryDirectory(prefix="az_mpi-fault-") as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        outcome = perform(catalogue.make(seed), place)
        result = measure(outcome)
        if result["broken"]:
            result["replay"] = f"python tests/faults/trial.py {seed} --folder FOLDER"
            for job in filter(None, (outcome.first, outcome.again)):
                result.setdefault("output", []).append(job.output[-30000:] + job.stacks)
        return result


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="python tests/faults/trial.py",
        allow_abbrev=False,
        description="Run the trial of one seed and print the result as JSON.",
    )
    parser.add_argument("seed", type=int, metavar="SEED")
    parser.add_argument("--folder", type=Path, help="an empty folder in which everything stays (default: nothing does)")
    parser.add_argument("--show", action="store_true", help="print what would be done, and do nothing")
    given = parser.parse_args(arguments)
    trial = catalogue.make(given.seed)
    print(json.dumps(trial.values()))
    if given.show:
        return 0
    if given.folder and given.folder.exists() and any(given.folder.iterdir()):
        print(f"--folder {given.folder}: is not empty", file=sys.stderr)
        return 2
    result = try_seed(given.seed, given.folder and given.folder.resolve())
    print("\n".join(result.pop("output", [])), file=sys.stderr)
    print(json.dumps(result))
    return 1 if result["broken"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
