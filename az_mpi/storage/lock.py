"""Who runs in a run's folder: RUN/lock/NNNNNN.json, made with O_EXCL, and its file time as a beat.

Works on any shared file system, without flock. A lock is dead when all of its job's processes are proved dead: those of
our own kernel by process number and start time, others by a beat that stands still while we look, by our own clock, for
as long as that job allows itself to hang (`fault.hang_s`). Whoever starts a job again, launch or Slurm, does so once it
has been lost: then LOOK_S will do.
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
from az_mpi.core.silence import SilenceTimer

BEAT_S = 1.0  # between two beats of a holder
LOOK_S = 6.0  # a beat of another host that stands still for so long is dead; see above for longer
LOOK_MAX_S = 300.0  # of a job that may hang for ever, or for very long
SLOW_S = 1.0  # of a look that counts at most: a file system that hangs shows no beat
TELL_S = 2.0  # then the user is told what is waited for
RELEASE_S = 5.0  # that a lock's holder waits for the file system to give it back
DYING_S = 4.0  # that the ranks of a job whose root is dead are given to follow it, or one of them to take over
_NAME = re.compile(r"\d{6,}\.json")
_TRIES = 100


class LockLost(Forbidden):
    """The lock is not ours any more, such as where another job has taken the run over: nothing may be written."""


def me():
    """Return this process as a lock names it: JSON-able."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "place": _place(), "started": _started(os.getpid())}


def _place():
    """Return a name of the kernel, and of the set of processes in it, for which process numbers count."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _started(pid):
    """Return when a process of this place started, in the kernel's ticks; None for one that is dead."""
    try:
        # The name, in brackets, may hold anything; state is the first word behind it, starttime the 20th.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else int(words[19])


def _alive(process):
    """Return whether a process, as `me` names it, lives; None where that cannot be known from here."""
    if process["place"] is None or process["place"] != _place():
        return None
    return _started(process["pid"]) == process["started"]


def _starter():
    """Return who starts this job again where it is lost: the ids of a launch, and of a Slurm job with the number of its
    start; None for what there is not."""
    variables = {"launch": "AZ_MPI_LAUNCH", "slurm": "SLURM_JOB_ID", "start": "SLURM_RESTART_COUNT"}
    return {name: os.environ.get(variable) for name, variable in variables.items()}


def _is_earlier(holder):
    """Return whether a lock's holder is an earlier start of this very job."""
    ours, theirs = _starter(), holder.get("starter", {})
    if ours["launch"] and ours["launch"] == theirs.get("launch"):
        return True
    return bool(ours["slurm"]) and ours["slurm"] == theirs.get("slurm") and ours["start"] != theirs.get("start")


def look(run, say=lambda text: None, wait=lambda: None):
    """Return the locks of a run's folder that are proved dead, {file name: token}, and write nothing.

    Waits as long as that needs; then tells `say` so, and calls `wait` again and again, which may raise. Raises LockHeld
    where a job lives.
    """
    dead = {}
    for path in _files(Path(run) / "lock"):
        if (token := _watch(path, say, wait)) is not None:
            dead[path.name] = token
    return dead


class LockHeld(Refusal):
    """Another job runs in the folder; str() is one block that names it."""


class NotYetOver(LockHeld, NotNow):
    """It is an earlier start of this one, such as one on a host that is cut off, or a repair, and will end."""


def _held(path, holder, why):
    host, pid, since = (escape(str(holder.get(key, "?"))) for key in ("host", "pid", "since"))
    return (NotYetOver if _is_earlier(holder) or holder.get("brief") else LockHeld)(
        f"--logdir {path.parent.parent}: another job runs here: process {pid} on {host}, attempt "
        f"{holder.get('attempt', '?')}, since {since} ({why})\n"
        f"  let it end, or stop it (kill -TERM {pid} on {host}); or give another --logdir\n"
        f"  a dead job's lock is taken over without your help; {path} need not be removed"
    )


def _silent_s(holder):
    """Return for how many seconds the beat of a holder elsewhere has to stand still before it is dead."""
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
    """Return (beat, content) of a lock file, None where it is gone; {} as content where it cannot be understood."""
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
        return beat, {}  # being written, or its writer died in the middle: its beat decides


def _token(path):
    """Return the token in a lock file: None where the file is gone, "" where it cannot be understood."""
    found = _read(path)
    return found and found[1].get("token", "")


def _files(folder):
    """Return the lock files of a folder, oldest first; none where there is no such folder."""
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
        """Take the lock of a run's folder, which is made where there is none.

        ranks: `me()` of every rank of the job, root first. attempt: which start of the run this is, for messages.
        dead: what `look` has returned. hang_s: seconds for which the job may stand still, `fault.hang_s`. brief: that
        others had better try again than give up. Raises LockHeld, with nothing left behind, where another job has it;
        OSError.
        """
        return cls._claim(run, ranks, attempt, secrets.token_hex(16), dead or {}, hang_s, brief)

    @classmethod
    def take_over(cls, run, ranks, attempt, token, hang_s=LOOK_S):
        """Go on with the lock of our own job, whose root is dead: the new root does.

        ranks: of those that are left, the new root first. token: the job's. Raises LockLost where another job has
        taken the run, or the lock of ours is gone.
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
            # Whoever looks last of two that have made a lock sees the other's, so never do both go on.
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
        """Return whether no other job has taken the lock. Asks the file system: raises OSError where it fails."""
        if not self._lost:
            try:
                # Not what a cache knows: the server changes the file's time, or says that it is gone.
                os.utime(self.path, follow_symlinks=False)
                self._lost = _token(self.path) != self.token
            except (FileNotFoundError, NotADirectoryError):
                self._lost = True
        return not self._lost

    def check(self):
        """Raise LockLost unless it is ours still: to be called right before a file becomes visible."""
        if not self.still_ours():
            found = [found[1] for path in _files(self.path.parent) if (found := _read(path))]
            others = [f"{other.get('pid')} on {other.get('host')}" for other in found
                      if other.get("token") != self.token]  # ours is there where the folder came back
            if not others:
                raise _gone(self.path.parent)
            raise LockLost(f"{self.path.parent}: another job has taken the run over ({', '.join(others)})")

    def release(self):
        """Give the lock back; the folder of locks goes too where it is empty. Never raises OSError, and waits no longer
        than RELEASE_S for a file system that hangs: then the lock is found dead."""
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
            pass  # another start's lock is there, or the disk fails: then it is found dead

    def _beat(self):
        while not self._closed.wait(BEAT_S):
            try:
                if not self.still_ours():
                    return
            except OSError:
                pass  # those who write find out for themselves


def _gone(folder):
    """Return the exception for a folder of locks in which neither this job's lock is nor another's."""
    if files.is_there(folder.parent / "attempts"):
        return LockLost(f"{folder}: this job's lock was removed, or the run's folder was renamed for a while; no other "
                        "job has taken the run over")
    return LockLost(f"{folder.parent}: the run's folder was renamed or removed while the job ran; a renamed one goes "
                    "on with its new name as --logdir", resumable=False)  # the same command would begin a new run


def _create(path, text):
    """Make a file that was not there and return True; False where there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    except (FileExistsError, FileNotFoundError):  # the latter: whoever released has removed the folder
        return False
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True
