"""The lock that lets only one job run in a run's folder: RUN/lock/NNNNNN.json, made with O_EXCL. Its holder renews the
file's time, the beat.

It works on any shared file system, without flock. A lock is dead when all processes of its job are proved dead: those
under this kernel by process number and start time; those on other hosts when the file's time has not changed for
`fault.hang_s`, measured by our own clock. If launch or Slurm starts a job again, the earlier start has ended, and a
beat that stands still for LOOK_S is enough.
"""

import json
import os
import random
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from az_mpi.core import files
from az_mpi.core.earlier_names import modern_keys, starts_folder
from az_mpi.core.files import Forbidden
from az_mpi.core.problems import NotNow, Refusal, escape
from az_mpi.core.processes import STARTED, STATE, stat
from az_mpi.core.silence import SilenceTimer

BEAT_S = 1.0  # between two beats of a holder
LOOK_S = 6.0  # how long a beat of another host must at least stand still before its lock is dead
LOOK_MAX_S = 300.0  # the same, at most: for a job that may hang for ever, or for very long
SLOW_S = 1.0  # seconds of one look that count at most: a file system that hangs shows no beat
TELL_S = 2.0  # after which the user is told about the waiting
RELEASE_S = 5.0  # how long a holder waits for the file system to remove its lock
DYING_S = 4.0  # how long ranks of a job whose root is dead have to end, or to take over
_NAME = re.compile(r"\d{6,}\.json")
_TRIES = 100


class LockLost(Forbidden):
    """This job has lost its lock, such as to another job that has taken the run over: nothing may be written."""


def me() -> dict[str, Any]:
    """Return the entry of this process in a lock, JSON-able."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "place": _place(), "started": _started(os.getpid())}


def _place():
    """Return a name of this kernel and its process namespace, in which process numbers are valid; None: unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _started(pid):
    """Return when a process of this place started, in the kernel's ticks; None if it is dead."""
    try:
        fields = stat(pid)[1]
    except OSError:
        return None
    return None if fields[STATE] in "ZX" else int(fields[STARTED])


def _alive(process):
    """Return whether a process, an entry by `me`, lives; None if that cannot be known from here."""
    if process["place"] is None or process["place"] != _place():
        return None
    return _started(process["pid"]) == process["started"]


def _starter():
    """Return what will start this job again if it is lost: the id of a launch, the id of a Slurm job and the number of
    its start; each may be None."""
    variables = {"launch": "AZ_MPI_LAUNCH", "slurm": "SLURM_JOB_ID", "start": "SLURM_RESTART_COUNT"}
    return {name: os.environ.get(variable) for name, variable in variables.items()}


def _is_earlier(holder):
    """Return whether the holder of a lock is an earlier start of this same job."""
    ours, theirs = _starter(), holder.get("starter", {})
    if ours["launch"] and ours["launch"] == theirs.get("launch"):
        return True
    return bool(ours["slurm"]) and ours["slurm"] == theirs.get("slurm") and ours["start"] != theirs.get("start")


def look(
    run: str | Path, say: Callable[[str], None] = lambda text: None, wait: Callable[[], None] = lambda: None
) -> dict[str, str]:
    """Return the locks of a run's folder that are proved dead, {file name: token}. Writes nothing.

    Waits as long as the proof takes; calls `say` if that is long, and `wait` repeatedly, which may raise. Raises
    LockHeld if a job lives.
    """
    tokens = {path.name: _watch(path, say, wait) for path in _files(Path(run) / "lock")}
    return {name: token for name, token in tokens.items() if token is not None}


class LockHeld(Refusal):
    """Another job runs in the folder; str() is one block for the user that names it."""


class NotYetOver(LockHeld, NotNow):
    """The holder will end by itself: it is a repair, or an earlier start of this job on a host that was cut off."""


def _held(path, holder, why):
    host, pid, since = (escape(str(holder.get(key, "?"))) for key in ("host", "pid", "since"))
    return (NotYetOver if _is_earlier(holder) or holder.get("brief") else LockHeld)(
        f"--logdir {path.parent.parent}: another job runs here: process {pid} on {host}, start "
        f"{holder.get('start', '?')}, since {since} ({why})\n"
        f"  let it end, or stop it (kill -TERM {pid} on {host}); or give another --logdir\n"
        f"  a dead job's lock is taken over by itself; do not remove {path}"
    )


def _proof_s(holder):
    """Return how many seconds the beat of a holder elsewhere must stand still before it is dead."""
    if _is_earlier(holder):
        return LOOK_S
    return max(LOOK_S, min(holder.get("hang_s", LOOK_S) or LOOK_MAX_S, LOOK_MAX_S))


