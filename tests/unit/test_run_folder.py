"""A run's folder: which starts may use it, and what its descriptions hold."""

import errno
import json
import os
import shlex
from types import SimpleNamespace

import pytest
import torch
from helpers import make_config

from az_mpi import __version__
from az_mpi.config import command_line
from az_mpi.config import load as configuration
from az_mpi.core import files
from az_mpi.core.problems import ConfigError, NotNow, Refusal
from az_mpi.core.registry import GAMES
from az_mpi.run import setup
from az_mpi.selfplay.record import POLICY, position_dtype
from az_mpi.storage import lock, run_folder
from az_mpi.storage.run_folder import RunFolderError, prepare, recorded_config

HOSTS = ["node01", "node02"]


def listing(folder):
    """Return {relative path: content} of all files under a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(path, config, fresh=False):
    """Return the text of a refusal, which must leave everything as it was."""
    before = listing(path) if path.exists() else None
    with pytest.raises(RunFolderError) as caught:
        prepare(path, config, HOSTS, fresh)
    assert (listing(path) if path.exists() else None) == before
    assert isinstance(caught.value, Refusal)
    return str(caught.value)


def test_a_new_run_is_start_1_and_has_its_folders(tmp_path):
    path = tmp_path / "deep" / "run"
    assert prepare(path, make_config(), HOSTS, fresh=False) == 1
    names = {"checkpoints", "games", "best", "evaluations", "starts", "config.json"}
    assert {p.name for p in path.iterdir()} == names
    assert [p.name for p in (path / "starts").iterdir()] == ["001.json"]


def test_each_start_is_one_more_start(tmp_path):
    assert [prepare(tmp_path, make_config(), HOSTS, fresh=False) for _ in range(3)] == [1, 2, 3]
    assert sorted(p.name for p in (tmp_path / "starts").iterdir()) == ["001.json", "002.json", "003.json"]


def test_a_number_of_a_start_is_never_given_twice(tmp_path):
    """Also where an earlier file is gone, or where another program takes the number in the same moment."""
    for _ in range(3):
        prepare(tmp_path, make_config(), HOSTS, fresh=False)
    (tmp_path / "starts" / "002.json").unlink()
    assert prepare(tmp_path, make_config(), HOSTS, fresh=False) == 4


def test_two_starts_in_the_same_moment_have_two_numbers(tmp_path, monkeypatch):
    """Another program takes number 1 after this one has looked."""
    link, taken = os.link, []

    def late(source, target):
        if not taken:
            taken.append(target)
            target.write_text("another's")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert prepare(tmp_path, make_config(), HOSTS, fresh=False) == 2
    assert taken[0].read_text() == "another's" and taken[0].name == "001.json"
    assert len(list((tmp_path / "starts").iterdir())) == 2


def test_a_number_of_a_start_is_given_once_where_the_file_system_has_no_links(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    assert [prepare(tmp_path, make_config(), HOSTS, fresh=False) for _ in range(3)] == [1, 2, 3]
    assert sorted(p.name for p in (tmp_path / "starts").iterdir()) == ["001.json", "002.json", "003.json"]
    for path in (tmp_path / "starts").iterdir():
        assert json.loads(path.read_text())["hosts"] == HOSTS


def test_a_folder_without_room_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "deep" / "run"
    text = r"3 checkpoints of 2,000,000,000.0 MiB, up to 1.0 MiB of games\n.*make room.*checkpoint.keep=1$"
    with pytest.raises(RunFolderError, match=text):
        run_folder.check_room(path, 2 * 10**9 * 2**20, 2, 2**20)
    with pytest.raises(RunFolderError, match=r"lower selfplay.num_games or selfplay.max_plies$"):
        run_folder.check_room(path, 2**20, 2, 2 * 10**9 * 2**20)
    assert list(tmp_path.iterdir()) == []
    run_folder.check_room(path, 2**10, 2, 2**20)


def test_the_games_of_an_iteration_are_as_long_as_they_may_be(tmp_path, monkeypatch):
    """3,000 plies are backgammon's own limit; a position has up to 8 entries of its policy."""
    sizes = []
    monkeypatch.setattr(run_folder, "check_room", lambda *arguments: sizes.append(arguments[-1]))
    for max_plies in (0, 200, 10**6):
        selfplay = {"num_games": 10, "max_plies": max_plies}
        config = make_config(game="backgammon", selfplay=selfplay, search={"simulations": 8})
        game = GAMES.make("backgammon")
        setup.check_room(SimpleNamespace(config=config, game=game), torch.nn.Linear(1, 1), tmp_path)
    row = position_dtype(game).itemsize + 8 * POLICY.itemsize
    assert sizes == [10 * 3000 * row, 10 * 200 * row, 10 * 3000 * row]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("where", ["listdir", "open", "link"])
