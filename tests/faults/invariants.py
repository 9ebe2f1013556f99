"""What must hold after every trial, one function each. They return what is broken, in words; [] where all is well."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import catalogue

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.storage import checkpoint, lock, run_folder, segment, verify

GOING_ON_S = 30.0  # from a loss to the survivors at work again, on a machine that does other things too


def check(outcome):
    """Return everything that is broken, as "invariant: what"."""
    return [f"{invariant.__name__}: {text}" for invariant in ALL for text in invariant(outcome)]


def bounded_time(outcome):
    """Every job ended, or its survivors continued, in bounded time."""
    late = [f"the {name} job was not over in time" for name, job in jobs(outcome) if job.status is None]
    fired, going = outcome.first.times("fired"), outcome.first.times("continuing")
    if fired and going and going[-1] - fired[-1] > GOING_ON_S:
        late.append(f"the survivors continued {going[-1] - fired[-1]:.1f} s after the last loss")
    return late


def documented_status(outcome):
    """The exit status is one that is documented for the fault; 0 means that the run is complete; no rank was lost but
    the victims; what did not end with 0 does so when it is started again."""
    statuses = catalogue.FAULTS[outcome.trial.fault].statuses if outcome.injected else (0,)
    broken = []
    if outcome.first.status is not None and outcome.first.status not in statuses:
        broken.append(f"status {outcome.first.status} instead of {' or '.join(map(str, statuses))}")
    left = [event["ranks"] for event in outcome.first.events if event["event"] == "continuing"]
    if left and min(left) < outcome.trial.ranks - len(outcome.trial.victims):
        broken.append(f"only {min(left)} of {outcome.trial.ranks} ranks continued: one died that nobody had killed")
    if outcome.last.status == 0 and "Traceback" in outcome.last.output:
        broken.append("status 0, and a traceback in what was said")
    if outcome.again and outcome.again.status not in (0, None):
        broken.append(f"the same command again ended with {outcome.again.status}")
    if outcome.last.status == 0:
        newest = [path for path in checkpoint.find(outcome.run / "checkpoints") if checkpoint.damage(path) is None][-1:]
        done = checkpoint.read(newest[0]).progress.iteration if newest else 0
        if done < outcome.trial.options["iterations"]:
            broken.append(f"status 0, and the newest checkpoint is of iteration {done}")
    return broken


def same_weights(outcome):
    """After each broadcast all ranks had the same weights; at the end all that were left stood at the same point."""
    broken = []
    for name, job in jobs(outcome):
        hashes, last = defaultdict(set), {}
        for event in job.events:
            if event["event"] == "weights":
                hashes[json.dumps(event["key"])].add(event["hash"])
                last[event["rank"]] = event["key"]
        broken += [
            f"{name} job: {len(found)} different networks at {key}" for key, found in hashes.items() if len(found) > 1
        ]
        gone = set(outcome.trial.victims) if job is outcome.first else set()
        ends = {json.dumps(key) for rank, key in last.items() if rank not in gone}
        if job.status == 0 and len(ends) > 1:
            broken.append(f"{name} job: its ranks ended at different points: {sorted(ends)}")
    return broken


def every_game_once(outcome):
    """Every game that was acknowledged is stored exactly once: those that could be seen on disk at any time; and where
    ranks continued or left in order, those that any had given to an exchange which was completed, and those that ranks
    which live had begun to give to one."""
    there = Counter(stored(outcome.run))
    needed = {game for ids in outcome.last.visible.values() for game in ids or []}
    broken = (
        [f"{len(lost)} games that could be seen on disk are gone: {lost[:3]}"]
        if (lost := sorted(needed - there.keys()))
        else []
    )
    if lost := sorted(acknowledged(outcome) - there.keys()):
        broken.append(
            f"{len(lost)} games that ranks gave away are not stored: {lost[:3]} (excused: {excused(outcome)})"
        )
    if twice := [game for game, num in there.items() if num > 1]:
        broken.append(f"{len(twice)} games are stored twice: {twice[:3]}")
    return broken


def acknowledged(outcome):
    """Return the ids of the games that ranks gave away in the first job and that must be stored, see
    `every_game_once`."""
    if outcome.injected and not catalogue.FAULTS[outcome.trial.fault].others_stay:
        return set()
    ranks = set(range(outcome.trial.ranks))
    given = ids_of(outcome, "given", ranks - excused(outcome))
    return given | ids_of(outcome, "taken", ranks - set(outcome.trial.victims))


def one_step_at_most(outcome):
    """A loss costs one optimiser step at most (`fault.copy_every`), unless all were lost at once that held the newest
    state: the trainers, or a lone one and its partner. In a recovery all survivors soon hold it."""
    trial, taken, lost, broken = outcome.trial, 0, False, []
    trainers, most = trial.options.get("train.ranks", "all"), trial.options.get("fault.copy_every", 1)
    holders = range(trial.ranks if trainers == "all" else max(trainers, 2))  # these ranks come first
    at_once = replace(trial, injections=[each for each in trial.injections if each.phase != "recovery"])
    if set(holders) <= set(at_once.victims):
        return []
    for event in sorted(outcome.first.events, key=lambda event: event["time"]):
        if event["event"] == "step":
            taken = max(taken, event["number"])
        elif event["event"] == "noticed":
            lost = True
        elif event["event"] == "continuing" and lost:  # the first rank to do so
            if taken > event["steps"] + most:
                broken.append(f"after {taken} steps the survivors continued from {event['steps']}")
            lost, taken = False, event["steps"]
    return broken


def files_whole(outcome):
    """Every file that can be seen is whole, and the newest checkpoint counts what is there."""
    config = outcome.run / "config.json"
    if not config.exists():
        return [] if not any((outcome.run / "games").glob("0*.h5")) else [f"{config} is missing"]
    found = verify.Findings(outcome.run, games.make(run_folder.recorded_config(outcome.run).game))
    bad = [(path.relative_to(outcome.run), text) for path, text in found.problems if path not in found.leftovers]
    broken = [f"{path}: {text}" for path, text in bad]
    return broken + [note for note in found.notes if not note.startswith("metrics.jsonl")]


def nothing_left(outcome):
    """No process, port, shared memory, temporary file or lock is left. Where mpirun was killed itself, perhaps by
    the harness, Open MPI's files are: it is mpirun that removes them."""
    broken = []
    for name, job in jobs(outcome):
        broken += [f"{name} job: process {orphan} is left" for orphan in job.orphans]
        killed = job.status is None or job.status < 0
        broken += [f"{name} job: {text}" for text in job.left + [f"{path} is left" for path in job.files if not killed]]
    try:
        dead = lock.look(outcome.run)
    except Refusal as error:
        return [*broken, f"the lock is taken for a living job's: {str(error).splitlines()[0]}"]
    temporary = [path for place in (".*.tmp", "*/.*.tmp") for path in outcome.run.glob(place)]
    broken += [f"{path.relative_to(outcome.run)} is left" for path in temporary if outcome.last.status == 0]
    return broken + [f"the lock {file} is left" for file in dead]


