"""The status of a run: what root makes of the beats, how it reads as text, and what a reader makes of silence."""

import json
import logging
import os
import time
from types import SimpleNamespace

import pytest

from az_mpi import __main__ as commands
from az_mpi.config.load import Config
from az_mpi.core.files import Forbidden
from az_mpi.core.problems import Refusal
from az_mpi.core.silence import SilenceTimer
from az_mpi.liveness.heartbeat import Beat, pack
from az_mpi.liveness.monitor import Monitor
from az_mpi.telemetry import status, status_command, status_text
from az_mpi.telemetry.status import Status

VALUES = {
    "schema_version": 1,
    "run": "demo",
    "game": "connect4",
    "start": 2,
    "job": "running",
    "count": 7,
    "written": "2026-01-02 03:04:05",
    "elapsed_s": 3723.4,
    "phase": "play",
    "iteration": 3,
    "iterations": 10,
    "progress": {"name": "self-play", "done": 30, "total": 120, "unit": "games"},
    "time_left_s": 125.0,
    "num_games": 1500,
    "num_positions": 32000,
    "step": 410,
    "games_per_s": 12.5,
    "workers_active": 1,
    "num_workers": 2,
    "model_sync_s": 0.04,
    "network_mb_per_min": 1.25,
    "staleness": 0.5,
    "failures": [],
    "ranks": [
        {
            "rank": 0,
            "host": "node1",
            "device": "cuda:0",
            "roles": "play, train",
            "state": "Active",
            "num_games": 800,
            "games_per_s": 12.5,
            "last_seen_s": 0.4,
        },
        {
            "rank": 1,
            "host": "node2",
            "device": "cpu",
            "roles": "play",
            "state": "Offline",
            "num_games": 700,
            "games_per_s": 0.0,
            "last_seen_s": 61.2,
        },
    ],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "status.json").write_text(json.dumps(VALUES))
    return tmp_path


def test_the_status_as_text_is_the_one_by_hand():
    assert status_text.render(VALUES).splitlines() == [
        "demo: connect4, start 2, running",
        "written 2026-01-02 03:04:05, 1 h 02 min after the start",
        "",
        "iteration  4 of 10; 1,500 games, 32,000 positions, 410 steps before it",
        "phase      play: self-play [######..................] 30 of 120 games",
        "time left  2 min 05 s",
        "",
        "rank  host   device  roles        state    games  games/s  last seen",
        "0     node1  cuda:0  play, train  Active   800    12.5     now",
        "1     node2  cpu     play         Offline  700    0.0      61 s ago",
        "",
        "Games/second     12.5",
        "Workers active   1/2",
        "Model sync time  0.04 s",
        "Network MB/min   1.25",
        "Staleness        0.5 iterations",
    ]


def test_where_the_ranks_have_other_games_than_the_run_the_text_says_what_each_counts():
    """Games of the iteration under way, and of earlier starts of the run, make the difference."""
    text = status_text.render(VALUES | {"num_games": 300})
    assert "Games of the ranks: 1,500 in all" in text and "complete iterations" in text
    assert "Games of the ranks: 1,500 in all" in status_text.render(VALUES | {"num_games": None})


def test_a_count_of_one_has_its_noun_in_the_singular():
    text = status_text.render(VALUES | {"num_games": 1, "num_positions": 1, "step": 1})
    assert "; 1 game, 1 position, 1 step before it" in text
    assert "; - games, - positions, - steps before it" in status_text.render(
        VALUES | {"num_games": None, "num_positions": None, "step": None}
    )


def test_the_text_of_a_finished_run_counts_complete_iterations():
    text = status_text.render(VALUES | {"job": "finished", "iteration": 3})  # of 10: by train.hours
    assert "iteration  3 of 10; 1,500 games, 32,000 positions, 410 steps in all" in text


def test_a_hostile_host_name_cannot_steer_the_terminal():
    rows = [VALUES["ranks"][0] | {"host": "a\x1b[2Jb\nc"}]
    text = status_text.render(VALUES | {"ranks": rows, "failures": ["rank 0: \x1b]0;x\x07"]})
    assert "\x1b" not in text and "\x07" not in text and "a\\u001b[2Jb\\nc" in text


