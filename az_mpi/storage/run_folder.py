"""A run's folder: what lies where in it, and whether this command may go on with what is there."""

import errno
import functools
import json
import os
import platform
import re
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from az_mpi import __version__
from az_mpi.config import load as configuration
from az_mpi.core import files
from az_mpi.core.files import claim_text, is_there, names, passes, read_json, remove_leftovers, set_aside, write_text
from az_mpi.core.host_facts import package_versions
from az_mpi.core.problems import NotNow, Refusal
from az_mpi.storage import lock, plugin_sources

FOLDERS = ("checkpoints", "games", "best", "evaluations", "attempts")
ALL_FOLDERS = (*FOLDERS, "logs", "lock", plugin_sources.FOLDER)


class RunFolderError(Refusal):
    """The folder cannot be used for this command; the text is one block for the user."""


def look(path, config, fresh, say, wait):
    """Check the folder as `check` does; return the dead locks in it, see `lock.look`. Writes nothing.
    Raises LockHeld, RunFolderError, NotNow."""
    path = Path(path)
    try:
        check(path, config, fresh)
        return lock.look(path, say, wait)
    except OSError as error:
        raise unusable(path, error) from error


def start(path, config, hosts, fresh, ranks, dead, say, newest=None):
    """Take the lock of a run's folder and prepare the folder; return (the number of this attempt, the `Lock`).

    For root alone, after `look`. ranks, dead: see `Lock.take`. newest: see `prepare`. Raises LockHeld, and as `prepare`
    does.
    """
    path = Path(path)
    try:
        held = lock.Lock.take(path, ranks, _next_attempt(path / "attempts"), dead, config.fault.hang_s)
    except OSError as error:
        raise unusable(path, error) from error
    try:
        return prepare(path, config, hosts, fresh, say, newest), held
    except BaseException:
        held.release()
        raise


def check(path, config, fresh):
    """Raise RunFolderError where this command may not go on with what is in the folder. Raises OSError, NotNow too."""
    check_folders(path)
    if path.exists() and os.geteuid() not in (0, path.stat().st_uid):
        raise RunFolderError(f"--logdir {path}: the folder is another user's\n  give a --logdir of your own")
    if not holds_run(path):
        return
    if fresh:
        raise RunFolderError(
            f"--fresh: {path} already holds a run\n  leave --fresh away to resume it, or give another --logdir"
        )
    check_same_run(path, config)


def check_folders(path, names=ALL_FOLDERS):
    """Raise RunFolderError unless a run's folder, those above it and `names` in it are folders or do not exist.
    Raises OSError where that cannot be known."""
    path = Path(path)
    if found := [place for place in (*path.parents, path, *(path / name for name in names)) if _is_no_folder(place)]:
        raise RunFolderError("\n".join([
            f"--logdir {path}: what should be a folder is none:",
            *(f"  {place} is a link to {os.readlink(place)}, where there is no folder" if place.is_symlink() else
              f"  {place} is a file" for place in found),
            "  allowed are a folder, a link to a folder, or nothing (the folder is made then)",
            "  move the file or the link away and put the run's own folder back; or give another --logdir"]))


def _is_no_folder(place):
    """Return whether something else than a folder has this name: a file, or a link to nothing. Raises OSError."""
    try:
        return not stat.S_ISDIR(os.stat(place).st_mode)
    except NotADirectoryError:
        return False  # something above it is not a folder, and is named instead
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return os.path.islink(place)


def prepare(path, config, hosts, fresh, say=lambda text: None, newest=None):
    """Create the folder of a run or join one that is there, and return the number of this attempt, from 1.

    For root alone. Damaged descriptions of the newest starts are set aside; `say` is called with a line about each.
    newest: the name of the checkpoint that this start goes on from, None without one.
    Raises RunFolderError before anything is written; NotNow where a run is there and its file system fails.
    """
    path = Path(path)
    try:
        check(path, config, fresh)  # also where `look` did before: another job may have had the folder until now
        for name in FOLDERS:
            (path / name).mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        next(_whole(reversed(attempts(path)), functools.partial(_set_aside, say)), None)
        plugin_sources.keep(path, config)
        text = json.dumps(describe(config, hosts) | {"checkpoint": newest}, indent=2) + "\n"
        attempt = _write_attempt(path / "attempts", text)
        if not is_there(path / "config.json"):
            write_text(path / "config.json", text)
    except OSError as error:
        raise unusable(path, error) from error
    return attempt


def note_attempt(path, config, hosts):
    """Record that a run goes on with other ranks; return the number of this attempt. For root alone."""
    return _write_attempt(Path(path) / "attempts", json.dumps(describe(config, hosts), indent=2) + "\n")


def unusable(path, error):
    """Return the exception that tells the user why a run's folder cannot be used."""
    text = f"--logdir {path}: {error.strerror}: {error.filename}"
    if passes(error) and holds_run(path):
        return NotNow(f"{text}\n  the same command goes on once its file system works")
    return RunFolderError(f"{text}\n  {files.MAY_NOT}" if error.errno in files.REFUSED else text)


def holds_run(path):
    """Return whether a folder holds a run; true where that cannot be known now."""
    try:
        return is_there(Path(path) / "config.json") or bool(attempts(path))
    except OSError:
        return True