def test_a_run_whose_file_system_fails_can_be_started_later(tmp_path, monkeypatch, code, where):
    """A first start is refused, since its user can name another folder, and so is one that would fail again."""
    run, real = tmp_path / "run", getattr(os, where)

    def begin():
        return run_folder.start(run, make_config(), HOSTS, False, [lock.me()], {}, print)

    def fails_with(code):
        def fail(path, *how, **named):
            if str(run) in str(path):
                raise OSError(code, os.strerror(code), path)
            return real(path, *how, **named)

        with monkeypatch.context() as patch:
            patch.setattr(os, where, fail)
            with pytest.raises(Refusal, match=os.strerror(code)) as caught:
                begin()
        return caught.type

    monkeypatch.setattr(files, "READ_S", 0.0)
    assert fails_with(code) is (NotNow if where == "listdir" else RunFolderError)  # what is not listed may be a run
    begin()[1].release()
    assert fails_with(code) is NotNow
    assert where == "open" or fails_with(errno.EACCES) is RunFolderError
    number, held = begin()
    assert number == 2
    held.release()


@pytest.mark.parametrize("mebibytes, kind", [(2, NotNow), (20, RunFolderError)])
def test_a_run_without_room_can_be_started_once_there_is_some(tmp_path, monkeypatch, mebibytes, kind):
    """A start that would never fit is refused for good."""
    prepare(tmp_path, make_config(), HOSTS, fresh=False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=5, f_blocks=30, f_frsize=2**20))
    with pytest.raises(Refusal, match="5.0 MiB are free.*\n.*make room") as caught:
        run_folder.check_room(tmp_path, mebibytes * 2**20, 2, 2**20)
    assert type(caught.value) is kind


def test_a_file_without_the_right_to_read_is_not_damaged(tmp_path, monkeypatch):
    """An example is a file that root has left in another user's run."""
    for _ in range(2):
        prepare(tmp_path, make_config(), HOSTS, fresh=False)
    before, real = listing(tmp_path), os.open

    def fail(path, *how, **named):
        if str(path).endswith("002.json"):
            raise OSError(errno.EACCES, "Permission denied", path)
        return real(path, *how, **named)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(RunFolderError, match="Permission denied: .*002.json"):
        prepare(tmp_path, make_config(), HOSTS, fresh=False)
    monkeypatch.undo()
    assert listing(tmp_path) == before


