"""The sources of the user's own classes in a run's folder: kept, compared, and found again."""

import json
import shutil

import pytest
from helpers import make_config

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.core import registry
from az_mpi.core.problems import Refusal
from az_mpi.storage import plugin_sources, run_folder
from az_mpi.storage.run_folder import prepare, recorded_config

OWN = """
from az_mpi.games import mnk

class Rules(mnk.Rules):
    def __init__(self, first=0):
        super().__init__()
        self.name, self.first = "own", first
"""


@pytest.fixture
def own(tmp_path):
    """Return write(text): a configuration whose game is in own.py with that text, as another process would load it."""

    def write(text=OWN, folder="own", arguments="first=3"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "own.py").write_text(text)
        registry.load.cache_clear()
        return make_config(f"{tmp_path}/{folder}/own.py:Rules({arguments})")

    yield write
    registry.load.cache_clear()


def starts(run):
    return [json.loads(path.read_text()) for path in run_folder.starts(run)]


def test_a_run_keeps_the_source_that_it_was_made_with(own, tmp_path):
    config, run = own(), tmp_path / "run"
    prepare(run, config, ["host"], fresh=True)
    [row] = starts(run)[0]["sources"]
    assert (row["key"], row["name"]) == ("game", "own.py:Rules") and len(row["sha256"]) == 64
    assert (run / row["kept"]).read_text() == OWN
    before = sorted(run.rglob("*.py"))
    prepare(run, config, ["host"], fresh=False)
    assert sorted(run.rglob("*.py")) == before and starts(run)[1]["sources"] == [row]


def test_commands_that_read_a_run_load_its_own_source(own, tmp_path):
    """The file may have been changed since, or be gone, and so may the folder that the run lay in."""
    prepare(tmp_path / "run", own(), ["host"], fresh=True)
    shutil.rmtree(tmp_path / "own")
    (tmp_path / "run").rename(tmp_path / "moved")
    registry.load.cache_clear()
    config = recorded_config(tmp_path / "moved", {"seed": 5})
    game = games.make(config.game)
    assert (game.name, game.first, config.seed) == ("own", 3, 5) and str(tmp_path / "moved") in config.game
    assert recorded_config(tmp_path / "moved", {"game": "tictactoe"}).game == "tictactoe"


def test_a_source_that_is_there_under_another_name_is_kept_under_both(own, tmp_path):
    """Its content is the same, and so is the folder that it is kept in: callbacks may be renamed, for example."""
    (tmp_path / "run").mkdir()
    for name in ("own.py", "renamed.py"):
        own()
        (tmp_path / "own" / "own.py").rename(tmp_path / "own" / name)
        config = make_config(f"{tmp_path}/own/{name}:Rules")
        plugin_sources.keep(tmp_path / "run", config)
        [row] = plugin_sources.describe(config)
        assert row["kept"].endswith(f"/{name}") and (tmp_path / "run" / row["kept"]).read_text() == OWN


def test_another_source_is_refused_unless_it_is_allowed(own, tmp_path):
    run = tmp_path / "run"
    prepare(run, own(), ["host"], fresh=True)
    run_folder.check_sources(run, own(folder="elsewhere"), allowed=False)  # the same text
    changed = own(OWN + "# changed")
    run_folder.check_same_run(run, changed)
    with pytest.raises(Refusal) as caught:
        run_folder.check_sources(run, changed, allowed=False)
    old = run / starts(run)[0]["sources"][0]["kept"]
    assert str(old) in str(caught.value) and "--allow_other_source" in str(caught.value) and old.read_text() == OWN
    run_folder.check_sources(run, changed, allowed=True)
    prepare(run, changed, ["host"], fresh=False)
    assert len(list(run.rglob("own.py"))) == 2
    run_folder.check_sources(run, changed, allowed=False)  # it is the run's own now
    with pytest.raises(Refusal, match="another source"):
        run_folder.check_sources(run, own(), allowed=False)


def test_arguments_of_the_game_may_not_change(own, tmp_path):
    prepare(tmp_path / "run", own(), ["host"], fresh=True)
    with pytest.raises(Refusal, match=r"own.py:Rules\(first=3\).* in the run, .*own.py:Rules\(first=4\).* now"):
        run_folder.check_same_run(tmp_path / "run", own(arguments="first=4"))


def test_a_run_keeps_the_sources_of_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_module_7.py").write_text(OWN)
    prepare(tmp_path / "run", make_config("own_module_7:Rules"), ["host"], fresh=True)
    [row] = starts(tmp_path / "run")[0]["sources"]
    assert (tmp_path / "run" / row["kept"]).read_text() == OWN
    assert recorded_config(tmp_path / "run").game == "own_module_7:Rules"


def test_runs_of_built_in_names_and_of_earlier_versions_have_no_sources(tmp_path):
    config = make_config()
    prepare(tmp_path, config, ["host"], fresh=True)
    assert starts(tmp_path)[0]["sources"] == [] and not (tmp_path / "sources").exists()
    for path in (tmp_path / "config.json", *run_folder.starts(tmp_path)):
        content = json.loads(path.read_text())
        del content["sources"]
        path.write_text(json.dumps(content))
    run_folder.check_sources(tmp_path, config, allowed=False)
    assert recorded_config(tmp_path) == config == configuration.validate({"game": "tictactoe"}, "test")
