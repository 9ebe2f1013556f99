"""--mode fit: training on the games that a run has, such as imported ones, without self-play.

A fit counts as the training of one iteration. While it is under way, its checkpoints are of that iteration, after the
steps that were taken; RUN/fit.json says how much was trained at each of them. Every function here is collective but
`check`.
"""

import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from az_mpi.core import files
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.run import exchange, held_out, ranking, resume, training_phase, weights
from az_mpi.run.state import Run
from az_mpi.selfplay.record import Record
from az_mpi.storage import imports, run_folder, segment
from az_mpi.telemetry.progress_bar import ProgressBar
from az_mpi.telemetry.summary import losses_text
from az_mpi.train import schedule

NAME = "fit.json"
HELD_MAX = 50_000  # positions that are held out, about, at most
CALL_S, CALL_STEPS_MAX = 5.0, 200  # of the steps between two looks at the clock, about
SAVE_EVERY_S = 300.0  # a checkpoint, besides those after each epoch
UNITS = "epochs", "minutes"  # in which fit.json says how much was trained
SPARE = 10  # checkpoints that fit.json tells of besides those that are kept: one of weights that are not finite fails


class Task(NamedTuple):
    """What is asked for: so many epochs, or if that is 0 so many minutes; and the share of games that are held out."""

    epochs: float
    minutes: float
    held_out: float


def check(folder: Path) -> None:
    """Raise Refusal if a run has no games. For root."""
    with run_folder.usable(folder):
        has_games = segment.paths(folder / "games") or imports.entries(folder)  # an import may have to be completed
    if not has_games:
        raise Refusal(
            f"--mode fit: {folder} holds no games\n  bring some in: python -m az_mpi import FILES --game GAME --logdir "
            f"{folder}\n  or let the run play first: the same command without --mode fit"
        )


def fit(run: Run, task: Task) -> None:
    """Train, measure the network on the games that are held out after each epoch, and save the run where self-play
    continues. Raises Stopped if a signal asked to stop."""
    resume.restore(run, set_aside=True)
    run.hours_before = run.progress.hours
    work = _Fit(run, task)
    work.check_steps()
    work.fill()
    weights.broadcast_weights(run)
    resume.leave_if_unwritable(run)
    work.train()
    work.complete()


