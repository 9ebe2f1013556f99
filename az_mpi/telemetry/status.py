"""What every rank of a run is doing: root learns it from heartbeats, and writes RUN/status.json and RUN/status.txt."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from az_mpi.config.schema import Config
from az_mpi.core.files import Forbidden, write_bytes
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import parse
from az_mpi.liveness.heartbeat import SILENT_S
from az_mpi.liveness.monitor import Monitor
from az_mpi.storage.writer import Writer
from az_mpi.telemetry.status_text import render

if TYPE_CHECKING:
    from az_mpi.mpi.world import World
    from az_mpi.selfplay.player import Player
    from az_mpi.storage.checkpoint import Progress
    from az_mpi.train.learner import Learner

NAME, TEXT_NAME = "status.json", "status.txt"
SCHEMA_VERSION = 1
WRITE_EVERY_S = 2.0
LAST_WRITE_S = 5.0  # how long the end of the run waits for the last write
UNHEARD_S = 15.0  # after so long, root's log names the ranks without any heartbeat
# How many of the newest values go into the means: of games/s, of Network MB/min, of the time left.
RATE_LOOKS, NETWORK_LOOKS, ITERATIONS_LOOKS = 30, 300, 10
MESSAGE_MAX, MESSAGE_BYTES_MAX = 150, 900  # characters of a failure, and what they take as JSON: it fits a datagram
STATES = {"play": "Active", "evaluate": "Active", "train": "Training", "fit": "Training"}  # {phase: state}


class _Playing(Protocol):
    @property
    def player(self) -> Player: ...


class _Training(Protocol):
    @property
    def learner(self) -> Learner | None:
        """None on ranks that do not train."""


class RunInProgress(Protocol):
    """What the status shows of a run: `run.state.Run` is one, which this package does not know."""

    @property
    def playing(self) -> _Playing: ...

    @property
    def training(self) -> _Training: ...

    @property
    def progress(self) -> Progress: ...

    @property
    def before_play(self) -> Progress | None:
        """`progress` when this iteration began; None: the run has not been read yet."""

    def hours(self) -> float:
        """Return the hours of all starts of the run until now; only counted with `train.hours`."""


def _beginning(message):
    """Return the beginning of a failure's message that a heartbeat can carry."""
    message = message[:MESSAGE_MAX]
    while len(json.dumps(message)) - 2 > MESSAGE_BYTES_MAX:
        message = message[:-1]
    return message


