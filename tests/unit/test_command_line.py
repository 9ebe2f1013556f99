"""The command line: what it makes of good arguments, and that bad ones raise Refusal and print nothing."""

from pathlib import Path

import pytest

import az_mpi
from az_mpi.config.command_line import HELD_OUT, SHORTCUTS, Arguments, PrintAndExit, parse
from az_mpi.config.load import KEYS, ConfigError, loads
from az_mpi.core.printing import environment_rank
from az_mpi.core.problems import Refusal

FILE = ["--config_file", "configs/smoke.json"]


@pytest.fixture(autouse=True)
def silence(capfd):
    """Fail a test in which anything was printed: every rank parses, one rank prints."""
    yield
    assert capfd.readouterr() == ("", "")


def resolve(*options):
    """Return the Config of the least file and `options`."""
    arguments = parse([*FILE, *options])
    return loads('{"game": "connect4"}', "my.json", arguments.overrides, arguments.sources)


def test_a_configuration_file_alone_gives_the_defaults():
    assert parse(FILE) == Arguments(Path("configs/smoke.json"), Path("runs/smoke"), "train", False, False, {}, {})


def test_every_plain_option_sets_its_field():
    arguments = parse(["--config_file=a.b.json", "--logdir", "/x/y", "--mode", "eval", "--fresh", "--check_config"])
    assert arguments == Arguments(Path("a.b.json"), Path("/x/y"), "eval", True, True, {}, {})


def test_a_fit_holds_out_the_share_that_is_asked_for():
    assert [parse([*FILE, *words]).held_out for words in ([], ["--mode", "fit"])] == [HELD_OUT, HELD_OUT]
    assert [parse([*FILE, "--mode", "fit", "--held_out", share]).held_out for share in ("0", "0.5")] == [0.0, 0.5]


def test_only_training_needs_a_configuration_file():
    for mode in ("eval", "selfplay"):
        arguments = parse(["--mode", mode, "--logdir", "runs/a"])
        assert (arguments.config_file, arguments.logdir) == (None, Path("runs/a"))


def test_a_shortcut_is_the_same_as_set():
    values = {"--learning_rate": "0.5", "--mixed_precision": "false"}
    for option, key in SHORTCUTS.items():
        value = values.get(option, "6")
        assert resolve(option, value) == resolve("--set", f"{key}={value}") != resolve()
        assert parse([*FILE, option, value]).sources == {key: option}


@pytest.mark.parametrize(
    "text, key, value",
    [
        ("game=tictactoe", "game", "tictactoe"),
        ('game="tictactoe"', "game", "tictactoe"),
        ("search.c_puct=2e0", "search.c_puct", 2.0),
        ("train.mixed_precision=auto", "train.mixed_precision", "auto"),
        ("search.reuse_tree=false", "search.reuse_tree", False),
        ('evaluate.opponents=["random"]', "evaluate.opponents", ["random"]),
        ("a.b=c=d", "a.b", "c=d"),
        ("seed=", "seed", ""),
        ("seed=[1", "seed", "[1"),
        ("seed=" + "[" * 100_000, "seed", "[" * 100_000),
    ],
)
def test_the_value_of_set_is_json_or_else_a_word(text, key, value):
    overrides = parse([*FILE, "--set", text]).overrides
    assert overrides == {key: value} and type(overrides[key]) is type(value)


def test_of_several_options_for_a_key_the_last_counts():
    assert resolve("--set", "train.batch_size=4", "--batch_size", "8").train.batch_size == 8
    arguments = parse([*FILE, "--batch_size", "8", "--set", "train.batch_size=4", "--set", "seed=3"])
    assert arguments.overrides == {"train.batch_size": 4, "seed": 3}
    assert arguments.sources == {"train.batch_size": "--set", "seed": "--set"}


# (arguments, what must be said)
BAD_USAGE = [
    ([], "--config_file FILE is needed"),
    (["--mode", "eval"], "or --logdir DIR of an existing run"),
    (["--set", "game=hex", "--np", "a b"], "no option --np"),
    (["--set", "game=hex(size=5)"], "python run_dist.py --config_file configs/smoke.json --set 'game=hex(size=5)'\n"),
    (["--fresh"], "--config_file FILE is needed"),
    ([*FILE, "--mode", "trian"], "'trian'"),
    ([*FILE, "--mode"], "--mode"),
    (["--config_file"], "--config_file"),
    (["--config_file", ""], "--config_file: the name is empty"),
    ([*FILE, "--logdir="], "--logdir: the name is empty"),
    (["--confg_file", "x.json"], "no option --confg_file; did you mean --config_file?"),
    (["--config-file=x.json"], "no option --config-file; did you mean --config_file?"),
    (["--config", "x.json"], "no option --config; did you mean --config_file?"),
    ([*FILE, "--batchsize", "4"], "no option --batchsize; did you mean --batch_size?"),
    ([*FILE, "--check_conf"], "no option --check_conf; did you mean --check_config?"),
    ([*FILE, "--zzzzz"], "no option --zzzzz\n"),
    ([*FILE, "-n", "4"], "no option -n"),
    ([*FILE, "--\x1b[31m"], "no option --\\u001b[31m"),
    (["x.json"], "did you mean --config_file x.json?"),
    ([*FILE, "extra"], '"extra" belongs to no option\n'),
    ([*FILE, " ", "--fresh"], '" " belongs to no option\n  a backslash at the end of a line'),
    ([*FILE, "\t"], '"\\t" belongs to no option\n  a backslash at the end of a line'),
    ([*FILE, "--mixed_precision"], "allowed: auto, true, false\n"),
    ([*FILE, "--mode", "--fresh"], "allowed: train, fit, eval, selfplay\n"),
    ([*FILE, "--fresh=1"], "--fresh"),
    ([*FILE, "--set"], "--set"),
    ([*FILE, "--set", "seed"], '"seed" is not KEY=VALUE'),
    ([*FILE, "--set", "=3"], '"=3" is not KEY=VALUE'),
    ([*FILE, "--set", ""], '"" is not KEY=VALUE'),
    ([*FILE, "--batch_size"], "--batch_size"),
    ([*FILE, "--max_steps", "--fresh"], "--max_steps"),
    ([*FILE, "--epochs", "2"], "for --mode fit alone"),
    ([*FILE, "--held_out", "0.02"], "--held_out are for --mode fit alone"),
    (["--logdir", "a", "--mode", "eval", "--held_out", "0"], "--held_out are for --mode fit alone"),
]