class _Fit:
    def __init__(self, run: Run, task: Task):
        self.run, self.task, self.done = run, task, 0.0
        progress, files_ = run.progress, run.files
        found = [[s.iteration, s.num_games, s.num_positions] for s in files_.segments()] if run.world.is_root else None
        self.found = run.world.share(found)
        if not self.found:
            raise Refusal("--mode fit: no segment of this run is whole")
        # How many epochs and minutes were trained at each checkpoint, oldest first.
        self.saves = run.world.share(_saves(run.setup.folder, progress, task) if run.world.is_root else None)
        if not self.saves:
            newest = max(iteration for iteration, *_ in self.found)
            progress.iteration = max(newest, progress.iteration)
        progress.phase, progress.samples_due = "train", 0.0
        known = progress.num_positions
        gone = run.world.share(files_.removed()[:2] if run.world.is_root else None)
        progress.num_games, progress.num_positions = (gone[k] + sum(row[k + 1] for row in self.found) for k in (0, 1))
        self.num_new = max(progress.num_positions - known, 0)  # positions that came in since the checkpoint
        self.num_held = self.num_train = 0
        self.held = np.empty(0)
        self.losses: dict[str, float] = {}
        self.num_steps = 0
        self.samples = self.minutes_before = 0.0  # that were trained on; that earlier starts trained
        self.called = 0.0  # samples of the call of the trainers that is under way
        self.begun = self.saved = self.epoch_begun = time.monotonic()
        self.speed_s = 1.0  # of a step

    def check_steps(self) -> None:
        """Raise Refusal if no step may be taken."""
        if self._is_over():
            raise Refusal(
                f"--mode fit: the run has taken {counted(self.run.progress.step, 'step')}, and train.max_steps allows "
                f"{self.run.setup.config.train.max_steps:,}\n  raise it, or set it to 0, which is no limit: "
                "--set train.max_steps=0"
            )

    def fill(self) -> None:
        """Fill the trainers' windows with the newest games, as many as `replay.window_max` positions, without those
        that are held out, which all ranks share."""
        run, setup = self.run, self.run.setup
        most = setup.config.replay.window_max
        chosen, num = [], 0
        for place in reversed(range(len(self.found))):
            if num < most:
                chosen.insert(0, place)
                num += self.found[place][2]
        share = min(self.task.held_out, HELD_MAX / max(num, 1))
        segments = run.files.segments() if run.world.is_root else []
        held, rank = [], ranking.ranker(run)
        for place in chosen:
            record = Record.empty(setup.game)
            if run.world.is_root:
                found = segments[place]
                record = rank(run.files.games_in(found.path), found.iteration)
            apart = held_out.is_held_out(record.games["id"], share)
            mine, others = record.select(~apart), record.select(apart)
            rows = held_out.to_rows(others, setup.game)
            numbers = (self.num_held + np.arange(len(rows))) % run.world.size
            held.append(run.world.exchange(rows, numbers, setup.config.exchange.compress))
            exchange.deal(run, mine, self.num_train)
            trained, apart_here = run.world.share([len(mine.positions), len(rows)])
            self.num_train += trained
            self.num_held += apart_here
        self.held = np.concatenate(held)
        if run.training.replay:
            run.training.replay.forget(self.num_train - most)
        self.num_train = min(self.num_train, most)
        if not self.num_train:
            raise Refusal("--mode fit: all games are held out\n  lower --held_out")
        if self.saves:  # positions that came in since then are not yet trained on
            seen = max(1 - self.num_new / min(num, most), 0.0)
            self.samples = self.saves[-1]["epochs"] * seen * self.num_train
            self.minutes_before = self.saves[-1]["minutes"] * seen
        if chosen[0] > 0 or self.num_train == most:
            run.report.warn(
                "the fit takes the newest %s of %s positions, for which replay.window_max has room",
                f"{self.num_train:,}",
                f"{run.progress.num_positions:,}",
            )
        run.report.say(
            "fit: %s of %s in the run, %s held out, for %s",
            counted(self.num_train, "position"),
            f"{run.progress.num_positions:,}",
            f"{self.num_held:,}",
            self._asked(),
        )

    def _asked(self):
        """Return what is asked for, and how much of it is done, in words."""
        text, done = f"{self.task.epochs:g} epochs", self.samples / self.num_train
        if self.task.minutes:
            text, done = f"{self.task.minutes:g} minutes", self.minutes_before
        return f"{text}, of which {round(done, 2):g} are done" if done else text

    def train(self) -> None:
        """Train until the epochs or minutes are over."""
        run, report = self.run, self.run.report
        self.begun = self.epoch_begun = time.monotonic()
        self.done = run.world.share(self._done_now())
        shown = ProgressBar(report.logger, run.world.is_root, "training", "positions", report.status, in_lines=True)
        report.status.enter("fit")
        epoch, before = int(self.samples // self.num_train), (self.samples, self.done)
        self._show(shown, *before)
        while self.done < 1 and not self._is_over():
            end = float((epoch + 1) * self.num_train)
            if not self.task.minutes:
                end = min(end, self.task.epochs * self.num_train)
            trained = self._call(end - self.samples)
            self.done = run.world.share(self._done_now())
            self._show(shown, *before)
            if not trained or self.samples >= end - 0.5 or self.done >= 1 or self._is_over():
                epoch += 1
                self._end_epoch(epoch)
            elif run.world.share(time.monotonic() - self.saved > SAVE_EVERY_S):
                self._save()
            if not trained:
                break

    def _show(self, shown, samples_before, done_before):
        """Show how many positions were trained on. Where minutes are asked for, their number in all is expected by the
        pace of this start. samples_before, done_before: when it began."""
        total = self.task.epochs * self.num_train
        if self.task.minutes:
            gained, samples = self.done - done_before, self.samples - samples_before
            total = self.samples + (samples * (1 - self.done) / gained if gained > 0 else 0)
        shown.update(min(round(self.samples), round(total)), max(round(total), 1))

    def _is_over(self):
        steps = self.run.setup.config.train.max_steps
        return bool(steps) and self.run.progress.step >= steps

    def _trained(self):
        """Return (epochs, minutes) that were trained until now, by this rank's clock and with the newest steps of a
        call that is under way. Not collective: root calls it for a checkpoint."""
        samples = self.samples + self.called - self.run.progress.samples_due
        return samples / self.num_train, self.minutes_before + (time.monotonic() - self.begun) / 60

    def _done_now(self):
        """Return the share of the task that is done, by this rank's clock."""
        epochs, minutes = self._trained()
        share = minutes / self.task.minutes if self.task.minutes else epochs / self.task.epochs
        return 1.0 if share > 1 - 1e-9 else share

    def _call(self, samples):
        """Take some of the steps that so many samples need, at least one; return how many samples they had."""
        run, progress, settings = self.run, self.run.progress, self.run.setup.config.train
        batch = schedule.batch_size(settings, self.done)
        fast = min(max(round(CALL_S / self.speed_s), 1), CALL_STEPS_MAX)
        steps = run.world.share(max(1, min(fast, round(samples / batch))))
        self.called, begun = float(steps * batch), time.monotonic()
        progress.samples_due = self.called
        outcome = training_phase.learn(run, self._save, self.done)
        self.samples += outcome.num_steps * batch
        self.called = progress.samples_due = 0.0
        if outcome.num_steps:
            self.speed_s = max((time.monotonic() - begun) / outcome.num_steps, 1e-4)
            mine = run.training.learner.iteration_losses() if run.training.learner else {}
            for name, part in mine.items():
                self.losses[name] = self.losses.get(name, 0.0) + part * outcome.num_steps
            self.num_steps += outcome.num_steps
        if outcome.stop or outcome.failure:
            self._tell()
            resume.leave(run, outcome.failure)
        return outcome.num_steps * batch

    def _end_epoch(self, epoch):
        run = self.run
        weights.broadcast_weights(run)
        parts = run.world.collect(self.losses)
        values = {name: sum(p.get(name, 0.0) for p in parts) / max(self.num_steps, 1) for name in parts[0]}
        self.losses, self.num_steps = {}, 0
        took, self.epoch_begun = time.monotonic() - self.epoch_begun, time.monotonic()
        found = held_out.figures(run.world.sum(held_out.sums(run.playing.engine, run.setup.game, self.held)))
        stored = {"num_games_stored": run.progress.num_games, "num_positions_stored": run.progress.num_positions}
        row = {"epoch": epoch, "fit_s": took, **stored, **values, "held_out": found}
        run.report.metrics.write("fit", run.progress.step, row)
        run.report.say("epoch %d, step %d: %s", epoch, run.progress.step, losses_text(values) or "no step was taken")
        run.report.say("  %s", held_out.in_words(found))
        if self.done < 1:
            self._save()
        resume.leave_if_unwritable(run)

    def _save(self):
        self._tell()
        if resume.save(self.run):
            self.run.report.say("saved: %s", self.run.how_far())
        self.saved = time.monotonic()

    def _tell(self):
        """Write how much was trained, before the checkpoint that it is about. Of earlier checkpoints it stays known: a
        start finds one of them if the job is killed before this one is whole."""
        run, step = self.run, self.run.progress.step
        # The entry of a checkpoint that is there already stays: later games may have changed how much an epoch is.
        if run.world.is_root and not run.files.writes_no_more and step not in [save["step"] for save in self.saves]:
            epochs, minutes = self._trained()
            self.saves.append({"step": step, "epochs": epochs, "minutes": minutes})
            self.saves = self.saves[-run.setup.config.checkpoint.keep - SPARE :]
            path = run.setup.folder / NAME
            text = json.dumps({"iteration": run.progress.iteration, "saves": self.saves}) + "\n"
            run.files.writer.do(path, lambda check: files.write_bytes(path, text.encode(), before=check))

    def complete(self) -> None:
        """Save the run where the next iteration begins."""
        run = self.run
        run.progress.iteration, run.progress.phase = run.progress.iteration + 1, "play"
        run.mark()
        resume.save(run)
        resume.leave_if_unwritable(run)
        if run.world.is_root:
            path = run.setup.folder / NAME
            run.files.writer.do(path, lambda check: path.unlink(missing_ok=True))
        run.report.say(
            "fit is complete: %s; without --mode fit and its options the command continues by self-play", run.how_far()
        )
        run.world.barrier()


def _saves(folder, progress, task):
    """Return what fit.json tells of the checkpoints until the restored one, oldest first; [] if it does not tell of
    that one."""
    try:
        told = files.read_json(folder / NAME)
        if progress.phase != "train" or told["iteration"] != progress.iteration:
            return []
        if "saves" in told:
            saves = [{"step": int(one["step"]), **{k: max(0.0, float(one[k])) for k in UNITS}} for one in told["saves"]]
        else:  # of an older version: the share of the task at the newest checkpoint
            share = min(max(0.0, float(told["done"])), 1.0)
            saves = [{"step": progress.step, "epochs": share * task.epochs, "minutes": share * task.minutes}]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    saves = [one for one in saves if one["step"] <= progress.step]
    return saves if saves and saves[-1]["step"] == progress.step else []
