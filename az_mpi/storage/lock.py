"""The lock on a run's folder: RUN/lock/NNNNNN.json, made with O_EXCL, whose modification time is the holder's beat.

Works on any shared file system, without flock. A lock is dead if all processes of its job are proved dead. Those of
this kernel are known by process number and start time. Others are dead if the beat stands still, by our own clock, for
as long as that job may hang (`fault.hang_s`); for LOOK_S if this is a later start of the same job by launch or Slurm,
which start it again only after a loss.
"""

import json
import os
import random
import re
import secrets
import socket
import threading
import time
from pathlib import Path

from az_mpi.core import files
from az_mpi.core.files import Forbidden
from az_mpi.core.problems import NotNow, Refusal, escape
from az_mpi.core.processes import STARTED, STATE, stat
from az_mpi.core.silence import SilenceTimer

BEAT_S = 1.0  # between two beats of a holder
LOOK_S = 6.0  # the beat of a job elsewhere has to stand still for at least so long, see above
LOOK_MAX_S = 300.0  # and at most so long, also of a job without limit
SLOW_S = 1.0  # of the time between two looks at most so much counts: a file system that hangs shows no beat
TELL_S = 2.0  # then the user is told what is waited for
RELEASE_S = 5.0  # for a file system that hangs when the lock is released
DYING_S = 4.0  # for the ranks of a job whose root is dead to end, or for one of them to take over
_NAME = re.compile(r"\d{6,}\.json")
_TRIES = 100


class LockLost(Forbidden):
    """The lock is no longer ours, for example because another job has taken the run over: nothing may be written."""


def me():
    """Return this process as locks describe it, JSON-able."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "place": _place(), "started": _started(os.getpid())}


def _place():
    """Return a name of the kernel and PID namespace in which process numbers are valid; None if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _started(pid):
    """Return when a process of this place started, in the kernel's ticks; None for one that is dead."""
    try:
        fields = stat(pid)[1]
    except OSError:
        return None
    return None if fields[STATE] in "ZX" else int(fields[STARTED])


def _alive(process):
    """Return whether a process, described by `me`, lives; None if that cannot be known from here."""
    if process["place"] is None or process["place"] != _place():
        return None
    return _started(process["pid"]) == process["started"]


def _starter():
    """Return what starts this job again after a loss: the id of a launch, and that of a Slurm job with the number of
    its start; None for what there is not."""
    variables = {"launch": "AZ_MPI_LAUNCH", "slurm": "SLURM_JOB_ID", "start": "SLURM_RESTART_COUNT"}
    return {name: os.environ.get(variable) for name, variable in variables.items()}


def _is_earlier(holder):
    """Return whether a lock's holder is an earlier start of this very job."""
    ours, theirs = _starter(), holder.get("starter", {})
    if ours["launch"] and ours["launch"] == theirs.get("launch"):
        return True
    return bool(ours["slurm"]) and ours["slurm"] == theirs.get("slurm") and ours["start"] != theirs.get("start")


def look(run, say=lambda text: None, wait=lambda: None):
    """Return the dead locks of a run's folder, {file name: token}. Writes nothing. Raises LockHeld if a job lives.

    While it waits for a proof it calls `say` with a text, once, and `wait` again and again; `wait` may raise.
    """
    dead = {}
    for path in _files(Path(run) / "lock"):
        if (token := _watch(path, say, wait)) is not None:
            dead[path.name] = token
    return dead


class LockHeld(Refusal):
    """Another job runs in the folder; str() is one block that names it."""


class NotYetOver(LockHeld, NotNow):
    """The other job will end: it is a repair, or an earlier start of this job, such as on a host that is cut off."""


def _held(path, holder, why):
    host, pid, since = (escape(str(holder.get(key, "?"))) for key in ("host", "pid", "since"))
    return (NotYetOver if _is_earlier(holder) or holder.get("brief") else LockHeld)(
        f"--logdir {path.parent.parent}: another job runs here: process {pid} on {host}, attempt "
        f"{holder.get('attempt', '?')}, since {since} ({why})\n"
        f"  let it end, or stop it (kill -TERM {pid} on {host}); or give another --logdir\n"
        f"  a dead job's lock is taken over by itself; do not remove {path}"
    )


def _silent_s(holder):
    """Return for how many seconds the beat of a holder elsewhere has to stand still until it counts as dead."""
    if _is_earlier(holder):
        return LOOK_S
    return max(LOOK_S, min(holder.get("hang_s", LOOK_S) or LOOK_MAX_S, LOOK_MAX_S))


def _watch(path, say=lambda text: None, wait=lambda: None):
    """Return the token of a lock once its job is proved dead, None once the lock is gone. Raises LockHeld once the job
    is proved alive."""
    timer, first, told = SilenceTimer(SLOW_S), None, False
    while True:
        found = _read(path)
        if found is None:
            return None
        beat, holder = found
        token, ranks = holder.get("token", ""), holder.get("ranks", [])
        if first is None or timer.value != token:  # another lock, or one that was being written
            first = beat
        waited_s = timer.look(token)
        if beat != first and ranks:
            raise _held(path, holder, "its lock is renewed")
        lives = [_alive(rank) for rank in ranks]
        if lives and lives[0]:
            raise _held(path, holder, "the process lives")
        if lives and not any(life is not False for life in lives):
            return token
        if True in lives and waited_s > DYING_S:
            raise _held(path, holder | ranks[lives.index(True)], "a rank of the job lives")
        silent_s = _silent_s(holder)
        if waited_s > silent_s:
            return token
        if waited_s > TELL_S and not told:
            told = True
            say(f"{path}: process {holder.get('pid')} on {escape(str(holder.get('host')))} had this run; looking for "
                f"{silent_s:.0f} s whether it lives")
        wait()
        time.sleep(0.05)


