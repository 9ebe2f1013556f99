"""Every problem of a configuration is reported with its key, its value and what is allowed; nothing else is raised."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from az_mpi.config.load import KEYS, ConfigError, changes, flat, load, loads, to_json, validate
from az_mpi.core.problems import NotNow
from az_mpi.core.registry import GAMES

CONFIGS = Path(__file__).parents[2] / "configs"
LEAST = '{"game": "connect4"}'


def problems(data, **more):
    """Return {key: problem} of a configuration that is not valid; `data` is an object, or a JSON text."""
    with pytest.raises(ConfigError) as caught:
        loads(data if isinstance(data, str) else json.dumps({"game": "connect4"} | data), "my.json", **more)
    assert "pydantic" not in str(caught.value) and "http" not in str(caught.value)
    found = {problem.key: problem for problem in caught.value.problems}
    assert len(found) == len(caught.value.problems), "a key is reported twice"
    return found


# (section, key, value, what must be said): one for each kind of limit.
BAD_VALUES = [
    (None, "game", "conect4", f"allowed: {GAMES.allowed}; did you mean connect4?"),
    (None, "game", "own_game.py", "a class of your own is written package.module:Class or path/file.py:Class"),
    (None, "game", "tictactoe(3)", "arguments are written (key=value, ...)"),
    (None, "game", ["connect4"], GAMES.allowed),
    (None, "game", None, GAMES.allowed),
    (None, "seed", -1, "a whole number from 0 to 2^63-1"),
    (None, "seed", 2**63, "a whole number from 0 to 2^63-1"),
    ("fault", "hang_s", 1e17, "a finite number from 0 to 2^53-1"),
    (None, "seed", 1.0, "a whole number from 0 to 2^63-1"),
    (None, "iterations", 0, "a whole number from 1 to 2^63-1"),
    (None, "iterations", "40", "a whole number from 1 to 2^63-1"),
    (None, "iterations", True, "a whole number from 1 to 2^63-1"),
    (None, "iterations", 10**300, "a whole number from 1 to 2^63-1"),
    ("network", "blocks", 81, "a whole number from 1 to 80"),
    ("network", "channels", 60, "a whole number from 8 to 1024, a multiple of 8"),
    ("network", "channels", 1032, "a whole number from 8 to 1024, a multiple of 8"),
    (
        "network",
        "engine",
        "Torch",
        'allowed: "auto" or "openvino" or "torch", or a class of your own, '
        "package.module:Class or path/file.py:Class; did you mean torch?",
    ),
    ("selfplay", "evaluator", "unifrom", "did you mean uniform?"),
    ("search", "simulations", 100_001, "a whole number from 1 to 100000"),
    ("search", "c_puct", 0, "a finite number above 0"),
    ("search", "c_puct", "1.75", "a finite number above 0"),
    ("search", "c_puct_base", float("inf"), "a finite number above 0"),
    ("search", "fpu_reduction", 2.5, "a finite number from 0 to 2"),
    ("search", "dirichlet_alpha", float("nan"), "a finite number above 0"),
    ("search", "dirichlet_fraction", -0.1, "a finite number from 0 to 1"),
    ("search", "temperature", -1, "a finite number, at least 0"),
    ("search", "temperature_plies", 2.5, "a whole number from 0 to 2^63-1"),
    ("search", "full_share", 1.5, "a finite number above 0, at most 1"),
    ("search", "reuse_tree", 1, "true or false"),
    ("evaluate", "simulations", 2_000_000, "a whole number from 0 to 1000000"),
    ("selfplay", "parallel_games", 65_537, "a whole number from 0 to 65536"),
    ("selfplay", "deterministic", "true", "allowed: true or false; did you mean true?"),
    ("exchange", "chunk_bytes", 1023, "a whole number from 1024 to 2^31-1"),
    ("exchange", "chunk_bytes", 2**31, "a whole number from 1024 to 2^31-1"),
    ("replay", "window_growth", 1.01, "a finite number from 0 to 1"),
    ("train", "ranks", 0, '"auto" or "all" or "root_host" or "gpu" or a whole number from 1 to 2^63-1'),
    ("train", "ranks", "al", "whole number from 1 to 2^63-1; did you mean all?"),
    ("train", "backend", "mpi", 'allowed: "auto" or "horovod" or "ddp"'),
    ("train", "learning_rate", False, "a finite number above 0"),
    ("train", "schedule", "cosin", 'allowed: "constant" or "cosine"; did you mean cosine?'),
    ("train", "mixed_precision", "TRUE", 'allowed: "auto" or true or false; did you mean true?'),
    ("train", "mixed_precision", 1, '"auto" or true or false'),
    ("train", "gradient_clip", 0.0, "a finite number above 0"),
    ("evaluate", "num_games", 7, "a whole number from 2 to 2^63-1, even"),
    ("evaluate", "num_games", 0, "a whole number from 2 to 2^63-1, even"),
    ("evaluate", "opponents", "best", "allowed: a list of names, each at most once (files by"),
    ("evaluate", "opponents", ["best", "ramdom"], "did you mean random?"),
    ("evaluate", "opponents", ["best", "best"], 'at most once (files by their names alone): "best" or "greedy"'),
    ("evaluate", "opponents", ["best", 3], 'at most once (files by their names alone): "best" or "greedy"'),
    ("evaluate", "opponents", {"best": 1}, 'at most once (files by their names alone): "best" or "greedy"'),
    ("evaluate", "solver", "", "a class of your own is written package.module:Class"),
    ("checkpoint", "keep", 0, "a whole number from 1 to 2^63-1"),
    ("report", "tensorboard", None, "true or false"),
]


@pytest.mark.parametrize("section, key, value, said", BAD_VALUES)
def test_a_value_that_is_not_allowed_is_refused_with_the_allowed_ones(section, key, value, said):
    found = problems({section: {key: value}} if section else {key: value})
    (problem,) = found.values()
    assert problem.key == (f"{section}.{key}" if section else key)
    assert said in problem.message
    assert problem.value in (json.dumps(value), json.dumps(value)[:57] + "...")


UNKNOWN = [
    ({"batch_size": 4}, "batch_size", "did you mean train.batch_size?"),
    ({"every": 4}, "every", "did you mean evaluate.every or checkpoint.every?"),
    ({"itertions": 4}, "itertions", "did you mean iterations?"),
    ({"trian": {"ranks": 1}}, "trian", "did you mean train?"),
    ({"train": {"lerning_rate": 1}}, "train.lerning_rate", "did you mean train.learning_rate?"),
    ({"train": {"learningRate": 1}}, "train.learningRate", "did you mean train.learning_rate?"),
    ({"search": {"batch-size": 1}}, "search.batch-size", "did you mean train.batch_size?"),
    ({"evaluate": {"evry": 1}}, "evaluate.evry", "did you mean evaluate.every?"),
    ({"network": {"seed": 1}}, "network.seed", "did you mean seed?"),
    ({"network": {"zzz": 1}}, "network.zzz", "the keys here are blocks, channels, block, heads, engine"),
    ({"zzz": 1}, "zzz", "the keys here are game, seed, iterations, max_hours"),
    ({"train.batch_size": 1}, "train.batch_size", "write it inside its section"),
    ({"train": 5}, "train", "this is a section; its keys are ranks, root_host, backend"),
    ({"report": None}, "report", "this is a section; its keys are summary_frequency, tensorboard"),
    ({"": 1}, "", "there is no such key"),
]


@pytest.mark.parametrize("data, key, said", UNKNOWN)
def test_a_key_that_does_not_exist_is_refused_with_the_nearest_one(data, key, said):
    (problem,) = problems(data).values()
    assert problem.key == key and said in problem.message


def test_two_files_of_one_name_are_refused():
    two = ["/v1/bot.py:Bot", "/v2/bot.py:Bot"]
    assert "files by their names alone" in str(problems({"evaluate": {"opponents": two}})["evaluate.opponents"])
    one = ["/v1/bot.py:Bot(depth=1)", "/v1/bot.py:Bot(depth=2)", "/v1/bot.py:Other"]
    assert loads(json.dumps({"game": "connect4", "evaluate": {"opponents": one}})).evaluate.opponents == tuple(one)


def test_all_problems_are_reported_at_once():
    text = (
        '{"game": "connect4", "trian": {}, "search": [], "replay": {"window_min": 9, "window_max": 3, '
        '"window_growth": 7, "windw_min": 3}, "train": {"ranks": 3, "backend": 0, "backend": "horovod"}}'
    )
    found = problems(text, overrides={"train.batch_size": 2, "chekpoint.keep": 1, "seed": -4})
    assert set(found) == {
        "trian",
        "search",
        "replay.window_growth",
        "replay.windw_min",
        "replay.window_min",
        "train.ranks",
        "train.backend",
        "chekpoint.keep",
        "seed",
    }
    assert found["replay.window_min"].message == "must not be more than replay.window_max, which is 3"
    assert found["train.ranks"].message == "must not be more than train.batch_size, which is 2"
    assert found["train.backend"].message.startswith("written more than once")


def test_the_block_names_file_count_key_value_and_help():
    with pytest.raises(ConfigError) as caught:
        loads('{"game": "draughts", "seed": -1}', "my.json", {"checkpoint.keep": 0}, {"checkpoint.keep": "--keep"})
    assert str(caught.value).split("\n") == [
        "my.json: 3 problems in the configuration",
        '  game = "draughts"',
        f"      allowed: {GAMES.allowed}",
        "  seed = -1",
        "      allowed: a whole number from 0 to 2^63-1",
        "  checkpoint.keep = 0  (from --keep)",
        "      allowed: a whole number from 1 to 2^63-1",
        "All keys and what they take: python run_dist.py --help_config",
    ]


def test_a_contradiction_names_both_sides_and_where_they_come_from():
    (problem,) = problems({"replay": {"window_max": 500}}).values()
    assert problem == (
        "replay.window_min",
        "20000",
        "must not be more than replay.window_max, which is 500",
        "the default",
    )
    (problem,) = problems({}, overrides={"train.ranks": 1025}).values()
    assert problem == (
        "train.ranks",
        "1025",
        "must not be more than train.batch_size, which is 1024 by default",
        "from --set",
    )
    for data in ({"replay": {"window_min": 7, "window_max": 7}}, {"train": {"ranks": 7, "batch_size": 7}}):
        validate({"game": "connect4"} | data, "equal is allowed")


def test_contradictions_are_reported_of_allowed_values_only():
    assert set(problems({"replay": {"window_min": "9", "window_max": 5}})) == {"replay.window_min"}
    assert set(problems({"replay": {"window_min": 9, "window_max": 0}})) == {"replay.window_max"}


def test_a_configuration_without_a_game_is_refused():
    (problem,) = problems("{}").values()
    assert (problem.key, problem.value) == ("game", "(missing)")


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "the file is empty"),
        (" \n\t", "the file is empty"),
        ("[1]", "not an object"),
        ("null", "not an object"),
        ('"game"', "not an object"),
        (
            '{"game": "connect4"\n "seed": 1}',
            "line 2, column 2: Expecting ',' delimiter\n       \"seed\": 1}\n       ^",
        ),
        ('{"game": "connect4",}', "line 1, column "),
        ('{"game": "connect4"} x', "line 1, column 22: Extra data"),
        ("{'game': 1}", "line 1, column 2: "),
        ('{\n// why\n"game": "connect4"}', "line 2, column 1: "),
        ('{"game": "a\tb"}', "line 1, column 12: "),
        ('{"game": ' + "[" * 200_000, "nested too deeply"),
    ],
)
def test_json_that_is_no_object_is_refused(text, said):
    (problem,) = problems(text).values()
    assert problem.key == "" and said in problem.message


def test_a_syntax_error_in_a_long_line_is_shown_around_its_place():
    (problem,) = problems('{"game": "' + "x" * 5000 + '" "seed": 1}').values()
    _, line, mark = problem.message.split("\n")
    assert line[mark.index("^") :] == '"seed": 1}' and len(line) < 120


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e999", "NaN", "-Infinity", "1" * 350])
@pytest.mark.parametrize("section, key", [("train", "batch_size"), ("train", "learning_rate")])
def test_a_number_that_is_too_large_for_any_type_is_refused(section, key, number):
    (problem,) = problems(f'{{"game": "connect4", "{section}": {{"{key}": {number}}}}}').values()
    assert problem.key == f"{section}.{key}" and len(problem.value) <= 60


def test_deeply_nested_values_and_unprintable_keys_are_refused_in_one_block():
    deep = "[" * 900 + "]" * 900
    (problem,) = problems('{"game": "connect4", "seed": ' + deep + "}").values()
    assert problem.key == "seed" and len(problem.value) <= 60
    found = problems({"\ud800": "\ud800", "red\x1b[31m\n": 1, "game": "\ud800"})
    assert set(found) == {"\\ud800", "red\\u001b[31m\\n", "game"}


def test_thousands_of_problems_are_cut_short():
    with pytest.raises(ConfigError) as caught:
        validate({"game": "connect4", "train": {f"k{i}": i for i in range(300)}}, "my.json")
    assert len(caught.value.problems) == 300
    assert len(str(caught.value).split("\n")) == 1 + 2 * 40 + 1 + 1 and "... and 260 more" in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"game": "\xe9"}')
    (tmp_path / "large.json").write_bytes(b" " * 70_000 + LEAST.encode())
    for path, said in [
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "latin.json", "byte 11 is 0xe9"),
        (tmp_path / "large.json", "larger than"),
        ("/dev/zero", "larger than"),
        ("", "No such file"),
        ("a\0b", "null"),
        (tmp_path / "latin.json" / "x", "Not a directory"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(path)
        (problem,) = caught.value.problems
        assert said in problem.message


def test_a_byte_order_mark_is_no_problem(tmp_path):
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + LEAST.encode())
    assert load(tmp_path / "bom.json") == loads(LEAST)


def test_overrides_take_the_place_of_the_files_values(tmp_path):
    path = tmp_path / "my.json"
    path.write_text('{"game": "connect4", "seed": "broken", "train": {"batch_size": 8, "ranks": 2}}')
    config = load(path, {"seed": 5, "train.batch_size": 16, "evaluate.opponents": ["random"], "game": "tictactoe"})
    assert (config.game, config.seed, config.train.batch_size, config.train.ranks) == ("tictactoe", 5, 16, 2)
    assert config.evaluate.opponents == ("random",)
    found = problems({}, overrides={"train": 4, "train.bach_size": 3, "train.ranks.x": 1, "seed": "x"})
    assert {key: problem.source for key, problem in found.items()} == dict.fromkeys(
        ["train", "train.bach_size", "train.ranks.x", "seed"], "from --set"
    )
    assert "did you mean train.batch_size?" in found["train.bach_size"].message


def test_a_whole_number_is_a_number_and_choices_of_two_types_stay_apart():
    config = loads('{"game": "connect4", "search": {"c_puct": 2}, "train": {"ranks": 1, "mixed_precision": true}}')
    assert isinstance(config.search.c_puct, float) and config.search.c_puct == 2.0
    assert config.train.ranks == 1 and config.train.ranks is not True and config.train.mixed_precision is True


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_configurations_hold_no_defaults_and_round_trip(path):
    config = load(path)
    defaults = flat(loads(json.dumps({"game": config.game})))
    written = {
        f"{name}.{key}" for name, part in json.loads(path.read_text()).items() if isinstance(part, dict) for key in part
    }
    assert written == {key for key, value in flat(config).items() if value != defaults[key] and "." in key}
    assert loads(to_json(config)) == config
    assert to_json(loads(to_json(config))) == to_json(config)


def test_four_configurations_are_shipped():
    assert {path.stem for path in CONFIGS.glob("*.json")} >= {"smoke", "tictactoe", "connect4_quick", "connect4"}


def test_the_resolved_json_has_every_key():
    resolved = json.loads(to_json(loads(LEAST)))
    assert {
        f"{name}.{key}" if isinstance(part, dict) else name
        for name, part in resolved.items()
        for key in (part if isinstance(part, dict) else [""])
    } == set(KEYS)


def test_a_configuration_does_not_change():
    config = loads(LEAST)
    with pytest.raises(ValidationError):
        config.train.batch_size = 3
    assert config == loads(LEAST)


def test_every_key_has_a_description():
    for name, key in KEYS.items():
        assert len(key.description) > 15 and key.description.endswith("."), name
        assert (key.default is ...) == (name == "game"), name


def test_the_keys_that_may_change_when_a_run_is_resumed():
    sections = ("exchange", "evaluate", "checkpoint", "storage", "fault", "report")
    single = {
        "iterations",
        "max_hours",
        "callbacks",
        "selfplay.evaluator",
        "network.engine",
        "network.precision",
        "network.cache_bytes",
        "selfplay.num_games",
        "selfplay.parallel_games",
        "selfplay.max_plies",
        "selfplay.max_staleness",
        "selfplay.weights",
        "train.ranks",
        "train.root_host",
        "train.backend",
        "train.batch_size",
        "train.learning_rate",
        "train.mixed_precision",
        "train.bad_steps_max",
        "train.max_steps",
        "train.hours",
        "train.ema_decay",
    }
    for name, key in KEYS.items():
        assert key.may_change == (name in single or name.partition(".")[0] in sections), name


def test_a_run_older_than_network_precision_keeps_its_precision():
    old = json.loads(to_json(loads(LEAST)))
    del old["network"]["precision"]
    assert loads(json.dumps(old)) == loads(LEAST) and loads(LEAST).network.precision == "auto"
    for precision in ("fp32", "bf16"):
        [change] = changes(loads(LEAST), loads(LEAST, overrides={"network.precision": precision}))
        assert (change.key, change.may_change) == ("network.precision", True)


@pytest.mark.parametrize("evaluator", ["uniform", "rollout"])
def test_earlier_versions_named_evaluators_as_engines(evaluator):
    config = loads(json.dumps({"game": "connect4", "network": {"engine": evaluator}}))
    assert (config.network.engine, config.selfplay.evaluator) == ("auto", evaluator)
    assert loads(to_json(config)) == config
    config = loads(LEAST, overrides={"network.engine": evaluator, "selfplay.evaluator": "network"})
    assert config == loads(LEAST)


def test_earlier_versions_counted_the_positions_of_the_cache():
    for entries, expected in ((2**20, loads(LEAST).network.cache_bytes), (0, 0), (1000, 64_000)):
        old = json.dumps({"game": "connect4", "network": {"cache_entries": entries}})
        assert loads(old).network.cache_bytes == expected
        assert loads(LEAST, overrides={"network.cache_entries": entries}).network.cache_bytes == expected
    assert loads(old, overrides={"network.cache_bytes": 7}).network.cache_bytes == 7
    with pytest.raises(ConfigError, match='network.cache_bytes.*"x"'):
        loads(LEAST, overrides={"network.cache_entries": "x"})


def test_changes_lists_each_difference_and_whether_it_is_allowed():
    old = loads(LEAST)
    new = loads(LEAST, overrides={"train.batch_size": 64, "search.c_puct": 2.0, "seed": 1})
    assert changes(old, old) == []
    assert changes(old, new) == [("search.c_puct", 1.75, 2.0, False), ("train.batch_size", 1024, 64, True)]


def test_a_file_of_ones_own_is_looked_for_beside_the_configuration_then_here(tmp_path, monkeypatch):
    """The configuration names it by its whole path then: every rank, and every later start, finds the same one."""
    beside, here = tmp_path / "beside", tmp_path / "here"
    for folder in (beside, here):
        folder.mkdir()
        (folder / "both.py").touch()
    (here / "here.py").touch()
    monkeypatch.chdir(here)
    path = beside / "my.json"
    for written, found in (
        ("both.py:Rules", beside / "both.py"),
        ("here.py:Rules", here / "here.py"),
        ("../here/both.py:Rules", beside / "../here/both.py"),
    ):
        path.write_text(json.dumps({"game": f"{written}(n=3, text='a:b')"}))
        assert load(path).game == f"{found}:Rules(n=3, text='a:b')"
    path.write_text('{"game": "none.py:Rules"}')
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"there is no file {beside}/none.py or {here}/none.py" in str(caught.value)


def test_a_file_that_has_moved_is_no_change_of_the_configuration():
    one, other = (loads(json.dumps({"game": f"{folder}/own.py:Rules(b=1, a=2)"})) for folder in ("/a", "/b/c"))
    assert changes(one, other) == []
    for game in ("/a/own.py:Rules(a=3, b=1)", "/a/own.py:Other(a=2, b=1)", "/a/other.py:Rules(a=2, b=1)"):
        [change] = changes(one, loads(json.dumps({"game": game})))
        assert (change.key, change.may_change) == ("game", False)


def test_a_file_that_cannot_be_read_now_ends_the_start_resumable(tmp_path, monkeypatch):
    """A job that is started again while its file server is away must be started once more."""

    def fail(*_):
        raise OSError(116, "Stale file handle")

    (tmp_path / "my.json").write_text(LEAST)
    monkeypatch.setattr("builtins.open", fail)
    with pytest.raises(NotNow, match="my.json: cannot be read: Stale file handle"):
        load(tmp_path / "my.json")
