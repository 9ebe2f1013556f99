"""Each invariant holds after a sound trial and finds its mistake. Trials are made and counted as defined."""

import csv
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace

import catalogue
import endurance
import invariants
import long
import psutil
import pytest
import torch
import trial
from catalogue import FAULTS, PHASES, Injection, Trial
from helpers import Hashed, make_config, play_games
from trial import Job, Outcome

from az_mpi import games
from az_mpi.selfplay.player import Player
from az_mpi.storage import checkpoint, lock, run_folder, segment
from az_mpi.storage.checkpoint import Checkpoint, Progress

GAME = games.make("tictactoe")
KILL = Trial(1, "kill", 3, (Injection(1, "play", 5, ["signal", [1], 9]),), {"iterations": 1})
FIRED = {"event": "fired", "rank": 1, "time": 10.0, "action": ["signal", [1], 9]}


def event(name, rank, time=11.0, **values):
    return {"event": name, "rank": rank, "time": time, **values}


def weights(rank, content, step=5, start=2):
    return event("weights", rank, key=[start, 1, "play", step], hash=content)


def write(run, ids):
    settings = make_config("tictactoe", search={"simulations": 4}, selfplay={"parallel_games": 16})
    record = play_games(Player(settings, GAME, Hashed(GAME), 3), ids, 0)
    return segment.write(run / "games", 0, GAME, record, {})


@pytest.fixture
def well(tmp_path):
    """A trial after which all is well: rank 1 of 3 was killed, games 0 to 19 are there and the one checkpoint."""
    run = tmp_path / "run"
    run_folder.prepare(run, make_config(), ["node1"], fresh=False)
    written = write(run, range(20))
    segment.link_all(run / "games", run / "games.h5")
    progress = Progress(1, num_games=20, num_positions=written.num_positions)
    checkpoint.save(run / "checkpoints", Checkpoint(progress, {"w": torch.ones(3)}, {"w": torch.ones(3)}), keep=3)
    given = [
        event("given", rank, ids=list(range(10 * (rank > 0), 10 + 10 * (rank > 0))), writer=rank == 0)
        for rank in (0, 2)
    ]
    seen = {"000000-000.h5": list(range(20))}
    going = [event("continuing", rank, ranks=2, steps=5) for rank in (0, 2)]
    events = [FIRED, event("noticed", 0), *going, weights(0, "a"), weights(2, "a"), *given]
    return Outcome(KILL, run, Job(status=0, seconds=20.0, events=events, visible=seen))


def test_a_sound_trial_breaks_no_invariant(well):
    assert invariants.check(well) == []
    assert long.summary([trial.measure(well)])[0][:3] == ("all of these", 1, 0)


def test_bounded_time_finds_a_job_that_hangs_and_a_slow_recovery(well):
    assert invariants.bounded_time(well) == []
    well.first.events.append(event("continuing", 2, FIRED["time"] + invariants.GOING_ON_S + 1))
    assert "31.0 s after" in invariants.bounded_time(well)[0]
    well.first.events, well.first.status = [], None
    assert invariants.bounded_time(well) == ["the first job was not over in time"]


def test_documented_status_finds_other_exit_statuses_lost_ranks_and_tracebacks(well):
    assert invariants.documented_status(well) == []
    for status in (1, 70, 75, 137, -9):
        assert f"status {status} instead of 0" in invariants.documented_status(replace(well, first=Job(status)))[0]
    stopped = replace(well, trial=replace(KILL, fault="USR2 to mpirun"), first=Job(75, events=[FIRED]), again=Job(0))
    assert invariants.documented_status(stopped) == []
    assert invariants.documented_status(replace(stopped, first=Job(75))) != []  # nobody had asked it to stop
    assert "again ended with 75" in invariants.documented_status(replace(stopped, again=Job(75)))[0]
    well.first.output = "Traceback (most recent call last)"
    assert invariants.documented_status(well) == ["status 0, and a traceback in what was said"]
    well.first.events[2]["ranks"], well.first.output = 1, ""
    assert "only 1 of 3 ranks continued" in invariants.documented_status(well)[0]
    well.first.events[2]["ranks"] = 2
    more = replace(well, trial=replace(KILL, options={"iterations": 2}))
    assert invariants.documented_status(more) == ["status 0, and the newest checkpoint is of iteration 1"]


def test_same_weights_finds_ranks_that_differ(well):
    assert invariants.same_weights(well) == []
    events = well.first.events
    well.first.events = [*events, weights(0, "a", 6), weights(2, "b", 6)]
    assert "2 different networks" in invariants.same_weights(well)[0]
    well.first.events = [*events, weights(1, "b", 4)]  # the dead rank's last
    assert invariants.same_weights(well) == []
    well.first.events = [*events, weights(2, "c", 6)]
    assert "different points" in invariants.same_weights(well)[0]