def _read(path):
    """Return (beat, content) of a lock file, None if it is gone; content {} if it cannot be understood."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        beat, text = os.fstat(descriptor).st_mtime_ns, file.read(1 << 24)
    try:
        content = json.loads(text)
        for rank in content["ranks"]:
            rank["host"], rank["pid"], rank["place"], rank["started"]
        content["token"], content["attempt"], content["since"]
        content.get("starter", {}).get, float(content.get("hang_s", 0.0))  # which older versions did not write
        return beat, content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return beat, {}  # being written, or its writer has died: the beat decides


def _token(path):
    """Return the token in a lock file, None if the file is gone, "" if it cannot be understood."""
    found = _read(path)
    return found and found[1].get("token", "")


def _files(folder):
    """Return the lock files of a folder, oldest first."""
    found = [name for name in files.names(folder) if _NAME.fullmatch(name)]
    return [folder / name for name in sorted(found, key=lambda name: int(name[:-5]))]


class Lock:
    """The lock on a run's folder, held by this process and renewed by a thread. Made by `take` and `take_over`."""

    def __init__(self, path, token):
        self.path, self.token = path, token
        self._lost, self._closed = False, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lock", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, run, ranks, attempt, dead=None, hang_s=LOOK_S, brief=False):
        """Take the lock on a run's folder, which is made if it does not exist.

        ranks: `me()` of every rank of the job, root first. attempt: the number of this start, for messages. dead: what
        `look` has returned. hang_s: `fault.hang_s`. brief: this job will soon end, so others are told to try again.
        Raises LockHeld, and leaves nothing, if another job holds the lock; OSError.
        """
        return cls._claim(run, ranks, attempt, secrets.token_hex(16), dead or {}, hang_s, brief)

    @classmethod
    def take_over(cls, run, ranks, attempt, token, hang_s=LOOK_S):
        """Take over the lock of this job, whose root is dead, as the new root.

        ranks: the ranks that are left, the new root first. token: the job's. Raises LockLost if another job has taken
        the run, or if this job's lock is gone.
        """
        folder = Path(run) / "lock"
        ours = {path.name: token for path in _files(folder) if _token(path) == token}
        if not ours:
            raise _gone(folder)
        try:
            return cls._claim(run, ranks, attempt, token, ours, hang_s)
        except LockHeld as error:
            raise LockLost(str(error)) from error

    @classmethod
    def _claim(cls, run, ranks, attempt, token, dead, hang_s, brief=False):
        folder = Path(run) / "lock"
        content = {"host": ranks[0]["host"], "pid": ranks[0]["pid"], "attempt": attempt, "token": token,
                   "since": time.strftime("%Y-%m-%d %H:%M:%S %z"), "ranks": ranks, "starter": _starter(),
                   "hang_s": hang_s, "brief": brief}  # fmt: skip
        for _ in range(_TRIES):
            folder.mkdir(parents=True, exist_ok=True)
            others = _files(folder)
            for path in others:
                if path.name not in dead and (found := _watch(path)) is not None:
                    dead[path.name] = found
            path = folder / f"{1 + max((int(other.stem) for other in others), default=0):06d}.json"
            if not _create(path, json.dumps(content) + "\n"):
                continue
            # Of two jobs that have made a lock the one that looks last sees the other's: never do both go on.
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

    def still_ours(self):
        """Return whether no other job has taken the lock. Raises OSError if the file system fails."""
        if not self._lost:
            try:
                # Bypasses caches: the server changes the file's time, or reports that the file is gone.
                os.utime(self.path, follow_symlinks=False)
                self._lost = _token(self.path) != self.token
            except (FileNotFoundError, NotADirectoryError):
                self._lost = True
        return not self._lost

    def check(self):
        """Raise LockLost unless the lock is still ours. To be called right before a file becomes visible."""
        if not self.still_ours():
            found = [found[1] for path in _files(self.path.parent) if (found := _read(path))]
            others = [f"{other.get('pid')} on {other.get('host')}" for other in found
                      if other.get("token") != self.token]  # ours is there where the folder came back
            if not others:
                raise _gone(self.path.parent)
            raise LockLost(f"{self.path.parent}: another job has taken the run over ({', '.join(others)})")

    def release(self):
        """Remove the lock, and the folder of locks if it is empty. Never raises OSError, and waits at most RELEASE_S
        for a file system that hangs: then the next job finds the lock dead."""
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
            pass  # another job's lock is there, or the disk fails: then the next job finds ours dead

    def _beat(self):
        while not self._closed.wait(BEAT_S):
            try:
                if not self.still_ours():
                    return
            except OSError:
                pass  # the writer notices by itself


def _gone(folder):
    """Return the exception for a folder of locks with neither this job's lock nor another's."""
    if files.is_there(folder.parent / "attempts"):
        return LockLost(f"{folder}: this job's lock was removed, or the run's folder was renamed for a while; no other "
                        "job has taken the run over")
    return LockLost(f"{folder.parent}: the run's folder was renamed or removed while the job ran; a renamed one goes "
                    "on with its new name as --logdir", resumable=False)  # the same command would begin a new run


def _create(path, text):
    """Make a new file and return True; False if there is one."""
    try:
        files.create(path, text.encode())
        files.sync(path)
        return True
    except (FileExistsError, FileNotFoundError):  # the latter: a release has removed the folder
        return False
    except OSError:
        path.unlink(missing_ok=True)
        raise