@pytest.mark.parametrize(
    "seconds, words",
    [
        (None, "-"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (200_000, "55 h 33 min"),
    ],
)
def test_durations_as_text(seconds, words):
    assert status_text.duration(seconds) == words


@pytest.fixture
def slept(monkeypatch):
    """The pauses of a reader. It does not sleep in fact; its clock advances by them."""
    slept = []
    monkeypatch.setattr(status_command, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(status_command, "SilenceTimer", lambda gap_s: SilenceTimer(gap_s, lambda: sum(slept)))
    return slept


def test_a_root_is_alive_as_soon_as_its_count_changes(folder, slept, monkeypatch):
    watched = status_command.Watched(folder)
    first = watched.look()

    def sleep(seconds):
        slept.append(seconds)
        if sum(slept) == 2:
            (folder / "status.json").write_text(json.dumps(VALUES | {"count": 8}))

    status_command.time.sleep = sleep
    assert watched.settle(first) == VALUES | {"count": 8} and sum(slept) == 2


def test_the_ranks_of_a_dead_job_are_offline_unless_in_error(folder, slept):
    rows = [VALUES["ranks"][0], VALUES["ranks"][1] | {"state": "Error"}]
    (folder / "status.json").write_text(json.dumps(VALUES | {"ranks": rows}))
    watched = status_command.Watched(folder)
    dead = watched.settle(watched.look())
    assert 6 <= sum(slept) <= 8
    assert [row["state"] for row in dead["ranks"]] == ["Offline", "Error"]  # which rank failed stays known
    assert (dead["job"], dead["workers_active"], dead["games_per_s"]) == ("dead", 0, 0.0)
    assert dead["ranks"][0]["last_seen_s"] > status_command.STALLED_S and "dead" in dead["failures"][-1]
    (folder / "status.json").write_text(json.dumps(VALUES | {"start": 3, "count": 7}))  # started again
    assert watched.look()["job"] == "running"


@pytest.mark.parametrize("job", ["finished", "stopped", "failed"])
def test_the_status_of_an_ended_run_is_shown_at_once(folder, slept, capsys, job):
    (folder / "status.json").write_text(json.dumps(VALUES | {"job": job}))
    for options in ([], ["--watch"], ["--json"]):
        assert status_command.main([str(folder), *options]) == 0
    assert slept == []
    text = capsys.readouterr().out
    assert text.count(f"demo: connect4, start 2, {job}\n") == 2
    assert json.loads(text.splitlines()[-1]) == VALUES | {"job": job}


def test_status_watch_ends_when_the_job_dies(folder, slept, capsys):
    assert status_command.main([str(folder), "--watch", "--json"]) == 0
    shown = [json.loads(line)["job"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["running"] * 4 + ["dead"]  # looked at after 0, 2, 4, 6 and 8 s


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", "null", '{"run": 3}'])
def test_a_missing_or_damaged_status_is_refused_with_one_block(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "status.json").write_text(content)
    assert commands.main(["status", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("status: error: ") == 1 and "Traceback" not in output.err
    assert str(tmp_path) in output.err


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_the_status_is_refused(tmp_path):
    os.mkfifo(tmp_path / "status.json")
    with pytest.raises(Refusal, match="status.json: not a plain file"):
        status_command.read(tmp_path)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(Refusal, match="No such file"):
        status_command.main([str(tmp_path / "nothing")])


class OneRank:
    """A world of one rank that needs no MPI."""

    sent_bytes = 0
    rank, size, is_root, host, hosts = 0, 1, True, "here", ["here"]

    def share(self, item):
        return item


def fake_run(learner=None):
    progress = SimpleNamespace(iteration=0, step=0, num_games=0, num_positions=0)
    playing, training = SimpleNamespace(player=SimpleNamespace(num_finished=0)), SimpleNamespace(learner=learner)
    return SimpleNamespace(progress=progress, playing=playing, training=training, before_play=progress)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A root's Status without its thread, whose clock and whose ranks' beats the test sets."""
    monkeypatch.setattr(Status, "_keep_writing", lambda self: None)
    config = Config(game="connect4", iterations=10)
    root = Status(OneRank(), tmp_path, config, 1, logging.Logger("test"))
    root.now, root.beats = 1000.0, []
    monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=lambda: root.now, strftime=time.strftime))
    root._start = root._begun = root.now
    root.show(SimpleNamespace(beats=lambda: root.beats, port=1))
    return root


def content(state="Active", games=0, played_s=0.0, staleness=None, sent=0):
    return {
        "state": state,
        "games": games,
        "played_s": played_s,
        "staleness": staleness,
        "bytes": sent,
        "message": None,
    }


def test_a_start_that_lost_its_lock_leaves_the_status_of_the_new_holder_alone(root, tmp_path):
    def forbid():
        raise Forbidden("of this test")

    root._writer = SimpleNamespace(may_appear=forbid)
    (tmp_path / "status.json").write_text("another's")
    root._write()
    assert (tmp_path / "status.json").read_text() == "another's" and len(list(tmp_path.iterdir())) == 1
    root._writer.may_appear = lambda: None
    root._write()
    assert status_command.read(tmp_path)["job"] == "starting"


def test_the_state_of_a_rank_follows_its_phases(root):
    states = []
    for learner in (None, SimpleNamespace(end_index=5)):
        root.begin(fake_run(learner), [("here", "cpu", "play")])
        for phase in ("play", None, "exchange", None, "train", None, "broadcast", None, "save", None, "evaluate", None):
            root.enter(phase)
            states.append(root.facts()["state"])
    no_trainer = ["Active", "Syncing", *["Syncing"] * 8, "Active", "Syncing"]
    assert states[:12] == no_trainer
    assert states[12:] == [*no_trainer[:4], "Training", *no_trainer[5:]]


@pytest.mark.parametrize("character, num", [("a", 150), ("\u00e4", 150), ("\U0001f600", 75), ("\n", 150)])
def test_the_message_of_a_failure_fits_a_heartbeat(root, character, num):
    root._world, root._monitor = SimpleNamespace(is_root=False, sent_bytes=2**60), None
    root.end("failed", 300 * character)
    assert root.facts()["message"] == num * character and len(pack("token", root.facts())) < 1200


def test_only_time_in_self_play_counts_for_games_per_second(root):
    run = fake_run()
    root.begin(run, [("here", "cpu", "play")])
    for phase, seconds in (("play", 4), (None, 2), ("exchange", 3), ("evaluate", 5), ("broadcast", 7), (None, 1)):
        root.enter(phase)
        root.now += seconds
    assert root.facts()["played_s"] == 4
    root.enter("play")
    root.now += 1.5
    assert root.facts()["played_s"] == 5.5
    root.beats = [Beat(content(games=0, played_s=0.0), 0.1)]
    root._values()
    root.beats = [Beat(content(games=22, played_s=5.5), 0.1)]
    values = root._values()
    assert values["ranks"][0]["games_per_s"] == values["games_per_s"] == 4.0
    root.beats = [Beat(content("Training", games=22, played_s=5.5), 0.1)]
    assert root._values()["games_per_s"] == 4.0  # as fast as it last played
    assert values["model_sync_s"] == 7  # broadcast, without the wait at its end


def test_a_silent_rank_is_offline_until_it_is_heard_again_and_totals_add_up(root):
    root._world.hosts = root._rows = [("a", "cpu", "play"), ("b", "cpu", "play"), ("c", "cpu", "play")]
    root._rates = [status.deque(maxlen=3) for _ in range(3)]
    root.beats = [Beat(content(staleness=1.0, sent=0), 0.2), Beat(content(staleness=2.0), 5.5), Beat(None, 9.0)]
    values = root._values()
    assert [row["state"] for row in values["ranks"]] == ["Active", "Offline", "Offline"]
    assert (values["workers_active"], values["num_workers"], values["staleness"]) == (1, 3, 1.5)
    assert values["network_mb_per_min"] is None  # nothing counted
    root.now += 30
    root.beats = [Beat(content("Syncing", sent=2_000_000), 0.2), Beat(content(sent=1_000_000), 0.1), Beat(None, 39.0)]
    values = root._values()
    assert [row["state"] for row in values["ranks"]] == ["Syncing", "Active", "Offline"]  # back
    assert values["network_mb_per_min"] == 6.0


def test_a_finished_run_shows_its_totals_and_its_mean_rate(root):
    root._world.hosts = root._rows = [("a", "cpu", "play"), ("b", "cpu", "play"), ("c", "cpu", "play")]
    root._rates = [status.deque(maxlen=3) for _ in range(3)]
    root.beats = [Beat(content(games=games, played_s=s), 0.2) for games, s in ((10, 4.0), (30, 10.0))] + [Beat(None, 9)]
    root._values()
    root._job, root._run = "finished", fake_run()
    values = root._values()
    assert [(row["state"], row["num_games"], row["games_per_s"]) for row in values["ranks"]] == [
        ("Finished", 10, 2.5),
        ("Finished", 30, 3.0),
        ("Finished", 0, 0.0),
    ]
    assert (values["games_per_s"], values["workers_active"]) == (5.5, 0)
    text = status_text.render(values)
    assert "Offline" not in text and "before it" not in text and "Games/second     5.5" in text


def test_the_time_left_is_that_of_the_remaining_iterations_steps_or_hours(root):
    run = fake_run()
    root.begin(run, [("here", "cpu", "play")])
    root.beats = [Beat(content(), 0.1)]
    assert root._values()["time_left_s"] is None
    for iteration in (1, 2):
        root.now += 60
        run.progress.iteration, run.progress.step = iteration, 100 * iteration
        left = root._values()["time_left_s"]
    assert left == 8 * 60
    root.now += 20
    assert root._values()["time_left_s"] == 8 * 60 - 20
    limited = root._config.train.model_copy(update={"max_steps": 300})
    root._config = root._config.model_copy(update={"train": limited})
    assert root._values()["time_left_s"] == 60 - 20
    limited = root._config.train.model_copy(update={"hours": 1.0})
    root._config, run.hours = root._config.model_copy(update={"train": limited}), lambda: 0.99
    assert root._values()["time_left_s"] == 36


def test_a_resumed_run_has_no_time_left_before_it_has_been_read(root):
    run = fake_run()
    resumed, run.before_play = run.before_play, None
    root.begin(run, [("here", "cpu", "play")])
    root.beats = [Beat(content(), 0.1)]
    assert root._values()["time_left_s"] is None
    root.now += 2
    run.progress.iteration, run.before_play = 7, resumed
    assert root._values()["time_left_s"] is None
    root.now += 60
    run.progress.iteration = 8
    assert root._values()["time_left_s"] == 2 * 60


def test_the_progress_of_training_is_the_learners(root):
    learner = SimpleNamespace(end_index=100)
    run = fake_run(learner)
    run.progress.step = 100
    root.begin(run, [("here", "cpu", "play, train")])
    root.beats = [Beat(content(), 0.1)]
    root.enter("play")
    root.advance("self-play", 3, 8, "games")
    assert root._values()["progress"] == {"name": "self-play", "done": 3, "total": 8, "unit": "games"}
    root.enter("train")
    assert root._values()["progress"] is None  # how many steps it will be is not known yet
    learner.end_index, run.progress.step = 150, 120
    assert root._values()["progress"] == {"name": "training", "done": 20, "total": 50, "unit": "steps"}


def test_the_progress_and_the_time_left_of_a_fit_are_those_of_this_start(root):
    """A fit continues at 500 of 2,000 positions and has 800 after 30 s: 1,200 more take 120 s."""
    root.begin(fake_run(SimpleNamespace(end_index=5)), [("here", "cpu", "play, train")])
    root.beats = [Beat(content(), 0.1)]
    root.enter("fit")
    assert root.facts()["state"] == "Training"
    root.advance("fit", 500, 2000, "positions")
    assert root._values()["time_left_s"] is None
    root.now += 30
    root.advance("fit", 800, 2000, "positions")
    values = root._values()
    assert values["phase"] == "fit" and values["time_left_s"] == 120
    assert values["progress"] == {"name": "fit", "done": 800, "total": 2000, "unit": "positions"}
    root.now += 25  # steps whose end has not been told are no sign of a slower pace
    assert root._values()["time_left_s"] == 95


def test_the_log_names_a_rank_without_heartbeats_once(root, caplog):
    said = []
    root._logger = SimpleNamespace(warning=lambda text, *values: said.append(text % values))
    root.beats = [Beat(None, 1.0)]
    for _ in range(30):
        root.now += 1
        root._values()
    assert len(said) == 1 and "rank [0] on here" in said[0] and "UDP" in said[0]


def test_status_json_and_status_txt_are_complete_and_agree(root, tmp_path):
    root.begin(fake_run(), [("here", "cpu", "play")])
    root.beats = [Beat(content(), 0.1)]
    for count in (1, 2):
        root._write()
        values = json.loads((tmp_path / "status.json").read_text())
        assert values["count"] == count and values["schema_version"] == status.SCHEMA_VERSION
    assert (tmp_path / "status.txt").read_text() == status_text.render(values)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["status.json", "status.txt"]


def test_a_run_that_is_only_read_writes_no_status(tmp_path):
    idle = Status(OneRank(), tmp_path, Config(game="connect4"), None, None)
    idle.begin(fake_run(), [("here", "cpu", "play")])
    idle.enter("play")
    idle.end_with(None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error, job, state, failures",
    [
        (None, "finished", "Finished", []),
        (KeyboardInterrupt(), "stopped", "Offline", []),
        (Refusal("not so"), "failed", "Offline", []),
        (ZeroDivisionError("oh"), "failed", "Error", ["rank 0 on here: ZeroDivisionError: oh"]),
    ],
)
def test_the_last_status_says_how_the_run_ended(tmp_path, error, job, state, failures):
    """With the real threads."""
    ours = Status(OneRank(), tmp_path, Config(game="connect4"), 1, logging.Logger("test"))
    ours.show(Monitor(OneRank(), tmp_path, 60.0, ours.facts, lambda: 0.0, ours.failed, ours.stopped))
    ours.end_with(error)
    values = status_command.read(tmp_path)
    assert (values["job"], values["ranks"][0]["state"], values["failures"]) == (job, state, failures)
