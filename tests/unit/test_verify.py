"""python -m az_mpi verify: damage is found and fixed, and random damage is found or does no harm."""

import errno
import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from helpers import Hashed, make_config, play_games

from az_mpi import __main__, games
from az_mpi.core import files
from az_mpi.selfplay.player import Player
from az_mpi.storage import checkpoint, imports, lock, run_folder, segment
from az_mpi.storage.checkpoint import Checkpoint, Progress
from az_mpi.storage.segment import SegmentError

GAME = games.make("tictactoe")


def record_of(ids, iteration):
    settings = make_config("tictactoe", search={"simulations": 4}, selfplay={"parallel_games": 16})
    return play_games(Player(settings, GAME, Hashed(GAME), 3), ids, iteration)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a run's folder with two segments and two checkpoints."""
    run = tmp_path_factory.mktemp("verify") / "run"
    run_folder.prepare(run, make_config(), ["node1"], fresh=False)
    counted = Progress()
    for iteration in range(2):
        record = record_of(range(20 * iteration, 20 * iteration + 20), iteration)
        segment.write(run / "games", iteration, GAME, record, {})
        counted = Progress(
            iteration + 1, num_games=counted.num_games + 20, num_positions=counted.num_positions + len(record.positions)
        )
        tensors = {"weight": torch.arange(500.0) + iteration}
        checkpoint.save(run / "checkpoints", Checkpoint(counted, tensors, tensors), keep=3)
    segment.link_all(run / "games", run / "games.h5")
    (run / "metrics.jsonl").write_text('{"kind": "train"}\n')
    return run


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def told(run, capsys, *options):
    """Return (exit status, what it says as JSON)."""
    status = __main__.main(["verify", str(run), "--json", *options])
    return status, json.loads(capsys.readouterr().out)


def test_a_run_whose_checkpoints_were_all_set_aside_is_not_whole(run, capsys):
    """The next start refuses it."""
    for path in (run / "checkpoints").glob("*/sha256"):
        path.write_text("flipped")
    status, values = told(run, capsys, "--repair")
    assert status == 1 and not values["whole"]
    assert "no checkpoint is whole" in str(values["problems"])


@pytest.mark.parametrize(
    "line, lost", [('{"kind": "train", "step": 5}', False), ('{"kind": "checkpoint", "step": 5, "iteration": 1}', True)]
)
def test_a_run_whose_checkpoints_are_gone_is_not_whole(run, capsys, line, lost):
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").write_text(f"{line}\n")
    status, values = told(run, capsys)
    assert (status, values["whole"]) == (int(lost), not lost)
    assert not lost or "after iteration 1" in str(values["problems"])


def test_a_file_in_place_of_a_folder_is_a_problem(run, capsys):
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").write_text("")
    assert __main__.main(["verify", str(run)]) == 2 and "checkpoints is a file" in capsys.readouterr().err


