"""A run's folder: its layout, and whether a command may use or resume the run in it."""

import errno
import functools
import json
import os
import platform
import re
import shlex
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from az_mpi import __version__
from az_mpi.config import load as configuration
from az_mpi.config.command_line import PROG, TRAINING, Arguments
from az_mpi.config.schema import Config
from az_mpi.core import files
from az_mpi.core.earlier_names import starts_folder
from az_mpi.core.files import claim_text, is_there, names, passes, read_json, remove_leftovers, set_aside, write_text
from az_mpi.core.host_facts import package_versions
from az_mpi.core.printing import counted
from az_mpi.core.problems import NotNow, Refusal, escape
from az_mpi.storage import imports, lock, plugin_sources

FOLDERS = ("checkpoints", "games", "best", "evaluations")
ALL_FOLDERS = (*FOLDERS, "starts", "attempts", "logs", "lock", "imports", plugin_sources.FOLDER)


class RunFolderError(Refusal):
    """The folder cannot be used for this command; the text is one block for the user."""


def look(
    path: str | Path, config: Config, fresh: bool, say: Callable[[str], None], wait: Callable[[], None]
) -> dict[str, str]:
    """Check the folder as `check` does, and return the dead locks in it as `lock.look` does. Writes nothing. Raises
    LockHeld, RunFolderError, NotNow."""
    path = Path(path)
    with usable(path):
        check(path, config, fresh)
        return lock.look(path, say, wait)


def start(
    path: str | Path,
    config: Config,
    hosts: Sequence[str],
    fresh: bool,
    ranks: list[dict[str, Any]],
    dead: dict[str, str],
    say: Callable[[str], None],
) -> tuple[int, lock.Lock]:
    """Take the lock of a run's folder and prepare the folder; return (the number of this start, the lock).

    For root alone, after `look`. ranks, dead: see `Lock.take`. Raises LockHeld, and what `prepare` raises.
    """
    path = Path(path)
    with usable(path):
        held = lock.Lock.take(path, ranks, _next_start(starts_folder(path)), dead, config.fault.hang_s)
    try:
        return prepare(path, config, hosts, fresh, say), held
    except BaseException:
        held.release()
        raise


def check(path: Path, config: Config, fresh: bool) -> None:
    """Raise RunFolderError if this command may not use the folder or resume its run. Also raises OSError, NotNow."""
    check_folders(path)
    if path.exists() and os.geteuid() not in (0, path.stat().st_uid):
        raise RunFolderError(f"--logdir {path}: the folder is another user's\n  give a --logdir of your own")
    if not holds_run(path):
        return
    if fresh:
        raise RunFolderError(
            f"--fresh: {path} already holds a run\n  to resume it: leave out --fresh; for a new run: another --logdir"
        )
    check_same_run(path, config)


def check_folders(path: str | Path, names: Iterable[str] = ALL_FOLDERS) -> None:
    """Raise RunFolderError unless a run's folder, the folders above it and `names` in it are folders or do not exist.
    Raises OSError if that cannot be known."""
    path = Path(path)
    if found := [place for place in (*path.parents, path, *(path / name for name in names)) if _is_no_folder(place)]:
        raise RunFolderError(
            "\n".join(
                [
                    f"--logdir {path}: these paths must be folders, or not be there:",
                    *(
                        f"  {place} is a link to {os.readlink(place)}, where there is no folder"
                        if place.is_symlink()
                        else f"  {place} is a file"
                        for place in found
                    ),
                    "  allowed are a folder, a link to a folder, or nothing (the folder is made then)",
                    "  move the file or the link away and put the run's own folder back; or give another --logdir",
                ]
            )
        )


def _is_no_folder(place):
    """Return whether this path is something else than a folder: a file, or a link to nothing. Raises OSError."""
    try:
        return not stat.S_ISDIR(os.stat(place).st_mode)
    except NotADirectoryError:
        return False  # a path above it is not a folder, and is reported instead
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return os.path.islink(place)