def test_a_run_whose_config_json_is_lost_is_a_run(tmp_path):
    prepare(tmp_path, make_config(seed=1), HOSTS, fresh=False)
    (tmp_path / "config.json").unlink()
    assert "seed" in refused(tmp_path, make_config(seed=2))
    assert "--fresh" in refused(tmp_path, make_config(seed=1), fresh=True)
    assert prepare(tmp_path, make_config(seed=1), HOSTS, fresh=False) == 2 and (tmp_path / "config.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"hosts": []}', b"[" * 10**5])
def test_damaged_descriptions_of_newer_starts_are_set_aside(tmp_path, content):
    """The run resumes with the newest whole description. No number is given twice, since games are named by it."""
    for iterations in (3, 4, 5, 6):
        prepare(tmp_path, make_config(iterations=iterations), HOSTS, fresh=False)
    for number in (3, 4):
        (tmp_path / f"starts/00{number}.json").write_bytes(content)
    assert recorded_config(tmp_path).iterations == 4
    said = []
    assert prepare(tmp_path, make_config(iterations=7), HOSTS, False, said.append) == 5
    assert sorted(path.name for path in (tmp_path / "starts").iterdir()) == [
        "001.json",
        "002.json",
        "003.json.damaged",
        "004.json.damaged",
        "005.json",
    ]
    assert len(said) == 2 and "004.json" in said[0] and said[0].endswith("it is kept as 004.json.damaged")
    assert recorded_config(tmp_path).iterations == 7
    (tmp_path / "starts/005.json").rename(tmp_path / "starts/005.json.damaged")
    assert prepare(tmp_path, make_config(), HOSTS, fresh=False) == 6


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_description_is_set_aside(tmp_path):
    for _ in range(2):
        prepare(tmp_path, make_config(), HOSTS, fresh=False)
    (tmp_path / "starts/002.json").unlink()
    os.mkfifo(tmp_path / "starts/002.json")
    assert prepare(tmp_path, make_config(), HOSTS, fresh=False) == 3
    assert (tmp_path / "starts/002.json.damaged").exists() and recorded_config(tmp_path) == make_config()


def test_config_json_holds_configuration_hosts_and_versions(tmp_path):
    config = make_config(seed=5, iterations=3)
    prepare(tmp_path, config, HOSTS, fresh=True)
    data = json.loads((tmp_path / "config.json").read_text())
    assert configuration.validate(data["config"], "test") == config
    assert data["hosts"] == HOSTS and data["az_mpi"] == __version__
    assert data["packages"].keys() >= {"torch", "numpy", "mpi4py", "h5py"} and data["packages"]["numpy"]
    assert json.loads((tmp_path / "starts" / "001.json").read_text()) == data


def test_the_first_configuration_stays_and_each_start_has_its_own(tmp_path):
    prepare(tmp_path, make_config(iterations=3), HOSTS, fresh=False)
    first = (tmp_path / "config.json").read_bytes()
    prepare(tmp_path, make_config(iterations=4), HOSTS, fresh=False)
    assert (tmp_path / "config.json").read_bytes() == first
    assert recorded_config(tmp_path).iterations == 4


def test_fresh_never_touches_a_run_that_is_there(tmp_path):
    prepare(tmp_path, make_config(), HOSTS, fresh=True)
    text = refused(tmp_path, make_config(), fresh=True)
    assert "--fresh" in text and str(tmp_path) in text and "--logdir" in text


def test_changed_fixed_keys_are_refused_with_both_values(tmp_path):
    prepare(tmp_path, make_config(seed=1, search={"simulations": 50}), HOSTS, fresh=False)
    text = refused(tmp_path, make_config("connect4", seed=2, search={"simulations": 60}))
    assert 'game: "tictactoe" in the run, "connect4" now' in text
    assert "seed: 1 in the run, 2 now" in text and "search.simulations: 50 in the run, 60 now" in text


def test_refusal_names_the_fixed_keys_alone(tmp_path):
    prepare(tmp_path, make_config(seed=1, iterations=3), HOSTS, fresh=False)
    assert "iterations" not in refused(tmp_path, make_config(seed=2, iterations=4))


@pytest.mark.parametrize(
    "change",
    [
        {"iterations": 99},
        {"train": {"batch_size": 64, "learning_rate": 0.5, "ranks": 1}},
        {"selfplay": {"num_games": 7, "parallel_games": 3}},
        {"evaluate": {"every": 1}, "checkpoint": {"every": 2, "keep": 9}, "report": {"tensorboard": False}},
    ],
)
def test_keys_that_may_change_are_accepted(tmp_path, change):
    prepare(tmp_path, make_config(), HOSTS, fresh=False)
    assert prepare(tmp_path, make_config(**change), HOSTS, fresh=False) == 2
    assert recorded_config(tmp_path) == make_config(**change)


def test_a_change_is_compared_with_the_newest_start_not_the_first(tmp_path):
    """What was changed and is changed back is a change of the free key alone: accepted each time."""
    for iterations in (3, 4, 3):
        prepare(tmp_path, make_config(iterations=iterations), HOSTS, fresh=False)
    assert "seed" in refused(tmp_path, make_config(seed=2))


def test_recorded_config_takes_overrides(tmp_path):
    prepare(tmp_path, make_config(), HOSTS, fresh=False)
    found = recorded_config(tmp_path, {"evaluate.num_games": 8}, {"evaluate.num_games": "--set"})
    assert found == make_config(evaluate={"num_games": 8})
    with pytest.raises(ConfigError, match="evaluate.num_games"):
        recorded_config(tmp_path, {"evaluate.num_games": 7}, {"evaluate.num_games": "--set"})


@pytest.mark.parametrize("content", [None, "", "{", '{"other": 1}'])
def test_a_folder_without_a_run_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunFolderError, match="holds no run") as caught:
        recorded_config(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "words, said",
    [
        (
            ["--mode", "selfplay", "--config_file", "a b.json"],
            "--mode selfplay takes the network of a run that is there\n  train one first: python run_dist.py "
            "--config_file 'a b.json' --logdir ",
        ),
        (["--mode", "eval"], "train one first: python run_dist.py --config_file configs/smoke.json --logdir "),
        (
            ["--set", "game=hex(size=5)", "--num_games", "7"],
            "a new run needs a configuration\n  give one: python run_dist.py "
            "--config_file configs/smoke.json --logdir ",
        ),
    ],
)
def test_a_command_for_a_missing_run_names_the_command_that_makes_one(tmp_path, words, said):
    """The command of the text can be given as it is: it starts the run."""
    given = command_line.parse([*words, "--logdir", str(tmp_path / "new")])
    with pytest.raises(RunFolderError) as caught:
        run_folder.check_there(given)
    assert said in str(caught.value)
    command = next(line for line in str(caught.value).splitlines() if "run_dist.py" in line).partition(": ")[2]
    again = command_line.parse(shlex.split(command)[2:])
    assert (again.mode, again.logdir, again.overrides) == ("train", tmp_path / "new", given.overrides)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunFolderError, match="--logdir .*file/run"):
        prepare(tmp_path / "file" / "run", make_config(), HOSTS, fresh=False)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("kind", ["file", "link to nothing", "link to itself", "link to a file"])