def test_a_whole_run_has_no_problems(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    status, values = told(run, capsys)
    assert status == 0 and values["whole"] and values["problems"] == values["notes"] == []
    assert (values["num_checkpoints"], values["num_segments"], values["num_games"]) == (2, 2, 40)
    assert __main__.main(["verify", str(run)]) == 0
    assert "2 checkpoints, 2 segments with 40 games" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_damaged_files_are_named_and_set_aside(run, capsys):
    for name in ("games/000000-000.h5", "checkpoints/000002/model.safetensors"):
        flip(run / name)
    (run / "games" / ".000009-000.h5.12.tmp").write_text("half")
    status, values = told(run, capsys)
    assert status == 1 and [problem["path"] for problem in values["problems"]] == [
        "checkpoints/000002",
        "games/000000-000.h5",
        "games/.000009-000.h5.12.tmp",
    ]
    assert "SHA-256" in values["problems"][0]["problem"] and "SHA-256" in values["problems"][1]["problem"]
    status, values = told(run, capsys, "--repair")
    assert status == 0 and len(values["repaired"]) == 4
    assert (run / "games" / "000000-000.h5.damaged").exists() and (run / "checkpoints" / "000002.damaged").is_dir()
    assert segment.linked(run / "games.h5") == ["000001-000"]
    assert any("counts 20 games, the whole segments before it hold 0" in note for note in values["notes"])
    assert not list(run.rglob("*.tmp")) and not (run / "lock").exists()


def test_the_unfinished_file_of_a_job_that_takes_no_lock_stays(run, capsys):
    (run / "selfplay").mkdir()
    for folder in ("selfplay", "games"):
        (run / folder / ".000001-000.h5.12.tmp").write_text("half")
    status, values = told(run, capsys)
    assert status == 1 and [row["path"] for row in values["problems"]] == ["games/.000001-000.h5.12.tmp"]
    status, values = told(run, capsys, "--repair")
    assert status == 0 and any("selfplay/.000001-000.h5.12.tmp is unfinished" in note for note in values["notes"])
    assert [path.parent.name for path in run.rglob("*.tmp")] == ["selfplay"]


@pytest.mark.parametrize("harm", [lambda path: path.write_text("{"), Path.unlink])
def test_damaged_descriptions_of_starts_are_repaired(run, capsys, harm):
    for _ in range(2):
        run_folder.prepare(run, make_config(), ["node1"], fresh=False)
    harm(run / "config.json")
    (run / "starts/003.json").write_text('{"hosts": []}')
    (run / "evaluations/000001.json").write_text("{")
    status, values = told(run, capsys)
    wrong = [problem["path"] for problem in values["problems"]]
    assert status == 1 and wrong == ["config.json", "starts/003.json", "evaluations/000001.json"]
    status, values = told(run, capsys, "--repair")
    assert status == 0 and (run / "starts/003.json.damaged").exists()
    assert (run / "config.json").read_bytes() == (run / "starts/001.json").read_bytes()
    assert run_folder.recorded_config(run) == make_config()


@pytest.mark.parametrize("code, last_status", [(errno.EIO, 75), (errno.EACCES, 2)])
def test_a_file_that_cannot_be_read_now_stays_where_it_is(run, capsys, monkeypatch, code, last_status):
    real = os.open

    def fail(path, *how, **named):
        if str(path).endswith(away):
            raise OSError(code, os.strerror(code), path)
        return real(path, *how, **named)

    monkeypatch.setattr(files, "READ_S", 0.0)
    (run / "evaluations/000001.json").write_text("{}")
    (run / "best/000001.safetensors").write_bytes(b"")
    run_folder.prepare(run, make_config(), ["node1"], fresh=False)
    away = ("config.json", "evaluations/000001.json", "000000-000.h5", "000002/state.json", "best/000001.safetensors")
    monkeypatch.setattr(os, "open", fail)
    status, values = told(run, capsys, "--repair")
    assert status == 1 and all("cannot be read now" in problem["problem"] for problem in values["problems"])
    assert len(values["problems"]) == 5 and not list(run.rglob("*.damaged"))
    (run / "best/000001.safetensors").unlink()
    away = ("starts/001.json",)
    (run / "config.json").write_text("{")
    assert told(run, capsys, "--repair")[0] == 1 and list(run.rglob("*.damaged")) == [run / "config.json.damaged"]
    (run / "config.json.damaged").unlink()
    away = ("starts/002.json",)
    assert __main__.main(["verify", str(run), "--repair"]) == last_status
    said = capsys.readouterr().err
    assert os.strerror(code) in said and ("once its file system works" in said) == (last_status == 75)
    assert not list(run.rglob("*.damaged"))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_file_for_which_memory_is_too_little_stays_where_it_is(run, monkeypatch, capsys, error):
    def fail(*arguments, **named):
        raise error

    (run / "best/000001.safetensors").write_bytes(checkpoint.to_bytes({"weight": torch.ones(3)}))
    monkeypatch.setattr(h5py, "File", fail)
    monkeypatch.setattr(checkpoint, "load_bytes", fail)
    status, values = told(run, capsys, "--repair")
    assert status == 1 and len(values["problems"]) == 6  # two segments and their links, two checkpoints, the network
    assert all("cannot be read now (Cannot allocate memory)" in row["problem"] for row in values["problems"])
    assert not list(run.rglob("*.damaged"))


def test_an_import_that_was_killed_is_completed(run, capsys):
    (waiting := run / "games" / imports.WAITING).mkdir()
    segment.write(waiting, 1, GAME, record_of(range(90, 95), 1), {}, waiting / "a.h5")
    entry = {"iteration": 1, "game": GAME.name, "num_games": 5, "num_positions": 9, "files": []}
    imports.commit(run, imports.next_path(run), entry, {"a.h5": "000001-001.h5"}, lambda: None)
    values = told(run, capsys)[1]
    assert values["num_games"] == 40 and "import was killed" in values["notes"][0]
    values = told(run, capsys, "--repair")[1]
    assert values["num_games"] == 45 and not waiting.exists()
    assert "import that was killed is complete" in values["repaired"][0]
    assert segment.linked(run / "games.h5") == ["000000-000", "000001-000", "000001-001"]


def test_a_segment_that_is_there_twice_is_kept_once(run, capsys):
    shutil.copy(run / "games" / "000000-000.h5", run / "games" / "000001-001.h5")
    status, values = told(run, capsys)
    assert status == 1 and "20 of its 20 games are also in 000000-000.h5" in values["problems"][0]["problem"]
    status, values = told(run, capsys, "--repair")
    assert status == 0 and values["num_games"] == 40 and (run / "games" / "000001-001.h5.damaged").exists()


def test_missing_links_to_segments_are_made_again(run, capsys):
    (run / "games.h5").unlink()
    assert told(run, capsys)[0] == 1
    assert told(run, capsys, "--repair")[0] == 0 and len(segment.linked(run / "games.h5")) == 2


def test_a_repair_that_has_lost_its_lock_makes_no_links(run, capsys, monkeypatch):
    (run / "games.h5").unlink()
    link_all = segment.link_all

    def lost(*given, **named):
        shutil.rmtree(run / "lock")
        link_all(*given, **named)

    monkeypatch.setattr(segment, "link_all", lost)
    assert __main__.main(["verify", str(run), "--repair"]) == 2
    assert "this job's lock was removed" in capsys.readouterr().err and not (run / "games.h5").exists()


def test_the_repair_of_a_run_without_games_names_what_it_repaired(run, capsys):
    shutil.rmtree(run / "games")
    (run / "config.json").write_text("flipped")
    status, values = told(run, capsys, "--repair")
    assert status == 1 and "config.json" in str(values["repaired"])


def test_a_run_under_way_is_not_repaired(run, capsys):
    held = lock.Lock.take(run, [lock.me()], 5)  # by a job
    assert __main__.main(["verify", str(run), "--repair"]) == 2
    assert "another job runs here" in capsys.readouterr().err
    assert told(run, capsys)[0] == 0
    held.release()


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert __main__.main(["verify", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def same(one, other):
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in ("games", "positions", "policy")
    )


def harm(path, rng):
    """Flip 1 to 8 bits of a file, or cut it, or put bytes in or behind it."""
    content = bytearray(path.read_bytes())
    kind = rng.integers(5)
    place = int(rng.integers(len(content)))
    if kind <= 1:
        for _ in range(1 if kind == 0 else 8):
            content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        del content[place:]
    elif kind == 3:
        del content[place : place + int(rng.integers(1, 64))]
    else:
        content[place:place] = rng.bytes(int(rng.integers(1, 64)))
    path.write_bytes(content)


def fuzz(whole, tmp_path, seed, num):
    """Harm one file at a time; it is noticed, or what is read is what was written. Returns how many were noticed."""
    rng, noticed = np.random.default_rng(seed), 0
    record = segment.read(whole / "games" / "000001-000.h5", GAME)
    saved = checkpoint.read(whole / "checkpoints" / "000002")
    names = sorted(path.name for path in (whole / "checkpoints" / "000002").iterdir())
    for trial in range(num):
        if trial % 2:
            path = tmp_path / "000001-000.h5"
            shutil.copy(whole / "games" / path.name, path)
            harm(path, rng)
            try:
                assert same(segment.read(path, GAME), record), f"seed {seed}, trial {trial}: other games"
            except SegmentError:
                noticed += 1
            try:  # what looks at the header alone must not fall either
                segment.find(tmp_path)
            except SegmentError:
                pass
        else:
            place = tmp_path / "000002"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(whole / "checkpoints" / "000002", place)
            harm(place / names[int(rng.integers(len(names)))], rng)
            try:
                found = checkpoint.read(place)
                assert found.progress == saved.progress, f"seed {seed}, trial {trial}"
                assert checkpoint.to_bytes(found.model) == checkpoint.to_bytes(saved.model)
                assert checkpoint.to_bytes(found.optimizer) == checkpoint.to_bytes(saved.optimizer)
            except (ValueError, OSError):
                noticed += 1
    return noticed


def test_random_flips_and_cuts_are_noticed_or_do_no_harm(whole, tmp_path):
    assert fuzz(whole, tmp_path, seed=1, num=400) > 380


@pytest.mark.slow
def test_5000_random_flips_and_cuts_are_noticed_or_do_no_harm(whole, tmp_path):
    assert fuzz(whole, tmp_path, seed=2, num=5000) > 4750


def test_a_segment_of_a_stranger_is_at_worst_refused(whole, tmp_path):
    """The checksum is right, and the columns do not fit each other."""
    import h5py

    def rewritten(change):
        path = tmp_path / "000001-000.h5"
        shutil.copy(whole / "games" / path.name, path)
        with h5py.File(path, "r+") as file:  # which ends the file behind HDF5's part
            file.attrs["schema_version"] = 1
            change(file)
        return path

    segment.read(rewritten(lambda file: None), GAME)  # a file of schema 1 has no sum, and is read
    for name, value in (
        ("games/length", 5),
        ("games/id", 7),
        ("policy/action", 99),
        ("policy/action", -1),
        ("policy/offset", 3),
        ("positions/game", 1),
    ):

        def change(file, name=name, value=value):
            file[name][...] = value

        with pytest.raises(SegmentError, match="000001-000.h5"):
            segment.read(rewritten(change), GAME)
    with pytest.raises(SegmentError):
        segment.read(rewritten(lambda file: file.attrs.update(num_games=3)), GAME)

    def of_another(file, make):
        n, kind = len(file["games/length"]), file["games/length"].dtype
        del file["games/length"]
        make(file["games"], n, kind)

    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["rows"] = np.zeros(20, np.int32)
    outside = [("/dev/zero", 0, 10**4)]
    for make, says in (
        (lambda games, n, kind: games.create_dataset("length", (10**13,), kind, chunks=(1000,)), "would take .* bytes"),
        (lambda games, n, kind: games.create_dataset("length", (n,), kind, external=outside), "lies in another file"),
        (lambda games, n, kind: games.__setitem__("length", h5py.ExternalLink(other, "rows")), "another file|Error"),
    ):
        with pytest.raises(SegmentError, match=says):
            segment.read(rewritten(lambda file, make=make: of_another(file, make)), GAME)


def test_every_problem_is_a_line_for_people(run, capsys):
    os.truncate(run / "games" / "000001-000.h5", 100)
    assert __main__.main(["verify", str(run)]) == 1
    text = capsys.readouterr().out
    assert "WRONG: games/000001-000.h5: " in text and "--repair fixes" in text
    assert Path(run / "games" / "000001-000.h5").exists()


@pytest.mark.timeout(120)
def test_a_path_that_is_no_plain_file_is_set_aside(run, capsys):
    """The command does not wait for a pipe's other end, and does not read 64 GiB of zeros."""
    large = ["checkpoints/000002/model.safetensors", "best/000009.safetensors", "games/000009-000.h5"]
    for name in large:
        (run / name).touch()
        os.truncate(run / name, 2**36)
    pipes = ["games/000008-000.h5", "starts/002.json", "evaluations/000001.json", "metrics.jsonl", "logs/run.log"]
    (run / "logs").mkdir()
    (run / "metrics.jsonl").unlink()
    for name in pipes:
        os.mkfifo(run / name)
    status, values = told(run, capsys)
    wrong = {problem["path"]: problem["problem"] for problem in values["problems"]}
    large[0] = "checkpoints/000002"
    assert status == 1 and all("not a plain file" in wrong[name] for name in pipes)
    assert all("larger than" in wrong[name] for name in large)
    assert wrong.keys() == {*pipes, *large, "games.h5"}  # which does not link to segments that are there
    status, values = told(run, capsys, "--repair")
    assert status == 0 and all((run / f"{name}.damaged").exists() for name in [*pipes, *large])


def test_json_that_is_nested_too_deeply_is_damaged(run, capsys):
    (run / "metrics.jsonl").write_text('{"kind": "train"}\n' + "[" * 100_000 + "\n[]\n")
    for name in ("starts/002.json", "evaluations/000001.json"):
        (run / name).write_text("[" * 100_000)
    status, values = told(run, capsys)
    assert status == 1 and any("2 of 3 lines" in note for note in values["notes"])
    assert [problem["path"] for problem in values["problems"]] == ["starts/002.json", "evaluations/000001.json"]
