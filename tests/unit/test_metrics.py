"""Numbers for programs: metrics.jsonl, TensorBoard, timers; and the logs of the ranks."""

import os
import threading
import time

import numpy as np
import pytest

from az_mpi.config import schema as models
from az_mpi.telemetry import console, metrics, sinks
from az_mpi.telemetry.metrics import Metrics, Timers
from az_mpi.telemetry.sinks import flat

PLAIN, WITH_TENSORBOARD = models.Report(tensorboard=False), models.Report()


def test_records_are_read_as_they_were_written(tmp_path):
    written = Metrics(tmp_path, 1, PLAIN, shown=True)
    before = time.time()
    written.write("train", 50, {"policy_loss": np.float64(0.1), "steps": 3})
    written.write("evaluation", 60, {"matches": {"best": {"score": 0.5}}, "none": None})
    written.close()
    train, evaluation = metrics.read(tmp_path / "metrics.jsonl")
    assert abs(train.pop("time") - before) < 60 and evaluation.pop("time") >= before - 1
    assert train == {"kind": "train", "step": 50, "policy_loss": 0.1, "steps": 3}
    assert evaluation == {"kind": "evaluation", "step": 60, "matches": {"best": {"score": 0.5}}, "none": None}


def test_each_record_is_in_the_file_when_write_returns(tmp_path):
    """A run that is killed has lost nothing."""
    written = Metrics(tmp_path, 1, PLAIN, shown=True)
    written.write("train", 1, {})
    assert len(metrics.read(tmp_path / "metrics.jsonl")) == 1
    written.close()


def test_a_file_system_that_hangs_does_not_delay_the_run(tmp_path, monkeypatch):
    answers, append = threading.Event(), sinks._append
    monkeypatch.setattr(sinks, "_append", lambda path: answers.wait(60) and append(path))
    monkeypatch.setattr(metrics, "PATIENCE_S", 0.5)
    written, begun = Metrics(tmp_path, 1, PLAIN, shown=True), time.monotonic()
    for step in range(200):
        written.write("train", step, {})
    assert time.monotonic() - begun < 30
    answers.set()
    monkeypatch.setattr(metrics, "LAST_LINES_S", 30)
    written.close()
    assert [record["step"] for record in metrics.read(tmp_path / "metrics.jsonl")] == list(range(200))


def test_each_record_is_in_the_file_when_write_returns_after_a_pause_too(tmp_path, monkeypatch):
    append = sinks._append
    monkeypatch.setattr(sinks, "_append", lambda path: time.sleep(1.0) or append(path))
    monkeypatch.setattr(metrics, "PATIENCE_S", 0.2)
    written = Metrics(tmp_path, 1, PLAIN, shown=True)
    written.write("train", 1, {})
    time.sleep(2.0)
    monkeypatch.setattr(metrics, "PATIENCE_S", 30)
    written.write("train", 2, {})
    assert len(metrics.read(tmp_path / "metrics.jsonl")) == 2
    written.close()


def test_a_resumed_run_appends_its_records(tmp_path):
    for start in (1, 2):
        written = Metrics(tmp_path, start, PLAIN, shown=True)
        written.write("train", start, {})
        written.close()
    assert [record["step"] for record in metrics.read(tmp_path / "metrics.jsonl")] == [1, 2]