def _watch(path, say=lambda text: None, wait=lambda: None):
    """Watch a lock until one of these is seen, in this order, and return or raise what stands beside it:
    the file is gone                             None
    its beat changes, or its root lives here     LockHeld
    all of its processes were here and are dead  the token
    a rank of it lives here for DYING_S          LockHeld
    its beat stands still for `_proof_s`         the token"""
    told = False
    for holder, renewed, waited_s in _looks(path):
        token, ranks = holder.get("token", ""), holder.get("ranks", [])
        lives = [_alive(rank) for rank in ranks]
        if renewed and ranks:
            raise _held(path, holder, "its lock is renewed")
        if lives[:1] == [True]:
            raise _held(path, holder, "the process lives")
        if lives and all(life is False for life in lives):
            return token
        if True in lives and waited_s > DYING_S:
            raise _held(path, holder | ranks[lives.index(True)], "a rank of the job lives")
        if waited_s > _proof_s(holder):
            return token
        if waited_s > TELL_S and not told:
            told = True
            say(
                f"{path}: process {holder.get('pid')} on {escape(str(holder.get('host')))} had this run; looking for "
                f"{_proof_s(holder):.0f} s whether it lives"
            )
        wait()
    return None


def _looks(path):
    """Look at a lock file until it is gone; yield (its content, whether its beat has changed since the first look, the
    seconds for which the same job has had it)."""
    timer, first_beat = SilenceTimer(SLOW_S), None
    while (found := _read(path)) is not None:
        beat, holder = found
        token = holder.get("token", "")
        if first_beat is None or timer.value != token:  # another lock, or one that was being written
            first_beat = beat
        yield holder, beat != first_beat, timer.look(token)
        time.sleep(0.05)


def _read(path):
    """Return (beat, content) of a lock file, or None if it is gone. The content is {} if it is not valid."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        beat, text = os.fstat(descriptor).st_mtime_ns, file.read(1 << 24)
    try:
        content = json.loads(text, object_hook=modern_keys)
        for rank in content["ranks"]:
            rank["host"], rank["pid"], rank["place"], rank["started"]
        content["token"], content["start"], content["since"]
        content.get("starter", {}).get, float(content.get("hang_s", 0.0))  # older versions did not write these
        return beat, content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return beat, {}  # being written, or its writer has died: the beat decides


def _token(path):
    """Return the token in a lock file: None if the file is gone, "" if it is not valid."""
    found = _read(path)
    return found and found[1].get("token", "")


def _files(folder):
    """Return the lock files of a folder, oldest first; [] if there is no such folder."""
    found = [name for name in files.names(folder) if _NAME.fullmatch(name)]
    return [folder / name for name in sorted(found, key=lambda name: int(name[:-5]))]


class Lock:
    """The lock on a run's folder, held by this process and renewed by a thread. Made by `take` and `take_over`."""

    def __init__(self, path: Path, token: str):
        self.path, self.token = path, token
        self._lost, self._closed = False, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lock", daemon=True)
        self._thread.start()

    @classmethod
    def take(
        cls,
        run: str | Path,
        ranks: list[dict[str, Any]],
        start: int | str,
        dead: dict[str, str] | None = None,
        hang_s: float = LOOK_S,
        brief: bool = False,
    ) -> "Lock":
        """Take the lock of a run's folder; the folder is made if there is none.

        ranks: `me()` of every rank of the job, root first. start: the number of this start, for messages. dead: the
        result of `look`. hang_s: seconds for which the job may stand still. brief: the lock is held so briefly that
        others should try again. Raises LockHeld, and leaves nothing behind, if another job has it; OSError."""
        return cls._claim(run, ranks, start, secrets.token_hex(16), dead or {}, hang_s, brief)

    @classmethod
    def take_over(
        cls, run: str | Path, ranks: list[dict[str, Any]], start: int, token: str, hang_s: float = LOOK_S
    ) -> "Lock":
        """Continue with this job's lock after its root has died. The new root calls this.

        ranks: as for `take`, of the survivors, the new root first. token: of the job's lock. Raises LockLost if another
        job has taken the run over, or the lock is gone."""
        folder = Path(run) / "lock"
        ours = _held_by(token, folder)
        if not ours:
            raise _gone(folder)
        try:
            return cls._claim(run, ranks, start, token, dict.fromkeys(ours, token), hang_s)
        except LockHeld as error:
            raise LockLost(str(error)) from error

    @classmethod
    def _claim(cls, run, ranks, start, token, dead, hang_s, brief=False) -> "Lock":
        folder = Path(run) / "lock"
        content = {
            "host": ranks[0]["host"],
            "pid": ranks[0]["pid"],
            "start": start,
            "token": token,
            "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "ranks": ranks,
            "starter": _starter(),
            "hang_s": hang_s,
            "brief": brief,
        }
        for _ in range(_TRIES):
            folder.mkdir(parents=True, exist_ok=True)
            others = _files(folder)
            for path in others:
                if path.name not in dead and (found := _watch(path)) is not None:
                    dead[path.name] = found
            path = folder / f"{1 + max((int(other.stem) for other in others), default=0):06d}.json"
            if not _create(path, json.dumps(content) + "\n"):
                continue
            # Of two jobs that have both made a lock, the one that looks last sees the other's: never both continue.
            left = [other for other in _files(folder) if other != path]
            strangers = [other for other in left if dead.get(other.name) != _token(other)]
            if not strangers:
                lock = cls(path, token)
                for other in left:
                    other.unlink(missing_ok=True)
                return lock
            path.unlink(missing_ok=True)
            for other in strangers:
                dead.pop(other.name, None)
            time.sleep(random.uniform(0.0, 0.1))
        raise LockHeld(f"--logdir {run}: too many jobs start here at once\n  start one")

    def still_ours(self) -> bool:
        """Return whether this job still has the lock. Raises OSError if the file system fails."""
        if not self._lost:
            try:
                # No answer from a cache: the server changes the file's time, or says that the file is gone.
                os.utime(self.path, follow_symlinks=False)
                self._lost = _token(self.path) != self.token
            except (FileNotFoundError, NotADirectoryError):
                self._lost = True
        return not self._lost

    def check(self) -> None:
        """Raise LockLost unless this job still has the lock. To be called right before a file appears."""
        if not self.still_ours():
            raise _lost(self.path.parent, self.token)

    def release(self) -> None:
        """Remove the lock, and the folder of locks if that is empty. Never raises OSError, and waits at most RELEASE_S
        for a file system that hangs: other jobs will then find the lock dead."""
        self._closed.set()
        thread = threading.Thread(target=self._give_back, daemon=True)
        thread.start()
        thread.join(RELEASE_S)

    def _give_back(self):
        try:
            if self.still_ours():
                self.path.unlink(missing_ok=True)
                self.path.parent.rmdir()
        except OSError:
            pass  # there is another start's lock; or the disk fails, and others will find the lock dead

    def _beat(self):
        while not self._closed.wait(BEAT_S):
            try:
                if not self.still_ours():
                    return
            except OSError:
                pass  # whatever writes next raises the error