@pytest.mark.parametrize("arguments, said", BAD_USAGE)
def test_arguments_that_cannot_be_used_are_refused(arguments, said):
    with pytest.raises(Refusal) as caught:
        parse(arguments)
    assert said in str(caught.value)
    assert str(caught.value).endswith("\nAll options: python run_dist.py --help")


def test_all_unknown_options_are_named_in_one_error():
    with pytest.raises(Refusal) as caught:
        parse(["--confg_file", "x", "--lgdir", "y"])
    assert "--confg_file" in str(caught.value) and "did you mean --logdir?" in str(caught.value)


@pytest.mark.parametrize(
    "options, key, value, source",
    [
        (["--batch_size", "0"], "train.batch_size", "0", "from --batch_size"),
        (["--batch_size", "many"], "train.batch_size", '"many"', "from --batch_size"),
        (["--max_steps", "-5"], "train.max_steps", "-5", "from --max_steps"),
        (["--max_steps", "[]"], "train.max_steps", "[]", "from --max_steps"),
        (["--num_games=1e3"], "selfplay.num_games", "1000.0", "from --num_games"),
        (["--learning_rate", "nan"], "train.learning_rate", '"nan"', "from --learning_rate"),
        (["--learning_rate", "NaN"], "train.learning_rate", "NaN", "from --learning_rate"),
        (["--mixed_precision", "bf16"], "train.mixed_precision", '"bf16"', "from --mixed_precision"),
        (["--checkpoint_frequency", "0"], "checkpoint.every", "0", "from --checkpoint_frequency"),
        (["--summary_frequency", "null"], "report.summary_frequency", "null", "from --summary_frequency"),
        (["--set", "batch_size=4"], "batch_size", "4", "from --set"),
        (["--set", "train={}"], "train", "{}", "from --set"),
        (["--set", "seed=" + "9" * 5000], "seed", "Infinity", "from --set"),
        (["--set", "game=\udcff"], "game", '"\\udcff"', "from --set"),
    ],
)
def test_a_value_of_an_option_is_checked_like_the_files(options, key, value, source):
    with pytest.raises(ConfigError) as caught:
        resolve(*options)
    (problem,) = caught.value.problems
    assert (problem.key, problem.value, problem.source) == (key, value, source)


def text_of(*arguments):
    with pytest.raises(PrintAndExit) as caught:
        parse(arguments)
    return str(caught.value)


def test_help_has_every_option_and_exit_code():
    text = " ".join(text_of("--help").split())
    for option in [
        *SHORTCUTS,
        "--config_file FILE",
        "--logdir DIR",
        "--mode {train,fit,eval,selfplay}",
        "--fresh",
        "--check_config",
        "--help_config",
        "--set KEY=VALUE",
        "--version",
        "mpirun -n 4",
        "0 done",
        "2 usage or configuration",
        "70 internal error",
        "130 interrupted",
        "batch_size and selfplay.num_games are totals over all ranks",
    ]:
        assert option in text
    assert text_of("-h") == text_of("--help", "--mode", "nonsense") == text_of("--help")


def test_help_config_has_every_key_once():
    lines = text_of("--help_config").split("\n")
    for name, key in KEYS.items():
        (row,) = [line for line in lines if line.split(" ")[0] == name]
        assert row.endswith(" " + key.allowed) and (row.split()[1] == "*") == key.may_change
    assert "train.batch_size *           1024         a whole number from 1 to 2^63-1" in lines


def test_version_prints_the_version():
    assert text_of("--version") == f"az_mpi {az_mpi.__version__}\n"


@pytest.mark.parametrize(
    "variables, rank",
    [
        ({}, 0),
        ({"SLURM_PROCID": "3"}, 3),
        ({"PMI_RANK": "2", "SLURM_PROCID": "0"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "5", "PMIX_RANK": "1", "SLURM_PROCID": "0"}, 5),
        ({"PMIX_RANK": "-1", "SLURM_PROCID": "4"}, 4),
        ({"OMPI_COMM_WORLD_RANK": "x"}, 0),
    ],
)
def test_the_rank_is_read_from_the_launchers_environment(monkeypatch, variables, rank):
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment_rank() == rank