def prepare(
    path: str | Path, config: Config, hosts: Sequence[str], fresh: bool, say: Callable[[str], None] = lambda text: None
) -> int:
    """Create or reuse the folder of a run, and return the number of this start, from 1.

    For root alone. Damaged descriptions of the newest starts are set aside; `say` is called with a line about each.
    Raises RunFolderError before anything is written; NotNow if there is a run and its file system fails.
    """
    path = Path(path)
    with usable(path):
        check(path, config, fresh)  # again after `look`: another job may have had the folder until now
        imports.complete(path)  # one that was killed
        for folder in (*(path / name for name in FOLDERS), starts_folder(path)):
            folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path, besides=["selfplay"])  # where `--mode selfplay` may be writing: it takes no lock
        next(_whole(reversed(starts(path)), functools.partial(_set_aside, say)), None)
        plugin_sources.keep(path, config)
        text = json.dumps(describe(config, hosts), indent=2) + "\n"
        start = _write_start(starts_folder(path), text)
        if not is_there(path / "config.json"):
            write_text(path / "config.json", text)
    return start


def note_start(path: str | Path, config: Config, hosts: Sequence[str]) -> int:
    """Record that the run continues with other ranks; return the number of this start. For root alone."""
    return _write_start(starts_folder(Path(path)), json.dumps(describe(config, hosts), indent=2) + "\n")


@contextmanager
def usable(path: str | Path) -> Iterator[None]:
    """Turn an OSError in the block into RunFolderError or NotNow, which tell why a run's folder cannot be used."""
    try:
        yield
    except OSError as error:
        text = f"--logdir {path}: {error.strerror}" + (f": {error.filename}" if error.filename else "")
        if error.errno in files.FULL:
            text += "\n  make room there, or have your quota raised"
        if passes(error) and holds_run(path):
            raise NotNow(f"{text}\n  the same command continues once its file system works") from error
        raise RunFolderError(f"{text}\n  {files.MAY_NOT}" if error.errno in files.REFUSED else text) from error


def holds_run(path: str | Path) -> bool:
    """Return whether a folder holds a run; true if that cannot be known now."""
    try:
        return is_there(Path(path) / "config.json") or bool(starts(path))
    except OSError:
        return True


def starts(path: str | Path) -> list[Path]:
    """Return the files that describe a run's starts, oldest first. Raises OSError."""
    folder = starts_folder(Path(path))
    stems = [name.removesuffix(".json") for name in names(folder) if name.endswith(".json")]
    return [folder / f"{stem}.json" for stem in sorted((stem for stem in stems if stem.isdecimal()), key=int)]


def description(path: Path) -> dict[str, Any]:
    """Return the description of a start. Raises ValueError if it is damaged; OSError."""
    content = read_json(path)
    if not isinstance(content, dict) or "config" not in content:
        raise ValueError("no description of a start")
    return content


def newest_start(path: str | Path) -> tuple[dict[str, Any], Path]:
    """Return (the newest whole description of a start, its path). Raises RunFolderError, NotNow."""
    path = Path(path)
    with usable(path):
        known = [path / "config.json", *starts(path)]
        found = next(_whole(reversed(known)), None)
    if found:
        return found
    raise RunFolderError(
        f"--logdir {path}: holds no run (no readable {known[-1].name})\n"
        "  name the folder of a run (--logdir of run_dist.py)"
    )


def recorded_config(path: str | Path, overrides: dict | None = None, sources: dict | None = None) -> Config:
    """Return the configuration of the newest start whose description is whole, with the copies of users' own files in
    the run's folder. Raises RunFolderError, ConfigError, NotNow."""
    data, newest = newest_start(path)
    overrides = plugin_sources.kept(path, data) | (overrides or {})
    return configuration.validate(data["config"], str(newest), overrides, sources, [Path.cwd()])


def config_of(given: Arguments) -> Config:
    """Return the configuration that run_dist.py's arguments name: of the file, or the recorded one of the run's folder.
    Raises what `recorded_config` raises."""
    if given.config_file:
        return configuration.load(given.config_file, given.overrides, given.sources)
    check_there(given)
    return recorded_config(given.logdir, given.overrides, given.sources)


def check_there(given: Arguments) -> None:
    """Raise RunFolderError if run_dist.py's arguments name a folder without a run and do not start one: the text has
    the command that does."""
    if holds_run(given.logdir):
        return
    settings = [
        word
        for key, value in given.overrides.items()
        for word in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    ]
    file = str(given.config_file or "configs/smoke.json")
    command = shlex.join([*PROG.split(), "--config_file", file, "--logdir", str(given.logdir), *settings])
    if given.mode in TRAINING:
        what, how = "a new run needs a configuration", "give one"
    else:
        what, how = f"--mode {given.mode} takes the network of a run that is there", "train one first"
    raise RunFolderError(
        f"--logdir {given.logdir}: holds no run, and {what}\n"
        f"  {how}: {escape(command)}\n"
        "  or name the folder of a run with --logdir"
    )