def test_every_game_once_finds_lost_and_doubled_games(well):
    assert invariants.every_game_once(well) == []
    well.first.visible["000000-001.h5"] = [70, 71]
    assert "2 games that could be seen on disk are gone: [70, 71]" in invariants.every_game_once(well)[0]
    del well.first.visible["000000-001.h5"]
    well.first.events.append(event("given", 2, ids=[80], writer=False))
    assert "1 games that ranks gave away are not stored: [80]" in invariants.every_game_once(well)[0]
    lost_with_it = replace(well, trial=replace(KILL, fault="kill mpirun"))
    assert invariants.every_game_once(lost_with_it) == []
    well.first.events[-1] = event("given", 1, ids=[81], writer=False)  # the dead rank's, and root lives
    assert "[81]" in invariants.every_game_once(well)[0]
    well.first.events.append(
        event("given", 1, ids=[], writer=True)
    )  # it was root, and the next rank held its games too
    assert "[81]" in invariants.every_game_once(well)[0]
    also = Injection(2, "play", 1, ["signal", [2], 9])
    two = replace(well, trial=replace(KILL, injections=(*KILL.injections, also)))
    assert invariants.every_game_once(two) == []  # and that one died too
    write(well.run, range(15, 25))
    assert "5 games are stored twice: [15, 16, 17]" in invariants.every_game_once(two)[0]


@pytest.mark.parametrize(
    "trainers, victims, every, lost, broken",
    [
        ("all", "t", 1, 1, False),
        ("all", "t", 1, 2, True),
        (1, "t", 1, 1, False),
        (1, "t", 1, 2, True),
        (1, "t", 3, 3, False),
        (1, "t", 3, 4, True),
        (1, "tt", 1, 2, False),
        (1, "tr", 1, 2, True),
        (1, "t t", 1, 2, True),
        (1, " tt", 1, 2, True),
        (2, "t", 1, 2, True),
        (2, "tt", 1, 2, False),
        ("all", "tt", 1, 2, True),
    ],
)
def test_one_step_at_most_finds_each_further_step_lost(well, trainers, victims, every, lost, broken):
    """victims: in which phase each rank is killed, training or recovery, or not at all."""
    assert invariants.one_step_at_most(well) == []
    phases = {"t": "train", "r": "recovery"}
    kills = tuple(
        Injection(rank, phases[letter], 5, ["signal", [rank], 9])
        for rank, letter in enumerate(victims)
        if letter in phases
    )
    well.trial = replace(KILL, injections=kills, options={"train.ranks": trainers, "fault.copy_every": every})
    steps = [event("step", 0, 9.0, number=number) for number in range(1, 6 + lost)]
    after = [event("step", 2, 12.0, number=number) for number in range(6, 20)]  # taken again
    well.first.events = [*after, event("continuing", 0, 13.0, ranks=2, steps=5), *steps, *well.first.events]
    expected = [f"after {5 + lost} steps the survivors continued from 5"] if broken else []
    assert invariants.one_step_at_most(well) == expected


def test_files_whole_finds_damaged_and_missing_files(well):
    assert invariants.files_whole(well) == []
    (well.run / "games" / ".000000-001.h5.1.tmp").write_text("of a killed writer")
    assert invariants.files_whole(well) == []
    place = well.run / "games" / "000000-000.h5"
    whole = place.read_bytes()
    place.write_bytes(whole[:-10])
    assert "000000-000.h5" in invariants.files_whole(well)[0]
    place.write_bytes(whole)
    (place.parent / "000000-002.h5.damaged").write_text("set aside by the run")
    assert "was set aside" in invariants.files_whole(well)[0]
    (place.parent / "000000-002.h5.damaged").unlink()
    (well.run / "checkpoints" / "000001" / "model.safetensors").write_bytes(b"torn")
    assert any("checkpoints/000001" in text for text in invariants.files_whole(well))


def test_nothing_left_finds_processes_ports_and_files(well):
    assert invariants.nothing_left(well) == []
    held = lock.Lock.take(well.run, [lock.me()], 1)
    assert "taken for a living job's" in invariants.nothing_left(well)[0]
    held.release()
    assert invariants.nothing_left(well) == []
    (well.run / "lock").mkdir()
    dead = {"ranks": [lock.me() | {"started": 1}], "token": "x"}
    (well.run / "lock" / "000001.json").write_text(json.dumps(dead))
    assert invariants.nothing_left(well) == ["the lock 000001.json is left"]
    (well.run / "lock" / "000001.json").unlink()
    well.first.orphans, well.first.left, well.first.files = ["12: python"], ["port 9 still listens"], ["ompi.12"]
    assert [text.partition(": ")[2] for text in invariants.nothing_left(well)] == [
        "process 12: python is left",
        "port 9 still listens",
        "ompi.12 is left",
    ]
    well.first.status = -9  # mpirun was killed, and with it the process that removes the last of these
    assert len(invariants.nothing_left(well)) == 2