def check(run: str | Path, token: str) -> None:
    """Raise LockLost unless the job with this token has the lock of a run's folder. For ranks that write beside the one
    that holds it: they look, and do not renew it."""
    folder = Path(run) / "lock"
    if not _held_by(token, folder):
        raise _lost(folder, token)


def _held_by(token, folder):
    """Return the names of the locks in a folder that have this token."""
    # `take_over` makes the new lock, then removes the old one: a list from before, as a client of NFS keeps it, has
    # neither.
    for look_again in (files.refresh, lambda folder: None):
        if found := [path.name for path in _files(folder) if _token(path) == token]:
            return found
        look_again(folder)
    return []


def _lost(folder, token):
    """Return the exception for a folder of locks in which the job with this token has none."""
    found = [found[1] for path in _files(folder) if (found := _read(path))]
    # Ours is there where the folder came back.
    others = [f"{other.get('pid')} on {other.get('host')}" for other in found if other.get("token") != token]
    if not others:
        return _gone(folder)
    return LockLost(f"{folder}: another job has taken the run over ({', '.join(others)})")


def _gone(folder):
    """Return the exception for a folder of locks that has neither this job's lock nor another's."""
    if files.is_there(starts_folder(folder.parent)):
        return LockLost(
            f"{folder}: this job's lock was removed, or the run's folder was renamed for a while; no other "
            "job has taken the run over"
        )
    return LockLost(
        f"{folder.parent}: the run's folder was renamed or removed while the job ran; a renamed one "
        "continues with its new name as --logdir",
        resumable=False,
    )  # the same command would begin a new run


def _create(path, text):
    """Make a new file and return True; return False if there is one already."""
    try:
        files.create(path, text.encode())
        files.sync(path)
        return True
    except (FileExistsError, FileNotFoundError):  # the latter: another job has just released, with the folder
        return False
    except OSError:
        path.unlink(missing_ok=True)
        raise