def check_sources(path: str | Path, config: Config, allowed: bool) -> None:
    """Raise Refusal if the folder holds a run that was made with other files of the user's own, unless that is allowed.
    Raises NotNow."""
    if holds_run(path):
        plugin_sources.check(path, config, newest_start(path)[0], allowed)


def check_room(path: str | Path, checkpoint_bytes: int, keep: int, games_bytes: int) -> None:
    """Raise RunFolderError if the file system of a run's folder has no room for the games and for `keep` + 1
    checkpoints (one is written before the oldest is removed), less those that are there already. Raises NotNow instead
    if the folder holds a run, and the file system would have room if it were empty."""
    path = Path(path)
    with usable(path):
        there = next(parent for parent in (path.absolute(), *path.absolute().parents) if is_there(parent))
        stored = sum(name.replace("-", "").isdecimal() for name in names(path / "checkpoints"))
        room = os.statvfs(there)
    missing = max(keep - stored, 0) + 1
    free, needed = room.f_bavail * room.f_frsize, missing * checkpoint_bytes + games_bytes
    if free < needed:
        later = holds_run(path) and needed < room.f_blocks * room.f_frsize
        fewer = "keep fewer: --set checkpoint.keep=1"
        if games_bytes > missing * checkpoint_bytes:
            fewer = "store less: lower selfplay.num_games or selfplay.max_plies"
        raise (NotNow if later else RunFolderError)(
            f"--logdir {path}: {free / 2**20:,.1f} MiB are free there, this run may need {needed / 2**20:,.1f}: "
            f"{counted(missing, 'checkpoint')} of {checkpoint_bytes / 2**20:,.1f} MiB, up to "
            f"{games_bytes / 2**20:,.1f} MiB of games\n"
            f"  make room, name a --logdir elsewhere, or {fewer}"
        )


def describe(config: Config, hosts: Sequence[str]) -> dict[str, Any]:
    """Return the description of a start, JSON-able: configuration, versions, hosts, commit."""
    return {
        "config": json.loads(configuration.to_json(config)),
        "sources": plugin_sources.describe(config),
        "az_mpi": __version__,
        "python": platform.python_version(),
        "packages": package_versions(),
        "git_commit": commit(),
        "hosts": hosts,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def check_same_run(path: str | Path, config: Config) -> None:
    """Raise RunFolderError unless `path` holds a run that this configuration may resume. Also raises NotNow."""
    with usable(path):
        check_folders(path)
    old = recorded_config(path)
    refused = [change for change in configuration.changes(old, config) if not change.may_change]
    if refused:
        lines = [
            f"  {c.key}: {json.dumps(c.old)} in the run, {json.dumps(c.new)} now"
            + " (it may only rise)" * configuration.KEYS[c.key].may_rise
            for c in refused
        ]
        raise RunFolderError(
            f"{path} holds a run with another configuration; these keys may not change:\n"
            + "\n".join(lines)
            + "\n  to start a new run: another --logdir; to resume this one: leave out these keys and --config_file"
            "\n  --help_config shows which keys may change on resume"
        )


def _whole(paths, damaged=lambda path, error: None):
    """Yield (description, path) for each of `paths` that is whole; call `damaged(path, error)` for damaged ones. Raises
    OSError if one cannot be read, which does not mean that it is damaged."""
    for path in paths:
        try:
            yield description(path), path
        except FileNotFoundError:
            pass
        except ValueError as error:
            damaged(path, error)


def _set_aside(say, path, error):
    say(f"damaged: {path}: {error}; it is kept as {set_aside(path).name}")


def _write_start(folder, text):
    """Write the description of this start under the next free number; return the number."""
    number = _next_start(folder)
    while True:
        try:
            claim_text(folder / f"{number:03d}.json", text)
            return number
        except FileExistsError:
            number += 1


def _next_start(folder):
    # The number of a damaged one is not used again: ids of games contain the number of their start.
    found = [re.match(r"(\d+)\.json", name) for name in names(folder)]
    return 1 + max((int(match[1]) for match in found if match), default=0)


def commit() -> str | None:
    """Return the git commit of this program, or None outside a checkout. A pack tells that of its checkout."""
    if "AZ_MPI_COMMIT" in os.environ:
        return os.environ["AZ_MPI_COMMIT"] or None
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