@pytest.mark.parametrize("name", ["", "checkpoints", "games", "best", "evaluations", "starts", "logs", "lock"])
def test_a_file_in_place_of_a_folder_is_refused_with_its_whole_path(tmp_path, name, kind):
    run = tmp_path / "run"
    prepare(run, make_config(), HOSTS, fresh=False)
    place = run / name
    if place.exists():
        place.rename(tmp_path / "aside")
    if kind == "file":
        place.write_text("x")
    else:
        (tmp_path / "a file").write_text("x")
        place.symlink_to({"link to nothing": "/nowhere", "link to itself": place}.get(kind, tmp_path / "a file"))
    text = refused(run, make_config())
    assert f"{place} is a {kind.split()[0]}" in text and "File exists" not in text and "--logdir" in text
    with pytest.raises(RunFolderError, match="must be folders"):
        run_folder.check_same_run(run, make_config())


def test_a_folder_of_a_run_may_be_a_link_to_a_folder(tmp_path):
    prepare(tmp_path / "run", make_config(), HOSTS, fresh=False)
    (tmp_path / "run/games").rename(tmp_path / "scratch")
    (tmp_path / "run/games").symlink_to(tmp_path / "scratch")
    assert prepare(tmp_path / "run", make_config(), HOSTS, fresh=False) == 2


def test_a_start_that_died_before_its_description_was_written_is_no_obstacle(tmp_path, monkeypatch):
    """The next start resumes the run, whatever the file system leaves."""
    prepare(tmp_path, make_config(), HOSTS, fresh=False)

    def full(*_):
        raise OSError(28, "No space left on device", "starts")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "claim_text", full)
        with pytest.raises(NotNow, match="No space left.*\n  make room.*\n  the same command continues"):
            prepare(tmp_path, make_config(), HOSTS, fresh=False)
    assert prepare(tmp_path, make_config(), HOSTS, fresh=False) == 2


@pytest.mark.parametrize("content", ["[]", "3", '"text"'])
def test_config_json_that_is_no_object_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunFolderError, match="holds no run"):
        recorded_config(tmp_path)


def test_start_1000_is_newer_than_start_999(tmp_path):
    prepare(tmp_path, make_config(iterations=3), [], False)
    a = tmp_path / "starts"
    (a / "001.json").rename(a / "999.json")
    prepare(tmp_path, make_config(iterations=4), [], False)
    assert recorded_config(tmp_path).iterations == 4