def test_a_process_and_files_left_by_a_job_are_noticed(tmp_path):
    """Processes by their environment, with their ports; files in memory and in TMPDIR; segments that are torn."""
    code = "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{code}; time.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, **{trial.MARK: str(tmp_path)}),
    )
    try:
        port, job = int(child.stdout.readline()), Job(status=0)
        assert [process.pid for process in trial.processes(tmp_path)] == [child.pid]
        trial.look_at_processes(job, tmp_path)
        assert job.ports == {port}
    finally:
        child.kill()
        child.wait()
    assert trial.processes(tmp_path) == []
    (tmp_path / "tmp").mkdir()
    trial.look_for_rest(job, tmp_path / "tmp")
    assert job.left == job.files == []
    (tmp_path / "tmp" / "ompi.1").mkdir()
    job.memory = {str(tmp_path / "segment")}
    (tmp_path / "segment").touch()
    trial.look_for_rest(job, tmp_path / "tmp")
    assert job.left == [] and job.files == [str(tmp_path / "segment"), str(tmp_path / "tmp" / "ompi.1")]
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "000000-000.h5").write_bytes(b"torn")
    trial.look_at_segments(job, tmp_path)
    assert job.visible == {"000000-000.h5": None} and "could be seen and not be read" in job.left[-1]


def test_a_port_that_still_listens_is_noticed(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        job = Job(ports={server.getsockname()[1]})
        trial.look_for_rest(job, tmp_path)
        assert job.left == []  # another program's by now: this one's
        real = psutil.net_connections
        monkeypatch.setattr(trial, "LEAVE_S", 0.1)
        monkeypatch.setattr(psutil, "net_connections", lambda kind: [c._replace(pid=None) for c in real(kind)])
        trial.look_for_rest(job, tmp_path)
        assert job.left == [f"port {server.getsockname()[1]} still listens"]


@pytest.mark.parametrize("action", [["signal", [1], 9], ["stop", 0]])
def test_a_rank_that_is_lost_before_it_has_its_weights_is_lost_in_the_start_up(action):
    one = Trial(1, "hang", 3, (Injection(1, "exchange", 1, action),), {"iterations": 1})
    fired = FIRED | {"action": action}
    assert endurance.of_start_up(one, Job(events=[fired])).fault == "kill in the start-up"
    assert endurance.of_start_up(one, Job(events=[weights(1, "a") | {"time": 9.0}, fired])) == one
    assert endurance.of_start_up(one, Job(events=[weights(0, "a") | {"time": 9.0}, fired])) != one
    assert endurance.of_start_up(one, Job()) == one
    pause = replace(one, injections=(Injection(1, "exchange", 1, ["stop", 3]),))
    assert endurance.of_start_up(pause, Job(events=[fired])) == pause


def test_a_trial_is_made_from_its_seed_alone():
    made = [catalogue.make(seed) for seed in range(2000)]
    assert made == [catalogue.make(seed) for seed in range(2000)]
    assert {one.fault for one in made} == set(FAULTS)
    assert {one.phase for one in made if one.fault == "kill"} == {*catalogue.AT_WORK, catalogue.COPY}
    assert {one.phase for one in made} == {*PHASES, catalogue.COPY}
    for one in made:
        json.dumps(one.values())
        assert all(0 <= injection.rank < one.ranks for injection in one.injections)
        assert len(one.victims) < one.ranks
        if one.phase in (*catalogue.ROOTS, catalogue.COPY):
            assert one.injections[0].rank == (2 if one.victims == [2] else 0)  # the second of two writers
            assert one.victims != [2] or one.phase == "segment" and one.options["storage.ranks_per_writer"] == 2
        if one.fault in ("kill two at once", "kill one more in the recovery"):
            assert len(one.victims) == 2
        if one.fault == "kill all but one in turn":
            assert one.victims == [0, 1, 2]


def test_counts_of_trials_have_bounds_and_percentiles():
    assert long.upper_bound(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert long.upper_bound(0, 300) == pytest.approx(3 / 300, rel=0.01)
    assert long.upper_bound(1, 10) == pytest.approx(0.3942, abs=1e-4)  # of the tables of Clopper and Pearson
    assert long.upper_bound(5, 5) == 1.0
    assert long.percentile(range(1, 101), 0.99) == 99 and long.percentile([3.0], 0.5) == 3.0


def test_counts_are_appended_to_the_table(tmp_path):
    one = {"fault": "kill", "injected": 1, "broken": [], "going_on_s": 0.5}
    rows = long.summary([one, one | {"broken": ["x"], "going_on_s": 1.5}, one | {"injected": 0}])
    assert [row[:3] for row in rows] == [("all of these", 2, 1), ("kill", 2, 1)]
    assert rows[1][4:] == (0.5, 1.5, None)
    (tmp_path / "a.csv").write_text("before\n")
    long.append(rows, "2026-01-01", "abc", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[::2] == ["before", "2026-01-01,abc,kill,2,1,97,0.50,1.50,"]
    table = list(csv.DictReader(long.TABLE.open()))
    assert len(table) > 30 and all(row["fault"] in {"all of these", *catalogue.FAULTS} for row in table)
    assert all(int(row["broken"]) <= int(row["trials"]) and None not in row for row in table)