ALL = (bounded_time, documented_status, same_weights, every_game_once, one_step_at_most, files_whole, nothing_left)


def jobs(outcome):
    """Yield ("first" or "again", Job)."""
    yield "first", outcome.first
    if outcome.again:
        yield "again", outcome.again


def stored(run):
    """Return the ids of all games in the segments of a run that can be read, each as often as it is there."""
    game, found = games.make("tictactoe"), []
    for _, path in segment.paths(run / "games") if (run / "games").is_dir() else []:
        try:
            found += segment.read(path, game).games["id"].tolist()
        except segment.SegmentError:
            pass  # files_whole reports that
    return found


def ids_of(outcome, what, ranks):
    """Return the ids of the games that these ranks gave to exchanges which were completed ("given"), or had begun to
    give ("taken"), in the first job."""
    return {
        game
        for event in outcome.first.events
        if event["event"] == what and event["rank"] in ranks
        for game in event["ids"]
    }


def excused(outcome):
    """Return the ranks whose games may be lost although they gave them away: what a writer has received is in its
    memory, and in that of who gave it (the next rank, of its own), until it is on disk. It takes two losses at once."""
    victims = set(outcome.trial.victims) if outcome.injected else set()
    writers = {event["rank"] for event in outcome.first.events if event["event"] == "given" and event["writer"]}
    return victims if victims & writers and len(victims) > 1 else set()
