"""A run's folder: what lies where in it, and whether this command may go on with what is there."""

import importlib.metadata
import json
import os
import platform
import subprocess
import time
from pathlib import Path

from az_mpi import __version__, lock
from az_mpi import config as configuration
from az_mpi.files import claim_text, remove_leftovers, write_text
from az_mpi.problems import Refusal

FOLDERS = ("checkpoints", "games", "best", "evaluations", "attempts")


class RunFolderError(Refusal):
    """The folder cannot be used for this command; the text is one block for the user."""


def look(path):
    """Return the locks in a run's folder that are dead, see `lock.look`. Raises LockHeld, RunFolderError."""
    try:
        return lock.look(path)
    except OSError as error:
        raise _unusable(path, error) from error


def start(path, config, hosts, fresh, ranks, dead):
    """Take the lock of a run's folder and prepare the folder; return (the number of this attempt, the `Lock`).

    To be called by root alone. ranks, dead: see `Lock.take`. Raises LockHeld, and RunFolderError as `prepare` does.
    """
    path = Path(path)
    try:
        check(path, config, fresh)
        held = lock.Lock.take(path, ranks, _next_attempt(path / "attempts"), dead)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return prepare(path, config, hosts, fresh), held
    except BaseException:
        held.release()
        raise


def check(path, config, fresh):
    """Raise RunFolderError where this command may not go on with what is in the folder."""
    if path.exists() and os.geteuid() not in (0, path.stat().st_uid):
        raise RunFolderError(f"--logdir {path}: the folder is another user's\n  give a --logdir of your own")
    if not (path / "config.json").exists():
        return
    if fresh:
        raise RunFolderError(
            f"--fresh: {path} already holds a run\n  leave --fresh away to resume it, or give another --logdir"
        )
    check_same_run(path, config)


def prepare(path, config, hosts, fresh):
    """Create the folder of a run or join one that is there, and return the number of this attempt, from 1.

    To be called by root alone. Raises RunFolderError before anything is written.
    """
    path = Path(path)
    try:
        check(path, config, fresh)
        for name in FOLDERS:
            (path / name).mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        description = json.dumps(describe(config, hosts), indent=2) + "\n"
        attempt = _write_attempt(path / "attempts", description)
        if not (path / "config.json").exists():
            write_text(path / "config.json", description)
    except OSError as error:
        raise _unusable(path, error) from error
    return attempt


def note_attempt(path, config, hosts):
    """Write down that a run goes on with other ranks, and return the number of this attempt. For root alone."""
    return _write_attempt(Path(path) / "attempts", json.dumps(describe(config, hosts), indent=2) + "\n")


def _unusable(path, error):
    return RunFolderError(f"--logdir {path}: {error.strerror}: {error.filename}")


def recorded_config(path, overrides=None, sources=None):
    """Return the configuration of the newest attempt in a run's folder. Raises RunFolderError, ConfigError."""
    path = Path(path)
    starts = path.glob("attempts/[0-9]*.json")
    newest = max(starts, key=lambda start: int(start.stem), default=path / "config.json")
    try:
        data = json.loads(newest.read_text())["config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"--logdir {path}: holds no run (no readable {newest.name})\n"
            "  give --config_file to start one, or the folder of a run"
        ) from error
    return configuration.validate(data, str(newest), overrides, sources)


def check_room(path, checkpoint_bytes, keep, games_bytes):
    """Raise RunFolderError where the file system of a run's folder lacks room for `keep` checkpoints, one more while
    the oldest is still there, and games; checkpoints that are there need none."""
    path = Path(path)
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    stored = len(list((path / "checkpoints").glob("[0-9]*")))
    missing = max(keep - stored, 0) + 1
    try:
        room = os.statvfs(there)
    except OSError as error:
        raise _unusable(path, error) from error
    free, needed = room.f_bavail * room.f_frsize, missing * checkpoint_bytes + games_bytes
    if free < needed:
        raise RunFolderError(
            f"--logdir {path}: {free / 2**20:,.1f} MiB are free there, this run needs at least {needed / 2**20:,.1f}: "
            f"{missing} checkpoints of {checkpoint_bytes / 2**20:,.1f} MiB, {games_bytes / 2**20:,.1f} MiB of games\n"
            "  make room, name a --logdir elsewhere, or keep fewer: --set checkpoint.keep=1"
        )


def describe(config, hosts):
    """Return what a run's reader wants to know later: configuration, versions, hosts, commit; JSON-able."""
    packages = ("torch", "numpy", "numba", "h5py", "mpi4py", "horovod", "openvino", "safetensors")
    return {
        "config": json.loads(configuration.to_json(config)),
        "az_mpi": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "git_commit": _commit(),
        "hosts": hosts,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_same_run(path, config):
    """Raise RunFolderError unless `path` holds a run that this configuration can go on with."""
    old = recorded_config(path)
    refused = [change for change in configuration.changes(old, config) if not change.may_change]
    if refused:
        lines = [f"  {c.key}: {json.dumps(c.old)} in the run, {json.dumps(c.new)} now" for c in refused]
        raise RunFolderError(
            f"{path} holds a run with another configuration; these keys may not change:\n"
            + "\n".join(lines)
            + "\n  give another --logdir for a new run; --help_config shows which keys may change on resume"
        )


def _write_attempt(folder, description):
    """Write the description of this start under a number that no start had, and return the number."""
    number = _next_attempt(folder)
    while True:
        try:
            claim_text(folder / f"{number:03d}.json", description)
            return number
        except FileExistsError:
            number += 1


def _next_attempt(folder):
    return 1 + max((int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()), default=0)


def _commit():
    """Return the git commit of this program, or None outside a checkout."""
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
