"""Faults as data: an action on a rank at a passage of a phase. A trial is made from its seed alone.

Ranks are named by their numbers at the start. An injection is what one rank does to the job; its action is one of

    ["signal", targets, number]   to ranks, or to "mpirun"
    ["stop", seconds]             this rank stands still; it continues after so long, 0: never
    ["disk", errno, seconds]      what the writer's thread asks of the disk fails for so long, 0: for good
    ["reads", errno, seconds]     this rank cannot open the run's files for reading for so long
    ["nan", steps]                so many gradients of this rank are not finite, 0: all that follow
    ["slow", seconds]             each step of this rank's training takes so much longer from now on
    ["raise"]                     an exception that nobody expects
"""

import errno
import random
import signal
from dataclasses import asdict, dataclass, field, replace

# Phase: the highest passage that is drawn. A rank passes many times through what it does in a loop; what is passed once
# an iteration is passed ITERATIONS times. "any" is no place in the program: the harness acts, this many tenths of a
# second after the first iteration began.
PHASES = {
    "start-up": 3,
    "play": 150,
    "exchange": 20,
    "train": 120,
    "broadcast": 6,
    "segment": 12,
    "checkpoint": 3,
    "evaluate": 8,
    "end": 2,
    "any": 45,
}
COPY = "copy"  # in place of "train" in half of the trials where one rank trains alone: between the steps of a copy
RECOVERY = 8  # passages through the steps of a recovery
AT_WORK = tuple(phase for phase in PHASES if phase != "start-up")
ROOTS = ("segment", "checkpoint", "end")  # phases that only root passes through, or with several writers each of them
ITERATIONS = 3
OPTIONS = {
    "iterations": ITERATIONS,
    "selfplay.num_games": 400,
    "search.simulations": 16,
    "exchange.every_s": 0.3,
    "train.replay_ratio": 1.0,
    "train.bad_steps_max": 5,
    "network.engine": "torch",
    "evaluate.every": 1,
    "evaluate.opponents": '["random"]',
    "evaluate.num_games": 16,
    "evaluate.solver_positions": 0,
    "report.tensorboard": "false",
    "report.summary_frequency": 20,
}


@dataclass(frozen=True)
class Fault:
    """action: as above; the targets "self", "two" and "all" stand for ranks. statuses: those of mpirun that are
    documented for the fault; 0 only where the run is complete. others_stay: whether ranks that were not hit continue,
    or leave in order, so that all games that they gave to an exchange must be stored; else only the games that were
    seen on disk must be. weight: how often the fault is drawn."""

    action: tuple
    statuses: tuple = (0,)
    phases: tuple = AT_WORK
    ranks: int = 3
    others_stay: bool = True
    weight: int = 1
    options: dict = field(default_factory=dict)


def _sent(targets, number, *statuses, **more):
    return Fault(("signal", targets, int(number)), statuses, **more)


FAULTS = {
    "kill": _sent("self", signal.SIGKILL, 0, ranks=4, weight=6),
    "kill root while the job leaves": _sent("self", signal.SIGUSR2, 75, 0),
    "kill, and the next root cannot read": _sent("self", signal.SIGKILL, 0, ranks=4),
    "kill in the start-up": _sent("self", signal.SIGKILL, 0, 75, 137, phases=("start-up",)),
    "segmentation fault": _sent("self", signal.SIGSEGV, 0, weight=2),
    "kill two at once": _sent("two", signal.SIGKILL, 0, ranks=4, weight=3),
    "kill one more in the recovery": _sent("self", signal.SIGKILL, 0, ranks=4, weight=4),
    "kill all but one in turn": _sent("self", signal.SIGKILL, 0, ranks=4, phases=("play", "train", "exchange")),
    "kill mpirun": _sent("mpirun", signal.SIGKILL, -signal.SIGKILL, others_stay=False, weight=2),
    "TERM to mpirun": _sent("mpirun", signal.SIGTERM, 1, 75, 0, others_stay=False),
    "USR2 to mpirun": _sent("mpirun", signal.SIGUSR2, 75, 0),
    "TERM to one rank": _sent("self", signal.SIGTERM, 75, 0),
    "TERM to all ranks": _sent("all", signal.SIGTERM, 75, 0),
    "USR1 to one rank": _sent("self", signal.SIGUSR1, 0),
    "short pause": Fault(("stop", 3), phases=("play", "exchange", "train", "broadcast")),
    "hang": Fault(
        ("stop", 0), phases=("play", "exchange", "train", "broadcast", "evaluate"), options={"fault.hang_s": 5}
    ),
    "no space for a second": Fault(("disk", errno.ENOSPC, 1.0), phases=("segment", "checkpoint")),
    "EIO for good": Fault(
        ("disk", errno.EIO, 0),
        (75,),
        phases=("segment", "checkpoint"),
        others_stay=False,
        options={"storage.give_up_s": 2},
    ),
    "one gradient not finite": Fault(("nan", 1), phases=("train",)),
    "gradients not finite for good": Fault(("nan", 0), (70,), phases=("train",)),
    "exception": Fault(
        ("raise",), (70,), phases=("play", "exchange", "train", "broadcast", "evaluate"), others_stay=False
    ),
}