class Status:
    """One rank's part of the status. Root's also writes the files, every WRITE_EVERY_S.

    state: Active (plays or evaluates), Training, Syncing or Error. staleness: the number of iterations between the
    weights at a game's begin and those at its exchange, the mean of the newly exchanged games; None: not known.
    """

    def __init__(
        self,
        world: World,
        folder: Path,
        config: Config,
        start: int | None,
        logger: Logger,
        writer: Writer | None = None,
    ):
        self._world, self._folder, self._config, self._number, self._logger = world, folder, config, start, logger
        self._writer = writer
        self._monitor: Monitor | None = None
        self._run: RunInProgress | None = None
        self._rows: Sequence[tuple[str, str | None, str | None]] = [(host, None, None) for host in world.hosts]
        # What this rank's heartbeats say, see `facts`, and what it comes from.
        self.phase = "start"
        self.state = "Syncing"
        self.staleness: float | None = None
        self.threshold: str | None = None  # of ranked reward, in words
        self._begun = time.monotonic()  # the present phase, or this rank's wait at its end
        self._played_s = 0.0
        self._message: str | None = None  # how this rank has failed
        # What root shows besides.
        self._first_step = 0  # of the optimiser, when the phase began
        self._sync_s: float | None = None
        self._progress: tuple[str, int, int, str] | None = None  # of the phase: name, done, total, unit
        self._done_before = 0  # of the phase, when it began
        self._advanced = self._begun  # when the newest progress came
        self._job = "starting"
        self._count = 0  # of writes
        self._start = time.monotonic()
        self._name = folder.resolve().name
        self._rates = [deque(maxlen=RATE_LOOKS) for _ in world.hosts]  # of each rank: (seconds of playing, games)
        self._sent = deque(maxlen=NETWORK_LOOKS)  # (seconds, bytes that all ranks have sent)
        self._reached = deque(maxlen=ITERATIONS_LOOKS)  # (seconds, iterations that were complete then)
        self._errors: dict[int, str] = {}  # of ranks that have failed
        self._unheard_told = False
        self._lock = threading.Lock()  # one thread writes at a time
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, monitor: Monitor) -> None:
        """Begin to write the files, from the facts that `monitor` receives."""
        self._monitor = monitor
        if self._world.is_root:
            self._thread = threading.Thread(target=self._keep_writing, name="status", daemon=True)
            self._thread.start()

    def begin(self, run: RunInProgress, rows: Sequence[tuple[str, str, str]]) -> None:
        """Show the counts of `run` from now on. rows: (host, device, roles) of each rank."""
        self._run = run
        self._rows = rows
        if self._job == "starting":
            self._job = "running"

    def enter(self, phase: str | None) -> None:
        """Record that this rank enters a phase of the loop. None: it has done its part of the phase, and waits for the
        others."""
        now = time.monotonic()
        if self.state == "Active" and self.phase == "play":
            self._played_s += now - self._begun
        if phase is None:
            if self.phase == "broadcast":
                self._sync_s = now - self._begun
            self.state = "Syncing"
        else:
            trains = self._run is not None and self._run.training.learner is not None
            self.phase = phase
            self._progress = None
            state = STATES.get(phase, "Syncing")
            self.state = state if state != "Training" or trains else "Syncing"
            self._first_step = self._run.progress.step if self._run else 0
        self._begun = now

    def advance(self, name: str, done: int, total: int, unit: str) -> None:
        """Record that `done` of `total` units of the phase's work, shown as `name`, are done. Cheap enough for every
        step."""
        if self._progress is None:
            self._done_before = done
        self._progress = (name, done, total, unit)
        self._advanced = time.monotonic()

    def end(self, job: str, message: str | None = None) -> None:
        """Record how the run ended. Only the first call counts.

        job: "finished", "stopped" (it can be resumed) or "failed". message: how this rank failed; None: it did not."""
        failed = job == "failed" and message is not None
        if failed and not self._world.is_root:
            self.state = "Error"
            self._message = _beginning(message)
        elif self._job not in ("failed", "stopped", "finished"):
            self._job = job
            if failed:
                self._errors[0] = _beginning(message)
        self.close(last_words=failed and not self._world.is_root)

    def close(self, last_words: bool = False) -> None:
        """Stop heartbeats and files. Without an `end` before, the run continues with another Status. last_words: send
        the facts once more, and wait for root's answer."""
        if self._monitor is None:
            return
        self._monitor.leave(last_words)
        self._closed.set()
        if self._thread:
            self._thread.join(LAST_WRITE_S)
        self._monitor.close()

    def end_with(self, error: BaseException | None) -> None:
        """Record that the run ended with this exception, or without one."""
        if error is None:
            self.end("finished")
        elif isinstance(error, KeyboardInterrupt):
            self.end("stopped")
        else:  # a Refusal is raised on every rank: no single rank has failed
            self.end("failed", None if isinstance(error, Refusal) else f"{type(error).__name__}: {error}")

    def facts(self) -> dict[str, Any]:
        """Return the content of this rank's heartbeats, JSON-able. Any thread may call it."""
        player = self._run.playing.player if self._run else None
        playing = self.state == "Active" and self.phase == "play"
        played_s = self._played_s + (time.monotonic() - self._begun if playing else 0.0)
        return {
            "state": self.state,
            "games": player.num_finished if player else 0,
            "played_s": played_s,
            "staleness": self.staleness,
            "bytes": self._world.sent_bytes,
            "message": self._message,
        }

    def failed(self, rank: int, facts: dict[str, Any]) -> None:
        """Record that a rank has reported its failure. Called on root, by any thread."""
        if rank not in self._errors:
            self._errors[rank], self._job = facts["message"], "failed"
            self._logger.error("rank %d on %s failed: %s", rank, self._rows[rank][0], facts["message"])
            self._write()

    def stopped(self, why: str) -> None:
        """Store finished games, and record that the run stops, since the job is about to be ended. Called on root, by
        any thread. why: for the log."""
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
        if self._monitor is None:  # a rank has failed before `show`
            return
        with self._lock:
            self._count += 1
            values = self._values()
            before = self._writer and self._writer.may_appear
            try:
                for name, text in ((NAME, json.dumps(values) + "\n"), (TEXT_NAME, render(values))):
                    write_bytes(self._folder / name, text.encode(), durable=False, before=before)
            except (OSError, Forbidden):
                pass  # the loop reports a disk that fails, and readers of the status see that `count` does not change

    def _values(self):
        """Return the content of status.json: values of the run, and a row for each rank.

        num_games of a row counts this start. num_games, num_positions and step of the run count its complete
        iterations. games_per_s is measured while a rank plays; for a finished run it is the mean of this start. None
        stands for what is not known yet.
        """
        now = time.monotonic()
        run = self._run
        beats = self._monitor.beats()
        ranks = [self._rank_values(rank, beat) for rank, beat in enumerate(beats)]
        contents = [beat.content for beat in beats if beat.content]
        self._warn_of_unheard(now, beats)
        alive = [row for row in ranks if row["state"] not in ("Offline", "Error", "Finished")]
        stale = [content["staleness"] for content in contents if content["staleness"] is not None]
        progress = run.progress if run else None
        failed = [f"rank {rank} on {self._rows[rank][0]}: {text}" for rank, text in sorted(self._errors.items())]
        return {
            "schema_version": SCHEMA_VERSION,
            "run": self._name,
            "game": parse(self._config.game).short(),
            "start": self._number,
            "job": self._job,
            "count": self._count,
            "launch": os.environ.get("AZ_MPI_LAUNCH"),  # the launch command that supervises the run
            "written": time.strftime("%Y-%m-%d %H:%M:%S"),
            "elapsed_s": round(now - self._start, 1),
            "phase": self.phase,
            "iteration": progress and progress.iteration,
            "iterations": self._config.iterations,
            "progress": self._phase_progress(),
            "time_left_s": self._time_left(now),
            "num_games": progress and progress.num_games,
            "num_positions": progress and progress.num_positions,
            "step": progress and progress.step,
            "games_per_s": round(sum(row["games_per_s"] for row in ranks), 2),
            "workers_active": len(alive),
            "num_workers": len(ranks),
            "model_sync_s": None if self._sync_s is None else round(self._sync_s, 4),
            "network_mb_per_min": self._network(now, sum(content["bytes"] for content in contents)),
            "staleness": round(sum(stale) / len(stale), 3) if stale else None,
            "threshold": self.threshold,
            "failures": failed,
            "ranks": ranks,
        }

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
            state = "Finished"
            rate = content["games"] / content["played_s"] if content["played_s"] else 0.0
        elif beat.silent_s > SILENT_S or self._job in ("stopped", "failed"):
            state = "Offline"
        rate = 0.0 if state in ("Offline", "Error") else rate
        host, device, roles = self._rows[rank]
        return {
            "rank": rank,
            "host": host,
            "device": device,
            "roles": roles,
            "state": state,
            "num_games": content["games"],
            "games_per_s": round(rate, 2),
            "last_seen_s": round(beat.silent_s, 1),
        }

    def _phase_progress(self):
        learner = self._run.training.learner if self._run else None
        progress = self._progress
        if self.phase == "train" and learner and learner.end_index > self._first_step:
            total = learner.end_index - self._first_step
            progress = ("training", self._run.progress.step - self._first_step, total, "steps")
        return progress and dict(zip(("name", "done", "total", "unit"), progress))

    def _time_left(self, now):
        """Return the seconds until the last iteration is complete, by the pace of the newest ones, or until the end of
        a fit; None: unknown."""
        if self.phase == "fit":
            return self._fit_left(now)
        if self._run is None or self._run.before_play is None:  # then a resumed run has not been read yet
            return None
        done = self._run.progress.iteration
        step = self._run.progress.step
        reached = self._reached
        limits = self._config.train
        if not reached or reached[-1][1] != done:
            reached.append((now, done))
        if len(reached) < 2:
            return None
        pace = (reached[-1][0] - reached[0][0]) / (reached[-1][1] - reached[0][1])
        left = self._config.iterations - done
        if limits.max_steps and step:
            left = min(left, (limits.max_steps - step) * done / step)
        left_s = left * pace - (now - reached[-1][0])
        if limits.hours:
            left_s = min(left_s, 3600 * (limits.hours - self._run.hours()))
        return round(max(left_s, 0.0), 1)

    def _fit_left(self, now):
        _, done, total, _ = self._progress or ("", 0, 0, "")
        gained = done - self._done_before
        if gained <= 0:
            return None
        left_s = (self._advanced - self._begun) * (total - done) / gained  # at the newest progress
        return round(max(left_s - (now - self._advanced), 0.0), 1)

    def _network(self, now, sent):
        """Return how many 10^6 bytes a minute all ranks sent, over the last NETWORK_LOOKS writes; None: unknown."""
        self._sent.append((now, sent))
        (first_s, first), (last_s, last) = self._sent[0], self._sent[-1]
        return round((last - first) / 1e6 / (last_s - first_s) * 60, 3) if last and last_s > first_s else None

    def _warn_of_unheard(self, now, beats):
        unheard = [rank for rank, beat in enumerate(beats) if beat.content is None]
        if unheard and not self._unheard_told and now - self._start > UNHEARD_S:
            self._unheard_told = True
            hosts = sorted({self._rows[rank][0] for rank in unheard})
            self._logger.warning(
                "no heartbeat from rank %s on %s; is UDP to port %d of this host blocked? "
                "The status shows them as Offline",
                unheard,
                ", ".join(hosts),
                self._monitor.port,
            )
