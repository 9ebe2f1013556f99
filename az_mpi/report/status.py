"""What every rank of a run is doing: heartbeats tell root, which writes RUN/status.json and RUN/status.txt."""

import json
import os
import threading
import time
from collections import deque

from az_mpi.core.files import Forbidden, write_bytes
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import parse
from az_mpi.liveness.heartbeat import SILENT_S
from az_mpi.report.status_text import render

NAME, TEXT_NAME = "status.json", "status.txt"
SCHEMA_VERSION = 1
WRITE_EVERY_S = 2.0
LAST_WRITE_S = 5.0  # for a disk that hangs when the run ends
UNHEARD_S = 15.0  # then root's log names the ranks that were never heard from
RATE_LOOKS, NETWORK_LOOKS, ITERATIONS_LOOKS = 30, 300, 10  # games/s, Network MB/min and time left are means over these
MESSAGE_MAX = 150  # characters of a failure: escaped in JSON they fit a datagram
STATES = {"play": "Active", "evaluate": "Active", "train": "Training"}  # of the phases; in all others ranks sync


class Status:
    """One rank's part of the status. Root's also writes the files, every WRITE_EVERY_S. As a context manager it records
    at the end how the run ended, with the state Error for a rank that leaves with an exception.

    state: Active (plays or evaluates), Training, Syncing. staleness: iterations between the weights that newly
    exchanged games began with and those at the exchange, the mean over ranks.
    """

    def __init__(self, world, folder, config, attempt, logger, writer=None):
        self._world, self._folder, self._config, self._attempt, self._logger = world, folder, config, attempt, logger
        self._writer, self._monitor = writer, None
        self.phase, self.state = "start", "Syncing"
        self.staleness = None
        self._run, self._rows = None, [(host, None, None) for host in world.hosts]
        self._begun, self._played_s, self._sync_s = time.monotonic(), 0.0, None
        self._progress, self._first_step, self._message = None, 0, None
        # On root:
        self._job, self._count, self._lock, self._unheard_told = "starting", 0, threading.Lock(), False
        self._start, self._name = time.monotonic(), folder.resolve().name
        self._rates = [deque(maxlen=RATE_LOOKS) for _ in world.hosts]
        self._sent, self._reached = deque(maxlen=NETWORK_LOOKS), deque(maxlen=ITERATIONS_LOOKS)
        self._errors, self._closed, self._thread = {}, threading.Event(), None

    def show(self, monitor):
        """From now on show what the heartbeats of a `liveness.Monitor` say. Without this call nothing is written."""
        self._monitor = monitor
        if self._world.is_root:
            self._thread = threading.Thread(target=self._keep_writing, name="status", daemon=True)
            self._thread.start()

    def begin(self, run, rows):
        """From now on show the counts of `run`: the loop begins. rows: (host, device, roles) of each rank."""
        self._run, self._rows = run, rows
        if self._job == "starting":
            self._job = "running"

    def enter(self, phase):
        """This rank enters `phase` of the loop; None: it has done its part and waits for the others."""
        now = time.monotonic()
        if self.state == "Active" and self.phase == "play":
            self._played_s += now - self._begun
        if phase is None:
            if self.phase == "broadcast":
                self._sync_s = now - self._begun
            self.state = "Syncing"
        else:
            trains = self._run is not None and self._run.training.learner is not None
            self.phase, self._progress = phase, None
            self.state = STATES.get(phase, "Syncing") if phase != "train" or trains else "Syncing"
            self._first_step = self._run.progress.step if self._run else 0
        self._begun = now

    def advance(self, name, done, total, unit):
        """Show that `done` of `total` units of the phase's work are done. name: of the work. Cheap enough for every
        step."""
        self._progress = (name, done, total, unit)

    def end(self, job, message=None):
        """Say how the run ended: finished, stopped (it can be resumed) or failed. Only the first call counts."""
        failed = job == "failed" and message is not None
        if failed and not self._world.is_root:
            self.state, self._message = "Error", message[:MESSAGE_MAX]
        elif self._job not in ("failed", "stopped", "finished"):
            self._job = job
            if failed:
                self._errors[0] = message[:MESSAGE_MAX]
        self.close(last_words=failed and not self._world.is_root)

    def close(self, last_words=False):
        """Fall silent. Without `end` before it the run goes on, with another Status."""
        if self._monitor is None:
            return
        self._monitor.leave(last_words)
        self._closed.set()
        if self._thread:
            self._thread.join(LAST_WRITE_S)
        self._monitor.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self.end("finished")
        elif issubclass(kind, KeyboardInterrupt):
            self.end("stopped")
        else:  # a refusal is raised on every rank and is no rank's failure
            self.end("failed", None if issubclass(kind, Refusal) else f"{kind.__name__}: {error}")

    def facts(self):
        """Return what this rank tells root. For any thread."""
        player = self._run.playing.player if self._run else None
        playing = self.state == "Active" and self.phase == "play"
        played_s = self._played_s + (time.monotonic() - self._begun if playing else 0.0)
        return {"state": self.state, "games": player.finished_num if player else 0, "played_s": played_s,
                "staleness": self.staleness, "bytes": self._world.sent_bytes, "message": self._message}

    def failed(self, rank, facts):
        """Take note that a rank fails, as it says. On root, for any thread."""
        if rank not in self._errors:
            self._errors[rank], self._job = facts["message"], "failed"
            self._logger.error("rank %d on %s failed: %s", rank, self._rows[rank][0], facts["message"])
            self._write()

    def stopped(self, why):
        """Store games and say that the run stops: the job is about to be ended. On root, for any thread."""
        self._logger.error(why)
        if self._writer:
            self._writer.rescue()
        self._job = "stopped"
        self._write()

    def _keep_writing(self):
        self._write()
        while not self._closed.wait(WRITE_EVERY_S):
            self._write()
        self._write()

    def _write(self):
        if self._monitor is None:  # a rank fails before `show`
            return
        with self._lock:
            self._count += 1
            values, before = self._values(), self._writer and self._writer.may_appear
            try:
                for name, text in ((NAME, json.dumps(values) + "\n"), (TEXT_NAME, render(values))):
                    write_bytes(self._folder / name, text.encode(), durable=False, before=before)
            except (OSError, Forbidden):
                pass  # the loop reports a full or failing disk; readers see that nothing changes

    def _values(self):
        """Return the content of status.json: the run as a whole and a row for each rank.

        A row's games_num counts this attempt; the run's games_num, positions_num and step, its finished iterations.
        games_per_s: while playing; of a finished run, the mean of this attempt. None: not known yet.
        """
        now, run, beats = time.monotonic(), self._run, self._monitor.beats()
        ranks = [self._rank_values(rank, beat) for rank, beat in enumerate(beats)]
        contents = [beat.content for beat in beats if beat.content]
        self._warn_of_unheard(now, beats)
        alive = [row for row in ranks if row["state"] not in ("Offline", "Error", "Finished")]
        stale = [content["staleness"] for content in contents if content["staleness"] is not None]
        progress = run.progress if run else None
        failed = [f"rank {rank} on {self._rows[rank][0]}: {text}" for rank, text in sorted(self._errors.items())]
        return {
            "schema_version": SCHEMA_VERSION, "run": self._name, "game": parse(self._config.game).short(),
            "attempt": self._attempt, "job": self._job, "count": self._count,
            "launch": os.environ.get("AZ_MPI_LAUNCH"),  # which launch supervises it
            "written": time.strftime("%Y-%m-%d %H:%M:%S"), "elapsed_s": round(now - self._start, 1),
            "phase": self.phase, "iteration": progress and progress.iteration, "iterations": self._config.iterations,
            "progress": self._phase_progress(), "time_left_s": self._time_left(now),
            "games_num": progress and progress.games_num, "positions_num": progress and progress.positions_num,
            "step": progress and progress.step,
            "games_per_s": round(sum(row["games_per_s"] for row in ranks), 2),
            "workers_active": len(alive), "workers_num": len(ranks),
            "model_sync_s": None if self._sync_s is None else round(self._sync_s, 4),
            "network_mb_per_min": self._network(now, sum(content["bytes"] for content in contents)),
            "staleness": round(sum(stale) / len(stale), 3) if stale else None, "failures": failed, "ranks": ranks,
        }  # fmt: skip

    def _rank_values(self, rank, beat):
        content = beat.content or {"state": "Offline", "games": 0, "played_s": 0.0}
        rates = self._rates[rank]
        if not rates or content["played_s"] > rates[-1][0]:
            rates.append((content["played_s"], content["games"]))
        (first_s, first), (last_s, last) = rates[0], rates[-1]
        rate = (last - first) / (last_s - first_s) if last_s > first_s else 0.0
        state = content["state"]
        if rank in self._errors:
            state = "Error"
        elif self._job == "finished":
            state, rate = "Finished", content["games"] / content["played_s"] if content["played_s"] else 0.0
        elif beat.silent_s > SILENT_S or self._job in ("stopped", "failed"):
            state = "Offline"
        rate = 0.0 if state in ("Offline", "Error") else rate
        host, device, roles = self._rows[rank]
        return {"rank": rank, "host": host, "device": device, "roles": roles, "state": state,
                "games_num": content["games"], "games_per_s": round(rate, 2), "last_seen_s": round(beat.silent_s, 1)}

    def _phase_progress(self):
        learner, progress = self._run.training.learner if self._run else None, self._progress
        if self.phase == "train" and learner and learner.end_index > self._first_step:
            total = learner.end_index - self._first_step
            progress = ("training", self._run.progress.step - self._first_step, total, "steps")
        return progress and dict(zip(("name", "done", "total", "unit"), progress))

    def _time_left(self, now):
        """Return the seconds until the last iteration is done, estimated from the newest ones; None before that."""
        if self._run is None:
            return None
        done, step, reached = self._run.progress.iteration, self._run.progress.step, self._reached
        if not reached or reached[-1][1] != done:
            reached.append((now, done))
        if len(reached) < 2:
            return None
        pace = (reached[-1][0] - reached[0][0]) / (reached[-1][1] - reached[0][1])
        left = self._config.iterations - done
        if self._config.train.max_steps and step:
            left = min(left, (self._config.train.max_steps - step) * done / step)
        return round(max(left * pace - (now - reached[-1][0]), 0.0), 1)

    def _network(self, now, sent):
        """Return how many 10^6 bytes a minute all ranks sent over the last NETWORK_LOOKS writes; None if none did."""
        self._sent.append((now, sent))
        (first_s, first), (last_s, last) = self._sent[0], self._sent[-1]
        return round((last - first) / 1e6 / (last_s - first_s) * 60, 3) if last and last_s > first_s else None

    def _warn_of_unheard(self, now, beats):
        unheard = [rank for rank, beat in enumerate(beats) if beat.content is None]
        if unheard and not self._unheard_told and now - self._start > UNHEARD_S:
            self._unheard_told = True
            hosts = sorted({self._rows[rank][0] for rank in unheard})
            self._logger.warning("no heartbeat from rank %s on %s; is UDP to port %d of this host blocked? "
                                 "The status shows them as Offline", unheard, ", ".join(hosts), self._monitor.port)
