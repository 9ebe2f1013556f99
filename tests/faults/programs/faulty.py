"""run_dist.py that does to itself what a plan says, and notes what it does: faulty.py PLAN OPTIONS…

PLAN: a JSON file with `injections` (catalogue.Injection), `run`, its folder, and `events`, a folder where each rank
appends lines of JSON: what happened, and when by the clock of this host. PROF makes a rank write there where it stands.
"""

import faulthandler
import functools
import json
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path

import run_dist
import tests.mpi.programs.loading  # noqa: F401
from az_mpi import loop, modes
from az_mpi.core.printing import environment_rank
from az_mpi.core.signals import Stopped
from az_mpi.mpi import placement
from az_mpi.mpi.world import World
from az_mpi.network import resnet
from az_mpi.run import evaluation_phase, exchange, recovery, resume, weights
from az_mpi.run.partner_checkpoint import PartnerCheckpoint
from az_mpi.run.state import Playing, Run
from az_mpi.selfplay.player import Player
from az_mpi.storage import checkpoint
from az_mpi.train.learner import Learner

PLAN = json.loads(Path(sys.argv[1]).read_text())
RANK = environment_rank()
MINE = [injection for injection in PLAN["injections"] if injection["rank"] == RANK]
# Where each phase is passed: (of what, name of the function, whether behind it).
PHASES = {
    "start-up": [(placement, "place", True), (modes, "assemble", True), (Run, "mark", False)],
    "play": [(Player, "step", False)],
    "exchange": [(exchange, "store", False), (exchange, "deal", False)],
    "train": [(Learner, "_backward", True)],  # Horovod's sums are under way then
    "copy": [
        (PartnerCheckpoint, "send", True),
        (PartnerCheckpoint, "settle", False),
        (PartnerCheckpoint, "finish", False),
        (PartnerCheckpoint, "finish", True),
    ],
    "broadcast": [(weights, "broadcast_weights", False), (Playing, "load_weights", False)],
    "evaluate": [
        (evaluation_phase, "load_best", False),
        (evaluation_phase._Shown, "update", False),
        (evaluation_phase._Shown, "finish", False),
        (evaluation_phase, "measure", True),
    ],
    "recovery": [
        (recovery, name, False)
        for name in (
            "_take_over",
            "_note_start",
            "_keep_games",
            "make_backend",
            "_restate",
            "_store_what_is_missing",
            "_recount",
            "say_ranks",
        )
    ]
    + [(recovery.Recovery, "try_with", True)],
    "end": [(loop, "show", False), (loop, "show", True)],
}
log = os.open(Path(PLAN["events"]) / f"{RANK}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
faulthandler.register(signal.SIGPROF, open(Path(PLAN["events"]) / f"{RANK}.stack", "w"))
recoveries, passages, failing, unreadable, nan_steps, slow_s, given = 0, {}, None, None, 0, 0.0, []


def note(event, **values):
    os.write(log, (json.dumps({"event": event, "rank": RANK, "time": time.time(), **values}) + "\n").encode())


def process_id(target):
    if target == "mpirun":
        return os.getppid()
    with open(Path(PLAN["events"]) / f"{target}.jsonl") as file:
        return json.loads(file.readline())["pid"]


def passed(phase):
    for injection in MINE:
        if injection["phase"] == phase and injection["after"] == recoveries:
            key = json.dumps(injection)
            passages[key] = passages.get(key, 0) + 1
            if passages[key] == injection["passage"]:
                act(injection["action"])


def act(action):
    global failing, unreadable, nan_steps, slow_s
    kind, *details = action
    note("fired", action=action)
    if kind == "signal":
        for target in details[0]:
            os.kill(process_id(target), details[1])
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "disk":
        failing = details[0], time.monotonic() + (details[1] or math.inf)
    elif kind == "reads":
        unreadable = details[0], time.monotonic() + details[1]
    elif kind == "nan":
        nan_steps = details[0] or math.inf
    elif kind == "slow":
        slow_s = details[0]
    else:
        raise ZeroDivisionError("a fault in the test")


def hook(owner, name, phase, behind):
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(*arguments, **named):
        if not behind:
            passed(phase)
        result = function(*arguments, **named)
        if behind:
            passed(phase)
        return result

    setattr(owner, name, call)


def hook_disk(name):
    """Let a function of the operating system fail while `failing`, in the writer's thread, and be passed through."""
    function = getattr(os, name)

    def call(*arguments, **named):
        if threading.current_thread().name == "segments":
            parts = Path(str(arguments[-1])).parts
            phase = {"replace": "segment", "rename": "checkpoint"}.get(name)
            if phase and {"segment": "games", "checkpoint": "checkpoints"}[phase] in parts:
                passed(phase)
            if failing and time.monotonic() < failing[1]:
                raise OSError(failing[0], os.strerror(failing[0]))
        return function(*arguments, **named)

    setattr(os, name, call)


def open_file(path, flags, *arguments, function=os.open, **named):
    """Let the files of the run fail to be opened for reading while they are `unreadable`; its folders can be."""
    if unreadable and time.monotonic() < unreadable[1] and flags & os.O_ACCMODE == os.O_RDONLY:
        if PLAN["run"] in str(path) and not os.path.isdir(path):
            note("unread", path=str(path))
            raise OSError(unreadable[0], os.strerror(unreadable[0]), str(path))
    return function(path, flags, *arguments, **named)


def loss(learner, *arguments, function=Learner._loss):
    global nan_steps
    time.sleep(slow_s)
    result = function(learner, *arguments)
    if nan_steps:
        nan_steps -= 1
        result = result * math.nan
    return result


def store(run, function=exchange.store):
    record = function(run)
    given[:] = record.games["id"].tolist()
    return record


def take(player, function=Player.take):
    record = function(player)
    note("taken", ids=record.games["id"].tolist())
    return record


def note_given(function):
    """An exchange is complete when every rank has come to its end: what was given then is to be found again."""

    def call(run, *arguments):
        try:
            result = function(run, *arguments)
        except Stopped:
            note("given", ids=given, writer=run.writers.is_one)
            raise
        note("given", ids=given, writer=run.writers.is_one)
        return result

    return call


def save(run, function=resume.save):
    if run.control.requests.stop:
        passed("leave")  # by root too, which writes now
    return function(run)


def broadcast_weights(run, function=weights.broadcast_weights):
    function(run)
    progress = run.progress
    key = [run.start, progress.iteration, progress.phase, progress.step]
    note("weights", key=key, hash=resnet.weights_hash(run.training.network))


def train(learner, replay, progress, *arguments, function=Learner.train):
    learner.progress = progress
    return function(learner, replay, progress, *arguments)


def step(learner, *arguments, function=Learner._step):
    result = function(learner, *arguments)
    note("step", number=learner.progress.step + 1)
    return result


def rescue(run, world, held, function=recovery._rescue, broadcast=checkpoint.broadcast):
    """Pass "rescue" behind each message by which the survivors share the newest state."""

    def watched(*arguments):
        result = broadcast(*arguments)
        passed("rescue")
        return result

    checkpoint.broadcast = watched
    try:
        return function(run, world, held)
    finally:
        checkpoint.broadcast = broadcast


def recover(run, function=recovery.recover):
    global recoveries
    note("noticed")
    function(run)
    recoveries += 1
    note("continuing", ranks=run.world.size, steps=run.progress.step)


def started(function=World.start.__func__):
    world = function(World)
    note("started", pid=os.getpid())  # the first line of its file
    world.barrier()  # all process numbers are known before anybody acts
    return world


os.open, Player.take = open_file, take
Learner._loss, Learner._step, Learner.train = loss, step, train
exchange.store, recovery.recover, recovery._rescue = store, recover, rescue
resume.save, weights.broadcast_weights = save, broadcast_weights
exchange.exchange, resume.leave = note_given(exchange.exchange), note_given(resume.leave)
World.start = started
for phase, places in PHASES.items():
    for place in places:
        hook(*place[:2], phase, place[2])
for name in ("fsync", "replace", "rename"):
    hook_disk(name)
sys.exit(run_dist.main(sys.argv[2:]))