def test_read_leaves_out_a_last_line_that_was_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "train", "step": 1}\n{"kind": "train", "st')
    assert metrics.read(path) == [{"kind": "train", "step": 1}]


def test_ranks_other_than_root_write_no_records(tmp_path):
    silent = Metrics(tmp_path, 1, WITH_TENSORBOARD, shown=False)
    silent.write("train", 1, {"loss": 1.0})
    silent.close()
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_has_the_numbers_by_their_dotted_names(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written = Metrics(tmp_path, 3, WITH_TENSORBOARD, shown=True)
    values = {"score": 0.25, "matches": {"best": {"wins": 4}}, "text": "no number", "yes": True, "list": [1, 2]}
    written.write("evaluation", 7, values)
    written.write("evaluation", 9, {"score": 0.5})
    written.close()
    board = EventAccumulator(str(tmp_path / "tensorboard" / "start-3"))
    board.Reload()
    assert set(board.Tags()["scalars"]) == {"evaluation/score", "evaluation/matches.best.wins"}
    assert [(e.step, e.value) for e in board.Scalars("evaluation/score")] == [(7, 0.25), (9, 0.5)]
    assert [(e.step, e.value) for e in board.Scalars("evaluation/matches.best.wins")] == [(7, 4)]


OWN = """
from az_mpi.telemetry.sinks import Sink

class Lines(Sink):
    def __init__(self, folder, start, name, fails_at=None):
        self.path, self.start, self.fails_at = folder / name, start, fails_at

    def write(self, kind, time, step, values):
        if step == self.fails_at:
            raise RuntimeError("no more")
        with open(self.path, "a") as file:
            file.write(f"{self.start} {kind} {step} {values}\\n")

    def close(self):
        with open(self.path, "a") as file:
            file.write("closed\\n")
"""


def test_users_sinks_get_every_record_until_they_fail(tmp_path, caplog):
    (tmp_path / "own.py").write_text(OWN)
    own = f"{tmp_path}/own.py:Lines"
    settings = models.Report(
        tensorboard=False, sinks=[f"{own}(name='a')", f"{own}(name='b', fails_at=2)", f"{own}(name='no/c')"]
    )
    written = Metrics(tmp_path, 7, settings, shown=True)
    for step in (1, 2, 3):
        written.write("train", step, {"loss": step})
    written.close()
    assert [r["step"] for r in metrics.read(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    lines = [f"7 train {step} {{'loss': {step}}}" for step in (1, 2, 3)]
    assert (tmp_path / "a").read_text().splitlines() == [*lines, "closed"]
    assert (tmp_path / "b").read_text().splitlines() == lines[:1]
    assert [text for text in caplog.messages if "no more records" in text and "RuntimeError: no more" in text]
    assert [text for text in caplog.messages if "no more records" in text and "FileNotFoundError" in text]


def test_flat_joins_the_keys_of_nested_dicts():
    assert flat({"a": 1, "b": {"c": 2, "d": {"e": None}}, "f": {}}) == {"a": 1, "b.c": 2, "b.d.e": None}


class ThreeRanks:
    """The world of a rank whose barriers last `late` looks at the clock; the others waited 4 s and 0.5 s a phase."""

    def __init__(self, clock, late):
        self.clock, self.late, self.waited_s, self.barriers = clock, late, 10.0, 0

    def barrier(self):
        self.barriers += 1
        for _ in range(self.late):
            next(self.clock)
            self.waited_s += 1

    def collect(self, idle):
        return [idle, dict.fromkeys(idle, 4.0), dict.fromkeys(idle, 0.5)]


def test_timers_add_up_and_begin_at_zero_again(monkeypatch):
    """The clock advances by one second whenever it is read. A block takes one second, and those of its barrier."""
    seconds = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))
    world = ThreeRanks(seconds, late=3)
    timers = Timers(world)
    for name in ("play", "train", "play"):
        with timers(name):
            pass
    world.waited_s += 7  # between phases: none of theirs
    with timers("train"):
        world.waited_s += 0.75  # within one, as in an exchange
    assert timers.take() == {
        "play_s": 8,
        "play_idle_s": 3.5,
        "play_idle_max_s": 6,
        "train_s": 8,
        "train_idle_s": 3.75,
        "train_idle_max_s": 6.75,
    }
    assert timers.take() == {}


def test_a_phase_that_fails_on_one_rank_does_not_wait_for_the_others():
    """The others may never arrive at the barrier, and the exception has to end the job."""
    world = ThreeRanks(iter(range(100)), late=1)
    timers = Timers(world)
    with pytest.raises(ValueError), timers("train"):
        raise ValueError
    assert world.barriers == 0


def test_each_rank_has_a_file_for_its_log_lines(tmp_path, capsys):
    for rank in (0, 2):
        logger = console.start(rank == 0, f"rank-{rank:03d}", tmp_path)
        logger.info("from rank %d", rank)
    console.start(True, "rank-000", tmp_path)
    lines = {p.name: p.read_text() for p in (tmp_path / "logs").iterdir()}
    assert set(lines) == {"rank-000.log", "rank-002.log", "run.log"} and lines["run.log"] == lines["rank-000.log"]
    assert lines["rank-000.log"].endswith(" INFO from rank 0\n") and lines["rank-000.log"].count("\n") == 1
    assert capsys.readouterr().out == "from rank 0\n"


def test_metrics_after_a_cut_off_line_keep_the_first_new_record(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n{"kind": "train", "st')
    resumed = metrics.Metrics(tmp_path, 2, PLAIN, shown=True)
    resumed.write("train", 2, {})
    resumed.close()
    assert [r["step"] for r in metrics.read(tmp_path / "metrics.jsonl")] == [1, 2]


def test_records_of_a_branch_that_was_given_up_are_left_out():
    """A run was resumed at step 1 after step 4, and stopped at step 3."""
    records = [{"kind": "train", "step": step, "at": at} for at, step in enumerate((1, 2, 2, 3, 4, 2, 3))]
    assert [row["at"] for row in metrics.newest(records, "train", "step")] == [0, 5, 6]
    kinds = [("iteration", 1), ("evaluation", 1), ("iteration", 2), ("evaluation", 2), ("iteration", 1)]
    records = [{"kind": kind, "iteration": number} for kind, number in kinds]
    assert metrics.newest(records, "evaluation", "iteration") == records[1:2]


@pytest.mark.timeout(60)
def test_read_leaves_out_lines_that_are_no_records(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = ["[" * 100_000, "[" * 900 + "]" * 900, "5", "{}", "\x00" * 10, '{"kind": "train", "step": 1}']
    path.write_text("\n".join(lines))
    records = metrics.read(path)
    assert records == [{"kind": "train", "step": 1}]
    assert metrics.newest([*records, {"kind": "train"}], "train", "step") == records
    path.unlink()
    path.touch()
    os.truncate(path, 2**36)
    with pytest.raises(OSError, match="larger than"):
        metrics.read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a plain file"):
        metrics.read(path)


@pytest.mark.timeout(60)
def test_pipes_in_place_of_logs_and_metrics_do_not_delay_the_run(tmp_path, capsys):
    (tmp_path / "logs").mkdir()
    for name in ("metrics.jsonl", "logs/run.log"):
        os.mkfifo(tmp_path / name)
    logger = console.start(True, "rank-000", tmp_path)
    written = Metrics(tmp_path, 1, PLAIN, shown=True)
    for step in (1, 2):
        written.write("train", step, {})
    logger.info("continues")
    written.close()
    console.start(True, "rank-000", None)
    said = capsys.readouterr().out
    assert said.count("metrics.jsonl: not a plain file") == said.count("run.log: not a plain file") == 1
    assert said.endswith("continues\n") and "continues" in (tmp_path / "logs/rank-000.log").read_text()