def attempts(path):
    """Return the files that describe a run's starts, oldest first. Raises OSError."""
    folder = Path(path) / "attempts"
    stems = [name.removesuffix(".json") for name in names(folder) if name.endswith(".json")]
    return [folder / f"{stem}.json" for stem in sorted((stem for stem in stems if stem.isdecimal()), key=int)]


def went_on_before(path, newest):
    """Return whether the start before the newest one went on from the same checkpoint, `newest`. Descriptions without a
    checkpoint are skipped: earlier versions wrote none, nor do survivors of a loss. Raises OSError."""
    for file in reversed(attempts(path)[:-1]):
        with suppress(ValueError, FileNotFoundError):
            if "checkpoint" in (content := description(file)):
                return content["checkpoint"] == newest
    return False


def description(path):
    """Return the content of the description of a start. Raises ValueError where it is damaged; OSError."""
    content = read_json(path)
    if not isinstance(content, dict) or "config" not in content:
        raise ValueError("no description of a start")
    return content


def newest_start(path):
    """Return (the newest description of a start that is whole, its path). Raises RunFolderError, NotNow."""
    path = Path(path)
    try:
        known = [path / "config.json", *attempts(path)]
        found = next(_whole(reversed(known)), None)
    except OSError as error:
        raise unusable(path, error) from error
    if found:
        return found
    raise RunFolderError(
        f"--logdir {path}: holds no run (no readable {known[-1].name})\n"
        "  give --config_file to start one, or the folder of a run"
    )


def recorded_config(path, overrides=None, sources=None):
    """Return the configuration of the newest start whose description is whole; files of the user's own in it are the
    copies in the run's folder. Raises RunFolderError, ConfigError, NotNow."""
    data, newest = newest_start(path)
    overrides = plugin_sources.kept(path, data) | (overrides or {})
    return configuration.validate(data["config"], str(newest), overrides, sources, [Path.cwd()])


def check_sources(path, config, allowed):
    """Raise Refusal where the run in a folder, if there is one, was begun with other sources of the user's own, unless
    that is allowed. Raises NotNow."""
    if holds_run(path):
        plugin_sources.check(path, config, newest_start(path)[0], allowed)


def check_room(path, checkpoint_bytes, keep, games_bytes):
    """Raise RunFolderError where the file system of a run's folder has no room for the games and for `keep` checkpoints
    plus one, which is written before the oldest is removed. Checkpoints that are there need no more room. Raises NotNow
    instead where a run is there that fits the file system when it is empty."""
    path = Path(path)
    try:
        there = next(parent for parent in (path.absolute(), *path.absolute().parents) if is_there(parent))
        stored = sum(name[0].isdigit() for name in names(path / "checkpoints"))
        room = os.statvfs(there)
    except OSError as error:
        raise unusable(path, error) from error
    missing = max(keep - stored, 0) + 1
    free, needed = room.f_bavail * room.f_frsize, missing * checkpoint_bytes + games_bytes
    if free < needed:
        later = holds_run(path) and needed < room.f_blocks * room.f_frsize
        raise (NotNow if later else RunFolderError)(
            f"--logdir {path}: {free / 2**20:,.1f} MiB are free there, this run needs at least {needed / 2**20:,.1f}: "
            f"{missing} checkpoints of {checkpoint_bytes / 2**20:,.1f} MiB, {games_bytes / 2**20:,.1f} MiB of games\n"
            "  make room, name a --logdir elsewhere, or keep fewer: --set checkpoint.keep=1"
        )


def describe(config, hosts):
    """Return the description of a start, for JSON: configuration, versions, hosts, commit."""
    return {
        "config": json.loads(configuration.to_json(config)),
        "sources": plugin_sources.describe(config),
        "az_mpi": __version__,
        "python": platform.python_version(),
        "packages": package_versions(),
        "git_commit": _commit(),
        "hosts": hosts,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def check_same_run(path, config):
    """Raise RunFolderError unless `path` holds a run that this configuration can go on with. Also raises NotNow."""
    try:
        check_folders(path)
    except OSError as error:
        raise unusable(path, error) from error
    old = recorded_config(path)
    refused = [change for change in configuration.changes(old, config) if not change.may_change]
    if refused:
        lines = [f"  {c.key}: {json.dumps(c.old)} in the run, {json.dumps(c.new)} now" for c in refused]
        raise RunFolderError(
            f"{path} holds a run with another configuration; these keys may not change:\n"
            + "\n".join(lines)
            + "\n  give another --logdir for a new run; --help_config shows which keys may change on resume"
        )


def _whole(paths, damaged=lambda path, error: None):
    """Yield (description, path) of each of `paths` that is whole; call `damaged(path, error)` for the others. Raises
    OSError for one that cannot be read: it is not damaged."""
    for path in paths:
        try:
            yield description(path), path
        except FileNotFoundError:
            pass
        except ValueError as error:
            damaged(path, error)


def _set_aside(say, path, error):
    say(f"damaged: {path}: {error}; it is kept as {set_aside(path).name}")


def _write_attempt(folder, text):
    """Write the description of this start under the next free number; return the number."""
    number = _next_attempt(folder)
    while True:
        try:
            claim_text(folder / f"{number:03d}.json", text)
            return number
        except FileExistsError:
            number += 1


def _next_attempt(folder):
    # Numbers of damaged ones are not used again: the ids of games contain the number of their attempt.
    found = [re.match(r"(\d+)\.json", name) for name in names(folder)]
    return 1 + max((int(match[1]) for match in found if match), default=0)


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