@dataclass(frozen=True)
class Injection:
    """What `rank` does at passage number `passage` through `phase` since the end of its recovery number `after`."""

    rank: int
    phase: str
    passage: int
    action: list
    after: int = 0


@dataclass(frozen=True)
class Trial:
    """One job and what is done to it."""

    seed: int
    fault: str
    ranks: int
    injections: tuple
    options: dict

    @property
    def phase(self):
        return self.injections[0].phase

    @property
    def victims(self):
        """The ranks that the faults take away, from their numbers at the start."""
        kills = [
            i.action
            for i in self.injections
            if i.action[0] == "signal" and i.action[2] in (signal.SIGKILL, signal.SIGSEGV)
        ]
        hung = [i.rank for i in self.injections if i.action == ["stop", 0]]
        return sorted({target for action in kills for target in action[1] if target != "mpirun"} | set(hung))

    def values(self):
        """Return everything as JSON-able values."""
        return asdict(self)


def make(seed):
    """Return the trial of a seed: the same for ever, as long as this file is."""
    rng = random.Random(seed)
    name = rng.choices(list(FAULTS), [fault.weight for fault in FAULTS.values()])[0]
    fault = FAULTS[name]
    ranks, phase = fault.ranks, rng.choice(fault.phases)
    if phase == "any" and fault.action[0] != "signal":
        phase = "play"
    options = OPTIONS | fault.options
    options["train.backend"] = rng.choice(["horovod", "horovod", "ddp"])
    options["train.ranks"] = trainers = rng.choice(["all", "all", 2, 1])
    rank = 0 if phase in ROOTS or (phase == "train" and trainers == 1) else rng.choice([0, *range(ranks)])
    if phase == "train" and trainers == 2:
        rank %= 2
    other = rng.choice([r for r in range(ranks) if r != rank])
    kind, *details = fault.action
    if kind == "signal":
        targets = {"self": [rank], "two": [other, rank], "all": list(range(ranks)), "mpirun": ["mpirun"]}[details[0]]
        details[0] = targets
    passage = rng.randint(1, PHASES[phase])
    if name == "kill all but one in turn":
        injections = [
            Injection(r, phase, rng.randint(1, PHASES[phase] // 4), [kind, [r], details[1]], after=r)
            for r in range(ranks - 1)
        ]
        options["train.ranks"] = "all"  # each has to pass through each phase
    else:
        injections = [Injection(rank, phase, passage, [kind, *details])]
    if name == "kill one more in the recovery":
        injections.append(Injection(other, "recovery", rng.randint(1, RECOVERY), [kind, [other], details[1]]))
    if name == "kill root while the job leaves":
        injections.append(Injection(0, "leave", 1, [kind, [0], int(signal.SIGKILL)]))
    if name == "kill, and the next root cannot read":
        survivor = min(r for r in range(ranks) if r != rank)
        injections.append(Injection(survivor, "recovery", 1, ["reads", errno.EIO, 1.0]))
    if (phase, trainers) == ("train", 1) and rng.random() < 0.5:  # drawn last: other trials stay what they were
        injections = [replace(each, phase=COPY) if each.phase == "train" else each for each in injections]
    if ranks == 4 and rng.random() < 0.5:  # then ranks 0 and 2 write the games of two ranks each
        options["storage.ranks_per_writer"] = 2
        if phase == "segment" and kind == "signal" and details[0] == [0] and len(injections) == 1:
            injections = [replace(injections[0], rank=2, action=[kind, [2], details[1]])]
    return Trial(seed, name, ranks, tuple(injections), options)
